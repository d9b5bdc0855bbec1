"""Errors of Spark jobs: exceptions of PySpark, and the text that Spark shows of an error in its Python process.

Spark shows an error of its Python processes as a traceback of about twenty lines, with the helpful sentence at
the end. For errors of kafkalike, whose message says everything, the frames are left out. They stay for all other
errors.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

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


_NAMED_IN_TEXT: Final = re.compile(
    r"(?:^|(?<=: ))"
    r"(?:kafkalike\.errors(?:\.\w+)*|pyspark\.errors\.exceptions\.base(?=\.AnalysisException: ))\.(\w+: .+)",
    re.MULTILINE,
)
"""An error of kafkalike in an exception's text: its module, class and message. For a wrong column, kafkalike raises
PySpark's `AnalysisException`."""

_TRACEBACK: Final = "Traceback (most recent call last)"
_BEFORE_FRAMES: Final = " Return Message: "
_SQL_STATE: Final = re.compile(r" SQLSTATE: \w{5}$")


def named_first(text: str) -> str:
    """Rewrite the text of a PySpark exception so that it starts with the error of kafkalike in it.

    Spark's own first line follows. Frames of Python and lines about the query's plan are left out. A text whose last
    error is the user's own is returned unchanged. A stack trace of the JVM, which a session can request, is kept.

    >>> print(named_first("[FAILED] It failed: kafkalike.errors.client_errors.InvalidTopicError: 'a b' is wrong"))
    InvalidTopicError: 'a b' is wrong
    Spark: [FAILED] It failed
    """
    frames = text.find(_TRACEBACK)
    # Below frames, an error that names another one in the middle of its line is the user's own.
    found = [
        one
        for one in _NAMED_IN_TEXT.finditer(text)
        if frames < 0 or one.start() < frames or text[one.start() - 1] == "\n"
    ]
    if not found or text.find(_TRACEBACK, found[-1].end()) >= 0:
        return text
    ends = (found[-1].start(), text.find("\n"), text.find(_TRACEBACK))
    line = text[: min(end for end in ends if end >= 0)]
    rest = text if "\n\nJVM stacktrace:\n" in text else line.removesuffix(_BEFORE_FRAMES).rstrip(": ")
    return f"{_SQL_STATE.sub('', found[-1][1])}\nSpark: {rest}"


def show_named_errors() -> None:
    """Patch the exceptions of PySpark to start with the error of kafkalike that they report; see `named_first`.

    Spark passes an error of a Python process to the driver as text, which a notebook shows after Spark's own words, and
    for `foreachBatch` after 40 lines of frames. `getMessage()` still returns Spark's whole message.
    """
    for module, names in _TOLD_BY_SPARK.items():
        for name in names:
            owner = getattr(sys.modules.get(module), name, None)
            own = None if owner is None else vars(owner).get("__str__")
            if own is not None and not hasattr(own, "shows_named_errors"):
                setattr(owner, "__str__", _showing(own))  # noqa: B010 - mypy takes an assignment for a mistake


HINT: Final = "kafkalike_hint"
"""Attribute of an exception of PySpark: a sentence that says what to do, which is shown first."""

_TOLD_BY_SPARK: Final = {
    "pyspark.errors.exceptions.captured": ("CapturedException", "PythonException"),
    "pyspark.errors.exceptions.connect": ("SparkConnectGrpcException",),
}
"""Classes of exceptions with a text of their own, by module."""


def _showing(method: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(method)
    def showing(self: Any) -> str:  # noqa: ANN401 - PySpark's class
        text = named_first(method(self))
        hint = getattr(self, HINT, "")
        return f"{hint}\nSpark: {text}" if hint else text

    showing.shows_named_errors = True  # type: ignore[attr-defined]
    return showing
