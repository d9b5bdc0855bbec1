"""Interrupt: a signal as a question that a loop asks between two steps, not an exception in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

ENDING: Final = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and what service managers and `kill` send."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: whatever ends well on Ctrl-C ends well on it, too."""


def _raise(number: int) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def termination() -> Iterator[None]:
    """While entered, SIGTERM raises `Terminated` in the main thread, as SIGINT raises `KeyboardInterrupt`.

    So `with` blocks are left in order: producers send what they have, consumers leave their groups. Does nothing in
    other threads, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: _raise(number))  # noqa: ARG005
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


class Interrupt:
    """Inside it the first signal only sets `is_requested`; the second raises `KeyboardInterrupt` or `Terminated`.

    A record that is printed must also be counted and committed; an exception between the two would print it twice.
    Does nothing outside the main thread, where Python delivers no signals.

    Args:
        signals: which ones; SIGINT and SIGTERM by default.
    """

    def __init__(self, signals: Iterable[signal.Signals] = ENDING) -> None:
        self.number: int | None = None
        """Of the first signal that came."""
        self._signals = tuple(signals)
        self._before: dict[signal.Signals, Any] = {}

    @property
    def is_requested(self) -> bool:
        """Whether one came."""
        return self.number is not None

    def again(self) -> None:
        """Raise what the signal would have raised, if one came: the work is in order now, and the caller ends."""
        if self.number is not None:
            _raise(self.number)

    def __enter__(self) -> Self:
        """Take the signals over."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in self._signals}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.is_requested:
            _raise(number)
        self.number = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, before in self._before.items():
            signal.signal(number, before)
