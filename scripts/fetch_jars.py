"""Fetch Delta's jars: nothing in, Spark's Ivy folder filled.

Spark's own resolver does it, so what is fetched is what a session without this step would fetch.
"""

import sys

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from kafkalike.log.jvm.jars import delta_jar_conf


def main() -> int:
    """Start a session that needs the jars, unless they are here; 1 when they still are not afterwards."""
    conf = delta_jar_conf()
    if "spark.jars" in conf:
        return 0
    builder = SparkSession.builder.appName("fetch-jars").master("local[1]")
    for name, value in {**conf, "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    configure_spark_with_delta_pip(builder).getOrCreate().stop()
    return 0 if "spark.jars" in delta_jar_conf() else 1


if __name__ == "__main__":
    sys.exit(main())
