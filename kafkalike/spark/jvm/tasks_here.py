"""Tasks here: a session in, a folder of this machine that all of its tasks share with this process out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalike.spark.jvm.remote import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tasks_here(spark: SparkSession) -> str | None:
    """A folder on one of Spark's local disks, which goes with the JVM; None where tasks run on other machines.

    Args:
        spark: the session.
    """
    if is_remote(spark):
        return None
    context: Any = spark.sparkContext
    if not (context.master or "").startswith("local"):
        return None
    # Where PySpark keeps its own files; there is no public name for it.
    return getattr(context, "_temp_dir", None)
