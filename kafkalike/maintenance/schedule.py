"""Schedule: run a task at an interval until a signal or the caller stops it."""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, Final

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from kafkalike.errors import IllegalArgumentError

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d)")


def parse_duration_ms(text: str) -> int:
    """Parse a duration such as `30s`, `5m`, `2h` or `1d`, into ms.

    Raises:
        IllegalArgumentError: it is not a duration, or it is 0.

    >>> parse_duration_ms("5m")
    300000
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or int(match.group(1)) == 0:
        raise IllegalArgumentError(f"a duration such as 30s, 5m, 2h or 1d is needed, not {text!r}")
    return int(match.group(1)) * _UNITS[match.group(2)]


def every(interval_ms: int, task: Callable[[], object], stop: threading.Event | None = None) -> None:
    """Run a task at once and then at an interval, one run at a time, until SIGTERM, SIGINT or `stop`.

    A run that takes longer than the interval delays the next one; several missed runs count once. A running task
    finishes before this returns. Its exceptions are logged, and the next run comes anyway.

    Args:
        interval_ms: time from one start to the next, ms.
        task: the task.
        stop: set by the caller to stop.
    """
    end = stop or threading.Event()
    # The scheduler logs each run at a lower level; the task logs its own messages.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_job(
        task,
        IntervalTrigger(seconds=interval_ms / 1000, timezone=UTC),
        next_run_time=datetime.now(UTC) - timedelta(milliseconds=1),  # noqa: TID251 - the scheduler's own clock
        max_instances=1,
        coalesce=True,
        misfire_grace_time=None,
    )
    before = _on_signals(end)
    scheduler.start()
    try:
        end.wait()
    finally:
        scheduler.shutdown(wait=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signals(end: threading.Event) -> dict[signal.Signals, Any]:
    """Make SIGTERM and SIGINT set the event; return the previous handlers. Outside the main thread, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        end.set()

    return {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
