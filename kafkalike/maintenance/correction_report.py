"""Correction report: the results, or the plan, of a run that forgets keys or undoes an append."""

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
    """The records removed from one partition."""

    topic: str
    partition: int
    records: int
    segments: int
    """Number of data files that are rewritten or dropped."""
    size_bytes: int
    """Total size of these files, bytes."""
    bytes_after: int = 0
    """Total size of their replacements, bytes; 0 in a dry run."""


class Parts:
    """Removed records, counted by topic and partition."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], PartitionPart] = {}

    def count(self, topic: str, piece: Removed) -> None:
        """Add the records of a piece."""
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
        """Return the counts, ordered by topic and partition."""
        return tuple(part for _, part in sorted(self._known.items(), key=itemgetter(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """The results, or the plan, of `forget`."""

    topic: str
    run: str
    executed: bool
    """False for a dry run, which changes nothing."""
    keys: int
    """Number of distinct keys."""
    parts: tuple[PartitionPart, ...]
    """Partitions that had such records, dead-letter topics included, ordered by topic and number."""
    looked_at: dict[str, tuple[int, ...]]
    """Examined partitions, by topic."""
    versions: dict[str, tuple[int, ...]]
    """Table versions of the run, by topic."""
    tombstones: int = 0
    """Number of tombstones that were written, or would be."""
    gone_after_ms: int = 0
    """Time, ms, from which maintenance removes the last of the files that held the records; 0 if nothing was done."""
    files_removed: int = 0
    """Number of files that were removed at once."""
    open_transactions: tuple[str, ...] = ()
    """Transactional ids with uncommitted records for the topic; records that they commit later are not forgotten."""
    copies: tuple[str, ...] = ()
    """Topics that were forked or restored from this one and have copies of the records."""
    origins: tuple[str, ...] = ()
    """Topics from which this one was forked or restored, and other topics that were made from those."""
    held: Mapping[str, int | None] = field(default_factory=dict)
    """For each topic of `copies` and `origins`, its number of records with such a key; None if it cannot be read.
    """
    certificate: Certificate | None = None
    """The certificate for a later check; None in a dry run."""

    @property
    def records(self) -> int:
        """The number of removed records."""
        return sum(part.records for part in self.parts)

    @property
    def size_bytes(self) -> int:
        """Total size of the rewritten files, bytes."""
        return sum(part.size_bytes for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON, without the certificate."""
        return {
            "topic": self.topic,
            "run": self.run,
            "executed": self.executed,
            "keys": self.keys,
            "records": self.records,
            "bytes": self.size_bytes,
            "parts": [asdict(part) for part in self.parts],
            "looked_at": {topic: list(found) for topic, found in self.looked_at.items()},
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
    """The results, or the plan, of `undo`."""

    append: str
    run: str
    executed: bool
    transaction: int | None
    """Number of the transaction that included the append; None if there was none."""
    parts: tuple[PartitionPart, ...]
    below_start: int
    """Records of the append that retention has removed already."""
    missing: int
    """Records of the append that compaction, an earlier undo, or forgotten keys have removed."""
    groups: tuple[GroupPast, ...]
    """Groups that have read such records."""
    versions: dict[str, int]
    """The table version of the run, by topic."""

    @property
    def records(self) -> int:
        """The number of removed records."""
        return sum(part.records for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        return {**asdict(self), "records": self.records}
