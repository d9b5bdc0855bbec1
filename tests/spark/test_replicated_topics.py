"""Spark writes to and reads from topics with replicas, also when the leader's root is gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.log.connect import connect
from kafkalike.spark import register_format, register_sql, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def counted(spark: SparkSession, roots: str, topic: str) -> int:
    frame = spark.read.format("kafkalike").option("kafka.bootstrap.servers", roots).option("subscribe", topic)
    return frame.load().select("value").distinct().count()


def numbers(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop).select(F.col("id").cast("string").alias("value"))


def test_spark_writes_and_reads_topics_with_replicas(spark: SparkSession, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    roots = ",".join(map(str, folders))
    cluster = connect(roots)
    register_format(spark)
    for topic in ("t", "u"):
        cluster.create_topic(topic, 2, {}, replication_factor=3)
    both = numbers(spark, 100, 150).withColumn("topic", F.explode(F.array(F.lit("t"), F.lit("u"))))

    write(numbers(spark, 0, 100), "t", bootstrap_servers=roots)
    both.write.format("kafkalike").option("kafka.bootstrap.servers", roots).mode("append").save()

    assert (counted(spark, roots, "t"), counted(spark, roots, "u")) == (150, 50)
    register_sql(spark, bootstrap_servers=roots)
    assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == 150
    leader = folders[cluster.replication.replicas("t").leader - 1]
    plan = spark.read.format("kafkalike").option("kafka.bootstrap.servers", roots).option("subscribe", "t").load()
    leader.rename(tmp_path / "gone")
    assert plan.count() == 150
    (tmp_path / "gone").rename(leader)
