"""Spark writes to and reads from topics with replicas, also when the leader's root is gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.spark import read, register_format, register_sql, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def counted(spark: SparkSession, roots: str, topic: str, rack: str = "", *, striped: bool = False) -> int:
    frame = spark.read.format("kafkalike").option("kafka.bootstrap.servers", roots).option("subscribe", topic)
    frame = frame.option("kafka.client.rack", rack).option("stripeReads", striped)
    return frame.load().select("value").distinct().count()


def numbers(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop).select(F.col("id").cast("string").alias("value"))


def check_tables(spark: SparkSession, folders: list[Path]) -> None:
    """`brokers` and `replicas` are live: also of a root that is away."""
    away = folders[2].rename(folders[2].with_name("away"))
    brokers = spark.sql("SELECT broker_id, uri, rack, up FROM kafkalike_brokers ORDER BY broker_id").collect()
    columns = "topic, partition, leader, leader_epoch, sort_array(replicas), sort_array(isr), offline_replicas"
    replicas = spark.sql(f"SELECT {columns} FROM kafkalike_replicas WHERE leader <> 3 ORDER BY ALL").collect()  # noqa: S608
    lags = spark.sql("SELECT lag_versions, lag_bytes, lag_seconds FROM kafkalike_replicas WHERE leader <> 3").collect()
    away.rename(folders[2])
    assert [tuple(row) for row in brokers] == [
        (n, str(folder), folder.name, n < 3) for n, folder in enumerate(folders, start=1)
    ]
    assert {row[1] for row in replicas} == {0, 1}
    assert all(tuple(row)[3:] == (0, [1, 2, 3], [1, 2, 3], [3]) for row in replicas)
    assert all(dict(value) == {1: 0, 2: 0, 3: None} for row in lags for value in row)


def check_racks(spark: SparkSession, roots: str, near: Path) -> None:
    """Tasks read at a replica that is near, and what that one has damaged at another one."""
    kept = {path: path.read_bytes() for path in near.glob("t*/partition=*/*.parquet")}
    for path, content in kept.items():
        path.write_bytes(b"\0" * len(content))
    assert counted(spark, roots, "t") == 150
    assert counted(spark, roots, "t", rack=near.name) == 150
    assert counted(spark, roots, "t", striped=True) == 150
    # Delta's own reader, too, at the version that is published.
    assert read(spark, "t", roots).select("value").distinct().count() == 150
    near_frame = read(spark, "t", roots, client_rack=near.name)
    assert {Path(file.partition(":")[2]).parts[-4] for file in near_frame.inputFiles()} == {near.name}
    for path, content in kept.items():
        path.write_bytes(content)
    assert near_frame.select("value").distinct().count() == 150
    assert read(spark, "t", roots, client_rack="none").select("value").distinct().count() == 150


def test_spark_writes_and_reads_topics_with_replicas(spark: SparkSession, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    roots = ",".join(map(str, folders))
    for folder in folders:
        folder.mkdir()
        # A root that is gone is waited for so long.
        settings = f"broker.rack={folder.name}\nreplica.lag.time.max.ms=2000\n"
        (folder / "server.properties").write_text(settings)
    cluster = connect(roots)
    register_format(spark)
    for topic in ("t", "u"):
        cluster.create_topic(topic, 2, {}, replication_factor=3)
    both = numbers(spark, 100, 150).withColumn("topic", F.explode(F.array(F.lit("t"), F.lit("u"))))

    write(numbers(spark, 0, 100), "t", bootstrap_servers=roots)
    both.write.format("kafkalike").option("kafka.bootstrap.servers", roots).mode("append").save()

    assert (counted(spark, roots, "t"), counted(spark, roots, "u")) == (150, 50)
    register_sql(spark, bootstrap_servers=roots, temporary=True)
    assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == 150
    check_tables(spark, folders)
    leader = folders[cluster.replication.replicas("t").leader - 1]
    check_racks(spark, roots, near=folders[leader == folders[0]])
    plan = spark.read.format("kafkalike").option("kafka.bootstrap.servers", roots).option("subscribe", "t").load()
    leader.rename(tmp_path / "gone")
    assert plan.count() == 150
    (tmp_path / "gone").rename(leader)
