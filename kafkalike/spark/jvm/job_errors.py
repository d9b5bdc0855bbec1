"""Job errors: what a Spark job that writes has raised in, the error that the caller gets out."""

from __future__ import annotations

from typing import NoReturn

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
