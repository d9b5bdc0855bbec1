"""Screen: steps and findings in, lines on a terminal and a table of timings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from kafkalike.model.clock import Clock

INDENT: Final = 5
"""Columns that the lines of a step stand in from its title."""


class Screen:
    """Where the demo says what it does.

    Args:
        console: the terminal, or a file; colours and progress bars only show on a terminal.
        clock: measures the steps.
        steps: how many steps there will be.
    """

    def __init__(self, console: Console, clock: Clock, steps: int) -> None:
        self._console = console
        self._clock = clock
        self._steps = steps
        self._began = clock.monotonic()
        self.timings: list[tuple[str, float]] = []
        """Finished steps with their seconds."""
        self.failures: list[str] = []
        """Checks that did not hold."""

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step, and say at its end how long it took."""
        self._console.print(f"\n[bold]{len(self.timings) + 1}/{self._steps}  {escape(title)}[/]")
        began = self._clock.monotonic()
        yield
        self.timings.append((title, self._clock.monotonic() - began))
        self.say(f"[dim]{self.timings[-1][1]:.1f} s[/]")

    def say(self, line: str) -> None:
        """A line of a step; rich's markup counts."""
        self._console.print(" " * INDENT + line)

    def check(self, what: str, found: object, wanted: object) -> None:
        """Say that two values agree; when they do not, the demo goes on and fails at its end."""
        if found == wanted:
            self.say(f"[green]ok[/]  {escape(what)}")
            return
        self.failures.append(f"{what}: {found!r}, expected {wanted!r}")
        self.say(f"[bold red]WRONG[/]  {escape(self.failures[-1])}")

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar that is moved by the number of records done; nothing where there is no terminal."""
        columns = (TextColumn(f"{' ' * INDENT}{what}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.advance(task, done)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """A line that moves while something of unknown length goes on; nothing where there is no terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(f"{what} ..."):
            yield

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; its first column is text, the others are numbers."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column(columns[0], no_wrap=True)
        for name in columns[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        self._console.print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def summary(self) -> None:
        """Seconds by step, and in all."""
        self._console.print()
        total = self._clock.monotonic() - self._began
        self.table(("Step", "Seconds"), [(name, f"{took:.1f}") for name, took in [*self.timings, ("Total", total)]])
