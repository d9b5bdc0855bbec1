"""Roll forward: bring decisions of transactions into all of their topics; and the effects that the protocols yield.

Any process rolls forward the pending decisions that it finds. A topic gets decisions in the order of their rows, so the
number of its last decision shows that it has all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalike.errors import KafkaError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.model.effects import Effect
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions import transactional_id as txn
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.transaction_views import PendingDecision, TopicCut, due_in


def pending(groups: Groups, topic_id: str, applied: int, upto: int) -> Sequence[PendingDecision]:
    """Return the decisions that a topic does not have, in their order.

    Args:
        groups: the table at row `upto` or later.
        topic_id: id of the topic.
        applied: number of the last decision that it has.
        upto: number of the last wanted decision.

    Returns:
        All missing decisions, because an id's row is only replaced when its decision is in all topics.
    """
    return due_in(groups.unsettled, topic_id).between(applied, upto)


def check_not_behind(groups: Groups, topic: txn.TopicLife, applied: int) -> None:
    """Reject transactions if a topic has a decision that the groups' table cannot have numbered.

    Raises:
        LogCorruptError: the table was removed or rewound, so topics would skip its next numbers.
    """
    if applied > groups.seq:
        raise LogCorruptError(
            f"{topic.name} has transaction {applied}, and the groups' table ends at row {groups.seq}: it was removed "
            "or rewound; transactions cannot be brought into the topic"
        )


def looking(topic: txn.TopicLife) -> Generator[TransactionEffect, Any, int | None]:
    """Return the number of the last decision of a topic; None if the topic is deleted."""
    last: int | None = yield from LookAtTopic(topic)
    return last


def rolling(
    topic: txn.TopicLife, known: Groups, upto: int, wanted: int = 0
) -> Generator[TransactionEffect, Any, Appended | None]:
    """Bring decisions into a topic in their order.

    Args:
        topic: the topic.
        known: the groups' table at row `upto` or later.
        upto: number of the last wanted decision.
        wanted: number of the decision whose place to return; 0 for none.

    Returns:
        That place; None if the topic is deleted, or for no decision.
    """
    applied = yield from LookAtTopic(topic, fresh=False)
    todo = _missing(known, topic, applied, upto)
    if any(due.seq != wanted for due in todo):
        # Other producers' decisions are probably there already, and reading their files would be wasted.
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


def _missing(known: Groups, topic: txn.TopicLife, applied: int | None, upto: int) -> Sequence[PendingDecision]:
    return () if applied is None else pending(known, topic.topic_id, applied, upto)


def settling(
    known: Groups, committed: txn.CommittedTransaction
) -> Generator[TransactionEffect, Any, dict[str, Appended]]:
    """Bring a decision into all of its topics.

    Returns:
        Its place by topic; deleted topics are missing.

    Raises:
        KafkaError: the error of the first topic that failed; all topics have been tried.
    """
    results = yield from Beside([_settling(known, committed, part) for part in committed.parts])
    for result in results:
        if isinstance(result, KafkaError):
            raise result
    return {part.topic.name: place for part, place in zip(committed.parts, results, strict=True) if place is not None}


def _settling(
    known: Groups, committed: txn.CommittedTransaction, part: txn.TransactionPart
) -> Generator[TransactionEffect, Any, Appended | None]:
    place = yield from rolling(part.topic, known, committed.seq, committed.seq)
    if place is None:
        # The topic was deleted or left out of the decision, or another process was first.
        applied = yield from LookAtTopic(part.topic)
        if applied is not None and applied >= committed.seq:
            place = yield from Find(committed, part)
    return place


def finishing(
    known: Groups, committed: txn.CommittedTransaction
) -> Generator[TransactionEffect, Any, dict[str, Appended]]:
    """Bring a decision into all of its topics, then remove its files. Return its place by topic."""
    places = yield from settling(known, committed)
    yield from Remove(*committed.attempt)
    return places


def helping(late: Mapping[txn.TopicLife, int], known: Groups) -> Generator[TransactionEffect, Any, list[KafkaError]]:
    """Bring decisions into some topics.

    Args:
        late: by topic, the number of the last wanted decision.
        known: the groups' table, at the highest of them or later.

    Returns:
        The errors.
    """
    results = yield from Beside([rolling(topic, known, upto) for topic, upto in late.items()])
    return [result for result in results if isinstance(result, KafkaError)]


def cutting(topics: Sequence[txn.TopicLife]) -> Generator[TransactionEffect, Any, tuple[Groups, list[TopicCut]]]:
    """Find consistent versions of several topics. Return the groups' table and the topics, in order.

    All decisions of that table are first brought into the topics. A topic may already have later decisions; then the
    version before them is taken.

    Raises:
        UnknownTopicOrPartitionError: a topic was deleted.
        KafkaError: the error of the first topic that failed.
    """
    known: Groups = yield from LookAtGroups()
    found = yield from Beside([_cutting(topic, known) for topic in topics])
    for topic, cut in zip(topics, found, strict=True):
        if isinstance(cut, KafkaError):
            raise cut
        if cut is None:
            raise UnknownTopicOrPartitionError(f"topic {topic.name!r} was deleted meanwhile")
    return known, found


def _cutting(topic: txn.TopicLife, known: Groups) -> Generator[TransactionEffect, Any, TopicCut | None]:
    yield from rolling(topic, known, known.seq)
    cut = yield from CutAt(topic, known.seq)
    return cut


@dataclass(frozen=True, slots=True)
class LookAtGroups(Effect[Groups]):
    """Read the groups' table. The answer is `Groups`."""


@dataclass(frozen=True, slots=True)
class LookAtTopics(Effect[Mapping[str, str]]):
    """Read the cluster's topics. The answer is their ids by name."""


Plan = Callable[[Groups, int], "txn.Entries | None"]
"""Returns rows for the groups' table at a time (ms), or None if there is nothing to write. It may be called several
times."""


@dataclass(frozen=True, slots=True)
class Write(Effect[Groups]):
    """Change the groups' table by a plan of its current state. The answer is `Groups` after the change.

    An error of the plan is raised, and nothing is written.
    """

    plan: Plan
    step: str
    """Name of the step: `begin`, `commit`, `abort`, `fence`, `forget` or `leave_out`."""


@dataclass(frozen=True, slots=True)
class LookAtTopic(Effect[int | None]):
    """Read a topic's table. The answer is the number of its last decision, or None if the topic is deleted."""

    topic: txn.TopicLife
    fresh: bool = True
    """False if an earlier result is good enough, which may be a lower number."""


@dataclass(frozen=True, slots=True)
class Apply(Effect[Appended | None]):
    """Append the records of a decision, unless the topic has it or a later one. The answer is `Appended`, or None.

    The answer is None if the topic is deleted. The table's version names its decision, so none is appended twice.
    """

    committed: txn.CommittedTransaction
    part: txn.TransactionPart


@dataclass(frozen=True, slots=True)
class Find(Effect[Appended | None]):
    """Find the records of a decision that a topic has. The answer is `Appended`."""

    committed: txn.CommittedTransaction
    part: txn.TransactionPart


@dataclass(frozen=True, slots=True)
class CutAt(Effect[TopicCut | None]):
    """Find the newest version of a topic without decisions after `seq`. The answer is `TopicCut`, or None."""

    topic: txn.TopicLife
    seq: int


@dataclass(frozen=True, slots=True)
class Beside(Effect[list[Any]]):
    """Run protocols concurrently. The answer is the result of each, or its `KafkaError`."""

    protocols: Sequence[TransactionProtocol]


@dataclass(frozen=True, slots=True)
class Remove(Effect[None]):
    """Delete the staged files of transactions; failures are harmless. The answer is None.

    Without a number, the files of all transactions of the epoch.
    """

    producer_id: int
    epoch: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class ListFolders(Effect[Sequence[txn.StagedFolder]]):
    """List the transactions with staged files. The answer is a list of `StagedFolder`."""


TransactionEffect = (
    LookAtGroups | LookAtTopics | Write | LookAtTopic | Apply | Find | CutAt | Beside | Remove | ListFolders
)
TransactionProtocol = Generator[TransactionEffect, Any, Any]
