"""Session: settings in, a SparkSession out in which every topic table is written and read as it should be."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from kafkalike.log.connect import named_root
from kafkalike.log.jvm.jars import delta_jar_conf
from kafkalike.log.store.object_root import object_root

UTC_JVM: Final = "-Duser.timezone=UTC"

LOG4J: Final = Path(__file__).parents[2] / "conf" / "log4j2.properties"
"""What the JVM may say on standard error. spark-submit finds it beside `spark-defaults.conf`."""

SESSION_CONF: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # In another time zone Delta verifies the files of a small table at every commit.
    "spark.sql.session.timeZone": "UTC",
    # One task rebuilds the state of a topic's log faster than fifty: 737 ms instead of 3,324 ms per append.
    "spark.databricks.delta.snapshotPartitions": "1",
    # A commit that landed although the store reported a failure is recognised instead of made again.
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    # Both would move records to files in which they do not stand by offset.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    # One open file per Kafka partition saves the writer's sort, which would also undo the order of the records.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    # INT96, Spark's default, has no statistics: a look-up by time would read whole files.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A consumer decodes a row group at a time; 128 MiB, the default, is too much for one that wants one record.
    "spark.hadoop.parquet.block.size": str(16 * 1024 * 1024),
    # Delta 4.4.0's parser loses the `args` of `spark.sql(text, args=...)` on Spark 4.2; bound after parsing, they stay.
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What `kafkalike/conf/spark-defaults.conf` says as well, for spark-submit; a test keeps the two equal."""


def session(
    app_name: str = "kafkalike",
    master: str | None = None,
    *,
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    **conf: str,
) -> SparkSession:
    """Build a SparkSession with Delta and kafkalike's settings, or take the one that runs.

    Args:
        app_name: name shown by Spark.
        master: where to run; `local[*]` when neither this nor `SPARK_MASTER` nor spark-submit says so.
        bootstrap_servers: a cluster that is to be read as tables; one in S3 adds Hadoop's client for it to a JVM that
            starts now. None for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`.
        **conf: more settings; they win over kafkalike's own. Dotted names go in as `**{"spark.x.y": "z"}`.

    Returns:
        The session. Settings that only count when a JVM starts have no effect on one that runs already. Warnings of
        its JVM go to standard error, less those that say nothing (`LOG4J`); name another file with
        `-Dlog4j2.configurationFile=` in `spark.driver.extraJavaOptions`.
    """
    # Workers must be the same Python as the driver: another one may lack the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    settings = {**SESSION_CONF, **conf}
    if SparkSession.getActiveSession() is None:
        settings["spark.driver.extraJavaOptions"] = driver_options(settings.get("spark.driver.extraJavaOptions", ""))
        executors = [settings.get("spark.executor.extraJavaOptions", ""), UTC_JVM]
        settings["spark.executor.extraJavaOptions"] = " ".join(o for o in executors if o)
        if not _submitted():
            builder = builder.master(master or os.environ.get("SPARK_MASTER") or "local[*]")
            settings = {**delta_jar_conf(s3=_in_s3(bootstrap_servers)), **settings}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _in_s3(bootstrap_servers: Any) -> bool:  # noqa: ANN401
    """Whether the tables of a cluster are read through Hadoop's client for S3."""
    root = object_root(named_root(bootstrap_servers))
    return root is not None and root.provider == "s3"


def driver_options(given: str) -> str:
    """Options of the driver's JVM: the caller's, UTC, and quiet logs unless the caller configures the log.

    A session would else begin with a page of Spark's warnings about host names and native libraries.
    """
    quiet = "" if ".configurationFile=" in given else f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    return " ".join(option for option in (given, UTC_JVM, quiet) if option)


def session_at_hand(app_name: str) -> SparkSession | None:
    """The session that runs, or under spark-submit one of `session`; None elsewhere: no JVM is started for it.

    Args:
        app_name: name of a session that is begun.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return session(app_name) if _submitted() else None


def _submitted() -> bool:
    """Whether spark-submit started this process and has said where to run and which jars to take."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
