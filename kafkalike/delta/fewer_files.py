"""Fewer files: a control table in, the same state in one file instead of several out.

Every client that opens a cluster reads all files of these tables. Numbers of rows outlive the merging of files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from kafkalike.delta.actions import Add
from kafkalike.delta.row_files import RowFiles
from kafkalike.delta.state import Live, TableState
from kafkalike.delta.table_change import Change, Done
from kafkalike.model.clock import Clock
from kafkalike.model.control_rows import files_to_merge
from kafkalike.model.segments import Segment

R = TypeVar("R")


def merge_late(files: RowFiles[R], state: TableState, clock: Clock) -> Change | Done[None]:
    """Plan: put the rows of the latest files into one.

    Args:
        files: the table's files.
        state: the table.
        clock: the time.

    Returns:
        The change, with its file written; `Done` where there is nothing to put together.

    Raises:
        KafkaStorageError, OSError, pa.ArrowException: a file cannot be read or written.
    """
    every = sorted(state.index, key=lambda segment: segment.start)
    count = files_to_merge([segment.num_records for segment in every])
    if not count:
        return Done(None)
    live = every[-count:]
    table = pa.concat_tables(files.read_all([s.path for s in live])).sort_by("seq")
    return _replacing(live, files.write(table, data_change=False), clock)


def keep_some(
    files: RowFiles[R], state: TableState, rows: Sequence[R], keep: Callable[[Sequence[R]], Sequence[R]], clock: Clock
) -> tuple[Change | Done[None], int]:
    """Plan: keep some of the rows, in one file.

    Args:
        files: the table's files.
        state: the table.
        rows: all of its rows, in `seq` order.
        keep: which of them stay; the last one stays in any case, since the next one is numbered from it.
        clock: the time.

    Returns:
        The plan, and how many rows stay.

    Raises:
        KafkaStorageError: a file cannot be written.
    """
    if not rows:
        return Done(None), 0
    kept = list(keep(rows))
    if not kept or kept[-1].seq != rows[-1].seq:  # type: ignore[attr-defined]
        kept.append(rows[-1])
    live = list(state.index)
    if len(kept) == len(rows) and len(live) == 1:
        return Done(None), len(rows)
    return _replacing(live, files.write_kept(kept), clock), len(kept)


def _replacing(live: Sequence[Segment], add: Add, clock: Clock) -> Change:
    removes = [
        Add(path=s.path, partition=None, size=s.size_bytes, modification_ms=0, data_change=False, stats={})
        for s in live
    ]
    return Change(
        operation="OPTIMIZE",
        time_ms=clock.now_ms(),
        adds=[add],
        removes=removes,
        requires=[Live([s.path for s in live])],
    )
