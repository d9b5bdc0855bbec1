"""The newest row of each key: as a view, and as a table that follows the topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafkalike.spark as ks
from kafkalike import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.forget import forget
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.faults import InjectedFaultError
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.children import run
from tests.tools.shim import fault, preloaded

SCHEMA = "id INT, name STRING"
SECONDS = itertools.count(1)
"""Times of appends, so that each is a segment of its own."""
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.ms": "1",
    "delete.retention.ms": "0",
}


@pytest.fixture(autouse=True)
def nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "latest")


def append(cluster: Cluster, *records: tuple[int, str | None, str | None], topic: str = "orders") -> None:
    batch, now = RecordBatch(), 1_000 * next(SECONDS)
    for partition, key, value in records:
        batch.add(partition, None if key is None else key.encode(), None if value is None else value.encode(), now)
    cluster.log(topic).append(batch)


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select("partition", "key", "offset").collect())


def table(spark: SparkSession, target: str) -> DataFrame:
    return spark.read.format("delta").load(target)


def test_view_has_the_newest_row_of_each_key_typed_and_no_tombstones(spark: SparkSession, root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 2, {})
    append(
        cluster,
        (0, "ann", '{"id": 1, "name": "old"}'),
        (0, "bob", '{"id": 2}'),
        (0, "ann", '{"id": 3, "name": "new"}'),
        (0, "bob", None),
        (0, None, '{"id": 4}'),
        (1, "cid", "{no"),
    )

    view = ks.create_view(spark, "orders", root, latest=True, schema=SCHEMA)

    assert view == "orders__latest"
    found = spark.table(view).select("key", "id", "name", "offset", "value_error").orderBy("key").collect()
    assert [tuple(row) for row in found] == [
        ("ann", 3, "new", 2, None),
        ("cid", None, None, 0, "not an object of JSON with these fields"),
    ]
    append(cluster, (0, "ann", None))
    assert [row.key for row in spark.table(view).collect()] == ["cid"]


def test_killed_refreshes_are_repeated_without_loss_or_double_and_the_group_follows(
    spark: SparkSession, root: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One refresh ends before its commit, one after it; the next ones add nothing twice. Another topic is refused."""
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    append(cluster, (0, "ann", "1"), (0, "bob", "2"), (0, "ann", "3"), (0, "cid", "4"))

    def refresh() -> ks.LatestRefresh:
        return ks.maintain_latest(spark, "orders", target, root, group_id="follower", value_format="string")

    first = refresh()
    append(cluster, (0, "bob", None), (0, "dan", "5"), (0, "ann", "6"))
    for point in ("latest.before_merge", "latest.after_merge"):
        monkeypatch.setenv("KAFKALIKE_FAULT", f"{point}:raise")
        with pytest.raises(InjectedFaultError):
            refresh()
    monkeypatch.delenv("KAFKALIKE_FAULT")
    last = refresh()

    assert (first.full, first.inserted, first.updated, first.deleted) == (True, 3, 0, 0)
    assert (last.version, last.inserted, last.offsets) == (None, 0, {TopicPartition("orders", 0): 7})
    found = table(spark, target).select("key", "value", "offset").orderBy("key").collect()
    assert [tuple(row) for row in found] == [("ann", "6", 6), ("cid", "4", 3), ("dan", "5", 5)]
    merges = spark.sql(f"DESCRIBE HISTORY delta.`{target}`").where("operation = 'MERGE'").collect()
    keys = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    assert [tuple(row.operationMetrics[key] for key in keys) for row in merges] == [("1", "1", "1"), ("3", "0", "0")]
    assert KafkaAdminClient(bootstrap_servers=cluster).list_consumer_group_offsets("follower") == {
        TopicPartition("orders", 0): OffsetAndMetadata(7, "")
    }
    # The same name, and another topic: none of its rows may be merged into the table.
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 1, {})
    with pytest.raises(IllegalArgumentError, match="drop the table"):
        refresh()


KILLS = {
    "Python before the merge": {"KAFKALIKE_FAULT": "latest.before_merge:kill"},
    "Python after the merge": {"KAFKALIKE_FAULT": "latest.after_merge:kill"},
    "the JVM before the merge's commit": fault("write", "kill_before", "/latest/_delta_log/00000000000000000002"),
    "the JVM after a file of the merge": fault("open", "kill_after", "/latest/part-"),
}


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
def test_killed_process_is_followed_by_one_that_applies_each_record_once(
    spark: SparkSession, root: str, target: str, faultshim: Path, kill: dict[str, str]
) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    append(cluster, (0, "ann", "1"), (0, "bob", "2"))

    def refresh() -> ks.LatestRefresh:
        return ks.maintain_latest(spark, "orders", target, root, group_id="follower", value_format="string")

    refresh()
    append(cluster, (0, "bob", None), (0, "cid", "3"), (0, "ann", "4"))
    by_shim = "FAULT_AT" in kill
    env = preloaded(faultshim, kill) if by_shim else kill
    run("tests.spark.workers.latest", {"root": root, "target": target}, env, expected=1 if by_shim else -9)
    refresh()

    found = table(spark, target).select("key", "value", "offset").orderBy("key").collect()
    assert [tuple(row) for row in found] == [("ann", "4", 4), ("cid", "3", 3)]
    merges = spark.sql(f"DESCRIBE HISTORY delta.`{target}`").where("operation = 'MERGE'").collect()
    keys = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    assert [tuple(row.operationMetrics[key] for key in keys) for row in merges] == [("1", "1", "1"), ("2", "0", "0")]
    assert KafkaAdminClient(bootstrap_servers=cluster).list_consumer_group_offsets("follower") == {
        TopicPartition("orders", 0): OffsetAndMetadata(5, "")
    }


@pytest.mark.full
def test_table_equals_the_view_after_compaction_forgetting_and_deletes(
    spark: SparkSession, root: str, target: str
) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 2, COMPACTED)

    def follow() -> ks.LatestRefresh:
        done = ks.maintain_latest(spark, "orders", target, root)
        # A view has the log start of its creation.
        view = ks.create_view(spark, "orders", root, latest=True)
        assert rows(table(spark, target)) == rows(spark.table(view))
        return done

    append(cluster, (0, "a", "1"), (0, "b", "1"), (1, "a", "1"), (1, "c", "1"))
    assert follow().full
    append(cluster, (0, "a", None), (1, "c", "2"))
    append(cluster, (0, "filler", "1"), (1, "filler", "1"))
    # Two passes: the second removes the tombstone of `a`, which the table has not seen.
    maintain(cluster, topics=["orders"])
    append(cluster, (0, "filler", "2"), (1, "filler", "2"))
    maintain(cluster, topics=["orders"])
    assert follow().full
    append(cluster, (0, "d", "1"))
    assert not follow().full
    forget("orders", cluster, keys="b", dry_run=False)
    done = follow()
    assert (done.full, done.deleted) == (True, 1)
    KafkaAdminClient(bootstrap_servers=cluster).delete_records({TopicPartition("orders", 1): 3})
    done = follow()
    assert (done.full, done.deleted) == (False, 2)
    assert follow().version is None


@pytest.mark.full
def test_refreshes_at_the_same_time_apply_each_record_once(spark: SparkSession, root: str, target: str) -> None:
    """The later one plans again; a key that one of them deletes does not come back."""
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    append(cluster, (0, "ann", "1"), (0, "bob", "2"))
    ks.maintain_latest(spark, "orders", target, root)
    append(cluster, (0, "ann", None), (0, "cid", "3"))

    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(ks.maintain_latest, spark, "orders", target, root) for _ in range(2)]
        done = [run.result() for run in runs]

    assert sorted((one.inserted, one.deleted) for one in done) == [(0, 0), (1, 1)]
    assert rows(table(spark, target)) == [(0, "bob", 1), (0, "cid", 3)]


@pytest.mark.full
def test_rows_changed_by_others_are_set_right(spark: SparkSession, root: str, target: str) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    append(cluster, (0, "ann", "1"), (0, "bob", "2"))
    ks.maintain_latest(spark, "orders", target, root)
    spark.sql(f"DELETE FROM delta.`{target}` WHERE offset = 0")  # noqa: S608

    done = ks.maintain_latest(spark, "orders", target, root)

    assert (done.full, done.inserted, done.updated) == (True, 1, 1)
    assert rows(table(spark, target)) == [(0, "ann", 0), (0, "bob", 1)]


@pytest.mark.full
def test_refresh_reads_only_files_with_new_records(spark: SparkSession, root: str, target: str) -> None:
    """Ten files are read at first, one later; the table's files are not written anew."""
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    for nth in range(10):
        append(cluster, (0, f"key-{nth}", "1"))
    ks.maintain_latest(spark, "orders", target, root)
    append(cluster, (0, "key-3", "2"))

    ks.maintain_latest(spark, "orders", target, root)

    metrics = spark.sql(f"DESCRIBE HISTORY delta.`{target}` LIMIT 1").collect()[0].operationMetrics
    assert (metrics["numSourceRows"], metrics["numTargetRowsCopied"]) == ("1", "0")


@pytest.mark.full
def test_new_schema_fills_the_table_again(spark: SparkSession, root: str, target: str) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    append(cluster, (0, "ann", '{"id": 1, "name": "x"}'))
    ks.maintain_latest(spark, "orders", target, root, schema="id INT")

    done = ks.maintain_latest(spark, "orders", target, root, schema=SCHEMA)

    assert done.full
    assert [tuple(row) for row in table(spark, target).select("key", "id", "name").collect()] == [("ann", 1, "x")]


def test_table_of_others_or_in_the_root_is_refused(spark: SparkSession, root: str, target: str) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    append(cluster, (0, "ann", "1"))
    with pytest.raises(IllegalArgumentError, match="lies in the cluster's root"):
        ks.maintain_latest(spark, "orders", f"{root}/orders", root)
    with pytest.raises(IllegalArgumentError, match="infer"):
        ks.maintain_latest(spark, "orders", target, root, schema="infer")
    spark.range(3).write.format("delta").save(target)
    with pytest.raises(IllegalArgumentError, match="rows that kafkalike has not written"):
        ks.maintain_latest(spark, "orders", target, root)
