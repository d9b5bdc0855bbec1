"""Screen: steps and findings in, lines on a terminal and timings out; and the demo's folder."""

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
"""Columns that the lines of a step stand in from its title."""


class Screen:
    """Where the demo says what it does.

    Args:
        console: the terminal, or a file; colours and progress bars only show on a terminal.
        clock: measures the steps.
        steps: how many steps there will be.
    """

    def __init__(self, console: Console, clock: MonotonicClock, steps: int) -> None:
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


DEFAULT: Final = "kafkalike-demo"
MARK: Final = ".kafkalike-demo"
"""File that says: a demo made this folder, so the next one may remove it."""

_ABOUT: Final = "Made by `kafkalike demo`. The next demo removes this folder with all that is in it.\n"


def fresh_folder(root: str | None, *, keep: bool) -> Path:
    """Make the demo's folder, which is also the cluster's root.

    Args:
        root: a folder of this machine; None for `./kafkalike-demo`.
        keep: leave what an earlier demo made, and take the first free name behind it: `kafkalike-demo-2`.

    Raises:
        IllegalArgumentError: it is no local folder, or holds something that no demo made; nothing was removed.
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
    """Where a demo works."""

    folder: Path
    """For plot and log."""
    root: str
    """Of the cluster."""
    storage_options: StorageOptionsLike | None = field(default=None, repr=False)
    """Who asks an object store; the environment says what they do not."""

    @property
    def named(self) -> dict[str, Any]:
        """The cluster, as settings of a client."""
        return {"bootstrap_servers": self.root, "storage_options": self.storage_options}


def fresh_place(root: str | None, storage_options: StorageOptionsLike | None = None, *, keep: bool) -> Place:
    """Make the demo's folder, and say where its cluster is to be: there, or in an object store.

    Args:
        root: a folder of this machine, or the URI of a place in an object store that holds no cluster yet. Of such a
            root the folder, for plot and log, is `./kafkalike-demo`.
        storage_options: who asks an object store.
        keep: see `fresh_folder`.

    Raises:
        IllegalArgumentError: see `fresh_folder`; or there is a cluster, which the demo does not remove.
        KafkaError: see `connect`.
    """
    if root is None or "://" not in root:
        folder = fresh_folder(root, keep=keep)
        return Place(folder, str(folder))
    from kafkalike.connect import connect

    if connect(root, storage_options).topics():
        raise IllegalArgumentError(
            f"{root} has topics; the demo removes nothing in an object store: name another place"
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
