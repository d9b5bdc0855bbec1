"""Deletion task: finds the chosen records in one partition, and writes files with all others; commits nothing.

Files that have none of the records are found by their offsets, their Bloom filters and their keys, in this order, and
are left as they are. The work is a value that may be sent to another machine (`file_tasks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import CorruptRecordError, KafkaTimeoutError
from kafkalike.log.topic.data_file import DataFile, ReadOptions, longs, named_flaws
from kafkalike.log.topic.segment_rows import WHOLE_BATCH_BYTES, read_segment
from kafkalike.log.topic.topic_commits import sha256_of
from kafkalike.maintenance.file_rewrite import Mask, Replacement, check_apart, groups, losing, replaced
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.dead_letter import read_context
from kafkalike.model.maintenance.purge_certificate import FileHash
from kafkalike.model.maintenance.record_removal import KeyFound, Runs, Taking, runs_of, within
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage

FILTERED_KEYS: Final = 64
"""Most keys that Bloom filters are asked for: of more, each row group would be likely to have one by chance alone."""

FEW: Final = 8
"""So many times as many keys as there are records make it cheaper to look each record up."""

Longs = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """Records that are to go from one partition."""

    files: Storage
    partition: int
    segments: tuple[Segment, ...]
    """All data files that the table has of the partition, in offset order; those below the log start too."""
    taking: Taking
    compression: str
    """The topic's `compression.type`."""
    dry_run: bool
    """Only say what would go."""
    hashed: bool = False
    """Whether the contents of files are to be hashed."""
    by_key: bool = False
    """Whether it is to be said what there is of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Records that go, with the files that they are in."""

    replacement: Replacement
    offsets: Runs
    """Of the records."""
    before: tuple[FileHash, ...] = ()
    after: tuple[FileHash, ...] = ()
    keys: Mapping[bytes, KeyFound] = field(default_factory=dict)
    """What there is of each key, where that was asked."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that are read and written anew."""
        return sum(segment.size_bytes for segment in self.replacement.removes)


def find_and_remove(job: Removing, budget: Deadline) -> Iterator[Removed]:
    """Look for the records, and write the files without them; a `Work` of `kafkalike.maintenance.handles`.

    Args:
        job: see `Removing`.
        budget: asked before each group of files.

    Yields:
        What goes, in offset order; each piece may be committed by itself.

    Raises:
        CorruptRecordError: a file cannot be read, or does not hold what the log says.
        KafkaStorageError: the storage refused, or a file is gone.
        KafkaTimeoutError: the time is over; what was handed out may be committed.
    """
    check_apart(job.segments)
    keys = _Keys(job.taking.keys)
    for group in groups([s for s in job.segments if s.start < job.taking.below]):
        if budget.expired():
            raise KafkaTimeoutError(f"partition {job.partition}: time ran out; what was done stays, run it again")
        taken = {s.path: rows for s in group if (rows := _taken(job, s, keys)) is not None}
        masks = {path: rows.kept for path, rows in taken.items()}
        for run in losing(group, masks):
            yield _removed(job, run, [taken[s.path] for s in run], masks)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a file."""

    kept: Mask
    """Which stay."""
    offsets: Longs
    """Of those that go."""
    keys: Mapping[bytes, KeyFound]


def _removed(job: Removing, run: Sequence[Segment], rows: Sequence[_Rows], masks: Mapping[str, Mask]) -> Removed:
    end = run[-1].stop
    before: tuple[FileHash, ...] = ()
    if job.hashed and not job.dry_run:
        before = tuple(FileHash(path=s.path, size=s.size_bytes, sha256=sha256_of(job.files, s.path)) for s in run)
    replacement = replaced(job.files, run, masks, job.compression, end=end, dry_run=job.dry_run)
    faults.point("remove.after_file")
    added = replacement.add
    after: tuple[FileHash, ...] = ()
    if job.hashed and added is not None:
        after = (FileHash(path=added.path, size=added.size, sha256=sha256_of(job.files, added.path)),)
    keys: dict[bytes, KeyFound] = {}
    for one in rows:
        keys = merged_keys(keys, one.keys)
    return Removed(
        replacement=replacement,
        offsets=runs_of(np.concatenate([one.offsets for one in rows]).tolist()),
        before=before,
        after=after,
        keys=keys,
    )


def merged_keys(below: Mapping[bytes, KeyFound], above: Mapping[bytes, KeyFound]) -> dict[bytes, KeyFound]:
    """What there is of each key in two parts of a partition, the second one of which has the higher offsets."""
    found = dict(below)
    for key, one in above.items():
        known = found.get(key)
        records = one.records + (0 if known is None else known.records)
        found[key] = KeyFound(records=records, last=one.last, is_tombstone=one.is_tombstone)
    return found


class _Keys:
    """Keys that are looked for.

    Args:
        keys: in clear.
    """

    def __init__(self, keys: frozenset[bytes]) -> None:
        self.keys = keys
        self._array = pa.array(sorted(keys), pa.binary())

    def among(self, column: pa.Array | pa.ChunkedArray) -> Mask:
        """Which of some keys are wanted; a null is not."""
        if not self.keys:
            return np.zeros(len(column), np.bool_)
        if len(column) * FEW < len(self.keys):
            # pyarrow would make a table of all that are wanted, for each call.
            return np.fromiter((key in self.keys for key in column.to_pylist()), np.bool_, len(column))
        found = pc.is_in(column, value_set=self._array)
        parts = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
        return np.concatenate([np.asarray(part) for part in parts] or [np.zeros(0, np.bool_)])


def _taken(job: Removing, segment: Segment, keys: _Keys) -> _Rows | None:
    """The rows of a file that go; None where there are none."""
    taking = job.taking
    if not within(taking.offsets, segment.offsets) and not _may_have_keys(job.files, segment, keys):
        return None
    columns = ["offset"]
    if taking.keys:
        columns.append("key")
    if taking.source is not None:
        columns.append("headers")
    if job.by_key:
        columns.append("value")
    masks: list[Mask] = []
    offsets: list[Longs] = []
    by_key: dict[bytes, KeyFound] = {}
    for table in read_segment(job.files, segment, tuple(columns)):
        goes = _goes(table, taking, keys)
        masks.append(~goes)
        if not goes.any():
            continue
        gone = table.filter(pa.array(goes))
        offsets.append(longs(gone.column("offset").combine_chunks()))
        if job.by_key:
            by_key = merged_keys(by_key, _by_key(gone))
    if not offsets:
        return None
    return _Rows(np.concatenate(masks), np.concatenate(offsets), by_key)


def _goes(table: pa.Table, taking: Taking, keys: _Keys) -> Mask:
    """Which of some rows go; see `Taking.takes`."""
    offsets = longs(table.column("offset").combine_chunks())
    goes = keys.among(table.column("key")) if keys.keys else np.zeros(len(offsets), np.bool_)
    for run in within(taking.offsets, range(int(offsets[0]), int(offsets[-1]) + 1)):
        goes[np.searchsorted(offsets, run.start) : np.searchsorted(offsets, run.stop)] = True
    goes &= offsets < taking.below
    if taking.spared:
        goes &= ~np.isin(offsets, np.fromiter(taking.spared, np.int64))
    if taking.source is not None:
        for at in np.flatnonzero(goes).tolist():
            goes[at] = _is_letter_of(table.column("headers")[at].as_py(), taking.source)
    return goes


def _is_letter_of(headers: list[dict[str, Any]] | None, source: str) -> bool:
    """Whether a dead letter is of a topic; one that does not say where it is from may be."""
    context = read_context([(header["key"], header["value"]) for header in headers or ()])
    return context is None or context.origin is None or context.origin.topic == source


def _by_key(rows: pa.Table) -> dict[bytes, KeyFound]:
    found: dict[bytes, KeyFound] = {}
    nulls = pc.is_null(rows.column("value")).to_pylist()
    for key, offset, null in zip(rows.column("key").to_pylist(), rows.column("offset").to_pylist(), nulls, strict=True):
        known = found.get(key)
        found[key] = KeyFound(records=1 + (0 if known is None else known.records), last=offset, is_tombstone=null)
    return found


def _may_have_keys(files: Storage, segment: Segment, keys: _Keys) -> bool:
    """Whether a file has one of some keys, as far as its Bloom filters and its column of keys say.

    Raises:
        CorruptRecordError: it is damaged.
        KafkaStorageError: the storage cannot be read now, or the file is gone.
    """
    if not keys.keys:
        return False
    where = f"partition {segment.partition}: offsets [{segment.start}, {segment.stop}): {files.uri}/{segment.path}"
    reading = ReadOptions(columns=("key", "offset"), batch_bytes=WHOLE_BATCH_BYTES)
    try:
        with (
            named_flaws(where, ". Its partition is left as it is"),
            contextlib.closing(DataFile(files, segment, reading)) as file,
        ):
            few = len(keys.keys) <= FILTERED_KEYS
            asked = file.groups_with(keys.keys) if few else range(len(file.groups))
            return any(keys.among(part).any() for at in asked for part in file.keys_of(at))
    except FileNotFoundError as cause:
        raise CorruptRecordError(f"{where} is missing, so its partition is left as it is") from cause
