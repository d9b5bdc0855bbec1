"""Transaction protocol: begin, commit, abort and fence the transactions of a transactional id.

The guarantees rest on the order of the effects, which stands here; see `kafkalike.model.effects`. Any process may stop
between any two effects for ever, or go on years later.

Three orders matter most. Files of a transaction are removed only after its outcome is a row, and after all topics have
it if that is "committed". A row of an id follows its decision only when that is in all topics. And a topic gets
decisions in the order of their rows: so the number of the last one says that it has all before it.
`settling` brings decisions into topics, and `upkeep` clears what nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

from kafkalike.errors import InvalidProducerEpochError, ProducerFencedError
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.roll_forward import check_not_behind, finishing
from kafkalike.model.transactions.rules import (
    CommitRequest,
    UnsettledError,
    committed_as,
    plan_abort,
    plan_commit,
    plan_fence,
    plan_forget,
    plan_init,
)
from kafkalike.model.transactions.transaction_effects import (
    LookAtGroups,
    LookAtTopic,
    LookAtTopics,
    Plan,
    Remove,
    TransactionEffect,
    Write,
)
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    Why,
)


def beginning(
    transactional_id: str, *, timeout_ms: int, client_id: str
) -> Generator[TransactionEffect, Any, TransactionalIdState]:
    """What `init_transactions` does. Returns how the id stands, with the new epoch."""

    def plan(settled: int) -> Plan:
        def rows(groups: Groups, now_ms: int) -> Entries:
            return plan_init(
                groups, transactional_id, settled=settled, timeout_ms=timeout_ms, client_id=client_id, now_ms=now_ms
            )

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "begin")
    assert made is not None
    if before is not None:
        yield from Remove(before.producer_id, before.epoch)
    return made


def committing(
    wanted: CommitRequest,
) -> Generator[TransactionEffect, Any, tuple[CommittedTransaction, dict[str, Appended]]]:
    """What `commit_transaction` does. Returns the decision, and its place by topic.

    Raises: see `TransactionSession.commit`.
    """
    known, committed = yield from deciding(wanted)
    places = yield from finishing(known, committed)
    return committed, places


def deciding(wanted: CommitRequest) -> Generator[TransactionEffect, Any, tuple[Groups, CommittedTransaction]]:
    """Write the decision, unless it is there. Returns the groups' table after it, and the decision with its parts."""
    topics: Mapping[str, str] = {}
    if wanted.parts or any(wanted.offsets.values()):
        topics = yield from LookAtTopics()
    applied: dict[TopicLife, int | None] = {}
    for part in wanted.parts:
        applied[part.topic] = yield from LookAtTopic(part.topic, fresh=False)
    decided: list[CommittedTransaction] = []

    def plan(groups: Groups, now_ms: int) -> Entries | None:
        for topic, number in applied.items():
            check_not_behind(groups, topic, number or 0)
        made = plan_commit(groups, wanted, topics, now_ms)
        if made is None:
            found = committed_as(groups, wanted.transactional_id, wanted.attempt)
        else:
            assert made.standing is not None
            found = made.standing.committed
        assert found is not None
        decided[:] = [found]
        return made

    groups = yield from Write(plan, "commit")
    return groups, replace(decided[0], parts=wanted.parts)


def aborting(
    transactional_id: str, attempt: TransactionAttempt, *, settled: int, in_doubt: bool
) -> Generator[TransactionEffect, Any, None]:
    """What `abort_transaction` does.

    Raises: see `TransactionSession.abort`.
    """
    try:
        yield from Write(
            lambda groups, now_ms: plan_abort(
                groups, transactional_id, attempt, settled=settled, in_doubt=in_doubt, now_ms=now_ms
            ),
            "abort",
        )
    except (ProducerFencedError, InvalidProducerEpochError):
        # It is over, one way or the other: if it was committed, all topics have it, as the epoch rose after that.
        yield from Remove(*attempt)
        raise
    yield from Remove(*attempt)


def fencing(
    transactional_id: str, why: Why, only: TransactionAttempt | None = None
) -> Generator[TransactionEffect, Any, TransactionalIdState | None]:
    """Shut a producer out, and abort what is open; see `plan_fence`. Returns how the id stands then.

    With `only`, None when the transaction that is meant was not open any more.
    """

    def plan(settled: int) -> Plan:
        def rows(groups: Groups, now_ms: int) -> Entries | None:
            return plan_fence(groups, transactional_id, why=why, settled=settled, now_ms=now_ms, only=only)

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "fence")
    if made is not None and before is not None:
        yield from Remove(before.producer_id, before.epoch)
    return made


def _taking_over(
    transactional_id: str, plan: Callable[[int], Plan], step: str
) -> Generator[TransactionEffect, Any, tuple[TransactionalIdState | None, TransactionalIdState | None]]:
    """Settle what an id has decided, and write the next row of it; again when it has decided more meanwhile.

    Returns:
        How it stood before, and how it does now; None where nothing was written.
    """
    while True:
        known = yield from LookAtGroups()
        settled = yield from _settled(known, transactional_id)
        seen: list[tuple[TransactionalIdState | None, Entries | None]] = []
        rows = plan(settled)

        def noted(groups: Groups, now_ms: int, rows: Plan = rows, seen: list[Any] = seen) -> Entries | None:
            made = rows(groups, now_ms)
            seen[:] = [(groups.transactions.get(transactional_id), made)]
            return made

        try:
            yield from Write(noted, step)
        except UnsettledError:
            continue
        ((before, made),) = seen
        return before, None if made is None else made.standing


def _settled(known: Groups, transactional_id: str) -> Generator[TransactionEffect, Any, int]:
    """Bring what an id has decided into all topics, and returns its number; 0 where there is nothing to bring."""
    standing = known.transactions.get(transactional_id)
    unsettled = None if standing is None else standing.unsettled
    if unsettled is None:
        return 0
    yield from finishing(known, unsettled)
    return unsettled.seq


def forgetting(transactional_id: str, settled: int) -> Generator[TransactionEffect, Any, None]:
    """Forget an id that is not used again; nothing where it was used by somebody else meanwhile.

    Args:
        transactional_id: which one.
        settled: number of its last decision, which is in all topics; 0 for none.
    """

    def rows(groups: Groups, now_ms: int) -> Entries | None:
        return plan_forget(groups, transactional_id, settled=settled, expiration_ms=0, now_ms=now_ms)

    try:
        yield from Write(rows, "forget")
    except UnsettledError:
        return
