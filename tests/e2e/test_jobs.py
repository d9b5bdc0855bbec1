"""The jobs for spark-submit: files go into a topic and come out again as they were."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click import Command
from pyspark.sql import SparkSession

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.admin import KafkaAdminClient
from kafkalike.cli.jobs.job import run
from kafkalike.connect import connect
from tests.tools.cli import call
from tests.tools.records import fill
from tests.tools.submit import REPOSITORY, submit

ORDERS = 'id,name,at,part\n1,ann,2024-01-01 00:00:00,0\n2,"b,c",2024-01-01 01:00:00,1\n3,,2024-01-02 00:00:00,0\n'

Run = Callable[..., int]


def module(job: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"job_{job}", REPOSITORY / "jobs" / f"{job}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def produce(spark: SparkSession, root: str) -> Run:
    """The job, in the tests' own Spark."""
    command: Command = module("produce").produce
    return lambda *args: run(command, ["--bootstrap-server", root, *map(str, args)])


@pytest.fixture
def consume(spark: SparkSession, root: str) -> Run:
    """The job, in the tests' own Spark."""
    command: Command = module("consume").main
    return lambda *args: run(command, ["--bootstrap-server", root, *map(str, args)])


@pytest.fixture
def export(spark: SparkSession, root: str) -> Run:
    """The job, in the tests' own Spark."""
    command: Command = module("export_topic").main
    return lambda *args: run(command, ["--bootstrap-server", root, *map(str, args)])


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Three orders as CSV."""
    path = tmp_path / "orders.csv"
    path.write_text(ORDERS)
    return path


def records(root: str, topic: str) -> list[tuple[int, bytes | None, object, int]]:
    with KafkaConsumer(topic, bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        polled = consumer.poll(1000)
    return [(r.partition, r.key, json.loads(r.value), r.timestamp) for batch in polled.values() for r in batch]


def committed(root: str, group: str, topic: str) -> int | None:
    with KafkaConsumer(bootstrap_servers=root, group_id=group) as consumer:
        return consumer.committed(TopicPartition(topic, 0))


def test_jobs_read_topics_as_of_one_snapshot(
    consume: Run, export: Run, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--at FILE` is what `kafkalike snapshot` printed; what was written later is not read."""
    for topic in ("a", "b"):
        connect(root).create_topic(topic, 1, {})
        fill(connect(root), topic, "old")
    printed = call(connect(root), "snapshot", "--topic", "a", "--topic", "b")
    at = tmp_path / "now.json"
    at.write_text(printed.out)
    for topic in ("a", "b"):
        fill(connect(root), topic, "new")

    done = [
        consume("--topic", "a", "--at", at, "--value-only", "--format", "json", "--json", tmp_path / "a"),
        export("--topic", "b", "--at", at, "--format", "json", "--json", tmp_path / "b"),
    ]
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    at.write_text("{}")
    refused = export("--topic", "b", "--at", at, tmp_path / "c")
    other = export("--topic", "b", "--at", tmp_path / "nowhere.json", tmp_path / "c")

    assert done == [0, 0]
    assert [(report["records"], report["ending_offsets"]) for report in reports] == [
        (1, {"a": {"0": 1}}),
        (1, {"b": {"0": 1}}),
    ]
    lines = [line for file in (tmp_path / "a").glob("*.json") for line in file.read_text().splitlines()]
    assert lines == ['{"value":"old"}']
    assert (refused, other) == (1, 2)
    assert "snapshot" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.timeout(300)
def test_spark_submit_carries_files_in_and_out(root: str, orders: Path, tmp_path: Path) -> None:
    """What one job reports is where the other one reads, and the rows come out as they went in; from any folder."""
    out = tmp_path / "out"
    into = ["--bootstrap-server", root, "--topic", "orders"]

    produced = submit("produce", *into, "--format", "csv", "--key-column", "id", "--json", str(orders))
    report = json.loads(produced.stdout)
    ends = json.dumps(report["ending_offsets"])
    decode = ["--value-format", "json", "--schema", "id STRING, name STRING, at STRING, part STRING", "--value-only"]
    consumed = submit(
        "consume",
        *[*into, "--ending-offsets", ends, *decode, "--format", "csv", "--option", "quoteAll=false", str(out)],
        folder=tmp_path,
    )

    assert (produced.returncode, report["records"], report["starting_offsets"]) == (0, 3, {"orders": {"0": 0}})
    assert consumed.returncode == 0, consumed.stderr
    # From a folder in which the settings of the log are not to be found.
    assert " INFO " not in consumed.stderr
    assert "orders          0      0    3        3" in consumed.stdout
    rows = [line for file in out.glob("*.csv") for line in file.read_text().splitlines()[1:]]
    assert sorted(rows) == sorted(ORDERS.splitlines()[1:])


def test_columns_become_key_value_time_and_partition(produce: Run, root: str, orders: Path) -> None:
    """Each column that is named goes where it is asked to."""
    with KafkaAdminClient(bootstrap_servers=root) as admin:
        admin.create_topics({"orders": {"num_partitions": 2}})

    columns = ["--key-column", "id", "--value-columns", "name,id"]
    columns += ["--timestamp-column", "at", "--partition-column", "part"]
    code = produce("--topic", "orders", "--format", "csv", *columns, orders)

    assert code == 0
    assert sorted(records(root, "orders")) == [
        (0, b"1", {"name": "ann", "id": "1"}, 1704067200000),
        (0, b"3", {"id": "3"}, 1704153600000),
        (1, b"2", {"name": "b,c", "id": "2"}, 1704070800000),
    ]


def test_a_rerun_of_the_same_write_adds_nothing_and_says_so(
    produce: Run, root: str, orders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second run of one txn_version reports no records and leaves the log as it was."""
    once = ["--topic", "orders", "--format", "csv", "--txn-id", "daily", "--txn-version", "7", "--json", orders]

    codes = [produce(*once), produce(*once)]

    out, err = capsys.readouterr()
    reports = [json.loads(line) for line in out.splitlines()]
    assert (codes, [(r["records"], r["duplicate"]) for r in reports]) == ([0, 0], [(3, False), (0, True)])
    assert "Nothing was added: daily has already written version 7." in err
    assert len(records(root, "orders")) == 3


def test_a_group_reads_what_is_new_since_its_last_run(consume: Run, root: str, tmp_path: Path) -> None:
    """Each run appends the records since the one before, and commits the end it has written."""
    out = tmp_path / "out"
    archive = ["--topic", "orders", "--group", "archive", "--format", "json", str(out)]
    seen = []
    for batch in ([b"a", b"b"], [b"c"], []):
        with KafkaProducer(bootstrap_servers=root) as producer:
            for value in batch:
                producer.send("orders", value)
        assert consume(*archive) == 0
        rows = [json.loads(line) for file in out.glob("*.json") for line in file.read_text().splitlines()]
        seen.append((sorted(row["value"] for row in rows), committed(root, "archive", "orders")))

    assert seen == [(["a", "b"], 2), (["a", "b", "c"], 3), (["a", "b", "c"], 3)]


def test_offsets_are_committed_only_when_the_rows_are_written(
    consume: Run, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value that is no JSON fails the job in one line, and the group stays where it was."""
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("orders", b"no json")

    target = ["--format", "parquet", "--value-format", "json", "--schema", "id INT", tmp_path / "out"]
    code = consume("--topic", "orders", "--group", "archive", *target)

    assert code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert committed(root, "archive", "orders") is None


def test_the_console_gets_a_line_for_each_record(consume: Run, root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output holds records alone, in order; the report goes to standard error."""
    with KafkaProducer(bootstrap_servers=root) as producer:
        for value in (b"a", b"b", b"c"):
            producer.send("orders", value, key=b"k")

    code = consume("--topic", "orders", "--starting-offsets", '{"orders": {"0": 1}}')

    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [(line["key"], line["value"], line["offset"]) for line in lines]) == (
        0,
        [("k", "b", 1), ("k", "c", 2)],
    )
    assert "records: 2" in err


def test_a_line_that_cannot_be_parsed_fails_the_job(
    produce: Run, root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of the file is written, and the error is one line that shows the bad one."""
    bad = tmp_path / "bad.csv"
    bad.write_text(ORDERS + "4,x,yesterday,0,too many\n")

    code = produce("--topic", "orders", "--format", "csv", bad)

    err = capsys.readouterr().err
    assert (code, len(err.splitlines())) == (1, 1)
    assert "too many" in err
    assert records(root, "orders") == []


@pytest.mark.parametrize(
    "args",
    [
        ["--group", "g", "--from-beginning", "--starting-offsets", "earliest"],
        ["--format", "csv"],
        ["--format", "csv", "--value-format", "json", "--schema", "id INT", "out"],
        ["--value-format", "json"],
        ["--schema", "id INT"],
        ["--mode", "overwrite"],
        ["out"],
    ],
)
def test_options_that_do_not_go_together_are_refused(
    consume: Run, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is ignored: exit code 2 and a line that says what is wrong."""
    code = consume("--topic", "orders", *args)

    assert code == 2
    assert capsys.readouterr().err.startswith("Error: ")


def test_rows_become_records_with_a_schema_and_rows_again(
    root: str, orders: Path, tmp_path: Path, produce: Run, consume: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schema of a file, or made of the columns; what does not fit writes nothing; a bad value fails or is null."""
    schema = tmp_path / "order.avsc"
    fields = [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}]
    schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    into = ["--topic", "orders", "--format", "csv", "--schema", "id INT, name STRING, at STRING, part INT"]
    read = ["--topic", "orders", "--value-format", "avro", "--key-format", "avro", "--value-only"]

    wrong = produce(*into, "--value-schema", schema, orders)
    written = produce(
        *into,
        "--value-columns",
        "id,name",
        "--key-column",
        "id",
        "--value-schema",
        schema,
        "--key-schema",
        "avro",
        orders,
    )
    consumed = consume(*read, "--format", "json", tmp_path / "out")
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("orders", b"junk")
    failed = consume(*read)
    kept = consume(*read, "--malformed", "null", "--format", "json", tmp_path / "kept")

    assert (wrong, written, consumed, failed, kept) == (1, 0, 0, 1, 0)
    assert "does not have" in capsys.readouterr().err
    rows = [json.loads(line) for part in (tmp_path / "out").glob("*.json") for line in part.read_text().splitlines()]
    assert sorted(rows, key=str) == [{"id": 1, "name": "ann"}, {"id": 2, "name": "b,c"}, {"id": 3}]
    assert sum(len(part.read_text().splitlines()) for part in (tmp_path / "kept").glob("*.json")) == 4


@pytest.mark.parametrize(
    "options",
    [
        ["--value-format", "avro", "--schema", "id INT"],
        ["--value-format", "string", "--malformed", "null"],
        ["--value-format", "avro", "--message", "x.Y"],
        ["--value-format", "json", "--schema", "id INT", "--schema-registry", "http://127.0.0.1:1"],
    ],
)
def test_options_of_schemas_that_do_not_go_together(consume: Run, options: list[str]) -> None:
    """Are wrong usage."""
    assert consume("--topic", "orders", *options) == 2
