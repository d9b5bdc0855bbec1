"""spark.readStream.format("kafkalike"): real queries with real checkpoints over real topics."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.format.query import offsets_behind
from kafkalike.spark.format.stream_reader import unmarked
from kafkalike.spark.jvm.spark_version import HAS_LIMITS
from tests.tools.places import PLACES, new_roots
from tests.tools.records import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE = 90


@pytest.fixture(scope="module", params=PLACES)
def root(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One cluster for all tests of this file; each one has topics of its own."""
    with new_roots(request.param, spark, tmp_path_factory.mktemp("stream")) as new_root:
        yield new_root()


@pytest.fixture(autouse=True)
def no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def load(spark: SparkSession, root: str, topic: str, **given: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": root, "subscribe": topic}
    return spark.readStream.format("kafkalike").options(**options, **given).load()


class Batches:
    """A sink that keeps the values of each batch, in the order in which they came."""

    def __init__(self) -> None:
        self.found: dict[int, list[str]] = {}
        self.changed = threading.Condition()
        self.fails_at: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select(F.col("value").cast("string")).collect()
        if batch_id == self.fails_at:
            raise RuntimeError("planned failure")
        with self.changed:
            self.found[batch_id] = [row[0] for row in rows]
            self.changed.notify_all()

    @property
    def values(self) -> list[str]:
        return [value for batch_id in sorted(self.found) for value in self.found[batch_id]]

    def wait_for(self, *expected: str) -> None:
        """Until these values, and no others, have come."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.values) >= len(expected), PATIENCE), self.found
        assert sorted(self.values) == sorted(expected)

    def wait_for_batch(self, batch_id: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: batch_id in self.found, PATIENCE), self.found


def start(frame: DataFrame, sink: Batches, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run(frame: DataFrame, sink: Batches, checkpoint: Path, **trigger: Any) -> list[Any]:
    """Run a query to its end and give its progress, batch by batch."""
    query = start(frame, sink, checkpoint, **(trigger or {"availableNow": True}))
    assert query.awaitTermination(PATIENCE)
    return query.recentProgress


def logged(checkpoint: Path, batch_id: int) -> Any:
    return unmarked(json.loads(Path(checkpoint, "offsets", str(batch_id)).read_text().splitlines()[-1]))


def test_behaviours_23_25_28_and_33_a_limited_query_goes_on_from_its_checkpoint(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Offsets in the checkpoint are in Kafka's form; progress counts exactly and says how far behind it is."""
    cluster.create_topic("limited", 2, {})
    fill(cluster, "limited", *[f"a{n}" for n in range(11)])
    fill(cluster, "limited", *[f"b{n}" for n in range(4)], partition=1)
    sink = Batches()
    stream = load(spark, root, "limited", startingOffsets="earliest", maxOffsetsPerTrigger="5")

    progress = run(stream, sink, tmp_path)

    assert {n: sorted(found) for n, found in sink.found.items()} == {
        0: ["a0", "a1", "a2", "b0"],
        1: ["a3", "a4", "a5", "b1"],
        2: ["a6", "a7", "a8", "b2"],
        3: ["a10", "a9", "b3"],
    }
    assert [v for v in sink.values if v[0] == "a"] == [f"a{n}" for n in range(11)]
    assert logged(tmp_path, 1) == {"limited": {"0": 6, "1": 2}}
    done = [batch for batch in progress if batch["numInputRows"]]
    assert [batch["numInputRows"] for batch in done] == [4, 4, 4, 3]
    assert [offsets_behind(batch["sources"][0])["maxOffsetsBehindLatest"] for batch in done] == [8, 5, 2, 0]

    fill(cluster, "limited", "a11", "a12")
    resumed = Batches()
    run(load(spark, root, "limited", maxOffsetsPerTrigger="1"), resumed, tmp_path)
    assert resumed.found == {4: ["a11"], 5: ["a12"]}


def test_spark_takes_no_metrics_from_a_source_in_python(spark: SparkSession) -> None:
    """When this fails, a new Spark takes them: give it the lag, and take back decision 104."""
    jvm: Any = spark.sparkContext._jvm

    def is_a(name: str, interface: str) -> bool:
        java = jvm.java.lang.Class.forName
        found = java(f"org.apache.spark.sql.connector.read.streaming.{interface}")
        kind = java(f"org.apache.spark.sql.execution.datasources.v2.python.{name}")
        return bool(found.isAssignableFrom(kind))

    streams = [f"PythonMicroBatchStream{kind}" for kind in ("", "WithAdmissionControl", "WithTriggerAvailableNow")]
    assert [is_a(name, "MicroBatchStream") for name in streams] == [True, True, True]
    assert [is_a(name, "ReportsSourceMetrics") for name in streams] == [False, False, False]
    assert not is_a("PythonTable", "ReportsSinkMetrics")


def test_behaviour_28_trigger_once_ignores_the_limits(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """One batch with all there is."""
    cluster.create_topic("once", 1, {})
    fill(cluster, "once", *"abc")
    sink = Batches()

    run(load(spark, root, "once", startingOffsets="earliest", maxOffsetsPerTrigger="1"), sink, tmp_path, once=True)

    assert sink.found == {0: ["a", "b", "c"]}


def test_behaviours_12_24_and_37_a_query_follows_its_topics_while_it_runs(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """It begins at latest, reads new partitions and topics from their beginning, and fails when one is made anew."""
    cluster.create_topic("follow-1", 1, {})
    fill(cluster, "follow-1", "old")
    sink = Batches()
    stream = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root)
    query = start(stream.option("subscribePattern", "ollow-").load(), sink, tmp_path)
    sink.wait_for_batch(0)
    fill(cluster, "follow-1", "new")
    sink.wait_for("new")

    cluster.add_partitions("follow-1", 2)
    fill(cluster, "follow-1", "added", partition=1)
    sink.wait_for("new", "added")
    cluster.create_topic("follow-2", 1, {})
    fill(cluster, "follow-2", "another")
    sink.wait_for("new", "added", "another")
    cluster.delete_topic("follow-1")
    cluster.create_topic("follow-1", 2, {})

    with pytest.raises(StreamingQueryException, match=r"KAFKA_DATA_LOSS|was changed from|are gone"):
        query.awaitTermination(PATIENCE)
    assert sink.values == ["new", "added", "another"]


def test_behaviour_30_a_failed_batch_runs_again_with_the_same_range(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """What was added meanwhile comes in the next batch."""
    cluster.create_topic("again", 1, {})
    fill(cluster, "again", "a", "b")
    failing, sink = Batches(), Batches()
    failing.fails_at = 0
    stream = load(spark, root, "again", startingOffsets="earliest")
    with pytest.raises(StreamingQueryException, match="planned failure"):
        run(stream, failing, tmp_path)
    fill(cluster, "again", "c")

    run(stream, sink, tmp_path)
    if not HAS_LIMITS:
        # Then Spark takes `availableNow` for one batch, which is the repeated one.
        run(stream, sink, tmp_path)

    assert sink.found == {0: ["a", "b"], 1: ["c"]}


def test_behaviour_04_the_timestamp_is_an_event_time(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """A watermark and windows over it count right."""
    cluster.create_topic("windows", 2, {})
    fill(cluster, "windows", *"abc", at_ms=1_000)
    fill(cluster, "windows", *"de", at_ms=61_000, partition=1)
    windows = load(spark, root, "windows", startingOffsets="earliest").withWatermark("timestamp", "10 seconds")
    counted = windows.groupBy(F.window("timestamp", "1 minute")).count().select("window.start", "count")
    query = counted.writeStream.format("memory").queryName("windows").outputMode("complete")

    started = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

    assert started.awaitTermination(PATIENCE)
    found = spark.sql("SELECT unix_timestamp(start), count FROM windows ORDER BY 1").collect()
    assert [tuple(row) for row in found] == [(0, 3), (60, 2)]


def test_behaviour_32_a_self_join_has_one_range_for_each_batch(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Both sides see the same records."""
    cluster.create_topic("joined", 1, {})
    fill(cluster, "joined", *"abc")
    stream = load(spark, root, "joined", startingOffsets="earliest").select("value", "offset")
    sink = Batches()

    progress = run(stream.join(stream.withColumnRenamed("value", "other"), "offset"), sink, tmp_path)

    assert sorted(sink.values) == ["a", "b", "c"]
    assert progress[0]["numInputRows"] in {3, 6}
    assert logged(tmp_path, 0) == {"joined": {"0": 3}}


def test_behaviours_13_and_34_what_a_stream_cannot_have_is_refused(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """An end; a checkpoint of an unknown later version."""
    cluster.create_topic("refused", 1, {})
    fill(cluster, "refused", "a")
    with pytest.raises(StreamingQueryException, match="endingOffsets is not valid in streaming queries"):
        run(load(spark, root, "refused", endingOffsets="latest"), Batches(), tmp_path / "ending")

    stream = load(spark, root, "refused", startingOffsets="earliest")
    run(stream, Batches(), tmp_path / "later")
    offsets = tmp_path / "later" / "offsets"
    content = Path(offsets, "0").read_text()
    Path(offsets, "0").write_text(content.replace("v1", "v99999", 1))
    Path(offsets, ".0.crc").unlink()
    with pytest.raises(StreamingQueryException, match="v99999"):
        run(stream, Batches(), tmp_path / "later")


@pytest.mark.parametrize("done", [True, False], ids=["between batches", "in a batch"])
@pytest.mark.parametrize("topic", ["kafkas", "another"])
def test_a_checkpoint_of_sparks_kafka_source_is_refused(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path, topic: str, *, done: bool
) -> None:
    """In the files that Spark 4 writes for Kafka; else the records below Kafka's offset would be skipped in silence."""
    if topic not in cluster.topics():
        cluster.create_topic(topic, 1, {})
        fill(cluster, topic, *"abcde")
    head = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}}
    files = {
        "metadata": json.dumps({"id": "3f0a4bd2-6f0c-4d0a-9d6c-1a2b3c4d5e6f"}),
        # A zero byte comes first, for the sake of Spark 2.1.
        "sources/0/0": '\0v1\n{"kafkas":{"0":0}}',
        "offsets/0": f'v1\n{json.dumps(head)}\n{{"kafkas":{{"0":3}}}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, text in files.items():
        if done or not name.startswith("commits"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    sink = Batches()

    with pytest.raises(StreamingQueryException, match=r"CheckpointMismatchError.*new checkpointLocation") as refused:
        run(load(spark, root, topic, startingOffsets="earliest"), sink, tmp_path)

    assert """startingOffsets={"kafkas":{"0":""" in str(refused.value)
    assert sink.found == {}


def test_behaviour_36_async_progress_tracking_loses_no_record(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Each record at least once, restarts included."""
    cluster.create_topic("async", 1, {})
    fill(cluster, "async", *"abc")
    stream = load(spark, root, "async", startingOffsets="earliest")
    writer = stream.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    writer = writer.option("asyncProgressTrackingCheckpointIntervalMs", "0").option("checkpointLocation", str(tmp_path))

    for value in "de":
        query = writer.start()
        query.processAllAvailable()
        query.stop()
        fill(cluster, "async", value)

    last = max(int(path.name) for path in Path(tmp_path, "offsets").iterdir() if path.name.isdigit())
    assert logged(tmp_path, last) == {"async": {"0": 4}}
