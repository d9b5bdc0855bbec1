"""Unsettled decisions by topic: how ids stand in, what a topic may lack out, without a look at each id.

A decision stays here until a later row of its id replaces it, so a topic has as many as ids have written to it. They
lie in blocks, in the order of their numbers: a row changes one block of each of its topics, and whoever asks for what
came after a number looks at that only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kafkalike.model.frozen_map import Draft, FrozenMap
from kafkalike.model.transactions.transactional_id import CommittedTransaction, TransactionalIdState, TransactionPart

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
