"""`session`: a SparkSession that knows kafkalike's formats."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from kafkalike.connect import check_spark_reaches, connect
from kafkalike.model.config.storage_options import Address
from kafkalike.spark.format.format import check_storage, register_format
from kafkalike.spark.jvm.spark_session import delta_session, tell_hadoop


def session(
    app_name: str = "kafkalike",
    master: str | None = None,
    *,
    bootstrap_servers: Address | None = None,
    storage_options: Any = None,  # noqa: ANN401 - a dict of Spark's settings may be unpacked as `conf`
    **conf: str,
) -> SparkSession:
    """Build a SparkSession with Delta and kafkalike's settings, or take the one that runs.

    `spark.read.format("kafkalike")` and `spark.readStream.format("kafkalike")` work in it.

    Args:
        app_name: name shown by Spark.
        master: where to run; `local[*]` when neither this nor `SPARK_MASTER` nor spark-submit says so.
        bootstrap_servers: a cluster whose topics are to be read by `kafkalike.spark.read` or SQL: one in S3 adds
            Hadoop's client for it to a JVM that starts now. It is fetched where it is missing (14 MB). None for the
            environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`. The formats, and all writes, do without. A root that is
            named here is told to Hadoop at once, so that the session finds checkpoints in its bucket.
        storage_options: who asks object stores in the formats; see `register_format`.
        **conf: more settings; they win over kafkalike's own. Dotted names go in as `**{"spark.x.y": "z"}`.

    Returns:
        The session. Settings that only count when a JVM starts have no effect on one that runs already. Warnings of
        its JVM go to standard error, less those that say nothing; name another file with
        `-Dlog4j2.configurationFile=` in `spark.driver.extraJavaOptions`.

    Raises:
        KafkaConfigurationError: `bootstrap_servers` or `storage_options` are wrong, or the session that runs has no
            client of Hadoop's for that root.
        IllegalArgumentError: `storage_options` are no dict of texts.
    """
    check_storage(storage_options)
    cluster = None if bootstrap_servers is None else connect(bootstrap_servers, storage_options, access="offline")
    if cluster is not None:
        check_spark_reaches(cluster)
    made = delta_session(app_name, master, bootstrap_servers=bootstrap_servers, **conf)
    register_format(made, storage_options)
    if cluster is not None:
        tell_hadoop(made, cluster)
    return made
