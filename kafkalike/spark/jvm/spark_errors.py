"""Errors of Spark jobs: exceptions of PySpark, and the text that Spark shows of an error in its Python process.

Spark shows an error of its Python processes as a traceback of about twenty lines, with the helpful sentence at
the end. For errors of kafkalike, whose message says everything, the frames are left out. They stay for all other
errors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, NoReturn, ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.errors.kafka_error import innermost


def raise_refusal(topic: str, cause: Exception) -> NoReturn:
    """Raise the caller's error for a job that has not written anything.

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
"""PySpark converts the Java errors that it knows to its own classes; py4j raises the others."""

P = ParamSpec("P")
R = TypeVar("R")

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable with which Spark's Python processes report an error without its frames."""

NAMED: Final = (KafkaError, AnalysisException)


def hide_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method that Spark calls, so that errors of kafkalike appear without frames."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NAMED:
            _hide()
            raise

    return called


def hide_frames_of_rows(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """Decorate a generator that Spark calls, so that errors of kafkalike appear without frames."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from function(*args, **kwargs)
        except NAMED:
            _hide()
            raise

    return called


def _hide() -> None:
    """Hide the frames of the next error, after which a Python process of Spark ends anyway."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and (main.name or "").startswith("pyspark."):
        os.environ[HIDE] = "1"
