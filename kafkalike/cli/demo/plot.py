"""Plot: the answers in, a PNG file out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kafkalike.cli.demo.questions import Answers, Carrier, Hour

LATE: Final = "#c8553d"
EARLY: Final = "#4a7c96"
TEXT: Final = "#333333"


def draw(answers: Answers, rows: int, path: Path) -> None:
    """Two panels: mean arrival delay by carrier, and mean departure delay by hour with and without rain.

    Args:
        answers: what SQL said.
        rows: how many flights that is about.
        path: the file.
    """
    from matplotlib.figure import Figure

    # Not pyplot: no display is looked for and no global state is left behind.
    figure = Figure(figsize=(13, 6), dpi=110, layout="constrained", facecolor="white")
    carriers, hours = figure.subplots(1, 2, width_ratios=(1.15, 1))
    figure.suptitle(
        f"Time lost by {rows:,} flights from New York, 2013", fontsize=15, fontweight="bold", x=0.01, ha="left"
    )
    _carriers(carriers, list(reversed(answers.carriers)))
    _hours(hours, answers.hours)
    for axes in (carriers, hours):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    figure.savefig(path)


def _carriers(axes: Axes, carriers: list[Carrier]) -> None:
    names = [f"{c.name}  ({c.flights:,})" for c in carriers]
    delays = [c.delay for c in carriers]
    bars = axes.barh(names, delays, color=[LATE if delay > 0 else EARLY for delay in delays])
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9, color=TEXT)
    axes.axvline(0, color=TEXT, linewidth=0.8)
    axes.set_title("Arrival delay by carrier", loc="left")
    axes.set_xlabel("mean arrival delay, minutes (below 0: early)")
    axes.set_ylabel("carrier (flights)")
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.margins(x=0.1)


def _hours(axes: Axes, hours: Sequence[Hour]) -> None:
    for rain, colour, label in ((True, EARLY, "rain in that hour"), (False, LATE, "no rain")):
        points = [h for h in hours if h.rain is rain]
        axes.plot([h.hour for h in points], [h.delay for h in points], "o-", color=colour, label=label, markersize=4)
    axes.set_title("Departure delay by hour and weather", loc="left")
    axes.set_xlabel("scheduled hour of departure, New York time")
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_xticks(range(5, 24, 3), [f"{hour}:00" for hour in range(5, 24, 3)])
    axes.set_ylim(bottom=min(0.0, *(h.delay for h in hours)) if hours else 0)
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.legend(frameon=False, loc="upper left")
