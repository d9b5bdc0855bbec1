"""Errors of Spark jobs: what a call of Spark raises, and the error that the caller gets for a job that writes."""

from __future__ import annotations

from typing import Final, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafkalike.errors import KafkaStorageError
from kafkalike.errors.java_errors import innermost


def raise_refusal(topic: str, cause: Exception) -> NoReturn:
    """Raise what a job that has written nothing means to the caller.

    Raises:
        PySparkException: an error of the caller's own query, as Spark raises it.
        KafkaStorageError: everything else.
    """
    if isinstance(cause, PySparkException) and cause.getCondition() is not None and not _is_io(str(cause)):
        raise cause
    raise KafkaStorageError(f"{topic}: Spark could not write, nothing was written: {innermost(cause)}") from cause


def _is_io(text: str) -> bool:
    return "java.io.IOException" in text or "FileSystemException" in text


SPARK_FAILURES: Final = (PySparkException, Py4JError)
"""PySpark turns the errors of Java that it knows into its own; py4j raises the others."""
