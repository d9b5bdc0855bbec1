"""Roll forward: bring decisions of transactions into all of their topics; and the effects that the protocols yield.

Any process rolls forward what it finds. A topic gets decisions in the order of their rows, so the number of its last
one tells that it has all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalike.errors import KafkaError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.model.effects import Effect
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.transaction_views import PendingDecision, TopicCut, due_in
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFolder,
    TopicLife,
    TransactionPart,
)


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


@dataclass(frozen=True, slots=True)
class LookAtGroups(Effect[Groups]):
    """Look at the groups' table. Comes to `Groups`."""


@dataclass(frozen=True, slots=True)
class LookAtTopics(Effect[Mapping[str, str]]):
    """Look at the cluster's topics. Comes to their ids by name."""


Plan = Callable[[Groups, int], "Entries | None"]
"""Rows of the groups' table and a time, ms; None when nothing is to be written. It may be called several times."""


@dataclass(frozen=True, slots=True)
class Write(Effect[Groups]):
    """Change the groups' table by a plan of what it is then. Comes to `Groups`, after it.

    What the plan raises comes out, and nothing is written then.
    """

    plan: Plan
    step: str
    """What for: `begin`, `commit`, `abort`, `fence`, `forget` or `leave_out`."""


@dataclass(frozen=True, slots=True)
class LookAtTopic(Effect[int | None]):
    """Look at a topic's table. Comes to the number of the last decision that it has, or None when the topic is gone."""

    topic: TopicLife
    fresh: bool = True
    """False: what was seen before will do, which is the same number or a lower one."""


@dataclass(frozen=True, slots=True)
class Apply(Effect[Appended | None]):
    """Append the records of a decision, unless the topic has it or a later one. Comes to `Appended`; None: it is gone.

    The table's version says which decision it brings: no two of them bring one.
    """

    committed: CommittedTransaction
    part: TransactionPart


@dataclass(frozen=True, slots=True)
class Find(Effect[Appended | None]):
    """Where the records of a decision are that the topic has. Comes to `Appended`."""

    committed: CommittedTransaction
    part: TransactionPart


@dataclass(frozen=True, slots=True)
class CutAt(Effect[TopicCut | None]):
    """The newest version of a topic that has no decision after one. Comes to `TopicCut`, or None: the topic is gone."""

    topic: TopicLife
    seq: int


@dataclass(frozen=True, slots=True)
class Beside(Effect[list[Any]]):
    """Carry out protocols, side by side. Comes to what each has returned, or the `KafkaError` that it has raised."""

    protocols: Sequence[TransactionProtocol]


@dataclass(frozen=True, slots=True)
class Remove(Effect[None]):
    """Remove the staged files of transactions. Failing is harmless. Comes to nothing.

    Without a number, those of all transactions of the epoch.
    """

    producer_id: int
    epoch: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ListFolders(Effect[Sequence[StagedFolder]]):
    """Look which transactions have staged files. Comes to a list of `Folder`."""


TransactionEffect = (
    LookAtGroups | LookAtTopics | Write | LookAtTopic | Apply | Find | CutAt | Beside | Remove | ListFolders
)
TransactionProtocol = Generator[TransactionEffect, Any, Any]
