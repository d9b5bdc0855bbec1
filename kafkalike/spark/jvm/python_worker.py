"""Spark's Python workers: the number of their task, and their input without a wait of 40 ms.

Spark's JVM sends a worker first what it is to do, then its input. Over TCP the second packet, if it is small, is held
until the first one is acknowledged (Nagle), and Linux acknowledges it after 40 ms unless there is an answer. What is to
do is unpickled in between: there the worker can have the kernel acknowledge at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from types import FrameType
from typing import Any, Final

from pyspark import TaskContext

QUICK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it; elsewhere nothing is done."""


class PromptAnswer:
    """To be pickled with what a task is given: where it is unpickled in a worker of Spark's, that acknowledges."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """By a call of `_unpickled`."""
        return _unpickled, ()


def _unpickled() -> PromptAnswer:
    acknowledge()
    return PromptAnswer()


def acknowledge() -> None:
    """Acknowledge what the worker that calls this has read from Spark's JVM; in any other process do nothing.

    Nothing is lost where Spark's socket is not found.
    """
    read = None if QUICK is None else _input()
    if QUICK is None or read is None:
        return
    # Over a Unix socket there is nothing to set.
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(read.fileno())) as spark:
        spark.setsockopt(socket.IPPROTO_TCP, QUICK, 1)


def _input() -> Any:  # noqa: ANN401 - a file
    """What Spark's worker reads from, in one of the calls that led here."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - Spark does not say it elsewhere
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("pyspark.") and "infile" in frame.f_locals:
            return frame.f_locals["infile"]
        frame = frame.f_back
    return None


def task_number() -> int:
    """Number of the Spark partition that this process works at; 0 outside of a task."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
