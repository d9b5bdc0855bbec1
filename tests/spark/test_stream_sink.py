"""What `kafkalike.spark.write_stream` promises: each record once, whatever happens to the query and its checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import open_cluster
from kafkalike.errors import (
    IllegalArgumentError,
    InvalidGroupIdError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.spark import (
    CheckpointProgress,
    ProducerOptions,
    QueryOptions,
    StreamWriter,
    Written,
    write,
    write_stream,
)
from tests.tools.lines import Lines
from tests.tools.places import PLACES, new_roots
from tests.tools.records import all_records, make_topic

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=PLACES)
def new_root(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], str]]:
    """Roots on a disk and in a bucket."""
    with new_roots(request.param, spark, tmp_path_factory.mktemp("sink")) as made:
        yield made


@pytest.fixture
def root(new_root: Callable[[], str]) -> str:
    """One that nobody has used."""
    return new_root()


def done(query: StreamingQuery) -> StreamingQuery:
    """A query that takes what is there, when it has ended."""
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return query


def copy(lines: Lines, root: str, checkpoint: str, txn_id: str | None = None) -> StreamingQuery:
    return done(write_stream(lines.frame(), "out", root, checkpoint=checkpoint, available_now=True, txn_id=txn_id))


def values(root: str, topic: str = "out") -> list[str]:
    """All values of a topic of one partition, in offset order."""
    with KafkaConsumer(topic, bootstrap_servers=root, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        return [(record.value or b"").decode() for record in consumer]


# --- behaviours 43 to 51 of Spark's Kafka connector --------------------------------------------


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["value AS key"], "required attribute 'value' not found"),
        (["1 AS value"], r"value must be a\(n\) string or binary"),
        (["value", "1 AS key"], r"key must be a\(n\) string or binary"),
        (["value", "1L AS partition"], r"partition must be a\(n\) int"),
        (["value", "value AS headers"], r"headers must be a\(n\) array<struct<key:string,value:binary>>"),
    ],
)
def test_behaviour_43_a_wrong_column_is_named_before_the_query_starts(
    lines: Lines, root: str, checkpoint: str, columns: list[str], said: str
) -> None:
    """With the types it may have; no topic and no checkpoint is made."""
    with pytest.raises(AnalysisException, match=said):
        write_stream(lines.frame().selectExpr(*columns), "out", root, checkpoint=checkpoint)

    assert open_cluster(root).topics() == {}
    assert not Path(checkpoint).exists()


def test_behaviour_43_a_stream_needs_a_topic(lines: Lines, root: str, checkpoint: str) -> None:
    """Neither argument nor column."""
    with pytest.raises(AnalysisException, match="topic option required"):
        write_stream(lines.frame(), bootstrap_servers=root, checkpoint=checkpoint)


def test_behaviour_44_rows_go_to_the_topics_they_name_and_the_argument_wins(
    lines: Lines, root: str, checkpoint: str, tmp_path: Path
) -> None:
    """One query, one batch, two topics; and the same rows into one."""
    lines.add("a 1", "b 2", "a 3")
    named = lines.frame().selectExpr("split(value, ' ')[0] AS topic", "split(value, ' ')[1] AS value")

    done(write_stream(named, bootstrap_servers=root, checkpoint=checkpoint, available_now=True))
    done(write_stream(named, "all", root, checkpoint=str(tmp_path / "all"), available_now=True))

    assert [values(root, topic) for topic in ("a", "b", "all")] == [["1", "3"], ["2"], ["1", "2", "3"]]


def test_behaviour_44_a_null_topic_fails_the_query(lines: Lines, root: str, checkpoint: str) -> None:
    """And no row of the batch is written."""
    lines.add("a", "none")
    named = lines.frame().selectExpr("nullif(value, 'none') AS topic", "value")

    with pytest.raises(StreamingQueryException, match="KAFKA_NULL_TOPIC_IN_DATA"):
        done(write_stream(named, bootstrap_servers=root, checkpoint=checkpoint, available_now=True))

    assert open_cluster(root).topics() == {}


def test_behaviour_45_the_partition_column_beats_the_partitioner_and_the_key(
    lines: Lines, root: str, checkpoint: str
) -> None:
    """A null partition is as if there was none."""
    open_cluster(root).create_topic("out", 4, {})
    lines.add("0 column", "- chosen")
    parts = lines.frame().selectExpr(
        "try_cast(split(value, ' ')[0] AS INT) AS partition", "split(value, ' ')[1] AS value"
    )

    done(
        write_stream(
            parts,
            "out",
            root,
            checkpoint=checkpoint,
            available_now=True,
            producer_options=ProducerOptions(partitioner=lambda _, total: F.lit(total - 1)),
        )
    )

    found = all_records(root, "out")
    assert {p: [value for _, value in records] for p, records in found.items() if records} == {
        0: ["column"],
        3: ["chosen"],
    }


def test_behaviour_46_a_topic_that_must_not_be_created_is_missed_at_once(
    lines: Lines, root: str, checkpoint: str
) -> None:
    """With auto.create.topics.enable=false, before the query starts."""
    config = ServerProperties.from_properties({"auto.create.topics.enable": "false"})
    strict = Cluster(open_cluster(root).store, server=config)

    with pytest.raises(UnknownTopicOrPartitionError):
        write_stream(lines.frame(), "out", strict, checkpoint=checkpoint)
    with pytest.raises(UnknownTopicOrPartitionError):
        write_stream(lines.frame().selectExpr("value", "1 AS partition"), "out", strict, checkpoint=checkpoint)


def test_behaviour_47_a_batch_is_always_appended(spark: SparkSession, root: str) -> None:
    """`write` has no save mode: nothing it is given can overwrite or leave out."""
    frame = spark.sql("SELECT 'v' AS value")

    write(frame, "out", root)
    write(frame, "out", root)

    assert values(root) == ["v", "v"]
    with pytest.raises(TypeError):
        write(frame, "out", root, mode="overwrite")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("mode", "written"), [("update", ["a=1", "b=1", "a=2"]), ("complete", ["a=1", "b=1", "a=2", "b=1"])]
)
def test_behaviour_48_update_and_complete_append_what_they_give(
    lines: Lines, root: str, checkpoint: str, mode: str, written: list[str]
) -> None:
    """Update the changed groups of each batch, complete all of them again; the progress counts rows that went out."""
    lines.add("a", "b")
    lines.add("a")
    counts = lines.frame().groupBy("value").count().selectExpr("concat(value, '=', count) AS value").coalesce(1)

    query = done(
        write_stream(
            counts, "out", root, checkpoint=checkpoint, query_options=QueryOptions(output_mode=mode), available_now=True
        )
    )

    found = values(root)
    assert (sorted(found[:2]), sorted(found[2:])) == (written[:2], written[2:])
    rows = [progress.observedMetrics["kafkalike_sink"]["numOutputRows"] for progress in query.recentProgress]
    assert rows == [2, len(written) - 2]


def test_behaviour_49_headers_and_times_go_through_a_stream(
    spark: SparkSession, lines: Lines, root: str, checkpoint: str
) -> None:
    """Repeated keys in order, null values, no headers at all."""
    lines.add("with", "without")
    some = "array(struct('b', X'01'), struct('a', NULL), struct('b', X''))"
    headers = f"CAST(CASE WHEN value = 'with' THEN {some} END AS array<struct<key:string,value:binary>>) AS headers"
    rows = lines.frame().selectExpr("value", headers, "timestamp'2024-02-29 12:30:00' AS timestamp")

    done(write_stream(rows, "out", root, checkpoint=checkpoint, available_now=True))

    given = {"kafka.bootstrap.servers": root, "subscribe": "out", "includeHeaders": "true"}
    records = spark.read.format("kafkalike").options(**given).load()
    found = records.orderBy("offset").select("headers", F.col("timestamp").cast("bigint")).collect()
    assert [(row[0] and [tuple(h) for h in row[0]], row[1]) for row in found] == [
        ([("b", b"\x01"), ("a", None), ("b", b"")], 1_709_209_800),
        (None, 1_709_209_800),
    ]


def test_behaviour_50_large_rows_block_until_they_are_written(lines: Lines, root: str, checkpoint: str) -> None:
    """A thousand of 15 KB: none dropped, nothing raised."""
    lines.add(*(f"{nth:04d}" for nth in range(1000)))

    done(
        write_stream(
            lines.frame().selectExpr("rpad(value, 15000, 'x') AS value"),
            "out",
            root,
            checkpoint=checkpoint,
            available_now=True,
        )
    )

    found = values(root)
    assert sorted(value[:4] for value in found) == [f"{nth:04d}" for nth in range(1000)]
    assert {len(value) for value in found} == {15_000}


def test_behaviour_51_rows_made_by_unresolved_expressions_are_written(lines: Lines, root: str, checkpoint: str) -> None:
    """`to_json(struct(*))`, in a stream and in a batch of it."""
    lines.add("a")

    done(
        write_stream(
            lines.frame().select(F.to_json(F.struct("*")).alias("value")),
            "out",
            root,
            checkpoint=checkpoint,
            available_now=True,
        )
    )

    assert values(root) == ['{"value":"a"}']


# --- exactly once ------------------------------------------------------------------------------


def test_a_restart_goes_on_where_the_stream_was(lines: Lines, root: str, checkpoint: str) -> None:
    """Nothing twice, nothing missing; one table commit for each batch."""
    lines.add("1", "2")
    copy(lines, root, checkpoint)
    lines.add("3")
    lines.add("4")

    copy(lines, root, checkpoint)

    assert values(root) == ["1", "2", "3", "4"]


def test_a_batch_that_runs_again_adds_nothing(lines: Lines, root: str, checkpoint: str) -> None:
    """Spark had no time to note that the batch was done; with topics by column just as well."""
    lines.add("1")
    lines.add("2")
    copy(lines, root, checkpoint)
    for name in ("1", ".1.crc"):
        (Path(checkpoint) / "commits" / name).unlink()
    lines.add("3")

    copy(lines, root, checkpoint)

    assert values(root) == ["1", "2", "3"]


def test_what_one_topic_of_a_decided_batch_lacks_is_brought_there_and_no_more(
    lines: Lines, root: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch for two topics stopped between them."""
    lines.add("a 1", "b 2")
    named = lines.frame().selectExpr("split(value, ' ')[0] AS topic", "split(value, ' ')[1] AS value")
    monkeypatch.setenv("KAFKALIKE_FAULT", "transaction.before_apply:raise@2")
    with pytest.raises(StreamingQueryException, match="injected"):
        done(write_stream(named, bootstrap_servers=root, checkpoint=checkpoint, available_now=True))
    assert list(open_cluster(root).topics()) == ["a", "b"]
    assert (values(root, "a"), values(root, "b")) == (["1"], [])
    monkeypatch.delenv("KAFKALIKE_FAULT")

    done(write_stream(named, bootstrap_servers=root, checkpoint=checkpoint, available_now=True))

    assert (values(root, "a"), values(root, "b")) == (["1"], ["2"])


def test_a_new_checkpoint_under_a_used_id_is_an_error(lines: Lines, root: str, checkpoint: str, tmp_path: Path) -> None:
    """Neither are its batches skipped, nor is everything written a second time."""
    lines.add("1")
    lines.add("2")
    copy(lines, root, checkpoint, txn_id="copy")

    with pytest.raises(StreamingQueryException, match="another checkpoint has written batch 1 under this id"):
        copy(lines, root, str(tmp_path / "new"), txn_id="copy")

    assert values(root) == ["1", "2"]


def test_a_new_checkpoint_is_noticed_at_a_later_batch_too(
    lines: Lines, root: str, checkpoint: str, tmp_path: Path
) -> None:
    """Its first batches had no rows for the topic, so its numbers are above those that are known."""
    lines.add("1")
    copy(lines, root, checkpoint, txn_id="copy")
    lines.add("2")
    lines.add("3")
    later = lines.frame().where("value = '3'")

    with pytest.raises(
        StreamingQueryException, match=r"CheckpointMismatchError.*another checkpoint has written batch 0"
    ):
        done(write_stream(later, "out", root, checkpoint=str(tmp_path / "new"), txn_id="copy", available_now=True))

    assert values(root) == ["1"]


def test_without_an_id_a_new_checkpoint_is_a_new_stream(
    lines: Lines, root: str, checkpoint: str, tmp_path: Path
) -> None:
    """As everywhere in Spark: it begins again, and says so by its own id."""
    lines.add("1")
    copy(lines, root, checkpoint)

    copy(lines, root, str(tmp_path / "new"))

    assert values(root) == ["1", "1"]


def test_a_checkpoint_put_back_from_a_copy_is_noticed(lines: Lines, root: str, checkpoint: str, tmp_path: Path) -> None:
    """Batch 1 is planned anew, with other rows than those that were written under its number."""
    lines.add("1")
    copy(lines, root, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "kept")
    lines.add("2")
    copy(lines, root, checkpoint)

    with pytest.raises(StreamingQueryException, match="batch 1 was written from other offsets"):
        copy(lines, root, str(tmp_path / "kept"))

    assert values(root) == ["1", "2"]


# --- the function for foreachBatch -------------------------------------------------------------


def test_a_function_of_ones_own_writes_and_does_more(lines: Lines, root: str, checkpoint: str) -> None:
    """It learns the offsets, and that a batch was there before."""
    lines.add("1", "2")
    writer = StreamWriter("out", root, checkpoint=checkpoint)
    seen: list[Written] = []

    def batch(frame: DataFrame, batch_id: int) -> None:
        seen.extend(writer.write(frame, batch_id) for _ in range(2))

    query = lines.frame().writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    done(query.trigger(availableNow=True).start())

    assert [(list(written.values()), written.duplicate) for written in seen] == [
        ([range(2)], False),
        ([range(2)], True),
    ]
    assert values(root) == ["1", "2"]


def test_two_writers_of_one_query_need_an_id_each(lines: Lines, root: str, checkpoint: str) -> None:
    """Else the second one's rows would count as written before."""
    lines.add("1", "2")
    one, two = (StreamWriter("out", root, checkpoint=checkpoint) for _ in range(2))
    other = StreamWriter("out", root, checkpoint=checkpoint, txn_id="other")

    def batch(frame: DataFrame, batch_id: int) -> None:
        one.write(frame.where("value = '1'"), batch_id)
        other.write(frame.where("value = '2'"), batch_id)
        two.write(frame.where("value = '2'"), batch_id)

    query = lines.frame().writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    with pytest.raises(StreamingQueryException, match="two writers of one query"):
        done(query.trigger(availableNow=True).start())

    assert values(root) == ["1", "2"]


def test_a_writer_refuses_the_checkpoint_of_another_query(
    lines: Lines, root: str, checkpoint: str, tmp_path: Path
) -> None:
    """Its id and offsets would be another's."""
    lines.add("1")
    copy(lines, root, checkpoint)
    writer = StreamWriter("out", root, checkpoint=checkpoint)

    query = lines.frame().writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path / "own"))
    with pytest.raises(StreamingQueryException, match="is not the checkpoint of this query"):
        done(query.trigger(availableNow=True).start())

    assert values(root) == ["1"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "a/b"}, InvalidTopicError),
        ({"checkpoint": ""}, IllegalArgumentError),
        ({"txn_id": ""}, IllegalArgumentError),
        ({"group_id": ""}, InvalidGroupIdError),
        ({"group_bootstrap_servers": "x"}, IllegalArgumentError),
        ({"available_now": True, "query_options": QueryOptions(processing_time="1 second")}, IllegalArgumentError),
    ],
    ids=["topic", "checkpoint", "txn-id", "group-id", "group-without-id", "two-triggers"],
)
def test_bad_arguments_are_refused_before_anything_is_made(
    lines: Lines, root: str, checkpoint: str, arguments: dict[str, object], error: type[Exception]
) -> None:
    """No query, no topic, no checkpoint."""
    given: dict[str, object] = {"topic": "out", "bootstrap_servers": root, "checkpoint": checkpoint, **arguments}

    with pytest.raises(error):
        write_stream(lines.frame(), **given)  # type: ignore[arg-type]

    assert open_cluster(root).topics() == {}
    assert not Path(checkpoint).exists()


def test_a_batch_frame_is_no_stream(spark: SparkSession, root: str, checkpoint: str) -> None:
    """The error names the function that takes it."""
    with pytest.raises(IllegalArgumentError, match=r"kafkalike\.spark\.write takes others"):
        write_stream(spark.sql("SELECT 'v' AS value"), "out", root, checkpoint=checkpoint)


# --- progress in a consumer group --------------------------------------------------------------


def topics(spark: SparkSession, root: str) -> DataFrame:
    """A stream of the topic `in`."""
    reader = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", "in")
    return reader.option("startingOffsets", "earliest").load().select("partition", "value")


def test_progress_of_a_source_without_kafkas_offsets_is_refused_before_anything_is_written(
    lines: Lines, root: str, checkpoint: str
) -> None:
    """A group would else stay where it is, and nobody would know why."""
    lines.add("1")

    with pytest.raises(StreamingQueryException, match="the query reads no topic of the cluster"):
        done(write_stream(lines.frame(), "out", root, checkpoint=checkpoint, available_now=True, group_id="copies"))

    assert values(root) == []


def test_a_group_with_members_is_left_to_them(spark: SparkSession, root: str, checkpoint: str) -> None:
    """Nothing is written and the query fails; once the group is empty a restart writes and commits."""
    make_topic(root, (0, "a"), (1, "b"), topic="in")
    make_topic(root, topic="out")

    def copy_topic() -> None:
        done(
            write_stream(topics(spark, root), "out", root, checkpoint=checkpoint, available_now=True, group_id="copies")
        )

    with KafkaConsumer(
        "in", bootstrap_servers=root, group_id="copies", enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.poll(timeout_ms=5000)
        with pytest.raises(StreamingQueryException, match="offsets were not committed"):
            copy_topic()
        assert all_records(root, "out") == {0: [], 1: []}
        assert consumer.committed(TopicPartition("in", 0)) is None

    copy_topic()

    assert all_records(root, "out") == all_records(root, "in")
    with KafkaConsumer(bootstrap_servers=root, group_id="copies") as consumer:
        assert [consumer.committed(TopicPartition("in", p)) for p in range(2)] == [1, 1]


def test_a_sink_of_sparks_own_has_its_progress_committed_from_its_checkpoint(
    spark: SparkSession, root: str, checkpoint: str, tmp_path: Path
) -> None:
    """Nothing before the first batch is done; afterwards its end, also by somebody who was not there."""
    make_topic(root, (0, "a"), (1, "b"), (0, "c"), topic="in")
    progress = CheckpointProgress(spark, checkpoint, "files", root)
    before = progress.catch_up()
    query = topics(spark, root).writeStream.format("parquet").option("checkpointLocation", checkpoint)

    done(query.trigger(availableNow=True).start(str(tmp_path / "files")))

    assert (before, progress.catch_up(), progress.catch_up()) == (None, 0, 0)
    with KafkaConsumer(bootstrap_servers=root, group_id="files") as consumer:
        assert [consumer.committed(TopicPartition("in", p)) for p in range(2)] == [2, 1]
