"""Writes of so much that tasks write the segments: read by Spark in small splits, by row groups, and by Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark import ProducerOptions, read, write
from tests.tools.findings import errors_of
from tests.tools.footers import filters

ROWS = 60_000
MIB = 1024 * 1024


def many(spark: SparkSession) -> DataFrame:
    """100 MB of records in one task, whose values begin with their numbers."""
    number = F.col("id").cast("string")
    values = spark.range(0, ROWS, 1, 1).select(number.alias("key"), F.rpad(number, 1_700, ".").alias("value"))
    return values.withColumn("headers", F.expr("array(named_struct('key', 'h', 'value', cast(key as binary)))"))


def numbers(frame: DataFrame) -> list[tuple[int, int, int]]:
    """Partition, offset and number of each record."""
    number = F.split(F.col("value").cast("string"), r"\.")[0].cast("long")
    return [tuple(row) for row in frame.select("partition", "offset", number).collect()]


@pytest.mark.full
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_record_is_read_once_however_the_files_are_split(
    spark: SparkSession, root: str, cluster: Cluster, codec: str
) -> None:
    """A split takes the row groups that begin in it: the offsets, written last, must not have moved."""
    cluster.create_topic("t", 2, {})
    write(many(spark).limit(10), "t", root)

    write(many(spark), "t", root, producer_options=ProducerOptions(compression_type=codec))

    files = sorted(Path(root, "t").rglob("*.parquet"), key=lambda path: path.stat().st_size)[-2:]
    assert all(pq.ParquetFile(path).num_row_groups > 1 for path in files)
    assert filters(Path(root)) == sum(pq.ParquetFile(path).num_row_groups for path in files)
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(MIB // 4))
    try:
        native = numbers(read(spark, "t", root))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    options = {"kafka.bootstrap.servers": root, "subscribe": "t"}
    by_format = numbers(spark.read.format("kafkalike").options(**options).load())
    assert sorted(native) == sorted(by_format)
    assert sorted(number for _, _, number in native) == sorted([*range(ROWS), *range(10)])
    for partition in (0, 1):
        held = sorted((offset, number) for p, offset, number in native if p == partition)
        assert [offset for offset, _ in held] == list(range(len(held)))
        late = [number for _, number in held[-1000:]]
        assert late == sorted(late)
    assert not errors_of(root)


@pytest.mark.full
def test_headers_and_times_of_large_writes_are_those_of_the_rows(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Also a row without a time, which gets that of its task, and one whose headers are null."""
    cluster.create_topic("t", 1, {})
    given = many(spark).withColumn(
        "timestamp", F.expr("if(cast(key as long) % 2 = 0, timestamp_millis(cast(key as long)), null)")
    )
    given = given.withColumn("headers", F.expr("if(cast(key as long) % 3 = 0, null, headers)"))

    before = cluster.clock.now_ms()
    write(given, "t", root)
    after = cluster.clock.now_ms()

    found = read(spark, "t", root).withColumn("number", F.col("key").cast("string").cast("long"))
    assert found.where("headers is null").count() == found.where("number % 3 = 0").count()
    assert found.where("headers is not null and headers[0].value != key").count() == 0
    assert found.where("number % 2 = 0 and unix_millis(timestamp) != number").count() == 0
    odd = found.where("number % 2 = 1").agg(F.min("timestamp"), F.max("timestamp"), F.count("*")).first()
    assert odd is not None
    assert odd[2] == ROWS // 2
    assert before <= odd[0].timestamp() * 1000
    assert odd[1].timestamp() * 1000 <= after
