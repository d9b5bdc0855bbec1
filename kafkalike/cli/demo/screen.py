"""Screen of the demo: print steps, checks and timings; and the folder that the demo works in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.clock import MonotonicClock
from kafkalike.model.config.storage_options import StorageOptionsLike

INDENT: Final = 5
"""Columns by which lines of a step are indented."""


class Screen:
    """Prints the steps of the demo.

    Args:
        console: the terminal, or a file; only a terminal shows colors and progress bars.
        clock: measures the steps.
        steps: number of steps.
    """

    def __init__(self, console: Console, clock: MonotonicClock, steps: int) -> None:
        self._console = console
        self._clock = clock
        self._steps = steps
        self._began = clock.monotonic()
        self.timings: list[tuple[str, float]] = []
        """Finished steps with their seconds."""
        self.failures: list[str] = []
        """Messages of failed checks."""

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the title of a step, and its duration at the end."""
        self._console.print(f"\n[bold]{len(self.timings) + 1}/{self._steps}  {escape(title)}[/]")
        began = self._clock.monotonic()
        yield
        self.timings.append((title, self._clock.monotonic() - began))
        self.say(f"[dim]{self.timings[-1][1]:.1f} s[/]")

    def say(self, line: str) -> None:
        """Print a line of a step, with rich's markup."""
        self._console.print(" " * INDENT + line)

    def check(self, what: str, found: object, wanted: object) -> None:
        """Compare two values. If they differ, record a failure; the demo continues and fails at its end."""
        if found == wanted:
            self.say(f"[green]ok[/]  {escape(what)}")
            return
        self.failures.append(f"{what}: {found!r}, expected {wanted!r}")
        self.say(f"[bold red]WRONG[/]  {escape(self.failures[-1])}")

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar that counts records, if the output is a terminal."""
        columns = (TextColumn(f"{' ' * INDENT}{what}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        ) as progress:
            task = progress.add_task(what, total=total)
            yield lambda done: progress.advance(task, done)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner during work of unknown length, if the output is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(f"{what} ..."):
            yield

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table of a text column and numeric columns."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column(columns[0], no_wrap=True)
        for name in columns[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        self._console.print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def summary(self) -> None:
        """Print the seconds of each step and their sum."""
        self._console.print()
        total = self._clock.monotonic() - self._began
        self.table(("Step", "Seconds"), [(name, f"{took:.1f}") for name, took in [*self.timings, ("Total", total)]])


DEFAULT: Final = "kafkalike-demo"
MARK: Final = ".kafkalike-demo"
"""File that marks a folder as made by a demo, so that the next demo may remove it."""

_ABOUT: Final = "Made by `kafkalike demo`. The next demo removes this folder and its content.\n"


def fresh_folder(root: str | None, *, keep: bool) -> Path:
    """Make the demo's folder, which is also the cluster's root.

    Args:
        root: a folder of this machine; None for `./kafkalike-demo`.
        keep: keep the folder of an earlier demo, and append the first free number: `kafkalike-demo-2`.

    Raises:
        IllegalArgumentError: the folder is not local, or has files of others; nothing was removed.
    """
    named = DEFAULT if root is None else root
    if "://" in named:
        raise IllegalArgumentError(f"the demo writes to a folder of this machine, not to {named}")
    folder = Path(named).absolute()
    if keep:
        folder = _free(folder)
    if folder.is_symlink() or (folder.exists() and not _is_ours(folder)):
        raise IllegalArgumentError(f"{folder} exists and was not made by a demo; give the demo another folder")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, mode=0o700)
    (folder / MARK).write_text(_ABOUT)
    return folder


@dataclass(frozen=True, slots=True)
class Place:
    """Folder and cluster of a demo."""

    folder: Path
    """Folder of the plot and the log."""
    root: str
    """Root of the demo's cluster."""
    storage_options: StorageOptionsLike | None = field(default=None, repr=False)
    """Credentials and options of an object store; the environment gives the others."""

    @property
    def named(self) -> dict[str, Any]:
        """Return client settings that name the cluster."""
        return {"bootstrap_servers": self.root, "storage_options": self.storage_options}


def fresh_place(root: str | None, storage_options: StorageOptionsLike | None = None, *, keep: bool) -> Place:
    """Make the demo's folder, and choose the root of its cluster: the folder, or a place in an object store.

    Args:
        root: a folder of this machine, or the URI of an empty place in an object store. With a URI, plot and log are
            in `./kafkalike-demo`.
        storage_options: credentials and options of the object store.
        keep: see `fresh_folder`.

    Raises:
        IllegalArgumentError: see `fresh_folder`; or the place has topics, which the demo does not remove.
        KafkaError: see `connect`.
    """
    if root is None or "://" not in root:
        folder = fresh_folder(root, keep=keep)
        return Place(folder, str(folder))
    from kafkalike.connect import connect

    if connect(root, storage_options).topics():
        raise IllegalArgumentError(
            f"{root} has topics, and the demo removes nothing in an object store: name another place"
        )
    return Place(fresh_folder(None, keep=keep), root, storage_options)


def _is_ours(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MARK).is_file() or not any(folder.iterdir()))


def _free(folder: Path) -> Path:
    candidate, number = folder, 1
    while candidate.is_symlink() or candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
