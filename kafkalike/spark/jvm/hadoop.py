"""Hadoop: a cluster in, a session whose Hadoop can read its tables out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kafkalike.errors import KafkaConfigurationError
from kafkalike.spark.jvm.remote import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster

S3A_CLASS: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def tell_hadoop(spark: SparkSession, cluster: Cluster) -> None:
    """Tell Hadoop what it needs to read the tables of a cluster; nothing for a folder.

    The settings are those of Hadoop in this session's JVM. They are no settings of Spark's, which stand in its event
    log and on its page; Spark sends them to its tasks with the files that these are to read. A bucket whose provider of
    credentials the session names itself is left as it is, and so is the server of a session of Spark Connect. Hadoop
    keeps a client for each bucket as long as the JVM lives, so what is told later does not reach a bucket that was read
    before.

    Args:
        spark: the session.
        cluster: whose tables are to be read.

    Raises:
        KafkaConfigurationError: Hadoop has no client for the object store, or cannot be told who asks.
    """
    # Of several roots, any may lead a topic.
    places = [place for root in cluster.root.split(",") if (place := urlsplit(root)).scheme == "s3"]
    if not places:
        return
    if is_remote(spark):
        # The server's Hadoop is told by the server's own settings.
        return
    context: Any = spark.sparkContext
    # PySpark has no public way to either.
    jvm, java = context._jvm, context._jsc  # noqa: SLF001
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(S3A_CLASS):
        raise KafkaConfigurationError(
            f"{cluster.root}: this session's Hadoop has no client for S3; begin it with "
            'kafkalike.spark.session(bootstrap_servers=...) naming the root, or read with format("kafkalike"), which '
            "needs none"
        )
    # By Spark's own settings: those of Hadoop may be of an earlier call.
    # PySpark's own copy of these costs a call of the JVM for each setting, 20 ms.
    known, buckets = java.sc().getConf(), {place.netloc for place in places}
    left = {b for b in buckets if known.contains(f"spark.hadoop.fs.s3a.bucket.{b}.aws.credentials.provider")}
    if left == buckets:
        return
    hadoop = java.hadoopConfiguration()
    for name, value in cluster.store.hadoop_settings().items():
        if not any(name.startswith(f"fs.s3a.bucket.{bucket}.") for bucket in left):
            hadoop.set(name, value)
