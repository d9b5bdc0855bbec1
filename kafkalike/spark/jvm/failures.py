"""Failures: what a call of Spark's raises, from Python's side of it or from py4j's."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_FAILURES: Final = (PySparkException, Py4JError)
"""PySpark turns the errors of Java that it knows into its own; py4j raises the others."""
