"""The import job against a real Kafka broker. Its jars are fetched, so this runs only in the soak."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.kafka_broker import broker
from kafkalike.cli.paths import CONF, JOBS
from kafkalike.connect import connect
from kafkalike.schemas import Registry, Schema
from kafkalike.spark import create_view, read

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
RECORDS = 5_000
PRODUCE = """
import sys
from benchmarks.kafka_rivals import kafka_session

spark, count = kafka_session(), int(sys.argv[2])
rows = spark.range(0, count, 1, 1).selectExpr(
    "CASE WHEN id % 3 > 0 THEN CAST(CAST(id % 50 AS STRING) AS BINARY) END AS key",
    "CASE WHEN id % 7 > 0 THEN CAST(CAST(id AS STRING) AS BINARY) END AS value",
    "CASE WHEN id % 2 > 0 THEN array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) END AS headers",
)
rows.write.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("topic", "orders").option(
    "includeHeaders", "true"
).save()
kept = spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "orders")
kept.option("includeHeaders", "true").load().write.parquet(sys.argv[3])
spark.stop()
"""


@pytest.fixture
def kafka() -> Iterator[str]:
    """A broker on 127.0.0.1."""
    with broker() as (servers, _):
        yield servers


def by_partition(frame: DataFrame) -> dict[int, list[tuple[object, ...]]]:
    """What must be the same on both sides, in the order of the offsets."""
    found: dict[int, list[tuple[object, ...]]] = defaultdict(list)
    for row in frame.orderBy("partition", "offset").collect():
        found[row["partition"]].append((row["key"], row["value"], row["headers"] or None, row["timestamp"]))
    return found


def start_import(kafka: str, root: Path, checkpoint: Path, *more: str) -> subprocess.Popen[bytes]:
    """The job as its documents say, in batches of a few hundred records."""
    jars = subprocess.run(
        [sys.executable, "-m", "kafkalike.jobs.kafka_jars"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    command = [str(Path(sys.executable).with_name("spark-submit")), "--jars", jars]
    command += [str(JOBS / "import_kafka.py"), "--bootstrap-server", str(root), "--kafka", kafka]
    command += ["--topic", "orders", "--checkpoint", str(checkpoint), "--max-offsets-per-trigger", "400", *more]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | {
        "SPARK_CONF_DIR": str(CONF)
    }
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE if more else None,
        stderr=subprocess.STDOUT if more else None,
    )


SEND = """
import sys
from benchmarks.kafka_rivals import kafka_session

spark, count, bad = kafka_session(), int(sys.argv[2]), int(sys.argv[3])
# The id of a schema, and a number of one byte as Avro writes it.
good = "unhex(concat('0000000001', lpad(hex(2 * (id % 60)), 2, '0')))"
value = f"IF(id < {count - bad}, {good}, CAST('x' AS BINARY)) AS value"
rows = spark.range(0, count, 1, 1).selectExpr(value)
rows.write.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("topic", "orders").save()
spark.stop()
"""
NUMBER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def wait_for_records(root: Path) -> None:
    """Until the import has written something."""
    deadline = time.monotonic() + 120
    while not list((root / "orders").rglob("*.parquet")):
        assert time.monotonic() < deadline, "the import has written nothing"
        time.sleep(0.05)


def test_import_that_was_killed_brings_each_record_of_a_broker_once(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    """Keys, values, headers, times, partitions and order are Kafka's, also when the job died in between."""
    original, root, checkpoint = tmp_path / "original", tmp_path / "root", tmp_path / "checkpoint"
    subprocess.run([sys.executable, "-c", PRODUCE, kafka, str(RECORDS), str(original)], cwd=REPOSITORY, check=True)

    first = start_import(kafka, root, checkpoint)
    wait_for_records(root)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    second = start_import(kafka, root, checkpoint)

    assert second.wait(timeout=300) == 0
    expected = by_partition(spark.read.parquet(str(original)))
    assert sum(map(len, expected.values())) == RECORDS
    assert by_partition(read(spark, "orders", str(root))) == expected
    assert connect(str(root)).topic("orders").num_partitions == len(expected)


def test_import_into_a_checked_topic_takes_what_has_the_subjects_schema_and_nothing_else(
    spark: SparkSession, kafka: str, tmp_path: Path
) -> None:
    """The last record has no schema: its batch ends the job by name, and those before it are there."""
    root, checkpoint, records = tmp_path / "root", tmp_path / "checkpoint", 1_000
    assert Registry(str(root)).register_schema("orders-value", Schema(NUMBER)) == 1
    subprocess.run([sys.executable, "-c", SEND, kafka, str(records), "1"], cwd=REPOSITORY, check=True)

    job = start_import(kafka, root, checkpoint, "--topic-config", "kafkalike.value.schema.validation=true")
    said = job.communicate(timeout=300)[0].decode()

    assert job.returncode != 0
    assert "Error: InvalidRecordError: " in said
    create_view(spark, "orders", str(root), format="avro", name="imported")
    found, wrong = spark.sql("SELECT count(id), count(_error) FROM imported").first() or (0, 0)
    batches = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()]
    whole = [json.loads(path.read_text().splitlines()[-1]) for path in batches]
    assert found == max(sum(ends["orders"].values()) for ends in whole if sum(ends["orders"].values()) < records) > 0
    assert wrong == 0
