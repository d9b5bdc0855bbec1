"""An export is imported as it was: every byte, null, time and header, and partitions without records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkalike.connect import connect
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark.files.topic_export import FORMATS, export_topic, import_topic
from tests.tools.records import NOW_MS, make_topic

SIZES = (0, 1, 56, 57, 58, 59, 114, 115, 1_000, 20_000)
ODD = 'name "quoted", \\ back\nslash\r é -'


def fill(root: str) -> None:
    """Records in three of five partitions: bytes of all lengths around a line of base64, nulls, odd headers."""
    batch = RecordBatch()
    for size in SIZES:
        content = bytes(n % 256 for n in range(size))
        batch.add(0, content, content[::-1], NOW_MS + size, [(ODD, content), (ODD, None), ("", b"")])
    batch.add(1, b"-", b"null", NOW_MS, None)
    batch.add(1, b"", None, 0, [("empty", b"")])
    batch.add(2, None, b"", 1, None)
    make_topic(root, partitions=5).append(batch)


def rows(root: str, topic: str) -> list[Any]:
    """The number of partitions, and everything that stands in them."""
    log = connect(root).log(topic)
    log.refresh()
    chunks = [log.reader(partition, 0).read(1 << 30) for partition in log.info.partitions]
    return [log.info.num_partitions, *(chunk and chunk.table.to_pylist() for chunk in chunks)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_export_is_imported_as_it_was(spark: SparkSession, root: str, tmp_path: Path, file_format: str) -> None:
    fill(root)
    path = str(tmp_path / "out")

    export_topic(spark, "t", path, root, file_format=file_format)
    import_topic(spark, path, "again", root, file_format=file_format)

    found = rows(root, "again")
    assert found[0] == 5
    assert found == rows(root, "t")


def test_base64_that_was_damaged_fails_the_import(spark: SparkSession, root: str, tmp_path: Path) -> None:
    """Spark's own function leaves out what is no base64."""
    fill(root)
    path = tmp_path / "out"
    export_topic(spark, "t", str(path), root, file_format="csv")
    for file in path.glob("*.csv"):
        file.write_text(file.read_text("utf-8").replace("bnVsbA==", "bnV!bA=="), "utf-8")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    with pytest.raises(PySparkException):
        import_topic(spark, str(path), "again", root, file_format="csv")

    assert rows(root, "again") == [5, None, None, None, None, None]
