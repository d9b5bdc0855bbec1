"""Between: where a batch over tables begins and ends, as the format's options say it, in; offsets out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalike.spark.format.batch import batch_runs
from kafkalike.spark.format.options import parse_options
from kafkalike.spark.format.topics import Topics

if TYPE_CHECKING:
    from kafkalike.model.config.storage import SentOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What a user has said."""

    starting_offsets: str | None
    ending_offsets: str | None
    group_id: str | None
    auto_offset_reset: str | None

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return any((self.starting_offsets, self.ending_offsets, self.group_id, self.auto_offset_reset))

    def ranges(self, root: str, storage: SentOptions | None, names: list[str]) -> dict[str, dict[int, range]]:
        """Offsets by topic and partition, as of now.

        Raises:
            IllegalArgumentError, UnknownTopicOrPartitionError, NoOffsetForPartitionError, DataLossError: as with
                format `kafkalike`.
        """
        said = {
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
            "group_id": self.group_id,
            "kafka.auto.offset.reset": self.auto_offset_reset,
        }
        given = {name: value for name, value in said.items() if value is not None}
        options = parse_options({"kafka.bootstrap.servers": root, "subscribe": ",".join(names)} | given, storage)
        found: dict[str, dict[int, range]] = {name: {} for name in names}
        for run in batch_runs(Topics(options), options):
            found[run.tp.topic][run.tp.partition] = run.offsets
        return found
