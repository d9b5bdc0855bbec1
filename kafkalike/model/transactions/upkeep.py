"""Upkeep: all transactional ids and staged files in, the effects of maintenance and of a repair out.

Files go last: those of a committed transaction when all topics have it, those of another one after a row has ended it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from kafkalike.errors import KafkaError
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.roll_forward import rolling
from kafkalike.model.transactions.rules import UnsettledError, expired, is_open, plan_drop, plan_forget
from kafkalike.model.transactions.transaction_effects import (
    Beside,
    ListFolders,
    LookAtGroups,
    Remove,
    TransactionEffect,
    TransactionProtocol,
    Write,
)
from kafkalike.model.transactions.transaction_protocol import fencing
from kafkalike.model.transactions.transaction_views import LostPart
from kafkalike.model.transactions.transactional_id import (
    Entries,
    StagedFolder,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    Why,
)


def maintaining(expiration_ms: int, now_ms: int) -> Generator[TransactionEffect, Any, list[KafkaError]]:
    """What maintenance does: settle, abort what hangs, forget ids, remove files.

    Args:
        expiration_ms: `transactional.id.expiration.ms`.
        now_ms: the time.

    Returns:
        What could not be done.
    """
    # The files first: what was begun after this look at them is none of theirs.
    folders: Sequence[StagedFolder] = yield from ListFolders()
    known: Groups = yield from LookAtGroups()
    problems: list[KafkaError] = []
    settled = yield from _settling_all(known, problems)
    names = {standing.producer_id: name for name, standing in known.transactions.items()}
    protocols: list[TransactionProtocol] = []
    for folder in folders:
        name = names.get(folder.attempt.producer_id)
        standing = None if name is None else known.transactions[name]
        if name is not None and standing is not None and is_open(standing, folder.attempt):
            if folder.age_ms > standing.timeout_ms:
                protocols.append(fencing(name, Why.TIMEOUT, folder.attempt))
        elif standing is None or is_over(standing, folder.attempt, settled):
            yield from Remove(*folder.attempt)
    opened = {folder.attempt.producer_id for folder in folders}
    for name, standing in known.transactions.items():
        # One whose files are there is used, or will be aborted first.
        if expired(standing, expiration_ms, now_ms) and standing.producer_id not in opened:
            protocols.append(_forgetting(name, standing, settled, expiration_ms))
    results = yield from Beside(protocols)
    return [*problems, *(result for result in results if isinstance(result, KafkaError))]


def is_over(standing: TransactionalIdState, attempt: TransactionAttempt, settled: Mapping[int, bool]) -> bool:
    """Whether nobody needs the files of a transaction any more.

    Args:
        standing: how its id stands.
        attempt: the transaction; not open.
        settled: numbers of decisions that were seen to be in all topics.
    """
    unsettled = standing.unsettled
    if unsettled is not None and unsettled.attempt == attempt:
        return settled.get(unsettled.seq, False)
    # A later epoch than what is known: begun after the look.
    return (attempt.producer_id, attempt.epoch) <= (standing.producer_id, standing.epoch)


def _settling_all(known: Groups, problems: list[KafkaError]) -> Generator[TransactionEffect, Any, dict[int, bool]]:
    """Bring all decisions into their topics. Returns which of them are settled, by number."""
    decisions = [d for standing in known.transactions.values() if (d := standing.unsettled) is not None]
    topics = sorted({part.topic for decision in decisions for part in decision.parts})
    results = yield from Beside([rolling(topic, known, known.seq) for topic in topics])
    failed: set[TopicLife] = set()
    for topic, result in zip(topics, results, strict=True):
        if isinstance(result, KafkaError):
            failed.add(topic)
            problems.append(result)
    return {d.seq: failed.isdisjoint(part.topic for part in d.parts) for d in decisions}


def _forgetting(
    name: str, standing: TransactionalIdState, settled: Mapping[int, bool], expiration_ms: int
) -> Generator[TransactionEffect, Any, None]:
    unsettled = standing.unsettled
    if unsettled is not None and not settled[unsettled.seq]:
        return
    number = 0 if unsettled is None else unsettled.seq
    try:
        yield from Write(
            lambda groups, now_ms: plan_forget(
                groups, name, settled=number, expiration_ms=expiration_ms, now_ms=now_ms
            ),
            "forget",
        )
    except UnsettledError:
        # It was used just now.
        return


def leaving_out(lost: LostPart) -> Generator[TransactionEffect, Any, bool]:
    """Take a topic out of a decision whose records for it are lost. Returns whether it was still in it."""
    done: list[bool] = []

    def plan(groups: Groups, now_ms: int) -> Entries | None:
        made = plan_drop(groups, lost.transactional_id, lost.seq, lost.topic_id, now_ms)
        done[:] = [made is not None]
        return made

    yield from Write(plan, "leave_out")
    return done[0]
