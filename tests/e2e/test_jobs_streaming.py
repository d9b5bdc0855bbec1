"""The streaming jobs and the jobs that move whole topics, as their users run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click import Command
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.cli.jobs.job import run
from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.record_batch import Headers
from kafkalike.spark import read, register_sql
from kafkalike.spark.kafka_import import import_kafka, kafka_records
from tests.e2e.test_jobs import module
from tests.tools.findings import errors_of
from tests.tools.records import Row, all_records, append_records

pytestmark = pytest.mark.timeout(300)

Job = Callable[..., int]
AT = 1_709_209_800_123
EVERYTHING: list[tuple[int, bytes | None, bytes | None, int, Headers | None]] = [
    (0, b"k", b"v", AT, [("h", b"\x00"), ("h", None), ("e", b"")]),
    (2, None, b"", AT + 1, None),
    (0, b"", None, AT + 2, []),
    (0, b"\xff\x00", b"\x9e\xe9\x65", 0, [('a"b\\', b"x\n,y")]),
]
"""Nulls, empty texts, bytes that are no text, and some whose base64 is `null`."""


@pytest.fixture
def job(spark: SparkSession, root: str) -> Job:
    """Runs a job in the tests' own Spark."""

    def go(name: str, *args: object) -> int:
        command: Command = module(name).main
        return run(command, ["--bootstrap-server", root, *map(str, args)])

    return go


def fill(root: str, topic: str, records: Sequence[Row]) -> None:
    """One append; the topic has three partitions and keeps everything."""
    append_records(root, topic, records, partitions=3, **{"retention.ms": "-1"})


def contents(spark: SparkSession, root: str, topic: str) -> list[tuple[object, ...]]:
    """Everything about every record, but the topic's name."""
    frame = read(spark, topic, root).orderBy("partition", "offset").drop("topic")
    return [tuple(row) for row in frame.withColumn("timestamp", F.unix_millis("timestamp")).collect()]


def committed(root: str, group: str, topic: str) -> dict[int, int | None]:
    """What a group has committed, by partition."""
    with KafkaConsumer(bootstrap_servers=root, group_id=group) as consumer:
        return {p: consumer.committed(TopicPartition(topic, p)) for p in consumer.partitions_for_topic(topic) or ()}


# --- topics to files and back ------------------------------------------------------------------


@pytest.mark.parametrize(
    "file_format", ["parquet", *(pytest.param(other, marks=pytest.mark.full) for other in ("csv", "json"))]
)
def test_an_exported_topic_is_the_same_when_it_is_imported(
    spark: SparkSession, job: Job, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], file_format: str
) -> None:
    """Offsets, times, nulls, headers in order; and a second import adds nothing."""
    fill(root, "orders", EVERYTHING)
    files = tmp_path / "files"
    how = ["--format", file_format, "--json", files]

    codes = [job("export_topic", "--topic", "orders", *how)]
    codes += [job("import_topic", "--topic", "again", *how) for _ in range(2)]

    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (codes, [report["records"] for report in reports]) == ([0, 0, 0], [4, 4, 0])
    assert contents(spark, root, "again") == contents(spark, root, "orders")
    assert errors_of(root) == []


def test_an_export_of_a_range_does_not_overwrite_by_itself(job: Job, root: str, tmp_path: Path) -> None:
    """The offsets that are asked for, into an empty folder."""
    fill(root, "orders", EVERYTHING)
    files = tmp_path / "files"
    ends = json.dumps({"orders": {"0": 2, "1": 0, "2": -1}})
    export = ["--topic", "orders", "--format", "json", "--ending-offsets", ends, files]

    codes = [job("export_topic", *export), job("export_topic", *export)]

    rows = [json.loads(line) for file in files.glob("*.json") for line in file.read_text().splitlines()]
    assert codes == [0, 1]
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(0, 0), (0, 1), (2, 0)]


# --- streams -----------------------------------------------------------------------------------


def test_files_become_records_as_they_come(
    job: Job, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run takes the new ones, and prints a line of JSON for each batch."""
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    args = ["--topic", "orders", "--format", "json", "--schema", "id INT, name STRING", "--key-column", "id"]
    args += ["--checkpoint", str(tmp_path / "checkpoint"), "--available-now", "--txn-id", "orders", "--json"]
    codes = []
    for nth in range(2):
        (incoming / f"{nth}.json").write_text(f'{{"id": {nth}, "name": "n"}}\n')
        codes.append(job("stream_produce", *args, incoming))

    batches = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert codes == [0, 0]
    assert [(batch["batch"], batch["rows"]) for batch in batches] == [(0, 1), (1, 1)]
    assert all_records(root, "orders") == {0: [(0, '{"id":0,"name":"n"}'), (1, '{"id":1,"name":"n"}')]}


def test_a_line_that_cannot_be_parsed_fails_the_stream_in_one_line(
    job: Job, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of its batch is written."""
    (tmp_path / "bad.json").write_text('{"id": 1}\n{no\n')
    args = ["--topic", "orders", "--format", "json", "--schema", "id INT", "--available-now"]

    code = job("stream_produce", *args, "--checkpoint", tmp_path / "checkpoint", tmp_path / "*.json")

    assert code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert all_records(root, "orders") == {0: []}


def test_a_topic_is_copied_with_expressions_and_its_progress_committed(
    spark: SparkSession, job: Job, root: str, tmp_path: Path
) -> None:
    """Chosen, changed and kept in their partitions; `lag` shows how far the copy is."""
    fill(root, "in", [(0, b"a", b"one", AT, None), (1, b"b", b"two", AT, None), (0, b"c", b"no", AT, None)])
    copy = ["--from", "in", "--to", "out", "--where", "value <> X'6E6F'", "--group", "copies", "--available-now"]
    copy += ["--select", "upper(CAST(value AS STRING)) AS value", "--select", "partition", "--select", "timestamp"]
    connect(root).create_topic("out", 3, {})

    codes = [job("copy_topic", *copy, "--checkpoint", tmp_path / "checkpoint")]
    fill(root, "in", [(2, b"d", b"four", AT, None)])
    codes.append(job("copy_topic", *copy, "--checkpoint", tmp_path / "checkpoint"))

    assert codes == [0, 0]
    assert all_records(root, "out") == {0: [(0, "ONE")], 1: [(0, "TWO")], 2: [(0, "FOUR")]}
    register_sql(spark, root, topics=[], temporary=True)
    lag = spark.sql(
        "SELECT partition, committed_offset, lag FROM kafkalike_lag WHERE group_id = 'copies' ORDER BY 1"
    ).collect()
    assert [tuple(row) for row in lag] == [(0, 2, 0), (1, 1, 0), (2, 1, 0)]


def test_records_become_rows_of_a_table_and_the_group_follows(
    spark: SparkSession, job: Job, root: str, tmp_path: Path
) -> None:
    """Each once, over two runs; values that are no JSON become nulls if asked."""
    out = tmp_path / "out"
    args = ["--topic", "orders", "--format", "delta", "--group", "archive", "--value-format", "json"]
    args += ["--schema", "id INT", "--malformed", "null", "--available-now", "--checkpoint", str(tmp_path / "c")]
    codes = []
    for nth in range(2):
        fill(root, "orders", [(nth, b"k", f'{{"id": {nth}}}'.encode(), AT, None), (nth, b"k", b"bad", AT, None)])
        codes.append(job("stream_consume", *args, out))

    rows = spark.read.format("delta").load(str(out)).select("partition", "offset", "value.id").collect()
    assert codes == [0, 0]
    assert sorted(tuple(row) for row in rows) == [(0, 0, 0), (0, 1, None), (1, 0, 1), (1, 1, None)]
    assert committed(root, "archive", "orders") == {0: 2, 1: 2, 2: 0}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("stream_produce", ["--format", "json", "in"]),
        ("stream_produce", ["--format", "text", "--schema", "a INT", "in"]),
        ("stream_produce", ["--format", "text", "--available-now", "--interval", "1 second", "in"]),
        ("stream_consume", ["--format", "delta"]),
        ("stream_consume", ["--value-format", "json"]),
        ("stream_consume", ["out"]),
        ("stream_consume", ["--format", "csv", "--include-headers", "out"]),
        ("stream_consume", ["--value-only", "--include-headers"]),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    job: Job, capsys: pytest.CaptureFixture[str], name: str, args: list[str]
) -> None:
    """Exit code 2 and a line that says what is wrong."""
    assert job(name, "--topic", "t", "--checkpoint", "c", *args) == 2
    assert capsys.readouterr().err.startswith("Error: ")


# --- from Kafka --------------------------------------------------------------------------------

KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key STRING, value BINARY>>"
)


def kafka(spark: SparkSession, root: str, *, most: int = 100) -> DataFrame:
    """A stream with the columns and the offsets of Spark's Kafka source: this project's own source has both."""
    reader = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", "a,b")
    reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
    return reader.option("maxOffsetsPerTrigger", most).load()


def test_topics_of_kafka_are_imported_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Partitions that hold nothing too; a range that runs again adds nothing; later records follow."""
    source, target, checkpoint = (str(tmp_path / name) for name in ("source", "target", "checkpoint"))
    fill(source, "a", EVERYTHING)
    fill(source, "b", EVERYTHING[:1])

    def go() -> None:
        query = import_kafka(
            kafka(spark, source, most=3), target, checkpoint=checkpoint, topic_configs={"retention.ms": "-1"}
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    go()
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    fill(source, "b", EVERYTHING[1:])
    go()

    for topic in ("a", "b"):
        assert contents(spark, target, topic) == contents(spark, source, topic)
        assert connect(target).topic(topic).num_partitions == 3
    assert errors_of(target) == []


def test_a_record_may_keep_its_offset_in_kafka_in_a_header(spark: SparkSession) -> None:
    """After its own ones; a record that Kafka has no time of gets one."""
    rows = [(b"k", b"v", "a", 0, 41, None, -1, None), (b"k", b"v", "a", 0, 42, None, 0, [("h", b"x")])]
    frame = spark.createDataFrame(rows, KAFKA)

    made = kafka_records(frame, "kafka.offset").orderBy("partition").collect()

    assert [[tuple(header) for header in row["headers"]] for row in made] == [
        [("kafka.offset", b"41")],
        [("h", b"x"), ("kafka.offset", b"42")],
    ]
    assert [row["timestamp"] for row in made] == [None, None]


def test_what_is_no_stream_from_kafka_is_refused(spark: SparkSession, root: str, tmp_path: Path) -> None:
    """Before a query starts."""
    with pytest.raises(IllegalArgumentError, match="streaming"):
        import_kafka(spark.createDataFrame([], KAFKA), root, checkpoint=str(tmp_path / "c"))
    with pytest.raises(IllegalArgumentError, match="headers"):
        import_kafka(spark.readStream.format("rate").load(), root, checkpoint=str(tmp_path / "c"))


@pytest.mark.parametrize(
    "args",
    [["--checkpoint", "c"], ["--topic", "a", "--topic-pattern", "b"], ["--topic", "a", "--option", "minPartitions=4"]],
)
def test_an_import_that_cannot_keep_order_or_has_no_topic_is_refused(job: Job, args: list[str]) -> None:
    """Exit code 2, without looking for a broker."""
    assert job("import_kafka", "--kafka", "127.0.0.1:1", "--checkpoint", "c", *args) == 2


# --- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["copy_topic", "export_topic", "import_kafka", "import_topic", "stream_consume", "stream_produce"],
)
def test_a_job_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With every option and an example, and without Spark."""
    command: Command = module(name).main

    code = run(command, ["--help"])

    shown = capsys.readouterr().out
    assert code == 0
    assert f"kafkalike job-path {name}" in " ".join(shown.split())
    assert all(option.opts[0] in shown for option in command.params if option.opts[0].startswith("--"))
