"""Orders: what a test orders of a worker with a small Spark of its own in, the worker at work once it is let out."""

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from kafkalike.spark import session

SMALL = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}


def obey(work: Callable[[SparkSession, dict[str, Any]], None]) -> None:
    """Start Spark, say so, wait for a line, and do what the first argument orders."""
    orders = json.loads(sys.argv[1])
    spark = session(master="local[2]", **SMALL)
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    work(spark, orders)
