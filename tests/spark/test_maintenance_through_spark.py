"""Maintenance of a root without locks: this process writes the files, Delta in Spark's JVM makes the table versions."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.log.delta_cluster import DeltaCluster
from kafkalike.log.maintenance import maintenance_of
from kafkalike.log.maintenance_spark import commit_through_spark
from kafkalike.log.topic_log import DeltaTopicLog
from kafkalike.log.writer import Commit, commit
from kafkalike.retention import TopicReport, maintain
from kafkalike.spark import write
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import batch
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, keyed, pairs_of

NOW = SYSTEM_CLOCK.now_ms()

Upkeep = Callable[[str], TopicReport]


@pytest.fixture
def near(root: str) -> DeltaCluster:
    """The root as a local one whose appends are quick."""
    return on_disk(root, queue=False)


@pytest.fixture
def upkeep(root: str, spark: SparkSession) -> Upkeep:
    """A run over one topic of the same root, as of an object store; it must not fail."""

    def go(name: str) -> TopicReport:
        report = maintain(DeltaCluster(f"file://{root}", local=False), [name], clock=SYSTEM_CLOCK)
        assert not report.failed, report
        return report.topics[0]

    return go


def test_segments_leave_and_merge_without_a_lock(root: str, near: DeltaCluster, upkeep: Upkeep) -> None:
    """One table version for each step; Spark appends to the result."""
    near.create_topic("t", 1, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    log = near.log("t")
    for number in range(8):
        log.append(batch((0, f"v{number}"), at_ms=NOW - (2 * HOUR_MS if number < 3 else 0)))

    done = upkeep("t")

    assert (done.log_starts, done.deleted_segments, done.merged_segments) == ({0: (0, 3)}, 3, 5)
    assert [offset for offset, _, _ in pairs_of(log)] == [3, 4, 5, 6, 7]
    assert len(log.segments(0)) == 1
    assert errors_of(root) == []
    found = log.find_commit(lambda c: bool(maintenance_of(c.user_metadata)))
    assert found is not None
    assert not found.data_change


def test_keys_are_compacted_without_a_lock(root: str, spark: SparkSession, near: DeltaCluster, upkeep: Upkeep) -> None:
    """The checkpoint lies in the same table version; files of Spark's are as good as ours."""
    near.create_topic("k", 1, EAGER)
    log = near.log("k")
    frame = spark.createDataFrame([("a", "0"), ("b", "1")], "key STRING, value STRING").coalesce(1)
    write(frame, "k", near)
    for number, key in enumerate("ac", 2):
        log.append(keyed((key, str(number)), at_ms=NOW + HOUR_MS + 10 * number))

    first, second = upkeep("k"), upkeep("k")

    assert pairs_of(log) == [(1, "b", "1"), (2, "a", "2"), (3, "c", "3")]
    assert (first.compacted_records, second.compacted_records) == (1, 0)
    assert errors_of(root) == []


def test_a_rival_that_has_removed_a_file_is_not_overwritten(root: str, spark: SparkSession, near: DeltaCluster) -> None:
    """Delta refuses the version, and nothing is done."""
    near.create_topic("t", 1, {})
    log = near.log("t")
    log.append(batch((0, "v")))
    far = DeltaCluster(f"file://{root}", local=False).log("t")
    log.refresh()
    (segment,) = log.table_segments(0)

    assert commit(log.files, removal(log, segment.path))

    assert not commit_through_spark(far, removal(far, segment.path))
    far.refresh()
    assert far.version == 2


def removal(log: DeltaTopicLog, path: str) -> Commit:
    from kafkalike.log.table.actions import Add

    gone = Add(path=path, partition=0, size=1, modification_ms=0, data_change=True, stats={})
    metadata = '{"kafkalikeAppend":"x"}'
    return Commit(
        version=log.version + 1,
        time_ms=NOW,
        operation="DELETE",
        append_id="x",
        removes=[gone],
        user_metadata=metadata,
    )
