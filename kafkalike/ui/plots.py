"""Plots: points in, coordinates of a line in a small picture out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 600.0
HEIGHT: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlot:
    """A line in a picture of `WIDTH` x `HEIGHT`, with the values at its edges."""

    points: str
    """As the `points` of an SVG polyline."""
    lowest: float
    highest: float
    first_ms: int
    last_ms: int
    latest: float


def line(points: Sequence[tuple[int, float]]) -> LinePlot | None:
    """The line through points.

    Args:
        points: time (ms) and value, in order of time.

    Returns:
        None for fewer than two moments: there is nothing to draw.
    """
    if len(points) < 2 or points[0][0] == points[-1][0]:  # noqa: PLR2004 - a line has two ends
        return None
    first, last = points[0][0], points[-1][0]
    lowest, highest = min(0.0, *(value for _, value in points)), max(value for _, value in points)
    span = (highest - lowest) or 1.0
    drawn = " ".join(
        f"{(time - first) / (last - first) * WIDTH:.1f},{HEIGHT - (value - lowest) / span * HEIGHT:.1f}"
        for time, value in points
    )
    return LinePlot(points=drawn, lowest=lowest, highest=highest, first_ms=first, last_ms=last, latest=points[-1][1])


def thinned(points: Sequence[tuple[int, float]], most: int = 400) -> Sequence[tuple[int, float]]:
    """At most so many of the points, evenly taken, the last one always."""
    if len(points) <= most:
        return points
    step = len(points) / (most - 1)
    return [points[int(at * step)] for at in range(most - 1)] + [points[-1]]
