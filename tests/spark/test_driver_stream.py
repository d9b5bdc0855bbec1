"""Streams that the driver plans: read without Python tasks, with the offsets and reports of the format's own reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import read
from kafkalike.spark.format import input_partitions
from kafkalike.spark.reads import stream_start
from kafkalike.spark.reads.driver_stream import SINK_SWITCH, SWITCH, StreamPlanner
from tests.tools.damage import rewrite
from tests.tools.lines import Lines
from tests.tools.records import all_records, batch, fill
from tests.tools.upkeep import AT_ONCE, EAGER, upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = "spark.sql.parquet.enableVectorizedReader"
DRIVER, PROCESS = "kafkalike[Subscribe[in]]", "PythonMicroBatchStream"


@pytest.fixture(autouse=True)
def driver_plans(spark: SparkSession) -> Iterator[None]:
    before = {SWITCH: spark.conf.get(SWITCH, "true"), SINK_SWITCH: spark.conf.get(SINK_SWITCH, "true")}
    for switch in before:
        spark.conf.set(switch, "true")
    yield
    spark.conf.unset(VECTORS)
    for switch, value in before.items():
        spark.conf.set(switch, str(value))


@pytest.fixture
def topic(cluster: Cluster) -> Cluster:
    """Topic `in` with offsets 0 to 5 in partition 0, in two files, and 2 records in partition 1."""
    cluster.create_topic("in", 2, {**AT_ONCE, "retention.ms": "-1"})
    fill(cluster, "in", *"abc")
    cluster.log("in").append(batch((0, "d"), (1, "x"), (0, "e"), (1, "y"), (0, "f")))
    return cluster


def load(spark: SparkSession, root: str, **given: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": root, "subscribe": "in", "startingOffsets": "earliest"}
    return spark.readStream.format("kafkalike").options(**{**options, **given}).load()


def drain(frame: DataFrame, checkpoint: Path) -> tuple[list[list[tuple[int, int, str]]], list[Any]]:
    """Run a query over all records; the rows of each batch in their order, and the progress."""
    batches: list[list[tuple[int, int, str]]] = []

    def keep(rows: DataFrame, _: int) -> None:
        found = rows.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
        batches.append([(row.partition, row.offset, row.value) for row in found])

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    running = query.trigger(availableNow=True).start()
    assert running.awaitTermination(120)
    return batches, [progress for progress in running.recentProgress if progress["numInputRows"]]


@pytest.fixture(params=["by tasks", "by tasks, row by row", "by the driver"])
def reading(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have batches read by tasks, or, as if all were small, by the driver."""
    monkeypatch.setattr(input_partitions, "MOST_OFFSETS", 1_000_000 if request.param == "by the driver" else 0)
    spark.conf.set(VECTORS, str(request.param != "by tasks, row by row").lower())


@pytest.mark.usefixtures("reading")
def test_batches_that_cut_files_are_counted_exactly_with_their_lag(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path
) -> None:
    batches, progress = drain(load(spark, root, maxOffsetsPerTrigger="4"), tmp_path)

    assert [sorted(rows) for rows in batches] == [
        [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 0, "x")],
        [(0, 3, "d"), (0, 4, "e"), (0, 5, "f"), (1, 1, "y")],
    ]
    assert [row for row in batches[1] if row[0] == 0] == [(0, 3, "d"), (0, 4, "e"), (0, 5, "f")]
    assert [one["numInputRows"] for one in progress] == [4, 4]
    assert {one["sources"][0]["description"] for one in progress} == {DRIVER}
    metrics = [one["sources"][0]["metrics"] for one in progress]
    assert [(one["lagRecords.in"], one["maxOffsetsBehindLatest"]) for one in metrics] == [("4", "3"), ("0", "0")]
    assert metrics[1]["lagSeconds.in"] == "0.0"


@pytest.mark.usefixtures("reading")
def test_all_columns_are_those_of_a_batch(spark: SparkSession, root: str, topic: Cluster, tmp_path: Path) -> None:
    frame = load(spark, root, includeHeaders="true")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)

    options = {"kafka.bootstrap.servers": root, "subscribe": "in", "includeHeaders": "true"}
    whole = spark.read.format("kafkalike").options(**options).load().orderBy("partition", "offset").collect()
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("partition", "offset")

    assert found.columns == frame.columns
    assert found.collect() == whole


@pytest.mark.usefixtures("reading")
def test_batches_that_cut_a_long_file_have_each_record_once_in_order(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Spark's reader gives 4096 rows at a time."""
    cluster.create_topic("in", 1, {})
    long, found = RecordBatch(), list[list[tuple[Any, ...]]]()
    for n in range(20_000):
        long.add(0, None, str(n).encode() if n % 5 else None, 1_000 * n, headers=[("n", str(n).encode())] * (n % 3))
    cluster.log("in").append(long)
    frame = load(spark, root, maxOffsetsPerTrigger="7000", includeHeaders="true")

    writer = frame.select("offset", "value", "headers").writeStream.foreachBatch(
        lambda rows, _: found.append([tuple(row) for row in rows.collect()])
    )
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)

    expected = [
        (n, bytearray(str(n).encode()) if n % 5 else None, [("n", bytearray(str(n).encode()))] * (n % 3) or None)
        for n in range(20_000)
    ]
    assert found == [expected[:7000], expected[7000:14000], expected[14000:]]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_file_that_lacks_a_record_stops_the_query(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    monkeypatch.setattr(input_partitions, "MOST_OFFSETS", 0)
    for path in Path(root).glob("in*/partition=0/*.parquet"):
        rewrite(path, pq.read_table(path, partitioning=None).slice(1))
    spark.conf.set(VECTORS, vectors)

    with pytest.raises(StreamingQueryException, match=r"has 2 records of the offsets \[\d, \d\)"):
        drain(load(spark, root), tmp_path)


def swap(root: str, topic: str) -> None:
    """Exchange the contents of a partition's two files, which have one size and as many records."""
    one, other = sorted(Path(root).glob(f"{topic}*/partition=0/*.parquet"))
    first, second = one.read_bytes(), other.read_bytes()
    assert len(first) == len(second)
    one.write_bytes(second)
    other.write_bytes(first)


@pytest.mark.parametrize("limit", ["100", "4"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_files_with_the_offsets_of_one_another_stop_the_query(
    spark: SparkSession,
    root: str,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vectors: str,
    limit: str,
) -> None:
    """Read whole, and cut."""
    monkeypatch.setattr(input_partitions, "MOST_OFFSETS", 0)
    cluster.create_topic("in", 1, {"retention.ms": "-1"})
    fill(cluster, "in", *"abcdef")
    fill(cluster, "in", *"ghijkl")
    swap(root, "in")
    spark.conf.set(VECTORS, vectors)

    with pytest.raises(StreamingQueryException, match=r"CorruptRecordError: .* has .* of the offsets \[0, \d\)"):
        drain(load(spark, root, maxOffsetsPerTrigger=limit), tmp_path)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_file_whose_records_changed_places_stops_the_query(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    """The first and the last one of the file's batch of columns are in their places."""
    monkeypatch.setattr(input_partitions, "MOST_OFFSETS", 0)
    cluster.create_topic("in", 1, {"retention.ms": "-1"})
    fill(cluster, "in", *"abcd")
    (path,) = Path(root).glob("in*/partition=0/*.parquet")
    rewrite(path, pq.read_table(path, partitioning=None).take([0, 2, 1, 3]))
    spark.conf.set(VECTORS, vectors)

    with pytest.raises(StreamingQueryException, match=r"has a row with the offset 1 after 2 .* \[0, 4\)"):
        drain(load(spark, root), tmp_path)


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_compacted_file_that_lacks_a_record_stops_the_query(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    monkeypatch.setattr(input_partitions, "MOST_OFFSETS", 0)
    cluster.create_topic("in", 1, EAGER)
    rows = RecordBatch()
    for nth in range(9):
        rows.add(0, b"same" if nth % 2 else b"k%d" % nth, b"v", 1_000 + nth)
    cluster.log("in").append(rows)
    fill(cluster, "in", "y", key=b"other", at_ms=50_000)
    fill(cluster, "in", "z", key=b"another", at_ms=90_000)
    assert upkeep(root, "in").compacted_records > 0
    log = connect(root).log("in")
    (sparse,) = (one for one in log.table_segments(0) if one.num_records < one.stop - one.start)
    path = next(Path(root).glob(f"in*/{sparse.path}"))
    table = pq.read_table(path, partitioning=None)
    rewrite(path, table.slice(0, len(table) - 1))
    spark.conf.set(VECTORS, vectors)

    with pytest.raises(StreamingQueryException, match=rf"CorruptRecordError: .* has {len(table) - 1} records"):
        drain(load(spark, root), tmp_path / "whole")
    pq.write_table(table.slice(0, len(table) - 1), path)
    with pytest.raises(StreamingQueryException, match=r"CorruptRecordError: .* has \d+ bytes instead of \d+"):
        drain(load(spark, root, maxOffsetsPerTrigger="5"), tmp_path / "in parts")


def test_ended_queries_leave_no_threads_and_connections(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path
) -> None:
    before = threading.active_count()
    for nth in range(6):
        drain(load(spark, root), tmp_path / str(nth))

    # The next query closes the connection of the last one.
    until = SYSTEM_CLOCK.monotonic() + 60
    while threading.active_count() > before + 2:
        assert SYSTEM_CLOCK.monotonic() < until
        SYSTEM_CLOCK.sleep(0.05)


def test_files_that_another_writer_sorted_leave_the_stream_to_the_format(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the topic is closed again, and the driver planned the query before."""
    monkeypatch.setattr(input_partitions, "MOST_OFFSETS", 0)
    cluster.create_topic("in", 1, {"retention.ms": "-1"})
    fill(cluster, "in", *"ab")
    _, before = drain(load(spark, root), tmp_path)
    cluster.set_configs("in", {"retention.ms": "-1", "kafkalike.foreign.writes": "allow"})
    rows = RecordBatch()
    for nth in range(4):
        rows.add(0, None, b"v", 9_000 - 1_000 * nth)
    cluster.log("in").append(rows)
    DeltaTable(str(next(Path(root).glob("in*")))).optimize.z_order(["timestamp"])
    cluster.set_configs("in", {"retention.ms": "-1"})

    batches, after = drain(load(spark, root), tmp_path)

    assert [offset for found in batches for _, offset, _ in found] == [2, 3, 4, 5]
    assert before[0]["sources"][0]["description"] == DRIVER
    assert PROCESS in after[0]["sources"][0]["description"]


def test_idle_query_reads_records_that_come_and_can_be_stopped(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, looked, look = threading.Event(), threading.Event(), StreamPlanner._latest

    def latest(self: StreamPlanner, *given: Any) -> dict[str, Any]:
        looked.set()
        return look(self, *given)

    monkeypatch.setattr(StreamPlanner, "_latest", latest)
    writer = load(spark, root, startingOffsets="latest").writeStream.foreachBatch(
        lambda rows, _: came.set() if rows.count() else None
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    for _ in range(2):
        # An idle query's planner is asked after some seconds, whatever files there are.
        looked.clear()
        assert looked.wait(60)
    fill(topic, "in", "g")

    assert came.wait(60)
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None


def test_idle_query_of_two_topics_reads_records_of_either(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two streams waits for the files of both."""
    topic.create_topic("other", 1, {})
    looks, look, came = dict[Any, int](), StreamPlanner._latest, dict[str, threading.Event]()

    def latest(self: StreamPlanner, *given: Any) -> dict[str, Any]:
        looks[self] = looks.get(self, 0) + 1
        return look(self, *given)

    def keep(rows: DataFrame, _: int) -> None:
        for row in rows.selectExpr("topic").distinct().collect():
            came[row.topic].set()

    monkeypatch.setattr(StreamPlanner, "_latest", latest)
    frames = [load(spark, root, subscribe=name, startingOffsets="latest") for name in ("in", "other")]
    writer = frames[0].union(frames[1]).writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    for name in ("other", "in"):
        came[name] = threading.Event()
        before = dict(looks)
        until = SYSTEM_CLOCK.monotonic() + 60
        while any(looks[planner] < before[planner] + 2 for planner in before):
            # An idle query's planners are asked after some seconds, whatever files there are.
            assert SYSTEM_CLOCK.monotonic() < until
            SYSTEM_CLOCK.sleep(0.05)
        fill(topic, name, "g")
        assert came[name].wait(60)
    query.stop()

    assert len(looks) == 2
    assert query.exception() is None


@pytest.mark.usefixtures("reading")
def test_stream_that_is_joined_with_itself_reads_each_batch_twice(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path
) -> None:
    frame = load(spark, root)

    batches, _ = drain(frame.union(frame), tmp_path)

    assert [len(rows) for rows in batches] == [16]
    assert len(set(batches[0])) == 8


@pytest.mark.parametrize("first", ["false", "true"], ids=["from the process to the driver", "from the driver on"])
def test_checkpoint_goes_on_with_the_other_planner(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, first: str
) -> None:
    spark.conf.set(SWITCH, first)
    drain(load(spark, root), tmp_path)
    fill(topic, "in", "g")
    spark.conf.set(SWITCH, "false" if first == "true" else "true")
    batches, progress = drain(load(spark, root), tmp_path)

    assert batches == [[(0, 6, "g")]]
    assert (PROCESS if first == "true" else DRIVER) in progress[0]["sources"][0]["description"]


def _forget_files(cluster: Cluster) -> None:
    for path in Path(cluster.root).glob("in*/partition=0/*.parquet"):
        path.unlink()


def _move_start(cluster: Cluster) -> None:
    cluster.move_log_start("in", {0: 7}, "retention", "r")


LOSSES: dict[str, tuple[Callable[[Cluster], None], str]] = {
    "deleted by retention": (_move_start, r"KAFKA_DATA_LOSS.*offsets \[6, 7\) are lost"),
    "file vanished": (_forget_files, r"KAFKA_DATA_LOSS.*offsets \[6, 8\) are lost: .* is missing"),
}


@pytest.mark.parametrize(("lose", "message"), LOSSES.values(), ids=LOSSES)
def test_lost_records_stop_the_query(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, lose: Callable[[Cluster], None], message: str
) -> None:
    drain(load(spark, root), tmp_path)
    fill(topic, "in", "g", "h")
    lose(topic)

    with pytest.raises(StreamingQueryException, match=message) as stopped:
        drain(load(spark, root), tmp_path)

    assert str(stopped.value).startswith("DataLossError: ")


def test_compacted_topic_is_read_without_its_removed_records(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("in", 1, EAGER)
    for nth, value in enumerate("abc"):
        fill(cluster, "in", value, key=b"key", at_ms=1_000 * (nth + 1))
    fill(cluster, "in", "d", key=b"other", at_ms=5_000)
    assert upkeep(root, "in").compacted_records > 0

    batches, _ = drain(load(spark, root), tmp_path)

    assert [row[1:] for row in batches[0]][-2:] == [(2, "c"), (3, "d")]


def test_query_that_may_skip_lost_records_is_left_to_the_process(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path
) -> None:
    _, progress = drain(load(spark, root, failOnDataLoss="false"), tmp_path)

    assert PROCESS in progress[0]["sources"][0]["description"]


def write(frame: DataFrame, root: str, checkpoint: Path, **given: str) -> list[Any]:
    """Write a stream into topic `out`; returns the progress of its batches."""
    options = {"kafka.bootstrap.servers": root, "topic": "out", "checkpointLocation": str(checkpoint), **given}
    running = frame.writeStream.format("kafkalike").trigger(availableNow=True).start(queryName=None, **options)
    assert running.awaitTermination(120)
    return [progress for progress in running.recentProgress if progress["numInputRows"]]


def test_driver_commits_a_sinks_batches_and_its_progress_counts_their_records(
    spark: SparkSession, lines: Lines, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Of all columns: a null header, key and value are not empty ones."""
    cluster.create_topic("out", 2, {})
    lines.add("a", "b")
    lines.add("c")
    frame = lines.frame().selectExpr(
        "nullif(value, 'c') AS value",
        "nullif(value, 'b') AS key",
        "if(value = 'a', array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))), NULL) AS headers",
        "1 AS partition",
        "'1999-01-01' AS timestamp",
    )

    progress = write(frame, root, tmp_path / "checkpoint")

    rows = read(spark, "out", root).orderBy("offset").collect()
    assert [(row.key, row.value, row.headers) for row in rows] == [
        (b"a", b"a", [("h", b"x")]),
        (None, b"b", None),
        (b"c", None, None),
    ]
    assert {(row.partition, row.timestamp.year > 1999) for row in rows} == {(1, True)}
    assert {one["sink"]["description"] for one in progress} == {"kafkalike[out]"}
    assert [one["sink"]["numOutputRows"] for one in progress] == [2, 1]
    assert [one["sink"]["metrics"]["records.out"] for one in progress] == ["2", "1"]


@pytest.mark.parametrize("first", ["false", "true"], ids=["from the format to the driver", "from the driver on"])
def test_sinks_checkpoint_continues_with_the_other_one(
    spark: SparkSession, lines: Lines, root: str, cluster: Cluster, tmp_path: Path, first: str
) -> None:
    """A batch of which Spark forgot that it was written is not written again."""
    cluster.create_topic("out", 1, {})
    lines.add("a")
    spark.conf.set(SINK_SWITCH, first)
    write(lines.frame(), root, tmp_path / "checkpoint")
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    lines.add("b")
    spark.conf.set(SINK_SWITCH, "false" if first == "true" else "true")

    progress = write(lines.frame(), root, tmp_path / "checkpoint")

    assert all_records(root, "out") == {0: [(0, "a"), (1, "b")]}
    assert ("kafkalike[out]" in {one["sink"]["description"] for one in progress}) is (first == "false")


def test_columns_that_no_node_needs_are_not_read(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path
) -> None:
    frame = load(spark, root, includeHeaders="true").where("partition = 0").select("offset", "key")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    assert running.awaitTermination(120)
    shown = running._jsq.explainInternal(False)  # noqa: FBT003 - py4j knows no names

    assert "timestamp" not in shown
    assert "value" not in shown
    assert "headers" not in shown
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [(row.offset, row.key) for row in found] == [(offset, None) for offset in range(6)]


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize(
    "chosen",
    [
        lambda frame: frame.groupBy("topic", "value").agg({"timestamp": "max", "*": "count"}),
        lambda frame: frame.withWatermark("timestamp", "1 minute").where("key IS NULL").select("value"),
        lambda frame: frame.select("value").union(frame.where("offset >= 0").selectExpr("CAST(topic AS BINARY)")),
        lambda frame: frame.select("value", "headers").alias("a").dropDuplicates(["value"]).select("a.value"),
        lambda frame: frame.selectExpr("1 AS one"),
    ],
    ids=["aggregate", "watermark", "two frames of one source", "duplicates", "a constant"],
)
def test_rows_of_fewer_columns_are_those_of_a_batch(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, chosen: Callable[[DataFrame], DataFrame]
) -> None:
    found: list[Any] = []
    query = chosen(load(spark, root, includeHeaders="true")).writeStream.outputMode("update")
    writer = query.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    running = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert running.awaitTermination(120)

    options = {"kafka.bootstrap.servers": root, "subscribe": "in", "includeHeaders": "true"}
    whole = chosen(spark.read.format("kafkalike").options(**options).load()).collect()

    assert found
    assert sorted(map(str, found)) == sorted(map(str, whole))


def test_other_version_of_spark_plans_and_commits_itself(
    spark: SparkSession, root: str, topic: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame of `engine="delta"` patches the start of all queries there too."""
    monkeypatch.setattr(stream_start, "HAS_PLANS", False)

    progress = write(load(spark, root), root, tmp_path / "checkpoint")

    assert PROCESS in progress[0]["sources"][0]["description"]
    assert progress[0]["sink"]["description"] != "kafkalike[out]"
    assert all_records(root, "out")[1] == [(0, "x"), (1, "y")]
