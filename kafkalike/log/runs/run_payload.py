"""Run payload: staged records of Spark's tasks, as numbered segments of a topic.

Any process that commits such records uses it, so it works without a Spark session.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NoReturn

import pyarrow as pa

from kafkalike import errors
from kafkalike.delta.actions import Add
from kafkalike.errors import KafkaStorageError
from kafkalike.log.runs.large_runs import SEGMENT_BYTES, DamagedRunError
from kafkalike.log.runs.run_files import Numbering, WrittenSegment, write_segment
from kafkalike.log.runs.run_manifest import LargeRun, RunManifest, StagedRun, in_order
from kafkalike.log.topic.batch_payload import PARQUET_CODECS, refused, segment_name, segment_stats
from kafkalike.log.topic.transaction_append import StagedFileError
from kafkalike.model import faults

if TYPE_CHECKING:
    from kafkalike.model.config.topic_config import TopicConfig
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage

HELD_BYTES: Final = 256 * 1024 * 1024
"""Memory limit for segments that are sent in parallel beyond one for each core."""

Job = tuple[list[StagedRun] | LargeRun, Numbering]
"""A segment to write."""

Writing = Callable[["Storage", "Storage", list[Job]], list[WrittenSegment]]
"""Writes segments from the job's folder into the topic's table."""


def raise_told(topic: str, refusal: str | None, text: str) -> NoReturn:
    """Raise an error that a task has reported instead of failing.

    Args:
        topic: the topic of the records.
        refusal: the error's class; None if the storage refused.
        text: the error's message.
    """
    if refusal is not None:
        raise getattr(errors, refusal)(f"{topic}: {text}")
    raise KafkaStorageError(f"{topic}: the storage refused the records, nothing was written: {text}")


def in_threads(staged: Storage, files: Storage, jobs: Sequence[Job], *, keep: bool = False) -> list[WrittenSegment]:
    """Write all segments, one per core; pyarrow releases Python's lock.

    Args:
        staged: folder of the staged records.
        files: the topic's table.
        jobs: the segments.
        keep: whether other processes may still need the staged files unchanged.
    """

    def write(job: Job) -> WrittenSegment:
        return write_segment(staged, files, *job, keep=keep)

    if len(jobs) < 2:  # noqa: PLR2004
        return [write(job) for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), _threads(files, jobs))) as pool:
        return list(pool.map(write, jobs))


def _threads(files: Storage, jobs: Sequence[Job]) -> int:
    """Return one thread per core; more for remote storage, as long as their segments fit into `HELD_BYTES`."""
    cores = os.cpu_count() or 1
    if not files.scheduler.is_remote:
        return cores
    largest = max(sum(run.bytes for run in ([runs] if isinstance(runs, LargeRun) else runs)) for runs, _ in jobs)
    return max(cores, HELD_BYTES // max(1, largest))


@dataclass(frozen=True)
class StagedPayload:
    """Staged records as a payload of `TopicLog.append_payload`."""

    staged: Storage
    """Storage of the job's folder."""
    runs: Sequence[StagedRun | LargeRun]
    write_all: Writing = in_threads
    """Function that writes the segments."""
    staged_ms: int | None = None
    """Time of records without a timestamp, ms; None for the time of the append."""

    def counts(self) -> Mapping[int, int]:
        """Return the number of records by partition."""
        found: Counter[int] = Counter()
        for run in self.runs:
            found[run.partition] += run.rows
        return found

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Check nothing, because the job has checked each record."""

    def write(
        self,
        files: Storage,
        plan: Mapping[int, range],
        *,
        codec: str,
        now_ms: int,
        now_counts: bool,
    ) -> list[Add]:
        """Write one Parquet file for each large run, and for each `SEGMENT_BYTES` of a partition's other runs."""
        faults.point("append.before_files")
        time_ms = now_ms if now_counts or self.staged_ms is None else self.staged_ms
        jobs = [
            (
                records,
                Numbering(
                    name=segment_name(partition, start),
                    partition=partition,
                    start=start,
                    codec=PARQUET_CODECS[codec],
                    append_time_ms=time_ms,
                    log_append_time=now_counts,
                ),
            )
            for partition, start, records in _segments(self.runs, plan)
        ]
        try:
            written = self.write_all(self.staged, files, jobs)
        except (OSError, pa.ArrowException) as cause:
            # Only the tasks know the names of their files; vacuum removes these.
            raise refused(files, [where.name for _, where in jobs], cause) from cause
        return [_add(w.name, w.partition, w.size, now_ms, _stats(w)) for w in written]


class DecidedRuns(StagedPayload):
    """The staged records of a decided transaction for one topic; see `DecidedRecords`.

    Any number of processes may apply them at a time, and be killed, because the staged files do not change.

    Args:
        place: the transaction's folder.
        manifests: of the writes to the topic, in their order; at least one.
        write_all: writes the segments, and changes no staged file; None uses threads of this process.
    """

    def __init__(self, place: Storage, manifests: Sequence[RunManifest], write_all: Writing | None = None) -> None:
        keeping = partial(in_threads, keep=True) if write_all is None else write_all
        super().__init__(place, in_order(manifests), keeping, manifests[0].time_ms)
        self.codec = manifests[0].codec

    def write(
        self,
        files: Storage,
        plan: Mapping[int, range],
        *,
        codec: str,
        now_ms: int,
        now_counts: bool,
    ) -> list[Add]:
        """Write the segments as `StagedPayload` does.

        Raises:
            StagedFileError: a staged file is missing, or does not hold the records that its task wrote.
        """
        try:
            return super().write(files, plan, codec=codec, now_ms=now_ms, now_counts=now_counts)
        except KafkaStorageError as cause:
            if isinstance(cause.__cause__, FileNotFoundError | DamagedRunError):
                raise StagedFileError(
                    f"{self.staged.uri}: a decided transaction cannot be applied: {cause.__cause__}"
                ) from cause
            raise


def write_anew(staged: Storage, files: Storage, job: Job) -> WrittenSegment:
    """Write a segment in a Spark task, under a name that no other attempt uses.

    Spark may run a task twice at a time (speculation, an executor that it considers lost). The attempt that is late or
    stopped must not open the file that the other one has finished.
    """
    records, where = job
    return write_segment(staged, files, records, replace(where, name=segment_name(where.partition, where.start)))


def _segments(
    runs: Sequence[StagedRun | LargeRun], plan: Mapping[int, range]
) -> Iterator[tuple[int, int, list[StagedRun] | LargeRun]]:
    """Yield partition, first offset and runs of each file."""
    # The sort is stable, so a task's runs of a partition keep their order.
    ordered = sorted(runs, key=lambda run: (run.partition, run.task))
    for partition, own in groupby(ordered, key=lambda run: run.partition):
        start = plan[partition].start
        for records in _grouped(own):
            yield partition, start, records
            start += records.rows if isinstance(records, LargeRun) else sum(run.rows for run in records)


def _grouped(runs: Iterable[StagedRun | LargeRun]) -> Iterator[list[StagedRun] | LargeRun]:
    """Group small runs up to `SEGMENT_BYTES`; a large run is a file by itself."""
    held, size = list[StagedRun](), 0
    for run in runs:
        if held and (isinstance(run, LargeRun) or size + run.bytes > SEGMENT_BYTES):
            yield held
            held, size = [], 0
        if isinstance(run, LargeRun):
            yield run
        else:
            held.append(run)
            size += run.bytes
    if held:
        yield held


def _stats(written: WrittenSegment) -> dict[str, object]:
    ends = (written.offsets[0], written.offsets[-1])
    return segment_stats(len(written.offsets), ends, (written.min_time_ms, written.max_time_ms), written.due_ms)


def _add(name: str, partition: int, size: int, now_ms: int, stats: Mapping[str, object]) -> Add:
    return Add(path=name, partition=partition, size=size, modification_ms=now_ms, data_change=True, stats=stats)
