"""Job errors: what a Spark job that writes has raised in, the error that the caller gets out."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from kafkalike import errors
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.log.jvm.java_errors import innermost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_ERROR: Final = re.compile(r"kafkalike:(\w+Error): ([^\n]*?)(?: SQLSTATE: \w+)?(?:\n|$)")
"""What a check inside the plan raises (`problem`), found again in the text of Spark's exception."""


def problem(error: type[KafkaError], text: str) -> str:
    """The message with which a check inside a Spark plan names one of our errors; `raise_refusal` finds it again."""
    return f"kafkalike:{error.__name__}: {text}"


def let_go(kept: DataFrame) -> None:
    """Drop a persisted DataFrame; a JVM that is gone has dropped it, and must not hide why it went."""
    with contextlib.suppress(Py4JError, OSError):
        kept.unpersist()


def raise_refusal(topic: str, cause: Exception) -> NoReturn:
    """Raise what a job that has written nothing means to the caller.

    Raises:
        KafkaError: what a check of the records found.
        PySparkException: an error of the caller's own query, as Spark tells it.
        KafkaStorageError: everything else.
    """
    text = str(cause)
    named = RECORD_ERROR.search(text)
    if named is not None:
        raise getattr(errors, named.group(1))(f"{topic}: {named.group(2)}") from cause
    if isinstance(cause, PySparkException) and cause.getCondition() is not None and not _is_io(text):
        raise cause
    message = f"{topic}: Spark could not write, nothing was written: {innermost(cause)}"
    raise KafkaStorageError(message) from cause


def _is_io(text: str) -> bool:
    return "java.io.IOException" in text or "FileSystemException" in text
