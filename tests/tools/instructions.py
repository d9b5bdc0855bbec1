"""Instructions: a function and a number in, the function interrupted before that instruction of some code out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any


def _interrupt() -> None:
    raise KeyboardInterrupt


def interrupted_at(
    codes: Collection[CodeType],
    instruction: int,
    work: Callable[[], object],
    handler: Callable[[], object] = _interrupt,
) -> BaseException | None:
    """Call a function, with a KeyboardInterrupt before one of the instructions of some functions.

    Args:
        codes: of those functions.
        instruction: which one, counted over all of them as they are carried out.
        work: the function.
        handler: called instead of an interrupt, as that of a signal is.

    Returns:
        The interrupt; None where it did not come to that.
    """
    left = instruction

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        del argument
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == -1:
                handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        sys.settrace(before)
    return None
