"""Spark on a cluster whose roots are buckets of three servers: it writes, reads and copies, also without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import kafkalike.spark as ks
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError
from kafkalike.maintenance.verify.replica_check import check_replicas
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.object_servers import StoppableS3, by_root, stoppable
from tests.tools.records import everything

pytestmark = [pytest.mark.objects, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StoppableS3]]:
    settings = tmp_path / "server.properties"
    settings.write_text("replica.lag.time.max.ms=1000\n")
    monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(settings))
    with stoppable(tmp_path / "servers", 3) as running:
        yield running


def copied(spark: SparkSession, roots: str, options: Mapping[str, object], checkpoint: Path) -> None:
    """A stream from one topic to another one, of all that is there."""
    source = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", roots)
    frame = source.option("subscribe", "t").option("startingOffsets", "earliest").load().select("value")
    query = ks.write_stream(
        frame,
        "copy",
        checkpoint=str(checkpoint),
        bootstrap_servers=roots,
        storage_options=options,
        available_now=True,
    )
    assert query.awaitTermination(300)


def numbers(cluster: ReplicatedCluster, topic: str) -> list[int]:
    return sorted(int(value) for records in everything(cluster.log(topic)).values() for _, value in records)


def test_spark_writes_reads_and_copies_topics_in_several_buckets(
    spark: SparkSession, servers: list[StoppableS3], tmp_path: Path
) -> None:
    options, roots = by_root(servers), ",".join(server.uri for server in servers)
    cluster = connect(roots, options)
    assert isinstance(cluster, ReplicatedCluster)
    for topic in ("t", "copy"):
        cluster.create_topic(topic, 2, {}, replication_factor=3)
    ks.register_format(spark, options)
    first = spark.range(100).select(F.col("id").cast("string").alias("value"))
    second = spark.range(100, 150).select(F.col("id").cast("string").alias("value"), F.lit("t").alias("topic"))

    ks.write(first, "t", bootstrap_servers=roots, storage_options=options)
    second.write.format("kafkalike").option("kafka.bootstrap.servers", roots).mode("append").save()
    copied(spark, roots, options, tmp_path / "checkpoint")

    assert numbers(cluster, "t") == numbers(cluster, "copy") == list(range(150))
    # One name at three servers: Delta would read one of them for all.
    with pytest.raises(KafkaConfigurationError, match=r"called bucket|no client for S3"):
        ks.read(spark, "t", roots, storage_options=options)

    leader = servers[cluster.replication.replicas("t").leader - 1]
    leader.stop()
    found = spark.read.format("kafkalike").option("kafka.bootstrap.servers", roots).option("subscribe", "t").load()
    assert found.select("value").distinct().count() == 150
    third = spark.range(150, 160).select(F.col("id").cast("string").alias("value"))
    ks.write(third, "t", bootstrap_servers=roots, storage_options=options)
    copied(spark, roots, options, tmp_path / "checkpoint")

    leader.start()
    while cluster.replication.replicate().failed:
        pass
    assert numbers(cluster, "t") == numbers(cluster, "copy") == list(range(160))
    assert not list(check_replicas(cluster))
