"""Progress of long work on standard error: a bar, or a line with the time if the work cannot be counted.

Nothing is shown if standard error is not a terminal. `rich` is imported only for a terminal, because that takes 40 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, str], None]
"""Adds finished work, which may be 0, and names the current step; an empty text keeps the name."""


@contextmanager
def progress(work: str, total: Callable[[], int | None] = lambda: None, *, in_bytes: bool = False) -> Iterator[Advance]:
    """Show the progress of the work in the block.

    Args:
        work: name of the work, such as `verify`.
        total: returns the amount of work, in bytes or as a number; None if nobody knows it. Called for a terminal only.
        in_bytes: whether amounts are bytes.

    Yields:
        The function to call as the work advances.
    """
    if not sys.stderr.isatty():
        yield lambda _amount, _now: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    amount = total()
    counted = [BarColumn(), DownloadColumn() if in_bytes else MofNCompleteColumn(), TimeRemainingColumn()]
    text = TextColumn("{task.description}", markup=False)
    columns = [SpinnerColumn(), text, *(counted if amount is not None else ()), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(work, total=amount)

        def advance(done: int, now: str) -> None:
            bar.update(task, advance=done, description=f"{work}: {now}" if now else None)

        yield advance
