"""Handed: a small micro-batch in; its records out of the planner, with its input partition, instead of out of a task.

A task of a Python source takes 50 to 70 ms, however little it reads. The planner of a stream runs anyway, with the log
open. Spark takes records from it where a source has a simple reader (`SimpleDataSourceStreamReader`), keeps them as a
block, and has tasks in the JVM read that. A task that finds the block gone reads the input partition as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from kafkalike.model import faults
from kafkalike.spark.format.mark import MarkedReader
from kafkalike.spark.format.parts import Part, read_part

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkalike.spark.format.stream import Json

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
    assert isinstance(partition, Part)
    if sum(len(plan.offsets) for plan in partition.plans) > MOST_OFFSETS:
        return None
    try:
        return _up_to(MOST_BYTES, read_part(partition))
    except Exception:  # noqa: BLE001 - whatever it is, the task meets it as well
        return None


def _up_to(most: int, batches: Iterable[RecordBatch]) -> list[RecordBatch] | None:
    found, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > most:
            return None
        found.append(batch)
    return found
