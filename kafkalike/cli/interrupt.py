"""Interrupt: a signal as a question that a loop asks between two steps, not an exception in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """While entered, the first signal only sets `seen`; the second one raises `KeyboardInterrupt`.

    A record that is printed must also be counted and committed; an exception between the two would print it twice.
    Does nothing outside the main thread, where Python delivers no signals.

    Args:
        signals: which ones; SIGINT by default.
    """

    def __init__(self, signals: Iterable[signal.Signals] = (signal.SIGINT,)) -> None:
        self.seen = False
        self._signals = tuple(signals)
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Take the signals over."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self._signals}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, before in self._before.items():
            signal.signal(number, before)
