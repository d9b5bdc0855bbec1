"""A JVM without Delta: what needs it says so and changes nothing, and the rest works."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafkalike.spark as ks
from kafkalike.errors import KafkaConfigurationError
from tests.tools.children import REPOSITORY
from tests.tools.clusters import on_disk

WORKER = REPOSITORY / "tests/spark/workers/without_delta.py"
TOLD = (
    "KafkaConfigurationError: this JVM has no Delta, which reads a topic as a table; nothing was changed. Start it "
    "with `--packages io.delta:delta-spark_4.2_2.13:4.4.0`, or with SPARK_CONF_DIR=$(kafkalike conf-path). Without "
    'Delta, call kafkalike.spark.register_format(spark): format("kafkalike") and kafkalike.spark.write need none'
)
REFUSED = ("first", "running", "read", "in_sql", "in_database", "typed", "by_schema", "streamed", "stopped")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_jvm_without_delta_names_it_before_any_change_and_reads_and_writes_by_format(root: str, tmp_path: Path) -> None:
    on_disk(root).create_topic("t", 1, {})
    env = {name: value for name, value in os.environ.items() if name not in {"SPARK_CONF_DIR", "SPARK_MASTER"}}
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]

    ran = subprocess.run(
        [*submit, str(WORKER), root, str(tmp_path)],
        env={**env, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert {step: found[step] for step in REFUSED} == dict.fromkeys(REFUSED, TOLD)
    assert found["settings"] == {}
    assert found["sql"] == [1, []]
    assert found["databases"] == ["default"]
    assert found["format"] == ["by format", "by write"]
    assert found["live_view"] == ["t", 2]
    assert found["stream"] == 2
    assert found["at_hand"] == 3


@pytest.mark.spark
def test_session_without_delta_catalog_is_refused_before_anything_is_created(spark: SparkSession, root: str) -> None:
    """Delta's jars alone are not enough: Spark would make the database, and then no view in it."""
    on_disk(root).create_topic("t", 1, {})
    plain = spark.newSession()
    plain.conf.unset("spark.sql.catalog.spark_catalog")
    told = "this session lacks Delta's catalog, .*; nothing was changed. Start its JVM with SPARK_CONF_DIR="

    with pytest.raises(KafkaConfigurationError, match=told):
        ks.register_sql(plain, root, database="log_without_catalog")
    with pytest.raises(KafkaConfigurationError, match=told):
        ks.read(plain, "t", root)

    assert not plain.catalog.databaseExists("log_without_catalog")


@pytest.fixture
def without_extension(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of a Spark that was started without Delta's extension, as its settings say."""
    java = spark.sparkContext._jsc
    assert java is not None
    settings = java.sc().conf()
    extensions = settings.get("spark.sql.extensions")
    settings.remove("spark.sql.extensions")
    yield spark
    settings.set("spark.sql.extensions", extensions)


@pytest.mark.spark
def test_session_without_delta_extension_is_refused_before_any_setting_is_changed(
    without_extension: SparkSession, root: str
) -> None:
    on_disk(root).create_topic("t", 1, {})
    before = without_extension.conf.getAll
    told = (
        r"this Spark was started without Delta's extension \(spark.sql.extensions=io.delta.sql."
        r"DeltaSparkSessionExtension\), .*; nothing was changed. Stop it with spark.stop\(\) and call"
    )

    with pytest.raises(KafkaConfigurationError, match=told):
        ks.session(**{"spark.sql.shuffle.partitions": "77"})
    with pytest.raises(KafkaConfigurationError, match=told):
        ks.read(without_extension, "t", root)

    assert without_extension.conf.getAll == before
