"""Entry: settings in, a SparkSession that knows kafkalike's formats out."""

from __future__ import annotations

from pyspark.sql import SparkSession

from kafkalike.log.jvm.session import session as plain_session
from kafkalike.spark.format.format import register_format


def session(app_name: str = "kafkalike", master: str | None = None, **conf: str) -> SparkSession:
    """Build a SparkSession with Delta and kafkalike's settings, or take the one that runs.

    `spark.read.format("kafkalike")` and `spark.readStream.format("kafkalike")` work in it.

    Args:
        app_name: name shown by Spark.
        master: where to run; `local[*]` when neither this nor `SPARK_MASTER` nor spark-submit says so.
        **conf: more settings; they win over kafkalike's own. Dotted names go in as `**{"spark.x.y": "z"}`.

    Returns:
        The session. Settings that only count when a JVM starts have no effect on one that runs already. Warnings of
        its JVM go to standard error, less those that say nothing; name another file with
        `-Dlog4j2.configurationFile=` in `spark.driver.extraJavaOptions`.
    """
    made = plain_session(app_name, master, **conf)
    register_format(made)
    return made
