"""Terminal recording: run a command, and draw what it prints as an animated SVG.

The picture has its own dark background, so it reads on light and dark pages. It plays once and then shows the end;
viewers without animation show the end at once.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from rich.style import Style
from rich.text import Text

COLUMNS: Final = 96
ROWS: Final = 22

SIZE: Final = 14
"""Font size, px."""
ADVANCE: Final = 8.43
"""Width of a character, px."""
LINE: Final = 20
"""Height of a line, px."""
MARGIN: Final = 16

LONGEST_PAUSE: Final = 0.9
"""Seconds: longer waits between two lines are cut to it."""
SHORTEST_PAUSE: Final = 0.06
TYPING: Final = 0.05
"""Seconds per character of the command."""

BACKGROUND: Final = "#0d1117"
FOREGROUND: Final = "#c9d1d9"
COLORS: Final = {1: "#ff7b72", 2: "#56d364", 3: "#e3b341", 4: "#79c0ff", 5: "#d2a8ff", 6: "#76e3ea"}
"""By the number of a terminal's color: red, green, yellow, blue, magenta, cyan."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of a terminal."""

    seconds: float
    """Time since the command started."""
    text: str
    """With escape sequences for colors."""


def record(command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None) -> list[Printed]:
    """Run a command and return what it prints; standard error is not recorded.

    Args:
        command: the program and its arguments.
        folder: working directory.
        environ: more of the environment.

    Raises:
        CalledProcessError: the command failed.
    """
    colored = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(COLUMNS), "PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    lines: list[Printed] = []
    with subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=folder, env={**os.environ, **colored, **(environ or {})}, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        lines.extend(Printed(time.monotonic() - began, line.rstrip("\n")) for line in running.stdout)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command, "\n".join(line.text for line in lines))
    return lines


def wrapped(lines: Sequence[Printed]) -> list[tuple[float, Text]]:
    """Return the rows of a terminal with `COLUMNS` columns, each with its time."""
    rows: list[tuple[float, Text]] = []
    for line in lines:
        text = Text.from_ansi(line.text)
        parts = text.divide(range(COLUMNS, len(text), COLUMNS))
        rows.extend((line.seconds, part) for part in (parts or [Text()]))
    return rows


def timeline(seconds: Sequence[float], start: float) -> list[float]:
    """Return when each row appears in the picture: pauses are neither long nor too short to see.

    Args:
        seconds: when each row was printed.
        start: when the first row appears.
    """
    shown, last = [], 0.0
    for at in seconds:
        start += min(max(at - last, SHORTEST_PAUSE), LONGEST_PAUSE)
        shown.append(start)
        last = at
    return shown


def svg(command: str, lines: Sequence[Printed]) -> str:
    """Draw a command and what it prints.

    Args:
        command: as a user types it.
        lines: what it prints.
    """
    rows = wrapped(lines)
    times = timeline([at for at, _ in rows], len(command) * TYPING)
    prompt = Text.assemble(("$ ", "green"), (command, "bold"))
    drawn = [
        _row(number, text, at)
        for number, (text, at) in enumerate(zip([prompt, *(text for _, text in rows)], [0.0, *times], strict=True))
        if len(text)
    ]
    hidden = max(0, len(rows) + 1 - ROWS)
    width, height = round(COLUMNS * ADVANCE) + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    size = f'width="{width}" height="{height}"'
    end = times[-1]
    steps = "".join(
        f"{100 * at / end:.2f}%{{transform:translateY({-LINE * number}px)}}"
        for number, at in enumerate(times[ROWS - 1 :], 1)
    )
    style = (
        f"text{{font:{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{FOREGROUND};white-space:pre}}.b{{font-weight:700}}.d{{opacity:.65}}"
        + "".join(f".c{number}{{fill:{color}}}" for number, color in COLORS.items())
        + f"#s{{transform:translateY({-LINE * hidden}px)}}"
        + "@media(prefers-reduced-motion:no-preference){"
        + f"#s{{animation:s {end:.2f}s step-end}}#s>text{{animation:a .01s backwards}}"
        + f"@keyframes s{{0%{{transform:none}}{steps}}}@keyframes a{{0%{{opacity:0}}}}}}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
            f"<title>{escape(command)} in a terminal</title>",
            f"<style>{style}</style>",
            f'<rect {size} rx="8" fill="{BACKGROUND}" stroke="#30363d"/>',
            f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" height="{height - 2 * MARGIN}"><g id="s">',
            *drawn,
            "</g></svg></svg>\n",
        ]
    )


def _row(number: int, text: Text, at: float) -> str:
    spans = "".join(_span(part) for part in _parts(text))
    return (
        f'<text y="{number * LINE + SIZE}" textLength="{len(text) * ADVANCE:.1f}" style="animation-delay:{at:.2f}s">'
        f"{spans}</text>"
    )


def _parts(text: Text) -> list[Text]:
    ends = sorted({at for span in text.spans for at in (span.start, span.end)} - {0, len(text)})
    return list(text.divide(ends)) if ends else [text]


def _span(part: Text) -> str:
    style = Style.combine(
        [Style.parse(style) if isinstance(style, str) else style for style in (span.style for span in part.spans)]
        or [Style()]
    )
    number = None if style.color is None or style.color.number is None else style.color.number % 8
    classes = [
        *(["b"] if style.bold else []),
        *(["d"] if style.dim else []),
        *([f"c{number}"] if number in COLORS else []),
    ]
    return f'<tspan class="{" ".join(classes)}">{escape(part.plain)}</tspan>' if classes else escape(part.plain)
