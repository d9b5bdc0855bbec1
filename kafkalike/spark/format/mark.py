"""Mark: offsets of the reader in, those of the checkpoint out, and back; those of another source are refused.

Spark gives a Python source the offsets that the checkpoint holds, but not the checkpoint. Those of Spark's Kafka source
look the same, and after a change of the format in a query that goes on with its checkpoint they would be taken for
offsets of a topic here, which has other records at them.

The mark also has the ids of the topics: a topic that was deleted and created again while the query was stopped has
other records at the same offsets too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from kafkalike.errors import CheckpointMismatchError
from kafkalike.model.offsets import MARK
from kafkalike.spark.format.named import plainly
from kafkalike.spark.format.stream import Json, StreamReader

VERSION: Final = 2
"""Of the form of the offsets. A later one is refused; 1 had no ids of topics."""

PLAIN: Final = 1
IDS: Final = "topics"
"""Where the mark has the ids of the topics, by name."""


class MarkedReader(StreamReader):
    """A `StreamReader` whose offsets say that they are its own, and of which topics."""

    @plainly
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """See `StreamReader.initialOffset`."""
        offsets = super().initialOffset()
        return marked(offsets, self.ids_of(offsets))

    @plainly
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

    @plainly
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """See `StreamReader.partitions`.

        Raises:
            CheckpointMismatchError: the query's checkpoint belongs to another source.
        """
        return self.tasks(unmarked(start), unmarked(end), marked_ids(start), marked_ids(end))

    @plainly
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
