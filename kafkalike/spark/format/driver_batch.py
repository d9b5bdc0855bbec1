"""Small micro-batches whose records the planner itself reads, and the checkpoint marker of a query's offsets.

A task of a Python source takes 50 to 70 ms, however little it reads. The planner of a stream runs anyway, with the log
open. Spark takes records from it where a source has a simple reader (`SimpleDataSourceStreamReader`), keeps them as a
block, and has tasks in the JVM read that. A task that finds the block gone reads the input partition as always.

Spark gives a Python source the offsets that the checkpoint holds, but not the checkpoint. Those of Spark's Kafka source
look the same, and after a change of the format in a query that goes on with its checkpoint they would be taken for
offsets of a topic here, which has other records at them. So the offsets carry a marker. It also has the ids of the
topics: a topic that was deleted and created again while the query was stopped has other records at the same offsets.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from kafkalike.errors import CheckpointMismatchError
from kafkalike.model import faults
from kafkalike.model.offsets import MARK
from kafkalike.spark.format.error_text import hide_frames
from kafkalike.spark.format.input_partitions import OffsetPartition, read_part
from kafkalike.spark.format.stream_reader import Json, StreamReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkalike.spark.format.stream_reader import Json


VERSION: Final = 2
"""Of the form of the offsets. A later one is refused; 1 had no ids of topics."""

PLAIN: Final = 1
IDS: Final = "topics"
"""Where the mark has the ids of the topics, by name."""


class MarkedReader(StreamReader):
    """A `StreamReader` whose offsets say that they are its own, and of which topics."""

    @hide_frames
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.initialOffset`."""
        offsets = super().initialOffset()
        return marked(offsets, self.ids_of(offsets))

    @hide_frames
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.latestOffset`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        offsets, ids = unmarked(start), marked_ids(start)
        end, end_ids = self.end_after(offsets, ids, limit)
        # Text for text the same where nothing is new, also where the mark is that of an earlier version.
        same = end == offsets and all(ids.get(topic, known) == known for topic, known in end_ids.items())
        return start if same else marked(end, end_ids)

    @hide_frames
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """See `StreamReader.partitions`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        return self.tasks(unmarked(start), unmarked(end), marked_ids(start), marked_ids(end))

    @hide_frames
    def commit(self, end: Json) -> None:
        """See `StreamReader.commit`."""
        self.show_progress(unmarked(end), marked_ids(end))


def marked(offsets: Mapping[str, Mapping[str, int]], ids: Mapping[str, str]) -> Json:
    """Offsets as they stand in a checkpoint.

    Args:
        offsets: by topic and partition.
        ids: ids of the topics by name.
    """
    mark: Any = {"version": VERSION, IDS: dict(sorted(ids.items()))}
    return {**{topic: dict(by) for topic, by in offsets.items()}, MARK: mark}


def marked_ids(given: Mapping[str, Any]) -> dict[str, str]:
    """Ids of topics by name that the offsets of a checkpoint belong to; none from before they were kept."""
    return dict(given.get(MARK, {}).get(IDS, {}))


def unmarked(given: Mapping[str, Mapping[str, int]]) -> Json:
    """The offsets of a checkpoint.

    Raises:
        CheckpointMismatchError: the mark is missing, or is that of a later version.
    """
    offsets = {topic: dict(by) for topic, by in given.items() if topic != MARK}
    mark: Any = given.get(MARK)
    if mark is None:
        text = json.dumps(offsets, separators=(",", ":"))
        raise CheckpointMismatchError(
            f'the checkpoint of the query is not one of format("kafkalike"): its offsets {text} have no mark {MARK!r}, '
            "as those of Spark's Kafka source have none. The same offsets name other records here, so nothing was "
            "read. Start the query with a new checkpointLocation and say with startingOffsets where to begin; only "
            f"if all records were imported at the offsets that they had in Kafka, this goes on: startingOffsets={text}"
        )
    if mark.get("version") not in {PLAIN, VERSION}:
        raise CheckpointMismatchError(
            "the checkpoint of the query was written by a later version of kafkalike: its offsets have the mark "
            f"{mark}, and this version knows {PLAIN} and {VERSION}. Use that version, or start with a new "
            "checkpointLocation"
        )
    return offsets


_log = logging.getLogger(__name__)

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as Simple
except ImportError:
    # Not Spark 4.2: batches are read by tasks.
    Simple = None  # type: ignore[assignment,misc]

MOST_OFFSETS: Final = 16_384
"""Offsets of a batch that is handed over. The JVM takes them row by row in one thread: from about twice as many on,
tasks are faster."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of its records, at most: they are in the driver's memory until the next batch."""


class HandingReader(MarkedReader):
    """A `MarkedReader` that hands over small batches itself.

    Spark asks for the input partitions, then by `isinstance` whether the reader is its wrapper of a simple one, and if
    so for the records. This reader says yes where it has read the batch, and until the records were asked for.
    """

    _handed: Sequence[RecordBatch] | None = None
    """The records of the batch that Spark has just asked for, if it is to take them from here."""

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """See `StreamReader.partitions`. Only a batch of one input partition is handed over."""
        self._handed = None
        made = super().partitions(start, end)
        faults.point("source.planned")
        if Simple is not None and len(made) == 1:
            self._handed = read_small(made[0])
            faults.point("source.handed")
        return made

    def _seen_as(self) -> type[Any]:
        return type(self) if self._handed is None else Simple

    __class__ = property(_seen_as)
    """What `isinstance` looks at besides the type."""

    def getCache(self, start: Json, end: Json) -> Iterator[RecordBatch]:  # noqa: ARG002, N802 - Spark's name
        """The records of the batch, once."""
        batches, self._handed = self._handed, None
        faults.point("source.taken")
        return iter(batches or ())


def read_small(partition: InputPartition) -> list[RecordBatch] | None:
    """The records of an input partition; None where a task is to read them: they are many, or cannot be read.

    A task tells an error to the user as it always does.
    """
    assert isinstance(partition, OffsetPartition)
    if sum(len(plan.offsets) for plan in partition.plans) > MOST_OFFSETS:
        return None
    try:
        return _up_to(MOST_BYTES, read_part(partition))
    except Exception:  # noqa: BLE001 - whatever it is, the task meets it as well
        _log.debug("the planner leaves a batch to a task", exc_info=True)
        return None


def _up_to(most: int, batches: Iterable[RecordBatch]) -> list[RecordBatch] | None:
    found, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > most:
            return None
        found.append(batch)
    return found
