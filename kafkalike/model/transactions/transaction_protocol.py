"""Transaction protocol: begin, commit, abort and fence the transactions of a transactional id, and clean up after them.

The guarantees rest on the order of the effects (see `kafkalike.model.effects`), which only this module decides. Any
process may stop between any two effects forever, or continue years later.

Three orders matter most. Files of a transaction are removed only after its outcome is a row, and after all topics have
it if the outcome is "committed". A row of an id follows its decision only when all topics have that decision. A topic
gets decisions in the order of their rows, so the number of its last decision shows that it has all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafkalike.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions import roll_forward, rules
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.transaction_views import LostPart


def beginning(
    transactional_id: str, *, timeout_ms: int, client_id: str, after: tuple[int, int] | None = None
) -> Generator[roll_forward.TransactionEffect, Any, txn.TransactionalIdState]:
    """Run `init_transactions`. Return the state of the id with its new epoch.

    Raises:
        ProducerFencedError: see `plan_init`.
    """

    def plan(settled: int) -> roll_forward.Plan:
        def rows(groups: Groups, now_ms: int) -> txn.Entries | None:
            return rules.plan_init(
                groups,
                transactional_id,
                settled=settled,
                timeout_ms=timeout_ms,
                client_id=client_id,
                now_ms=now_ms,
                after=after,
            )

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "begin")
    if made is None:
        assert before is not None
        return before
    if before is not None:
        yield from roll_forward.Remove(before.producer_id, before.epoch)
    return made


def continuing(
    transactional_id: str, ended: txn.TransactionAttempt
) -> Generator[roll_forward.TransactionEffect, Any, txn.TransactionalIdState]:
    """Give the producer of an ended transaction its next epoch. Return the state of the id with it.

    Raises:
        ProducerFencedError, InvalidProducerEpochError: another producer has taken the id.
    """

    def plan(settled: int) -> roll_forward.Plan:
        def rows(groups: Groups, now_ms: int) -> txn.Entries | None:
            return rules.plan_next_epoch(groups, transactional_id, ended, settled=settled, now_ms=now_ms)

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "continue")
    assert before is not None
    if made is None:
        return before
    yield from roll_forward.Remove(before.producer_id, before.epoch)
    return made


def committing(
    wanted: rules.CommitRequest,
) -> Generator[roll_forward.TransactionEffect, Any, tuple[txn.CommittedTransaction, dict[str, Appended]]]:
    """Run `commit_transaction`. Return the decision, and its place by topic.

    Raises: see `TransactionSession.commit`.
    """
    known, committed = yield from deciding(wanted)
    places = yield from roll_forward.finishing(known, committed)
    return committed, places


def deciding(
    wanted: rules.CommitRequest,
) -> Generator[roll_forward.TransactionEffect, Any, tuple[Groups, txn.CommittedTransaction]]:
    """Write the decision, unless it is there. Return the groups' table after it, and the decision with its parts."""
    topics: Mapping[str, str] = {}
    if wanted.parts or any(wanted.offsets.values()):
        topics = yield from roll_forward.LookAtTopics()
    applied: dict[txn.TopicLife, int | None] = {}
    for part in wanted.parts:
        applied[part.topic] = yield from roll_forward.LookAtTopic(part.topic, fresh=False)
    decided: list[txn.CommittedTransaction] = []

    def plan(groups: Groups, now_ms: int) -> txn.Entries | None:
        for topic, number in applied.items():
            roll_forward.check_not_behind(groups, topic, number or 0)
        made = rules.plan_commit(groups, wanted, topics, now_ms)
        if made is None:
            found = rules.committed_as(groups, wanted.transactional_id, wanted.attempt)
        else:
            assert made.standing is not None
            found = made.standing.committed
        assert found is not None
        decided[:] = [found]
        return made

    groups = yield from roll_forward.Write(plan, "commit")
    return groups, replace(decided[0], parts=wanted.parts)


def aborting(
    transactional_id: str, attempt: txn.TransactionAttempt, *, settled: int, in_doubt: bool
) -> Generator[roll_forward.TransactionEffect, Any, None]:
    """Run `abort_transaction`.

    Raises: see `TransactionSession.abort`.
    """
    try:
        yield from roll_forward.Write(
            lambda groups, now_ms: rules.plan_abort(
                groups, transactional_id, attempt, settled=settled, in_doubt=in_doubt, now_ms=now_ms
            ),
            "abort",
        )
    except (ProducerFencedError, InvalidProducerEpochError):
        # The transaction has ended. If it was committed, all topics have it, because the epoch rose after that.
        yield from roll_forward.Remove(*attempt)
        raise
    yield from roll_forward.Remove(*attempt)


def fencing(
    transactional_id: str, why: txn.Why, only: txn.TransactionAttempt | None = None
) -> Generator[roll_forward.TransactionEffect, Any, txn.TransactionalIdState | None]:
    """Fence a producer, and abort its open transaction; see `plan_fence`. Return the new state of the id.

    With `only`, return None if that transaction was not open any more.
    """

    def plan(settled: int) -> roll_forward.Plan:
        def rows(groups: Groups, now_ms: int) -> txn.Entries | None:
            return rules.plan_fence(groups, transactional_id, why=why, settled=settled, now_ms=now_ms, only=only)

        return rows

    before, made = yield from _taking_over(transactional_id, plan, "fence")
    if made is not None and before is not None:
        yield from roll_forward.Remove(before.producer_id, before.epoch)
    return made


def _taking_over(
    transactional_id: str, plan: Callable[[int], roll_forward.Plan], step: str
) -> Generator[
    roll_forward.TransactionEffect, Any, tuple[txn.TransactionalIdState | None, txn.TransactionalIdState | None]
]:
    """Settle the id's decision and write its next row; repeat if it has decided more meanwhile.

    Returns:
        The states before and after; None if nothing was written.
    """
    while True:
        known = yield from roll_forward.LookAtGroups()
        settled = yield from _settled(known, transactional_id)
        seen: list[tuple[txn.TransactionalIdState | None, txn.Entries | None]] = []
        rows = plan(settled)

        def noted(
            groups: Groups, now_ms: int, rows: roll_forward.Plan = rows, seen: list[Any] = seen
        ) -> txn.Entries | None:
            made = rows(groups, now_ms)
            seen[:] = [(groups.transactions.get(transactional_id), made)]
            return made

        try:
            yield from roll_forward.Write(noted, step)
        except rules.UnsettledError:
            continue
        ((before, made),) = seen
        return before, None if made is None else made.standing


def _settled(known: Groups, transactional_id: str) -> Generator[roll_forward.TransactionEffect, Any, int]:
    """Bring an id's decision into all topics and return its number; 0 if there is nothing to bring."""
    standing = known.transactions.get(transactional_id)
    unsettled = None if standing is None else standing.unsettled
    if unsettled is None:
        return 0
    yield from roll_forward.finishing(known, unsettled)
    return unsettled.seq


def forgetting(transactional_id: str, settled: int) -> Generator[roll_forward.TransactionEffect, Any, None]:
    """Delete an id that its owner does not use again, unless another process has used it meanwhile.

    Args:
        transactional_id: the id.
        settled: number of its last decision, which is in all topics; 0 for none.
    """

    def rows(groups: Groups, now_ms: int) -> txn.Entries | None:
        return rules.plan_forget(groups, transactional_id, settled=settled, expiration_ms=0, now_ms=now_ms)

    try:
        yield from roll_forward.Write(rows, "forget")
    except rules.UnsettledError:
        return


def maintaining(expiration_ms: int, now_ms: int) -> Generator[roll_forward.TransactionEffect, Any, list[KafkaError]]:
    """Run maintenance: settle decisions, abort expired transactions, delete unused ids, remove files.

    Args:
        expiration_ms: `transactional.id.expiration.ms`.
        now_ms: the time.

    Returns:
        The errors of failed steps.
    """
    # List the files first, so that none of them belongs to a transaction that begins after the read of the table.
    folders: Sequence[txn.StagedFolder] = yield from roll_forward.ListFolders()
    known: Groups = yield from roll_forward.LookAtGroups()
    problems: list[KafkaError] = []
    settled = yield from _settling_all(known, problems)
    names = {standing.producer_id: name for name, standing in known.transactions.items()}
    protocols: list[roll_forward.TransactionProtocol] = []
    for folder in folders:
        name = names.get(folder.attempt.producer_id)
        standing = None if name is None else known.transactions[name]
        if name is not None and standing is not None and rules.is_open(standing, folder.attempt):
            if folder.age_ms > standing.timeout_ms:
                protocols.append(fencing(name, txn.Why.TIMEOUT, folder.attempt))
        elif standing is None or is_over(standing, folder.attempt, settled):
            yield from roll_forward.Remove(*folder.attempt)
    opened = {folder.attempt.producer_id for folder in folders}
    for name, standing in known.transactions.items():
        # An id with files is in use, or its transaction is aborted first.
        if rules.expired(standing, expiration_ms, now_ms) and standing.producer_id not in opened:
            protocols.append(_forgetting(name, standing, settled, expiration_ms))
    results = yield from roll_forward.Beside(protocols)
    return [*problems, *(result for result in results if isinstance(result, KafkaError))]


def is_over(standing: txn.TransactionalIdState, attempt: txn.TransactionAttempt, settled: Mapping[int, bool]) -> bool:
    """Return whether the files of a transaction can be removed.

    Args:
        standing: state of its id.
        attempt: the transaction; not open.
        settled: numbers of decisions, with whether all topics have them.
    """
    unsettled = standing.unsettled
    if unsettled is not None and unsettled.attempt == attempt:
        return settled.get(unsettled.seq, False)
    # A later epoch than the known one began after the read.
    return (attempt.producer_id, attempt.epoch) <= (standing.producer_id, standing.epoch)


def _settling_all(
    known: Groups, problems: list[KafkaError]
) -> Generator[roll_forward.TransactionEffect, Any, dict[int, bool]]:
    """Bring all decisions into their topics. Return by number whether each is settled."""
    decisions = [d for standing in known.transactions.values() if (d := standing.unsettled) is not None]
    topics = sorted({part.topic for decision in decisions for part in decision.parts})
    results = yield from roll_forward.Beside([roll_forward.rolling(topic, known, known.seq) for topic in topics])
    failed: set[txn.TopicLife] = set()
    for topic, result in zip(topics, results, strict=True):
        if isinstance(result, KafkaError):
            failed.add(topic)
            problems.append(result)
    return {d.seq: failed.isdisjoint(part.topic for part in d.parts) for d in decisions}


def _forgetting(
    name: str, standing: txn.TransactionalIdState, settled: Mapping[int, bool], expiration_ms: int
) -> Generator[roll_forward.TransactionEffect, Any, None]:
    unsettled = standing.unsettled
    if unsettled is not None and not settled[unsettled.seq]:
        return
    number = 0 if unsettled is None else unsettled.seq
    try:
        yield from roll_forward.Write(
            lambda groups, now_ms: rules.plan_forget(
                groups, name, settled=number, expiration_ms=expiration_ms, now_ms=now_ms
            ),
            "forget",
        )
    except rules.UnsettledError:
        # The id has just been used.
        return


def leaving_out(lost: LostPart) -> Generator[roll_forward.TransactionEffect, Any, bool]:
    """Remove a topic from a decision whose records for it are lost. Return whether it was still part of it."""
    done: list[bool] = []

    def plan(groups: Groups, now_ms: int) -> txn.Entries | None:
        made = rules.plan_drop(groups, lost.transactional_id, lost.seq, lost.topic_id, now_ms)
        done[:] = [made is not None]
        return made

    yield from roll_forward.Write(plan, "leave_out")
    return done[0]
