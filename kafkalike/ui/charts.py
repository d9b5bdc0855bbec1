"""Charts: lines of figures over time, which a page shows as a table and its script draws above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

MOST_LINES: Final = 5
"""Lines with a name; further ones are added up."""

POINTS: Final = 90
"""Most steps of a chart."""

OTHERS: Final = "all others"

MINUTE_MS: Final = 60_000

Values = Mapping[int, float]
"""Figures by time, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """A line of a chart."""

    name: str
    values: Sequence[float | None]
    """A value for each time of the chart; None where it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over common times."""

    title: str
    unit: str
    """Such as `records/s`; units of bytes begin with B."""
    kind: Literal["lines", "bars"] = "lines"
    times: Sequence[int] = ()
    """ms, ascending; empty if there is nothing to draw."""
    lines: Sequence[ChartLine] = field(default=())
    step_ms: int = MINUTE_MS
    caption: str = ""
    nothing: str = ""
    """A sentence to show instead of an empty chart."""

    @property
    def step_seconds(self) -> float:
        """Return the time between two points, seconds."""
        return self.step_ms / 1000


def step_of(span_ms: int) -> int:
    """Return the step of a chart of this span, ms: whole minutes, at most `POINTS` of them.

    >>> step_of(3 * 3_600_000) // MINUTE_MS
    2
    """
    minutes = -(-span_ms // MINUTE_MS)
    return max(1, -(-minutes // POINTS)) * MINUTE_MS


def rates(
    counts: Mapping[str, Values],
    *,
    now_ms: int,
    span_ms: int,
    title: str,
    unit: str,
    caption: str = "",
    nothing: str = "",
    known_since_ms: Mapping[str, int | None] | None = None,
) -> Chart:
    """Chart counts by step as rates per second; the largest lines keep their names.

    Args:
        counts: by name, then by the start of a step of `step_of(span_ms)`, ms.
        now_ms: end of the chart. The step that has not ended is averaged over the time that has passed.
        span_ms: length of the chart.
        title: title of the chart.
        unit: of the rates.
        caption: a sentence below.
        nothing: a sentence to show instead of an empty chart.
        known_since_ms: time from which on the counts of a name are complete; None for all times.
    """
    step = step_of(span_ms)
    last = now_ms // step * step
    times = list(range(last - (span_ms // step - 1) * step, last + 1, step))
    sums = {
        name: sum(count for at, count in values.items() if times[0] <= at <= last) for name, values in counts.items()
    }
    named = sorted((name for name, total in sums.items() if total), key=lambda name: (-sums[name], name))
    if not named:
        return Chart(title=title, unit=unit, nothing=nothing)
    since = known_since_ms or {}

    def values(name: str) -> list[float | None]:
        start = since.get(name)
        return [
            None if start is not None and at + step <= start else counts[name].get(at, 0) / _seconds(at, step, now_ms)
            for at in times
        ]

    lines = [ChartLine(name=name, values=values(name)) for name in named[:MOST_LINES]]
    rest = named[MOST_LINES:]
    if rest:
        totals = {at: sum(counts[name].get(at, 0) for name in rest) for at in times}
        lines.append(
            ChartLine(name=f"{OTHERS} ({len(rest)})", values=[totals[at] / _seconds(at, step, now_ms) for at in times])
        )
    return Chart(
        title=title,
        unit=unit,
        kind="bars" if len(lines) == 1 else "lines",
        times=times,
        lines=lines,
        step_ms=step,
        caption=caption,
    )


def _seconds(start_ms: int, step_ms: int, now_ms: int) -> float:
    """Return the length of a step as far as it has passed, seconds; at least one."""
    return max(1.0, min(step_ms, now_ms - start_ms) / 1000)


def levels(
    points: Mapping[str, Values], *, step_ms: int, title: str, unit: str, caption: str = "", nothing: str = ""
) -> Chart:
    """Chart figures at moments; the lines that end highest keep their names.

    Args:
        points: by name, then by time, ms.
        step_ms: time between two moments.
        title: title of the chart.
        unit: of the figures.
        caption: a sentence below.
        nothing: a sentence to show instead of an empty chart.
    """
    times = sorted({at for values in points.values() for at in values})
    if not times:
        return Chart(title=title, unit=unit, nothing=nothing)
    named = sorted(points, key=lambda name: (-max(points[name].values(), default=0), name))
    lines = [ChartLine(name=name, values=[points[name].get(at) for at in times]) for name in named[:MOST_LINES]]
    rest = named[MOST_LINES:]
    if rest:
        sums = [sum(points[name].get(at, 0) for name in rest) for at in times]
        lines.append(ChartLine(name=f"{OTHERS} ({len(rest)})", values=sums))
    return Chart(title=title, unit=unit, times=times, lines=lines, step_ms=step_ms, caption=caption)
