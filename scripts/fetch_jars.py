"""Fetch Delta's jars: nothing in, Spark's Ivy folder filled; with `--s3`, those of Hadoop's client for S3 as well.

Spark's own resolver does it, so what is fetched is what a session without this step would fetch.
"""

import sys

from pyspark.sql import SparkSession

from kafkalike.spark.jvm.jars import delta_jar_conf


def main() -> int:
    """Start a session that needs the jars, unless they are here; 1 when they still are not afterwards."""
    s3 = sys.argv[1:] == ["--s3"]
    conf = delta_jar_conf(s3=s3)
    if "spark.jars" in conf:
        return 0
    builder = SparkSession.builder.appName("fetch-jars").master("local[1]")
    for name, value in {**conf, "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    builder.getOrCreate().stop()
    return 0 if "spark.jars" in delta_jar_conf(s3=s3) else 1


if __name__ == "__main__":
    sys.exit(main())
