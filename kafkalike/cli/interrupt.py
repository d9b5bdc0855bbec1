"""Interrupt: Ctrl-C as a question that a loop asks between two steps, instead of an exception in the middle of one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """While entered, the first SIGINT only sets `seen`; the second one raises `KeyboardInterrupt` as usual.

    A record that is printed must also be counted and committed; an exception between the two would come back twice.
    Does nothing outside the main thread, where Python delivers no signals.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None

    def __enter__(self) -> Self:
        """Take SIGINT over."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give SIGINT back."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
