"""Interrupted lines: a call and a line of the package's code in, the call cut off there out."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import kafkalike

HOME = Path(kafkalike.__file__).parent
TRACED = (f"{HOME / 'producer'}", f"{HOME / 'model' / 'concurrency.py'}")


class Interrupted(BaseException):
    """What the tracer raises; like KeyboardInterrupt no Exception."""


def interrupted_at(line: int, call: Callable[[], object]) -> bool:
    """Run `call`, with an interrupt at its nth line in the producer; False when it ended before."""
    left = line
    entered: set[tuple[int, int]] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        del arg
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        where = (id(frame), frame.f_lineno)
        # A tracer sees the line of a `with` again before its lock is freed; there, unlike here, no signal is handled.
        leaving = where in entered and linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()[:4] == "with"
        entered.add(where)
        if event == "line" and not leaving:
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def interrupted(call: Callable[[], object], line: int, code: str | tuple[str, ...]) -> bool:
    """Whether the call was interrupted at the n-th line that it ran in these files; False when it ran fewer."""
    left = line

    def each_line(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return each_line

    def each_call(frame: FrameType, _event: str, _arg: object) -> Any:
        return each_line if frame.f_code.co_filename.startswith(code) else None

    before = sys.gettrace()
    sys.settrace(each_call)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def lines() -> Iterator[int]:
    """Line numbers without end."""
    return iter(range(100_000))
