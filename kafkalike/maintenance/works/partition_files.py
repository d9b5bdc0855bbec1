"""Partition files: copy the records of a partition into files of several new ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kafkalike import errors
from kafkalike.delta.actions import Add
from kafkalike.log.topic.batch_payload import segment_name
from kafkalike.log.topic.column_rules import Slices
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.maintenance.works.file_rewrite import SegmentWriter, WrittenRows, codec_of
from kafkalike.model.clock import Deadline
from kafkalike.model.murmur2 import partitions_of_slices
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSplit:
    """A job: some records of a partition to copy to the partitions of its family."""

    files: Storage
    target: Storage
    """Files of the successor's table."""
    partition: int
    segments: tuple[Segment, ...]
    """The segments that hold the records, in offset order."""
    low: int
    """Records below this offset are not copied."""
    start: int
    """Log end of the family before."""
    stop: int
    """Log end of the family afterwards."""
    before: int
    after: int
    compression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFiles:
    """The files that a job has written."""

    partition: int
    start: int
    stop: int
    adds: list[Add]
    records: int
    size: int
    """Bytes of the source files."""


def split_files(job: PartitionSplit, budget: Deadline) -> Iterator[SplitFiles]:
    """Write the files of a job; a `Work` of `file_tasks`. A job is short and ignores the budget."""
    del budget
    outputs: dict[int, _Output] = {}
    codec = codec_of(job.files, job.compression, job.segments[-1]) if job.segments else "none"
    try:
        for segment in job.segments:
            for table in read_segment(job.files, segment):
                offsets = table.column("offset").to_numpy()
                wanted = (offsets >= job.low) & (offsets < job.stop)
                kept = table if wanted.all() else table.filter(pa.array(wanted))
                if not kept.num_rows:
                    continue
                places = _places(kept, job)
                for place in np.unique(places).tolist():
                    output = outputs.get(place)
                    if output is None:
                        output = outputs[place] = _Output(job, place, codec, segment)
                    output.write(kept.filter(pa.array(places == place)), segment)
        adds = [output.finished() for output in outputs.values()]
    except (errors.KafkaError, OSError, pa.ArrowException) as cause:
        for output in outputs.values():
            output.discard()
        if isinstance(cause, errors.KafkaError):
            raise
        raise errors.KafkaStorageError(f"{job.target.uri} cannot be written: {cause}") from cause
    yield SplitFiles(
        partition=job.partition,
        start=job.start,
        stop=job.stop,
        adds=adds,
        records=sum(output.rows.rows for output in outputs.values()),
        size=sum(segment.size_bytes for segment in job.segments),
    )


def _places(table: pa.Table, job: PartitionSplit) -> np.ndarray:
    """Return the new partition of each record: by its key as `split_rows` does; those without a key take turns."""
    keys = Slices.of(table.column("key"))
    turns = table.column("offset").to_numpy() % (job.after // job.before)
    places: np.ndarray = job.partition + job.before * turns
    keyed = ~keys.null
    if keyed.any():
        hashed = partitions_of_slices(keys.data, keys.starts[keyed], keys.ends[keyed], job.after)
        places[keyed] = job.partition + job.before * (hashed.astype(np.int64) // job.before)
    return places


class _Output:
    """A file of one new partition that is being written."""

    def __init__(self, job: PartitionSplit, partition: int, codec: str, first: Segment) -> None:
        self.rows = WrittenRows()
        self._target = job.target
        self._partition = partition
        self._name = segment_name(partition, max(first.start, job.low))
        # Each file gets its share of the records, about.
        share = sum(s.num_records for s in job.segments) * job.before // job.after
        self._writer = SegmentWriter(job.target, self._name, codec, max(1, share))
        self._modified_ms = max(s.modification_ms for s in job.segments)
        self._due_ms = min(s.due_ms for s in job.segments)

    def write(self, table: pa.Table, segment: Segment) -> None:
        """Add the next records, which are in `segment`."""
        self.rows.take(table, segment)
        self._writer.write(table)

    def finished(self) -> Add:
        """Close the file, and return its entry for the table."""
        self._writer.__exit__(None)
        return Add(
            path=self._name,
            partition=self._partition,
            size=self._target.size(self._name),
            modification_ms=self._modified_ms,
            data_change=True,
            stats=self.rows.stats(self._due_ms),
        )

    def discard(self) -> None:
        """Remove the file after a failure."""
        self._writer.__exit__(KeyboardInterrupt)
        self._target.remove(self._name, quietly=True)
