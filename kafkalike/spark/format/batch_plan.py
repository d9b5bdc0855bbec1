"""Rules to plan a batch: the end of each partition, and the split of its ranges over tasks. Pure.

The rules follow Spark's Kafka source (`KafkaMicroBatchStream.rateLimit` and `delayBatch`,
`KafkaOffsetRangeCalculator`), in exact whole numbers instead of doubles.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kafkalike.model.structs import TopicPartition

TASK_OFFSETS: Final = 65_536
"""Offsets of a micro-batch per task: a task reads them in about the time that Spark needs to start another task."""
TASK_BYTES: Final = 16 * 1024 * 1024
"""The limit per task for large records, in bytes of the files."""
BATCH_TASKS: Final = 8
"""Factor for tasks of a batch query, where latency does not matter and a task costs 60 ms."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRun:
    """Offsets of one partition: half-open."""

    tp: TopicPartition
    offsets: range

    def __len__(self) -> int:
        """Return the number of offsets in the run."""
        return self.offsets.stop - self.offsets.start


def rate_limited(limit: int, start: Offsets, until: Offsets) -> dict[TopicPartition, int]:
    """Return the end of each partition for a batch of about `limit` offsets.

    The limit is shared in proportion to the backlog of each partition. A partition with a backlog gets at least one
    offset, so that small partitions never starve; the sum may exceed the limit by that.

    Args:
        limit: offsets of the whole batch, at least 1.
        start: start of each partition of `until`.
        until: furthest end of each partition.

    Returns:
        An end for each partition of `until`; an end below its start is kept.
    """
    sizes = {tp: end - start[tp] for tp, end in until.items() if end > start[tp]}
    total = sum(sizes.values())
    ends = dict(until)
    for tp, size in sizes.items():
        ends[tp] = start[tp] + min(size, max(1, limit * size // total))
    return ends


def waits(minimum: int, start: Offsets, until: Offsets) -> bool:
    """Return whether fewer offsets are available than a batch should have."""
    return sum(max(0, end - start[tp]) for tp, end in until.items()) < minimum


def split(runs: Sequence[OffsetRun], min_parts: int | None = None, max_records: int | None = None) -> list[OffsetRun]:
    """Cut runs into pieces, one for each task; empty runs are left out.

    Args:
        runs: the runs to read.
        min_parts: total number of pieces wanted, in proportion to the runs' sizes. Runs stay whole if there are enough
            of them.
        max_records: most offsets of a piece.

    Returns:
        Pieces in the order of the runs and their offsets. No offset is lost or repeated.
    """
    full = [run for run in runs if len(run) > 0]
    counts = [1 if max_records is None else -(-len(run) // max_records) for run in full]
    if min_parts is not None and min_parts > len(full):
        counts = [max(pair) for pair in zip(counts, _shares([len(run) for run in full], min_parts), strict=True)]
    return [piece for run, count in zip(full, counts, strict=True) for piece in _pieces(run, count)]


def grouped(pieces: Sequence[OffsetRun], most: int | None) -> list[list[OffsetRun]]:
    """Distribute pieces over tasks, so that the largest task is nearly as small as possible.

    Args:
        pieces: the pieces, in the order of their partitions and offsets; they are not cut.
        most: most tasks; None for one task for each piece.

    Returns:
        The pieces of each task, in the given order. Each task has at least one piece.
    """
    if most is None or len(pieces) <= most:
        return [[piece] for piece in pieces]
    # Largest first, each to the task with the least so far: at most a third above the optimum (Graham, 1969).
    tasks: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(most)]
    for at in sorted(range(len(pieces)), key=lambda at: -len(pieces[at])):
        size, number, mine = tasks[0]
        heapq.heapreplace(tasks, (size + len(pieces[at]), number, [*mine, at]))
    return [[pieces[at] for at in mine] for mine in sorted(sorted(mine) for _, _, mine in tasks)]


def tasks_for(offsets: int, size: float, *, scale: int = 1) -> int:
    """Return the number of tasks for a read without options for it.

    Args:
        offsets: of the batch.
        size: bytes of their files, approximately.
        scale: factor on `TASK_OFFSETS` and `TASK_BYTES`, which one task reads.
    """
    return max(1, math.ceil(offsets / (scale * TASK_OFFSETS)), math.ceil(size / (scale * TASK_BYTES)))


def _shares(sizes: Sequence[int], parts: int) -> list[int]:
    """Share `parts` in whole numbers: at least one and at most its size for each, the largest pieces cut first."""
    total = sum(sizes)
    shares = [max(1, min(size, parts * size // total)) for size in sizes]
    missing = min(parts, total) - sum(shares)
    largest = [(-size / share, at) for at, (size, share) in enumerate(zip(sizes, shares, strict=True)) if share < size]
    heapq.heapify(largest)
    for _ in range(missing):
        _, at = heapq.heappop(largest)
        shares[at] += 1
        if shares[at] < sizes[at]:
            heapq.heappush(largest, (-sizes[at] / shares[at], at))
    return shares


def _pieces(run: OffsetRun, count: int) -> list[OffsetRun]:
    """Cut a run into `count` pieces of nearly the same size."""
    begin, size = run.offsets.start, len(run)
    cuts = [begin + size * number // count for number in range(count + 1)]
    return [OffsetRun(run.tp, range(low, high)) for low, high in pairwise(cuts)]
