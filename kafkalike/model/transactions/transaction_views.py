"""Views of transactions: their state for other rooms, decisions pending by topic, and consistent versions of topics.

A transaction reaches its topics one after the other, so their versions at one time may show a part of it. A decision
that any topic shows at that time was made by then, and all topics have it by the time of the call: `whole_versions`
takes the other topics at the later versions that show it too.

A pending decision is kept until a later row of its id replaces it, so a topic has as many as ids have written to it.
They are stored in blocks in the order of their numbers: a row changes one block of each of its topics, and a reader of
the decisions after a number looks at those blocks only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from kafkalike.model.frozen_map import Draft, FrozenMap
from kafkalike.model.transactions.transactional_id import CommittedTransaction, TransactionalIdState, TransactionPart


class TransactionState(StrEnum):
    """State of a transactional id's last transaction, by Kafka's names."""

    EMPTY = "Empty"
    """No transaction since the last `init_transactions`."""
    ONGOING = "Ongoing"
    """Records are staged, and nothing is decided."""
    PREPARE_COMMIT = "PrepareCommit"
    """Committed, and not yet in all of its topics."""
    COMPLETE_COMMIT = "CompleteCommit"
    """Committed, and in all of its topics that still exist."""
    COMPLETE_ABORT = "CompleteAbort"
    """Aborted; its records were never visible."""
    PREPARE_ABORT = "PrepareAbort"
    """Does not occur, because an abort is one row; Kafka's tools may name it. The same holds for the next three."""
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


class ProducerIdAndEpoch(NamedTuple):
    """The current producer of a transactional id."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSummary:
    """A transactional id, in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport:
    """A transactional id with its open or last transaction."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    epoch: int
    number: int
    """Number of that transaction in its epoch, from 1; 0 for none."""
    timeout_ms: int
    """`transaction_timeout_ms` of the producer."""
    client_id: str
    start_ms: int
    """Start of the open transaction, ms since the epoch; -1 if none is open."""
    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Records of a decided transaction, by topic and partition. For an open one, its topics, each with an empty
    mapping, or with the number of staged records if the caller has read them and they name their partitions."""
    unapplied: tuple[str, ...] = ()
    """Topics that do not have a decided transaction yet."""
    groups: tuple[str, ...] = ()
    """Groups whose offsets a decided transaction committed."""
    reason: str = ""
    """Reason for this state: `init`, `commit`, `abort`, `timeout`, `admin`."""
    changed_ms: int = 0
    """Time of the last change, ms since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCut:
    """A topic as of a cut."""

    topic_id: str
    version: int
    """Table version, for `VERSION AS OF`: the newest one without a transaction decided after the cut."""
    ends: Mapping[int, int]
    """Log end of each partition in that version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Several topics and the groups as of one decision: they show all or nothing of every transaction."""

    seq: int
    """Number of the last row of the groups' table that counts; transactions decided by it are in, later ones not."""
    groups_version: int
    """Table version of `__consumer_offsets` that ends with this row; 0 if the table does not exist."""
    topics: Mapping[str, TopicCut]
    """The topics by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPart:
    """Part of a committed transaction that a topic cannot get, because its staged files are lost or damaged."""

    transactional_id: str
    seq: int
    """Number of the decision."""
    topic: str
    topic_id: str
    counts: Mapping[int, int]
    """Number of records by partition."""
    why: str


APPLIED: Final = "kafkalike.transactions"
"""Delta application whose version, in a topic's table, is the number of the topic's last decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A topic's table at a time, and its later versions."""

    version: int
    """The newest version at that time."""
    applied: int
    """Number of its last decision; 0 for none."""
    later: Sequence[tuple[int, int]] = ()
    """All later versions that brought a decision, each with its number, in any order."""


def whole_versions(pasts: Mapping[str, Past]) -> tuple[int, dict[str, int]]:
    """Return the first versions, not before the given ones, with all or nothing of every transaction.

    Args:
        pasts: the topics, which have all decisions.

    Returns:
        Number of the last decision that counts, and the version of each topic.
    """
    last = max((past.applied for past in pasts.values()), default=0)
    return last, {
        topic: max([past.version, *(version for version, applied in past.later if applied <= last)])
        for topic, past in pasts.items()
    }


BLOCK: Final = 128
"""Most decisions of a block: copying one costs less than reading the row that changes it."""


class PendingDecision(NamedTuple):
    """The records of a decision for one topic, which may not have them yet."""

    seq: int
    """Number of the decision."""
    transactional_id: str
    committed: CommittedTransaction
    part: TransactionPart
    changed_ms: int
    """Time of its row, ms, by the clock of its writer."""


_new_due: Final[Callable[[tuple[int, str, CommittedTransaction, TransactionPart, int]], PendingDecision]] = partial(
    tuple.__new__, PendingDecision
)
"""Constructor without the Python function that NamedTuple generates, because each row makes one value per topic."""


class PendingDecisions:
    """Pending decisions of one topic, in their order: an immutable value."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: tuple[tuple[PendingDecision, ...], ...] = ()) -> None:
        self._blocks = blocks

    def __iter__(self) -> Iterator[PendingDecision]:
        for block in self._blocks:
            yield from block

    def __bool__(self) -> bool:
        return bool(self._blocks)

    @property
    def last(self) -> int:
        """Number of the last decision; 0 without one."""
        return self._blocks[-1][-1].seq if self._blocks else 0

    def between(self, applied: int, upto: int) -> list[PendingDecision]:
        """Return decisions after `applied`, up to and including `upto`."""
        found: list[PendingDecision] = []
        for block in reversed(self._blocks):
            if block[-1].seq <= applied:
                break
            found[:0] = block[_at(block, (applied + 1,)) : _at(block, (upto + 1,))]
        return found

    def extended(self, dues: Sequence[PendingDecision]) -> PendingDecisions:
        """Return the decisions with some more, in their order, all after the last one."""
        blocks, last = self._blocks, self._blocks[-1] if self._blocks else ()
        start = BLOCK - len(last) if last else 0
        if start:
            blocks = blocks[:-1] + (last + tuple(dues[:start]),)  # noqa: RUF005 - a third of the time, for every row
        if start < len(dues):
            blocks += tuple([tuple(dues[at : at + BLOCK]) for at in range(start, len(dues), BLOCK)])
        return PendingDecisions(blocks)

    def put(self, due: PendingDecision) -> PendingDecisions:
        """Return the decisions with one more, or with a new value of the same number and id."""
        blocks = self._blocks
        at, left, right = self._find(due.seq, due.transactional_id)
        if at < 0:
            return PendingDecisions(((due,), *blocks))
        block = blocks[at]
        made = (*block[:left], due, *block[right:])
        if len(made) <= BLOCK:
            return PendingDecisions((*blocks[:at], made, *blocks[at + 1 :]))
        # Most are added at the end; then the full block stays.
        middle = BLOCK if left == len(block) else len(made) // 2
        return PendingDecisions((*blocks[:at], made[:middle], made[middle:], *blocks[at + 1 :]))

    def drop(self, seq: int, transactional_id: str) -> PendingDecisions:
        """Return the decisions without one; the same object if it is not there."""
        blocks = self._blocks
        at, left, right = self._find(seq, transactional_id)
        if left == right:
            return self
        made = blocks[at][:left] + blocks[at][right:]
        if at and len(blocks[at - 1]) + len(made) <= BLOCK // 2:
            # Merge two blocks with few decisions.
            return PendingDecisions((*blocks[: at - 1], blocks[at - 1] + made, *blocks[at + 1 :]))
        return PendingDecisions((*blocks[:at], *((made,) if made else ()), *blocks[at + 1 :]))

    def _find(self, seq: int, transactional_id: str) -> tuple[int, int, int]:
        """Return the block of a decision, present or not, and its start and stop there; block -1 is before all."""
        blocks, place = self._blocks, (seq, transactional_id)
        # A tuple sorts directly before longer tuples with the same start.
        at = bisect_left(blocks, (place,))
        if at == len(blocks) or blocks[at][0][:2] != place:
            at -= 1
        if at < 0:
            return -1, 0, 0
        left = _at(blocks[at], place)
        found = left < len(blocks[at]) and blocks[at][left][:2] == place
        return at, left, left + found


def _at(block: tuple[PendingDecision, ...], place: tuple[int] | tuple[int, str]) -> int:
    """Return the index of the first decision of a block that does not come before a place."""
    return bisect_left(block, place)


NONE_DUE: Final = PendingDecisions()
"""The value for a topic without pending decisions."""


def dues_of(transactional_id: str, standing: TransactionalIdState | None) -> list[PendingDecision]:
    """Return the decisions of an id that a topic may lack.

    Args:
        transactional_id: the id.
        standing: its state; None if it is unknown.
    """
    decision = None if standing is None else standing.unsettled
    if standing is None or decision is None:
        return []
    seq, changed_ms = decision.seq, standing.changed_ms
    return [_new_due((seq, transactional_id, decision, part, changed_ms)) for part in decision.parts]


class UnsettledDraft:
    """Pending decisions by topic id, in preparation.

    Args:
        base: decisions to start from; it stays as it is.
    """

    __slots__ = ("_draft", "_last", "_late")

    def __init__(self, base: FrozenMap[str, PendingDecisions]) -> None:
        self._draft = Draft(base)
        self._late: dict[str, list[PendingDecision]] = {}
        """By topic id, decisions after all of `_draft`; nearly all decisions when many rows are applied at once."""
        self._last: dict[str, int] = {}
        """Number of the last decision of the topics of `_late`."""

    def note(
        self, transactional_id: str, before: TransactionalIdState | None, after: TransactionalIdState | None
    ) -> None:
        """Apply a change of an id's state.

        Args:
            transactional_id: the id.
            before: its old state.
            after: its new state.
        """
        decision = None if before is None else before.unsettled
        parts, seq = ((), 0) if decision is None else (decision.parts, decision.seq)
        for part in parts:
            topic_id = part.topic.topic_id
            self._settle(topic_id)
            left = self._of(topic_id).drop(seq, transactional_id)
            if left:
                self._draft.put(topic_id, left)
            else:
                self._draft.drop(topic_id)
        for due in dues_of(transactional_id, after):
            topic_id = due.part.topic.topic_id
            last = self._last.get(topic_id)
            if last is None:
                last = self._of(topic_id).last
            if due.seq > last:
                self._late.setdefault(topic_id, []).append(due)
                self._last[topic_id] = due.seq
            else:
                self._settle(topic_id)
                self._draft.put(topic_id, self._of(topic_id).put(due))

    def frozen(self) -> FrozenMap[str, PendingDecisions]:
        """Return the decisions with all changes so far."""
        for topic_id in list(self._late):
            self._settle(topic_id)
        return self._draft.frozen()

    def _of(self, topic_id: str) -> PendingDecisions:
        return self._draft.get(topic_id) or NONE_DUE

    def _settle(self, topic_id: str) -> None:
        """Move a topic's late decisions to the draft."""
        late = self._late.pop(topic_id, None)
        if late is not None:
            del self._last[topic_id]
            self._draft.put(topic_id, self._of(topic_id).extended(late))


def due_in(unsettled: Mapping[str, PendingDecisions], topic_id: str) -> PendingDecisions:
    """Return the pending decisions of a topic."""
    return unsettled.get(topic_id, NONE_DUE)
