"""Views of transactions: their state for other rooms, decisions pending by topic, and consistent versions of topics.

A transaction reaches its topics one after the other, so their versions at one time may show a part of it. A decision
that any topic shows at that time was made by then, and all topics have it by now: `whole_versions` takes the other
topics at the later versions that show it too.

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
    """Aborted; nothing of it was ever visible."""
    PREPARE_ABORT = "PrepareAbort"
    """Never here, as an abort is one row; Kafka's tools may ask for it. The same goes for the next three."""
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


class ProducerIdAndEpoch(NamedTuple):
    """The producer that a transactional id has at a time."""

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
    """A transactional id and its last transaction, or the one that is open."""

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
    """When it began, ms; -1 where it is not open."""
    topics: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Records of a decided transaction, by topic and partition. Of an open one, its topics, each with an empty mapping,
    or with the records that are staged where these were looked at and say their partitions."""
    unapplied: tuple[str, ...] = ()
    """Topics that do not have a decided transaction yet."""
    groups: tuple[str, ...] = ()
    """Groups whose offsets a decided transaction committed."""
    reason: str = ""
    """Why it is in this state: `init`, `commit`, `abort`, `timeout`, `admin`."""
    changed_ms: int = 0
    """Time of the last change, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCut:
    """A topic as of a cut."""

    topic_id: str
    version: int
    """Table version, for `VERSION AS OF`: the newest one that has no transaction decided after the cut."""
    ends: Mapping[int, int]
    """Log end of each partition in that version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Several topics and the groups as of one decision: of every transaction they show all or nothing."""

    seq: int
    """Number of the last row of the groups' table that counts; transactions decided by it are in, later ones not."""
    groups_version: int
    """Table version of `__consumer_offsets` that ends with this row; 0 when there is no such table."""
    topics: Mapping[str, TopicCut]
    """By name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPart:
    """What a committed transaction was to bring into a topic, and cannot: its staged files are gone or damaged."""

    transactional_id: str
    seq: int
    """Number of the decision."""
    topic: str
    topic_id: str
    counts: Mapping[int, int]
    """Records by partition."""
    why: str


APPLIED: Final = "kafkalike.transactions"
"""Delta application whose version, in a topic's table, is the number of the last decision that the topic has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A topic's table at a time, and what came after it."""

    version: int
    """The newest version of that time."""
    applied: int
    """Number of the last decision that it has; 0 for none."""
    later: Sequence[tuple[int, int]] = ()
    """Versions above it that brought in a decision, and its number, in any order; all up to now."""


def whole_versions(pasts: Mapping[str, Past]) -> tuple[int, dict[str, int]]:
    """The first versions, not before those of the time, that show all or nothing of every transaction.

    Args:
        pasts: the topics; all that was decided has been brought into them.

    Returns:
        Number of the last decision that counts, and the version of each topic.
    """
    last = max((past.applied for past in pasts.values()), default=0)
    return last, {
        topic: max([past.version, *(version for version, applied in past.later if applied <= last)])
        for topic, past in pasts.items()
    }


BLOCK: Final = 128
"""The most decisions of a block: copying one costs less than reading the row that changes it."""


class PendingDecision(NamedTuple):
    """What a decision brings into one topic, which may not have it yet."""

    seq: int
    """Number of the decision."""
    transactional_id: str
    committed: CommittedTransaction
    part: TransactionPart
    changed_ms: int
    """When its row was written, by the clock of its writer."""


_new_due: Final[Callable[[tuple[int, str, CommittedTransaction, TransactionPart, int]], PendingDecision]] = partial(
    tuple.__new__, PendingDecision
)
"""Without the function that Python makes for each NamedTuple: there is one for each topic of each row."""


class PendingDecisions:
    """Unsettled decisions of one topic, in their order. A value: changes make a new one."""

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
        """Number of the last decision; 0 when there is none."""
        return self._blocks[-1][-1].seq if self._blocks else 0

    def between(self, applied: int, upto: int) -> list[PendingDecision]:
        """Decisions after `applied`, up to and with `upto`."""
        found: list[PendingDecision] = []
        for block in reversed(self._blocks):
            if block[-1].seq <= applied:
                break
            found[:0] = block[_at(block, (applied + 1,)) : _at(block, (upto + 1,))]
        return found

    def extended(self, dues: Sequence[PendingDecision]) -> PendingDecisions:
        """With some more, in their order, all after the last one."""
        blocks, last = self._blocks, self._blocks[-1] if self._blocks else ()
        start = BLOCK - len(last) if last else 0
        if start:
            blocks = blocks[:-1] + (last + tuple(dues[:start]),)  # noqa: RUF005 - a third of the time, for every row
        if start < len(dues):
            blocks += tuple([tuple(dues[at : at + BLOCK]) for at in range(start, len(dues), BLOCK)])
        return PendingDecisions(blocks)

    def put(self, due: PendingDecision) -> PendingDecisions:
        """With one more, or with another one of the same number and id."""
        blocks = self._blocks
        at, left, right = self._find(due.seq, due.transactional_id)
        if at < 0:
            return PendingDecisions(((due,), *blocks))
        block = blocks[at]
        made = (*block[:left], due, *block[right:])
        if len(made) <= BLOCK:
            return PendingDecisions((*blocks[:at], made, *blocks[at + 1 :]))
        # Most come at the end: then the full block stays.
        middle = BLOCK if left == len(block) else len(made) // 2
        return PendingDecisions((*blocks[:at], made[:middle], made[middle:], *blocks[at + 1 :]))

    def drop(self, seq: int, transactional_id: str) -> PendingDecisions:
        """Without the decision of a number and id; the same when it is not there."""
        blocks = self._blocks
        at, left, right = self._find(seq, transactional_id)
        if left == right:
            return self
        made = blocks[at][:left] + blocks[at][right:]
        if at and len(blocks[at - 1]) + len(made) <= BLOCK // 2:
            # Few are left of both.
            return PendingDecisions((*blocks[: at - 1], blocks[at - 1] + made, *blocks[at + 1 :]))
        return PendingDecisions((*blocks[:at], *((made,) if made else ()), *blocks[at + 1 :]))

    def _find(self, seq: int, transactional_id: str) -> tuple[int, int, int]:
        """The block that a decision is in or would be in, and from where to where; block -1 is before all."""
        blocks, place = self._blocks, (seq, transactional_id)
        # A tuple comes right before those that begin with it.
        at = bisect_left(blocks, (place,))
        if at == len(blocks) or blocks[at][0][:2] != place:
            at -= 1
        if at < 0:
            return -1, 0, 0
        left = _at(blocks[at], place)
        found = left < len(blocks[at]) and blocks[at][left][:2] == place
        return at, left, left + found


def _at(block: tuple[PendingDecision, ...], place: tuple[int] | tuple[int, str]) -> int:
    """Where the first decision of a block is that does not come before a place."""
    return bisect_left(block, place)


NONE_DUE: Final = PendingDecisions()
"""Of a topic that no unsettled decision names."""


def dues_of(transactional_id: str, standing: TransactionalIdState | None) -> list[PendingDecision]:
    """What an id has decided and a topic may lack.

    Args:
        transactional_id: the id.
        standing: how it stands; None when it is not known.
    """
    decision = None if standing is None else standing.unsettled
    if standing is None or decision is None:
        return []
    seq, changed_ms = decision.seq, standing.changed_ms
    return [_new_due((seq, transactional_id, decision, part, changed_ms)) for part in decision.parts]


class UnsettledDraft:
    """Unsettled decisions by topic id, in the making.

    Args:
        base: as they were; stays as it is.
    """

    __slots__ = ("_draft", "_last", "_late")

    def __init__(self, base: FrozenMap[str, PendingDecisions]) -> None:
        self._draft = Draft(base)
        self._late: dict[str, list[PendingDecision]] = {}
        """By topic id, decisions that come after all that `_draft` has: of many rows at once nearly all."""
        self._last: dict[str, int] = {}
        """Number of the last decision of the topics of `_late`."""

    def note(
        self, transactional_id: str, before: TransactionalIdState | None, after: TransactionalIdState | None
    ) -> None:
        """Take over how an id stands.

        Args:
            transactional_id: the id.
            before: how it stood.
            after: how it stands now.
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
        """What they are now."""
        for topic_id in list(self._late):
            self._settle(topic_id)
        return self._draft.frozen()

    def _of(self, topic_id: str) -> PendingDecisions:
        return self._draft.get(topic_id) or NONE_DUE

    def _settle(self, topic_id: str) -> None:
        """Let the draft have all of a topic."""
        late = self._late.pop(topic_id, None)
        if late is not None:
            del self._last[topic_id]
            self._draft.put(topic_id, self._of(topic_id).extended(late))


def due_in(unsettled: Mapping[str, PendingDecisions], topic_id: str) -> PendingDecisions:
    """The unsettled decisions of a topic."""
    return unsettled.get(topic_id, NONE_DUE)
