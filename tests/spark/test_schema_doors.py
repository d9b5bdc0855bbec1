"""A topic that checks schemas refuses the same records by whichever way Spark brings them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafkalike.connect import connect
from kafkalike.errors import InvalidRecordError
from kafkalike.schemas import Registry, Schema
from kafkalike.spark import transaction, write, write_stream
from kafkalike.spark.files.topic_export import export_topic, import_topic
from tests.tools.records import all_records

CHECKED = {"kafkalike.value.schema.validation": "true"}
Door = Callable[[DataFrame, str, Path], None]


def by_write(frame: DataFrame, root: str, _: Path) -> None:
    write(frame, "t", root)


def by_format(frame: DataFrame, root: str, _: Path) -> None:
    options = {"kafka.bootstrap.servers": root, "topic": "t"}
    frame.write.format("kafkalike").options(**options).mode("append").save()


def by_transaction(frame: DataFrame, root: str, _: Path) -> None:
    with transaction("x", root) as t:
        t.write(frame, "t")


def by_stream(frame: DataFrame, root: str, place: Path) -> None:
    frame.write.parquet(str(place / "in"))
    stream = frame.sparkSession.readStream.schema(frame.schema).parquet(str(place / "in"))
    write_stream(stream, "t", root, checkpoint=str(place / "checkpoint"), available_now=True).awaitTermination()


def by_import(frame: DataFrame, root: str, place: Path) -> None:
    write(frame, place.name, root)
    export_topic(frame.sparkSession, place.name, str(place / "out"), root)
    import_topic(frame.sparkSession, str(place / "out"), "t", root)


# The others stage records by the same functions, and take several jobs each.
@pytest.mark.parametrize(
    "door",
    [
        by_write,
        by_format,
        *(pytest.param(door, marks=pytest.mark.soak) for door in (by_transaction, by_stream, by_import)),
    ],
)
def test_a_record_without_a_schema_of_the_topic_is_refused(
    spark: SparkSession, root: str, tmp_path: Path, door: Door
) -> None:
    """And nothing of its batch is written; a batch of good records is."""
    connect(root).create_topic("t", 1, CHECKED)
    schema_id = Registry(root).register_schema("t-value", Schema(json.dumps("string")))
    value = b"\0" + schema_id.to_bytes(4, "big") + b"\x02a"
    good, bad = (spark.createDataFrame([(value,), *more], "value BINARY") for more in ([], [(b"no schema",)]))
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()

    with pytest.raises((InvalidRecordError, PySparkException), match=r"value\.schema\.validation=true"):
        door(bad, root, tmp_path / "bad")
    assert all_records(root, "t") == {0: []}
    door(good, root, tmp_path / "good")

    assert all_records(root, "t") == {0: [(0, value.decode())]}
