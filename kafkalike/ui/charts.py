"""Charts: lines of figures over time, which a page shows as a table and its script draws above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kafkalike.log.topic.write_history import WriteVolume

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


def starts_of(now_ms: int, span_ms: int) -> range:
    """Return the starts of the steps of a chart that ends now, ms; the last step has not ended."""
    step = step_of(span_ms)
    last = now_ms // step * step
    return range(last - (span_ms // step - 1) * step, last + 1, step)


def rates(
    counts: Mapping[str, Sequence[float]],
    starts: range,
    *,
    now_ms: int,
    title: str,
    unit: str,
    nothing: str,
    since_ms: Mapping[str, int | None],
) -> Chart:
    """Chart counts by step as rates per second; the largest lines keep their names.

    Args:
        counts: a count for each start, by name.
        starts: see `starts_of`.
        now_ms: end of the chart. The step that has not ended is averaged over the time that has passed.
        title: title of the chart.
        unit: of the rates.
        nothing: a sentence to show instead of an empty chart.
        since_ms: time from which on the counts of a name are complete; None for all times.
    """
    sums = {name: sum(values) for name, values in counts.items()}
    named = sorted((name for name, total in sums.items() if total), key=lambda name: (-sums[name], name))
    if not named:
        return Chart(title=title, unit=unit, nothing=nothing)
    # The last step as far as it has passed, but a second at least.
    seconds = [max(1.0, min(starts.step, now_ms - at) / 1000) for at in starts]

    def line(name: str) -> ChartLine:
        since = since_ms.get(name)
        known = [since is None or at + starts.step > since for at in starts]
        values = [
            n / length if is_known else None for n, length, is_known in zip(counts[name], seconds, known, strict=True)
        ]
        return ChartLine(name=name, values=values)

    lines = [line(name) for name in named[:MOST_LINES]]
    rest = named[MOST_LINES:]
    if rest:
        totals = [sum(column) for column in zip(*(counts[name] for name in rest), strict=True)]
        values = [total / length for total, length in zip(totals, seconds, strict=True)]
        lines.append(ChartLine(name=f"{OTHERS} ({len(rest)})", values=values))
    kind: Literal["lines", "bars"] = "bars" if len(lines) == 1 else "lines"
    return Chart(title=title, unit=unit, kind=kind, times=starts, lines=lines, step_ms=starts.step)


def write_charts(
    rows: Mapping[str, Sequence[WriteVolume]], since_ms: Mapping[str, int | None], starts: range, now_ms: int
) -> Sequence[Chart]:
    """Chart the records and the bytes that were written, per second.

    Args:
        rows: for each start, by name.
        since_ms: see `rates`.
        starts: see `starts_of`.
        now_ms: end of the charts.
    """
    return [
        rates(
            {name: [written[measure] for written in row] for name, row in rows.items()},
            starts,
            now_ms=now_ms,
            title=title,
            unit=unit,
            nothing="No commit wrote records in this time.",
            since_ms=since_ms,
        )
        for measure, (title, unit) in enumerate((("Records written", "records/s"), ("Bytes written", "B/s")))
    ]


def levels(points: Mapping[str, Values], *, step_ms: int, title: str, unit: str, nothing: str = "") -> Chart:
    """Chart figures at moments; the lines that end highest keep their names.

    Args:
        points: by name, then by time, ms.
        step_ms: time between two moments.
        title: title of the chart.
        unit: of the figures.
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
    return Chart(title=title, unit=unit, times=times, lines=lines, step_ms=step_ms)
