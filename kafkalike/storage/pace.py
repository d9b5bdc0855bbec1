"""Pace: how long nothing new came in; how long to wait until the next look out."""

from __future__ import annotations

from typing import Final

SHORTEST_SECONDS: Final = 0.05
"""Between two looks right after something new."""

SHARE: Final = 5.0
"""A look comes after this part of the time in which nothing came: so a record waits for a fifth of the pause before it
at most, and some twenty looks lead from the fastest pace to one a second."""


def pause_seconds(idle: float, longest: float) -> float:
    """Seconds between two looks for something new.

    Args:
        idle: seconds since something new was seen the last time.
        longest: most seconds between two looks; below `SHORTEST_SECONDS` it is what counts.
    """
    return min(longest, max(SHORTEST_SECONDS, idle / SHARE))
