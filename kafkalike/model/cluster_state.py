"""ClusterState: rows of `__cluster_metadata` in, the topics of the cluster out.

Every row is the whole truth about its key (a topic, or the log start of a partition), so the latest row of a key
wins and a table that keeps only latest rows says the same as one that keeps all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import LogStart, TopicInfo

TOPIC: Final = "topic"
LOG_START: Final = "log_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRow:
    """One row of `__cluster_metadata`; `seq` orders the rows of the table."""

    seq: int
    time_ms: int
    kind: str
    """`topic` or `log_start`."""
    topic: str
    topic_id: str
    change: str
    """What happened, for people: `created`, `configs changed` …"""
    value: str
    """JSON: the state of the key after the change."""


def topic_row(seq: int, time_ms: int, info: TopicInfo, change: str, *, deleted: bool = False) -> MetadataRow:
    """The row that says what a topic is from now on."""
    value = {
        "location": info.location,
        "num_partitions": info.num_partitions,
        "configs": dict(info.configs),
        "created_ms": info.created_ms,
        "deleted": deleted,
    }
    return MetadataRow(
        seq=seq,
        time_ms=time_ms,
        kind=TOPIC,
        topic=info.name,
        topic_id=info.topic_id,
        change=change,
        value=json.dumps(value, sort_keys=True),
    )


def log_start_row(seq: int, info: TopicInfo, partition: int, start: LogStart) -> MetadataRow:
    """The row that says where a partition's log begins from now on."""
    value = {"partition": partition, "offset": start.offset, "reason": start.reason, "run": start.run}
    return MetadataRow(
        seq=seq,
        time_ms=start.time_ms,
        kind=LOG_START,
        topic=info.name,
        topic_id=info.topic_id,
        change=f"log start of partition {partition} moved to {start.offset}",
        value=json.dumps(value, sort_keys=True),
    )


class ClusterState:
    """The topics, as of the rows applied so far. Caller: the control log, row by row in `seq` order."""

    __slots__ = ("_log_starts", "seq", "topics", "used_names")

    def __init__(self) -> None:
        self.seq = 0
        """Number of the last row applied."""
        self.topics: dict[str, TopicInfo] = {}
        self.used_names: set[str] = set()
        """Names that ever belonged to a topic, the deleted ones included."""
        self._log_starts: dict[str, dict[int, LogStart]] = {}
        """By topic id. In a compacted table a topic's row may come after those of its log starts."""

    def apply(self, row: MetadataRow) -> None:
        """Take in one row; rows that were applied before change nothing."""
        if row.seq <= self.seq:
            return
        value = json.loads(row.value)
        if row.kind == TOPIC:
            self._apply_topic(row, value)
        elif row.kind == LOG_START:
            self._apply_log_start(row, value)
        self.seq = row.seq

    def _apply_topic(self, row: MetadataRow, value: Mapping[str, object]) -> None:
        self.used_names.add(row.topic)
        if value["deleted"]:
            self.topics.pop(row.topic, None)
            self._log_starts.pop(row.topic_id, None)
            return
        self.topics[row.topic] = TopicInfo(
            name=TopicName(row.topic),
            topic_id=TopicId(row.topic_id),
            location=str(value["location"]),
            num_partitions=int(str(value["num_partitions"])),
            configs=dict(value["configs"]),  # type: ignore[call-overload]
            log_starts=dict(self._log_starts.get(row.topic_id, {})),
            created_ms=int(str(value["created_ms"])),
        )

    def _apply_log_start(self, row: MetadataRow, value: Mapping[str, object]) -> None:
        start = LogStart(
            offset=int(str(value["offset"])),
            reason=str(value["reason"]),
            run=str(value["run"]),
            time_ms=row.time_ms,
        )
        partition = int(str(value["partition"]))
        starts = self._log_starts.setdefault(row.topic_id, {})
        if partition in starts and start.offset <= starts[partition].offset:
            return
        starts[partition] = start
        info = self.topics.get(row.topic)
        if info is not None and info.topic_id == row.topic_id:
            self.topics[row.topic] = replace(info, log_starts=dict(starts))

    def require(self, name: str) -> TopicInfo:
        """The topic of that name.

        Raises:
            UnknownTopicOrPartitionError: when there is none.
        """
        info = self.topics.get(name)
        if info is None:
            message = f"topic {name!r} does not exist"
            raise UnknownTopicOrPartitionError(message)
        return info
