"""Frames: values in, a DataFrame to write out."""

from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, *values: str | None) -> DataFrame:
    """One column `value` in one Spark partition, in this order."""
    return spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
