"""Mark: offsets of the reader in, those of the checkpoint out, and back; those of another source are refused.

Spark gives a Python source the offsets that the checkpoint holds, but not the checkpoint. Those of Spark's Kafka source
look the same, and after a change of the format in a query that goes on with its checkpoint they would be taken for
offsets of a topic here, which has other records at them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from kafkalike.errors import CheckpointMismatchError
from kafkalike.log.jvm.stream_checkpoint import MARK
from kafkalike.spark.format.stream import Json, StreamReader

VERSION: Final = 1
"""Of the form of the offsets. A later one is refused."""


class MarkedReader(StreamReader):
    """A `StreamReader` whose offsets say that they are its own."""

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.initialOffset`."""
        return marked(super().initialOffset())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.latestOffset`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        return marked(super().latestOffset(unmarked(start), limit))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """See `StreamReader.partitions`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        return super().partitions(unmarked(start), unmarked(end))

    def commit(self, end: Json) -> None:
        """See `StreamReader.commit`."""
        super().commit(unmarked(end))


def marked(offsets: Mapping[str, Mapping[str, int]]) -> Json:
    """Offsets as they stand in a checkpoint."""
    return {**{topic: dict(by) for topic, by in offsets.items()}, MARK: {"version": VERSION}}


def unmarked(given: Mapping[str, Mapping[str, int]]) -> Json:
    """The offsets of a checkpoint.

    Raises:
        CheckpointMismatchError: the mark is missing, or is that of a later version.
    """
    offsets = {topic: dict(by) for topic, by in given.items() if topic != MARK}
    mark = given.get(MARK)
    if mark is None:
        text = json.dumps(offsets, separators=(",", ":"))
        raise CheckpointMismatchError(
            f'the checkpoint of the query is not one of format("kafkalike"): its offsets {text} have no mark {MARK!r}, '
            "as those of Spark's Kafka source have none. The same offsets name other records here, so nothing was "
            "read. Start the query with a new checkpointLocation and say with startingOffsets where to begin; only "
            f"if all records were imported at the offsets that they had in Kafka, this goes on: startingOffsets={text}"
        )
    if mark != {"version": VERSION}:
        raise CheckpointMismatchError(
            f"the checkpoint of the query was written by a later version of kafkalike: its offsets have the mark "
            f"{mark}, and this version knows {VERSION}. Use that version, or start with a new checkpointLocation"
        )
    return offsets
