"""Upkeep: a root and what to put into it in, topics that maintenance has something to do for out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_run import MaintenanceReport, TopicReport, maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from tests.tools.clusters import on_disk

HOUR_MS: Final = 3_600_000
AT_ONCE: Final = {
    "kafkalike.merge.min.age.ms": "0",
    "file.delete.delay.ms": "0",
    "kafkalike.replaced.file.delay.ms": "0",
}
"""Settings with which nothing waits."""
EAGER: Final = {
    **AT_ONCE,
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
"""The same for a compacted topic in which each append of a later time begins a segment."""


def turns(records: int, partitions: int, at_ms: int) -> Iterator[RecordBatch]:
    """Six batches, 10 ms apart: keys that come again, tombstones, headers, some keys in one partition only."""
    for turn in range(6):
        made = RecordBatch()
        for number in range(records):
            key = b"key-%d" % (number * (turn + 1) % 40)
            value = None if (number + turn) % 7 == 0 else b"%d-%d" % (turn, number)
            made.add(number % partitions, key, value, at_ms + 10 * turn, [("turn", b"%d" % turn)])
        yield made


class ShiftedClock:
    """The machine's clock, some time ahead; files on disk keep the machine's own time."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """The time, ms."""
        return SYSTEM_CLOCK.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds, ahead as well."""
        return SYSTEM_CLOCK.monotonic() + self.ahead_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        SYSTEM_CLOCK.sleep(seconds)


def open_cluster(root: str, clock: ShiftedClock | None = None) -> Cluster:
    """A cluster as a new process opens it; in an object store with the options of the environment."""
    return on_disk(root, clock=clock or SYSTEM_CLOCK)


def topic(root: str, name: str, partitions: int, configs: Mapping[str, str]) -> TopicLog:
    """A new topic."""
    cluster = open_cluster(root)
    cluster.create_topic(name, partitions, configs)
    return cluster.log(name)


def keyed(*pairs: tuple[str, str | None], at_ms: int, partition: int = 0) -> RecordBatch:
    """Records of one time with keys; value None is a tombstone."""
    made = RecordBatch()
    for key, value in pairs:
        made.add(partition, key.encode(), None if value is None else value.encode(), at_ms)
    return made


def upkeep(root: str, name: str = "t", clock: ShiftedClock | None = None, **options: Any) -> TopicReport:
    """A run over one topic, from a cluster opened afresh; it must not fail."""
    report = run(root, name, clock=clock, **options)
    (found,) = report.topics
    return found


def run(root: str, *names: str, clock: ShiftedClock | None = None, **options: Any) -> MaintenanceReport:
    """A run over topics, all when none is named."""
    report = maintain(open_cluster(root, clock), names or None, clock=clock or SYSTEM_CLOCK, **options)
    assert not report.failed, report
    return report


def pairs_of(log: TopicLog, partition: int = 0) -> list[tuple[int, str | None, str | None]]:
    """Offset, key and value of all records that can be read."""
    log.refresh()
    reader = log.reader(partition, log.log_start(partition))
    found: list[tuple[int, str | None, str | None]] = []
    while (chunk := reader.read(1 << 20)) is not None:
        columns = chunk.columns()
        texts = [[None if v is None else v.decode() for v in column] for column in (columns.keys, columns.values)]
        found += zip(columns.offsets, *texts, strict=True)
    return found
