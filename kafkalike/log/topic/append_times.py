"""Append times: how long the appends of this process took, and how many failed, for those who serve metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from kafkalike.model.clock import Clock
from kafkalike.model.histogram import Histogram

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""From a commit on a local disk to one that waited for its time-out."""

APPENDS: Final = Histogram(SECONDS)
"""Those that ended well, with their wait for others."""

FAILED: Final = Histogram(SECONDS)
"""Those that raised something."""


@contextlib.contextmanager
def timed(clock: Clock) -> Iterator[None]:
    """Note how long an append takes."""
    begun = clock.monotonic()
    try:
        yield
    except BaseException:
        FAILED.observe(clock.monotonic() - begun)
        raise
    APPENDS.observe(clock.monotonic() - begun)
