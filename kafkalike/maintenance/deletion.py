"""Deletion: rewrite a topic without the chosen records and leave all other records as they are.

A task finds the records of one partition and writes files without them; this process makes the table versions. The task
skips files without such records by their offsets, their Bloom filters and their keys, in this order. It commits
nothing, and its job is a value that can be sent to another machine (`file_tasks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import CorruptRecordError, KafkaTimeoutError
from kafkalike.log.topic.data_file import DataFile, ReadOptions, longs, named_flaws
from kafkalike.log.topic.segment_rows import WHOLE_BATCH_BYTES, read_segment
from kafkalike.log.topic.topic_commits import sha256_of
from kafkalike.maintenance import maintenance_commit
from kafkalike.maintenance.file_tasks import IN_PROCESS, Tasks, where_possible
from kafkalike.maintenance.works.file_rewrite import Mask, Replacement, check_apart, groups, losing, replaced
from kafkalike.maintenance.works.vacuum import Leftover, vacuum
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.concurrency import OnError
from kafkalike.model.dead_letter import read_context
from kafkalike.model.maintenance.record_removal import FileHash, KeyFound, Runs, Taking, count, runs_of, within
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.storage.port import Storage


class Remover:
    """Removes records from one topic.

    Args:
        log: the topic.
        run: id of the run in the table's history.
        work: name of the work in the history, a key of `OPERATIONS`.
        facts: further facts for the history.
        budget: no new work starts after it.
        tasks: reads and writes the files.
    """

    def __init__(
        self,
        log: TopicLog,
        run: str,
        *,
        work: str,
        facts: Mapping[str, Any],
        budget: Deadline,
        tasks: Tasks = IN_PROCESS,
    ) -> None:
        self._log = log
        self._run = run
        self._work = work
        self._facts = facts
        self._budget = budget
        self._tasks = tasks

    def found(self, takings: Mapping[int, Taking], *, by_key: bool = False) -> Iterator[Removed]:
        """Yield the records that would be removed, partition by partition, without writing.

        Args:
            takings: selects the records, by partition.
            by_key: see `Removing`.

        Raises: see `removed`.
        """
        self._log.refresh()
        return self._pieces(takings, dry_run=True, hashed=False, by_key=by_key)

    def removed(self, takings: Mapping[int, Taking]) -> Iterator[tuple[int, Removed]]:
        """Remove the records, each piece with a table version of its own.

        A run that is interrupted leaves some of them; running it again finishes. A conflict with another run only costs
        a second look at that partition.

        Yields:
            Each version and the removed records, as soon as it is committed.

        Raises:
            CorruptRecordError: a file cannot be read; earlier pieces stay removed.
            KafkaTimeoutError: time ran out; earlier pieces stay removed.
            KafkaStorageError, UnknownOutcomeError, PolicyViolationError, TopicDeletedError: see `Table.change`.
        """
        left = dict(takings)
        while left:
            self._log.refresh()
            fenced = self._log.fenced
            again: set[int] = set()
            for piece in self._pieces(left, dry_run=False, hashed=True, by_key=False):
                partition = piece.replacement.partition
                if partition in again:
                    self._discard([piece])
                    continue
                version = self._publish([piece], fenced)
                if version is None:
                    again.add(partition)
                    continue
                yield version, piece
            left = {p: taking for p, taking in left.items() if p in again}
            self._check_time(left)

    def removed_at_once(self, takings: Mapping[int, Taking]) -> tuple[int | None, list[Removed]]:
        """Remove the records with one table version: all of them or none.

        Returns:
            The version and the removed records; None if there are none to remove.

        Raises: see `removed`.
        """
        while True:
            self._log.refresh()
            fenced = self._log.fenced
            pieces = list[Removed]()
            with OnError(partial(self._discard, pieces)):
                pieces.extend(self._pieces(takings, dry_run=False, hashed=False, by_key=False))
            if not pieces:
                return None, []
            version = self._publish(pieces, fenced)
            if version is not None:
                return version, pieces
            self._check_time(takings)

    def _discard(self, pieces: Sequence[Removed]) -> None:
        maintenance_commit.discard_all(self._log.files, _adds(pieces))

    def _check_time(self, left: Mapping[int, Taking]) -> None:
        if left and self._budget.expired():
            name = self._log.info.name
            raise KafkaTimeoutError(f"{name}: other maintenance runs replaced its files until timeout_ms; run it again")

    def _pieces(self, takings: Mapping[int, Taking], *, dry_run: bool, hashed: bool, by_key: bool) -> Iterator[Removed]:
        log = self._log
        done: set[str] = set()
        jobs = [
            Removing(
                files=log.files.tasks.sendable(log.files),
                partition=partition,
                segments=tuple(log.table_segments(partition)),
                taking=taking,
                compression=log.config.compression_type,
                dry_run=dry_run,
                hashed=hashed,
                by_key=by_key,
            )
            for partition, taking in sorted(takings.items())
        ]
        try:
            for piece in where_possible(self._tasks, log.files).run(find_and_remove, jobs, self._budget):
                done.update(s.path for s in piece.replacement.removes)
                yield piece
        except CorruptRecordError as cause:
            if maintenance_commit.still_live(log, (s for job in jobs for s in job.segments if s.path not in done)):
                raise
            raise KafkaTimeoutError(
                f"{log.info.name}: another run has replaced its files meanwhile; try again"
            ) from cause

    def _publish(self, pieces: Sequence[Removed], fenced: int) -> int | None:
        holes: dict[int, int] = {}
        for piece in pieces:
            at = piece.replacement.partition
            holes[at] = max(holes.get(at, 0), piece.replacement.end)
        records = sum(count(piece.offsets) for piece in pieces)
        where: dict[str, Any] = {"partition": next(iter(holes))} if len(holes) == 1 else {"partitions": sorted(holes)}
        change = maintenance_commit.MaintenanceCommit(
            work=self._work,
            removes=[s for piece in pieces for s in piece.replacement.removes],
            adds=_adds(pieces),
            holes=holes,
            fenced=fenced,
            facts={**where, "records": records, **self._facts},
        )
        return maintenance_commit.publish_or_discard(self._log, change, self._run)


def _adds(pieces: Sequence[Removed]) -> list[Any]:
    return [piece.replacement.add for piece in pieces if piece.replacement.add is not None]


def ready_to_remove(log: TopicLog) -> None:
    """Raise if records must not be removed from a topic, before any work.

    Raises:
        PolicyViolationError: the table is append-only.
        UnsupportedVersionError: a foreign writer has enabled a table feature that kafkalike does not support.
        LogCorruptError: the table is damaged, replaced or rewound.
        UnsafeStorageError: the root is read-only here.
        ReassignmentInProgressError: the topic is being repartitioned.
    """
    log.files.coordination.check_writable()
    log.ready_to_append()
    # A copy that a repartition has begun would keep the records.
    log.info.check_settled()
    log.check_removable()
    log.check_sound()


def remove_files(log: TopicLog, paths: Collection[str]) -> list[str]:
    """Remove data files at once that a table version has removed; files that are live again stay.

    No writer can be about to commit these files, because each was in the table before. Consumers that were reading one
    look the log up again; a running query of another engine may fail.

    Args:
        log: the topic.
        paths: the files.

    Returns:
        The removed files.
    """

    def live() -> Collection[str]:
        log.refresh()
        return log.live_paths()

    faults.point("remove.before_files")
    due = [Leftover(path, 0, was_live=True) for path in paths]
    return [file.path for file in vacuum(log.files, due, live, partial(contextlib.nullcontext))]


FILTERED_KEYS: Final = 64
"""Maximum number of keys to test with Bloom filters; with more keys, most row groups would match by chance."""

FEW: Final = 8
"""With this many times more keys than records, looking up each record is cheaper."""

Longs = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """A job: the records to remove from one partition."""

    files: Storage
    partition: int
    segments: tuple[Segment, ...]
    """All data files of the partition in offset order, including files below the log start."""
    taking: Taking
    compression: str
    """The topic's `compression.type`."""
    dry_run: bool
    """Report only, without changes."""
    hashed: bool = False
    """Hash the contents of files."""
    by_key: bool = False
    """Report the records of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Records to remove, with the files that hold them."""

    replacement: Replacement
    offsets: Runs
    """Offsets of the records."""
    before: tuple[FileHash, ...] = ()
    after: tuple[FileHash, ...] = ()
    keys: Mapping[bytes, KeyFound] = field(default_factory=dict)
    """The records of each key, if the job asks for them."""

    @property
    def size_bytes(self) -> int:
        """Total size of the files that are read and rewritten, bytes."""
        return sum(segment.size_bytes for segment in self.replacement.removes)


def find_and_remove(job: Removing, budget: Deadline) -> Iterator[Removed]:
    """Find the records and write the files without them; a `Work` of `kafkalike.maintenance.file_tasks`.

    Args:
        job: see `Removing`.
        budget: checked before each group of files.

    Yields:
        The removed records in offset order; each piece may be committed by itself.

    Raises:
        CorruptRecordError: a file cannot be read, or contradicts the log.
        KafkaStorageError: the storage refused, or a file is missing.
        KafkaTimeoutError: time ran out; earlier pieces may be committed.
    """
    check_apart(job.segments)
    keys = _Keys(job.taking.keys)
    for group in groups([s for s in job.segments if s.start < job.taking.below]):
        if budget.expired():
            raise KafkaTimeoutError(f"partition {job.partition}: time ran out; finished work stays, run it again")
        taken = {s.path: rows for s in group if (rows := _taken(job, s, keys)) is not None}
        masks = {path: rows.kept for path, rows in taken.items()}
        for run in losing(group, masks):
            yield _removed(job, run, [taken[s.path] for s in run], masks)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a file."""

    kept: Mask
    """Selects the rows that stay."""
    offsets: Longs
    """Offsets of the rows that are removed."""
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
    """Merge the records of each key in two parts of a partition; the second part has the higher offsets."""
    found = dict(below)
    for key, one in above.items():
        known = found.get(key)
        records = one.records + (0 if known is None else known.records)
        found[key] = KeyFound(records=records, last=one.last, is_tombstone=one.is_tombstone)
    return found


class _Keys:
    """A set of keys to find.

    Args:
        keys: in clear.
    """

    def __init__(self, keys: frozenset[bytes]) -> None:
        self.keys = keys
        self._array = pa.array(sorted(keys), pa.binary())

    def among(self, column: pa.Array | pa.ChunkedArray) -> Mask:
        """Select the rows with any of the keys; a null never matches."""
        if not self.keys:
            return np.zeros(len(column), np.bool_)
        if len(column) * FEW < len(self.keys):
            # pyarrow would build a hash table of all keys for each call.
            return np.fromiter((key in self.keys for key in column.to_pylist()), np.bool_, len(column))
        found = pc.is_in(column, value_set=self._array)
        parts = found.chunks if isinstance(found, pa.ChunkedArray) else [found]
        return np.concatenate([np.asarray(part) for part in parts] or [np.zeros(0, np.bool_)])


def _taken(job: Removing, segment: Segment, keys: _Keys) -> _Rows | None:
    """Return the rows of a file to remove; None if there are none."""
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
    """Select the rows to remove; see `Taking.takes`."""
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
    """Return whether a dead letter may be from a topic; a letter without an origin may be from any."""
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
    """Return whether a file has any of the keys, by its Bloom filters and its key column.

    Raises:
        CorruptRecordError: it is damaged, or missing.
        KafkaStorageError: the storage does not answer.
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
