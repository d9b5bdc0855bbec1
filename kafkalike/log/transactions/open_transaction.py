"""Open transaction: the staged files of one transaction of a session, and its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kafkalike.log.topic.staged_append import Loose
from kafkalike.log.transactions.effect_runner import HeldTransaction
from kafkalike.model.record_batch import Appended
from kafkalike.model.transactions.group_claims import Groups
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    StagedFile,
    TopicLife,
    TransactionAttempt,
    TransactionPart,
)

HELD_BYTES: Final = 16 * 1024 * 1024
"""Staged bytes of a transaction that its producer also holds in memory, so that it need not read them again."""


class TransactionOutcome(Enum):
    """Where a transaction is."""

    OPEN = "open"
    DECIDED = "decided"
    """Committed, and not known to be in all topics."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of a transaction."""

    file: StagedFile
    counts: Counter[int]
    """Records by partition."""
    once: str = ""
    """See `TransactionSession.stage`."""


@dataclass
class OpenTransaction:
    """A transaction of this session."""

    attempt: TransactionAttempt
    began: float
    """By the monotonic clock, s."""
    held: HeldTransaction
    files: dict[TopicLife, dict[int, Staged]] = field(default_factory=dict)
    """By topic and number, what is staged."""
    layouts: dict[TopicLife, str] = field(default_factory=dict)
    """How the files of a topic hold its records."""
    others: list[str] = field(default_factory=list)
    """Files that may be staged, which the decision does not name."""
    next_file: int = 0
    held_bytes: int = 0
    maybe: bool = False
    """Whether a decision was tried."""
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    decision: tuple[Groups, CommittedTransaction] | None = None
    places: Mapping[str, Appended] = field(default_factory=dict)

    def parts(self) -> tuple[TransactionPart, ...]:
        """What it brings into each topic."""
        found = []
        for topic, files in self.files.items():
            counts: Counter[int] = Counter()
            staged = [one for _, one in sorted(files.items())]
            for one in staged:
                counts.update(one.counts)
            names = tuple(one.file for one in staged)
            found.append(TransactionPart(topic=topic, counts=dict(counts), files=names, layout=self.layouts[topic]))
        return tuple(found)

    def takes(self, layout: str, topic: TopicLife) -> bool:
        """Whether the topic's files may hold records like this: those of one topic all do it in one way."""
        return self.layouts.setdefault(topic, layout) == layout

    def has(self, topic: TopicLife, once: str) -> bool:
        """Whether records of a name are staged for a topic; see `TransactionSession.stage`."""
        return any(one.once == once for one in self.files.get(topic, {}).values())

    def note(self, topic: TopicLife, place: int, staged: Staged, batch: Loose | None = None) -> None:
        """Take over a file that is staged.

        Args:
            topic: whose records it has.
            place: its number.
            staged: the file; its name comes with it, so that an interrupt leaves both or none.
            batch: what it holds, to be kept as long as there is room for it.
        """
        known = self.files.get(topic)
        if known is None:
            # In one step: a topic without a file would be a part that cannot be brought in.
            self.files[topic] = {place: staged}
        else:
            known[place] = staged
        size = staged.file.size
        if batch is not None and self.held_bytes + size <= HELD_BYTES:
            self.held_bytes += size
            self.held.batches[staged.file.name] = batch

    def holding(self) -> HeldTransaction:
        """What its producer has in hand, with the names of all files that may be staged."""
        self.held.names = [one.file.name for files in self.files.values() for one in files.values()] + self.others
        return self.held
