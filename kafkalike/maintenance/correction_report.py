"""Correction report: what a run that forgot keys, or undid an append, has done or would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kafkalike.model.maintenance.record_removal import Certificate, GroupPast, count

if TYPE_CHECKING:
    from kafkalike.maintenance.deletion import Removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPart:
    """What goes from one partition."""

    topic: str
    partition: int
    records: int
    segments: int
    """Data files that are written anew, or dropped."""
    size_bytes: int
    """Bytes of these files."""
    bytes_after: int = 0
    """Bytes of the files that took their place; 0 in a dry run."""


class Parts:
    """What goes, counted by topic and partition."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], PartitionPart] = {}

    def count(self, topic: str, piece: Removed) -> None:
        """Count a piece in."""
        replacement = piece.replacement
        where = topic, replacement.partition
        known = self._known.get(where) or PartitionPart(
            topic=topic, partition=replacement.partition, records=0, segments=0, size_bytes=0
        )
        self._known[where] = replace(
            known,
            records=known.records + count(piece.offsets),
            segments=known.segments + len(replacement.removes),
            size_bytes=known.size_bytes + piece.size_bytes,
            bytes_after=known.bytes_after + (0 if replacement.add is None else replacement.add.size),
        )

    def all(self) -> tuple[PartitionPart, ...]:
        """In the order of topics and partitions."""
        return tuple(part for _, part in sorted(self._known.items(), key=itemgetter(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """What `forget` has done or would do."""

    topic: str
    run: str
    executed: bool
    """False for a dry run: nothing was changed."""
    keys: int
    """How many different keys were meant."""
    parts: tuple[PartitionPart, ...]
    """Partitions that had such records, dead-letter topics included; in the order of topics and numbers."""
    looked_at: dict[str, tuple[int, ...]]
    """Partitions that were looked at, by topic."""
    not_looked_at: tuple[int, ...]
    """Partitions of the topic that no key hashes to, which `all_partitions` looks at too."""
    versions: dict[str, tuple[int, ...]]
    """Table versions that were made, by topic."""
    tombstones: int = 0
    """Tombstones that were written, or would be."""
    gone_after_ms: int = 0
    """From this time on maintenance removes the last of the files that held the records; 0 where nothing was done."""
    files_removed: int = 0
    """Files that were removed at once."""
    open_transactions: tuple[str, ...] = ()
    """Transactional ids with records for the topic that are not committed: what they commit later is not forgotten."""
    copies: tuple[str, ...] = ()
    """Topics that were forked or restored from it: they have copies of their own."""
    origins: tuple[str, ...] = ()
    """Topics that it was forked or restored from, and others that were made from those."""
    held: Mapping[str, int | None] = field(default_factory=dict)
    """By topic of `copies` and `origins`: records with one of the keys that it has; None where it cannot be read."""
    certificate: Certificate | None = None
    """What can be checked later; None for a dry run."""

    @property
    def records(self) -> int:
        """How many go."""
        return sum(part.records for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that are written anew."""
        return sum(part.size_bytes for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON, without the certificate."""
        return {
            "topic": self.topic,
            "run": self.run,
            "executed": self.executed,
            "keys": self.keys,
            "records": self.records,
            "bytes": self.size_bytes,
            "parts": [asdict(part) for part in self.parts],
            "looked_at": {topic: list(found) for topic, found in self.looked_at.items()},
            "not_looked_at": list(self.not_looked_at),
            "versions": {topic: list(found) for topic, found in self.versions.items()},
            "tombstones": self.tombstones,
            "gone_after_ms": self.gone_after_ms,
            "files_removed": self.files_removed,
            "open_transactions": list(self.open_transactions),
            "copies": list(self.copies),
            "origins": list(self.origins),
            "held": dict(self.held),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """What `undo` has done or would do."""

    append: str
    run: str
    executed: bool
    transaction: int | None
    """Number of the transaction that it was part of."""
    parts: tuple[PartitionPart, ...]
    below_start: int
    """Records of it that retention has taken already."""
    missing: int
    """Records of it that something else has taken: compaction, an earlier undo, forgotten keys."""
    groups: tuple[GroupPast, ...]
    """Groups that have read such records."""
    versions: dict[str, int]
    """Table version that was made, by topic."""

    @property
    def records(self) -> int:
        """How many go."""
        return sum(part.records for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {**asdict(self), "records": self.records}
