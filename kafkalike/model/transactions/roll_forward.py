"""Settling: decisions in, the effects out that bring them into all of their topics, by whoever comes.

A topic gets decisions in the order of their rows: so the number of the last one says that it has all before it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from kafkalike.errors import KafkaError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.pending_decisions import PendingDecision, due_in
from kafkalike.model.transactions.transaction_effects import (
    Apply,
    Beside,
    CutAt,
    Find,
    LookAtGroups,
    LookAtTopic,
    Remove,
    TransactionEffect,
)
from kafkalike.model.transactions.transaction_views import TopicCut
from kafkalike.model.transactions.transactional_id import CommittedTransaction, TopicLife, TransactionPart


def pending(groups: Groups, topic_id: str, applied: int, upto: int) -> Sequence[PendingDecision]:
    """Decisions that a topic does not have, in their order.

    Args:
        groups: the table at row `upto` or later.
        topic_id: which topic.
        applied: number of the last decision that it has.
        upto: number of the last one that is wanted.

    Returns:
        All that are missing: an id's row is only followed by another one when its decision is in all topics.
    """
    return due_in(groups.unsettled, topic_id).between(applied, upto)


def check_not_behind(groups: Groups, topic: TopicLife, applied: int) -> None:
    """Refuse transactions where a topic has one that the groups' table cannot have numbered.

    Raises:
        LogCorruptError: that table was removed or rewound: its next numbers would be taken for done.
    """
    if applied > groups.seq:
        raise LogCorruptError(
            f"{topic.name} has transaction {applied}, and the groups' table ends at row {groups.seq}: it was removed "
            "or rewound; transactions cannot be brought into the topic"
        )


def looking(topic: TopicLife) -> Generator[TransactionEffect, Any, int | None]:
    """Look which decision a topic has last; None when it is gone."""
    last: int | None = yield from LookAtTopic(topic)
    return last


def rolling(
    topic: TopicLife, known: Groups, upto: int, wanted: int = 0
) -> Generator[TransactionEffect, Any, Appended | None]:
    """Bring decisions into a topic, all up to one, in their order.

    Args:
        topic: which one.
        known: the groups' table at row `upto` or later.
        upto: number of the last decision that is wanted.
        wanted: number of the decision whose place is asked for; 0 for none.

    Returns:
        That place; None when the topic is gone, or nothing is asked for.
    """
    applied = yield from LookAtTopic(topic, fresh=False)
    todo = _missing(known, topic, applied, upto)
    if any(due.seq != wanted for due in todo):
        # Others' decisions are most probably there, and reading their files would be in vain.
        applied = yield from LookAtTopic(topic)
        todo = _missing(known, topic, applied, upto)
    if applied is None:
        return None
    if applied > known.seq:
        check_not_behind((yield from LookAtGroups()), topic, applied)
    place: Appended | None = None
    for due in todo:
        done = yield from Apply(due.committed, due.part)
        if done is None:
            return None
        if due.seq == wanted:
            place = done
    return place


def _missing(known: Groups, topic: TopicLife, applied: int | None, upto: int) -> Sequence[PendingDecision]:
    return () if applied is None else pending(known, topic.topic_id, applied, upto)


def settling(known: Groups, committed: CommittedTransaction) -> Generator[TransactionEffect, Any, dict[str, Appended]]:
    """Bring a decision into all of its topics.

    Returns:
        Its place by topic; those that are gone are missing.

    Raises:
        KafkaError: what went wrong at the first topic that failed; all have been tried.
    """
    results = yield from Beside([_settling(known, committed, part) for part in committed.parts])
    for result in results:
        if isinstance(result, KafkaError):
            raise result
    return {part.topic.name: place for part, place in zip(committed.parts, results, strict=True) if place is not None}


def _settling(
    known: Groups, committed: CommittedTransaction, part: TransactionPart
) -> Generator[TransactionEffect, Any, Appended | None]:
    place = yield from rolling(part.topic, known, committed.seq, committed.seq)
    if place is None:
        # The topic is gone or was left out of it, or somebody else was there first.
        applied = yield from LookAtTopic(part.topic)
        if applied is not None and applied >= committed.seq:
            place = yield from Find(committed, part)
    return place


def finishing(known: Groups, committed: CommittedTransaction) -> Generator[TransactionEffect, Any, dict[str, Appended]]:
    """Bring a decision into all of its topics, then remove its files. Returns its place by topic."""
    places = yield from settling(known, committed)
    yield from Remove(*committed.attempt)
    return places


def helping(late: Mapping[TopicLife, int], known: Groups) -> Generator[TransactionEffect, Any, list[KafkaError]]:
    """Bring decisions into some topics.

    Args:
        late: by topic, the number of the last one that is wanted.
        known: the groups' table, at the highest of them or later.

    Returns:
        What went wrong.
    """
    results = yield from Beside([rolling(topic, known, upto) for topic, upto in late.items()])
    return [result for result in results if isinstance(result, KafkaError)]


def cutting(topics: Sequence[TopicLife]) -> Generator[TransactionEffect, Any, tuple[Groups, list[TopicCut]]]:
    """One moment of several topics. Returns the groups' table then, and the topics, in order.

    What was decided by then comes into all of them first. What was decided later may be there already; the version
    before it is the one.

    Raises:
        UnknownTopicOrPartitionError: one of the topics is gone.
        KafkaError: what went wrong at the first topic that failed.
    """
    known: Groups = yield from LookAtGroups()
    found = yield from Beside([_cutting(topic, known) for topic in topics])
    for topic, cut in zip(topics, found, strict=True):
        if isinstance(cut, KafkaError):
            raise cut
        if cut is None:
            raise UnknownTopicOrPartitionError(f"topic {topic.name!r} was deleted meanwhile")
    return known, found


def _cutting(topic: TopicLife, known: Groups) -> Generator[TransactionEffect, Any, TopicCut | None]:
    yield from rolling(topic, known, known.seq)
    cut = yield from CutAt(topic, known.seq)
    return cut
