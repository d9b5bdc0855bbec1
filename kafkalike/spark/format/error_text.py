"""Errors of the format as Spark shows them to users: the named error's text, without Python's frames.

Spark shows users the text that its Python process makes of an error: a traceback of twenty lines with the sentence that
helps at its end. The frames of an error that says itself what is wrong are of no use to them. Where an error comes from
somewhere else, they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from pyspark.errors import AnalysisException

from kafkalike.errors import KafkaError

P = ParamSpec("P")
R = TypeVar("R")

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""Environment variable that Spark's Python processes look at when they tell an error: without its frames."""

NAMED: Final = (KafkaError, AnalysisException)


def hide_frames(function: Callable[P, R]) -> Callable[P, R]:
    """A method that Spark calls, whose named errors come without frames."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NAMED:
            _hide()
            raise

    return called


def hide_frames_of_rows(function: Callable[P, Iterator[R]]) -> Callable[P, Iterator[R]]:
    """The same of a generator."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            yield from function(*args, **kwargs)
        except NAMED:
            _hide()
            raise

    return called


def _hide() -> None:
    """Ask for the next error to be told without frames. A process of Spark's ends after an error, so for no other."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and (main.name or "").startswith("pyspark."):
        os.environ[HIDE] = "1"
