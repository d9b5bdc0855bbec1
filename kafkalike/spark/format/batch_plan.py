"""Plan a batch: how far it goes, and how its ranges are split over tasks. Pure.

The rules are those of Spark's Kafka source (`KafkaMicroBatchStream.rateLimit` and `delayBatch`,
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
"""Offsets of a micro-batch for each of its tasks. One task reads so many in about the time that Spark takes to begin
another one."""
TASK_BYTES: Final = 16 * 1024 * 1024
"""The same for large records, in bytes of the files."""
BATCH_TASKS: Final = 8
"""How many times as much a task of a batch reads, where nobody waits for the first records: a task costs 60 ms."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRun:
    """Offsets of one partition: half-open."""

    tp: TopicPartition
    offsets: range

    def __len__(self) -> int:
        """Number of offsets."""
        return self.offsets.stop - self.offsets.start


def rate_limited(limit: int, start: Offsets, until: Offsets) -> dict[TopicPartition, int]:
    """How far each partition may go when at most about `limit` offsets are to be read.

    Shared in proportion to what waits in each partition. One with something waiting gets at least one offset, so that
    a small partition never starves; the sum may be above the limit by that.

    Args:
        limit: offsets of the whole batch, at least 1.
        start: where each partition of `until` begins.
        until: where each could end.

    Returns:
        An end for each partition of `until`; one that is below its start stays as it is.
    """
    sizes = {tp: end - start[tp] for tp, end in until.items() if end > start[tp]}
    total = sum(sizes.values())
    ends = dict(until)
    for tp, size in sizes.items():
        ends[tp] = start[tp] + min(size, max(1, limit * size // total))
    return ends


def waits(minimum: int, start: Offsets, until: Offsets) -> bool:
    """Whether less is there than the least that a batch should have."""
    return sum(max(0, end - start[tp]) for tp, end in until.items()) < minimum


def split(runs: Sequence[OffsetRun], min_parts: int | None = None, max_records: int | None = None) -> list[OffsetRun]:
    """Cut runs into pieces, one for each task; empty ones are left out.

    Args:
        runs: what is to be read.
        min_parts: pieces wanted in all; the pieces of a run are in proportion to its size. Runs are left whole when
            there are that many anyway.
        max_records: no piece has more offsets than this.

    Returns:
        Pieces in the order of the runs and their offsets. No offset is lost or doubled.
    """
    full = [run for run in runs if len(run) > 0]
    counts = [1 if max_records is None else -(-len(run) // max_records) for run in full]
    if min_parts is not None and min_parts > len(full):
        counts = [max(pair) for pair in zip(counts, _shares([len(run) for run in full], min_parts), strict=True)]
    return [piece for run, count in zip(full, counts, strict=True) for piece in _pieces(run, count)]


def grouped(pieces: Sequence[OffsetRun], most: int | None) -> list[list[OffsetRun]]:
    """Give pieces to tasks, so that the largest task is about as small as can be.

    Args:
        pieces: whole, in the order of their partitions and offsets.
        most: tasks at most; None for one task for each piece.

    Returns:
        The pieces of each task, in the order given; no task is empty.
    """
    if most is None or len(pieces) <= most:
        return [[piece] for piece in pieces]
    # Largest first, each to the task with the least so far: at most a third above the best there is (Graham, 1969).
    tasks: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(most)]
    for at in sorted(range(len(pieces)), key=lambda at: -len(pieces[at])):
        size, number, mine = tasks[0]
        heapq.heapreplace(tasks, (size + len(pieces[at]), number, [*mine, at]))
    return [[pieces[at] for at in mine] for mine in sorted(sorted(mine) for _, _, mine in tasks)]


def tasks_for(offsets: int, size: float, *, scale: int = 1) -> int:
    """How many tasks a read wants where nobody says so: a small micro-batch is done before a second task has begun.

    Args:
        offsets: of the batch.
        size: bytes of their files, about.
        scale: times `TASK_OFFSETS` and `TASK_BYTES` that one task reads.
    """
    return max(1, math.ceil(offsets / (scale * TASK_OFFSETS)), math.ceil(size / (scale * TASK_BYTES)))


def _shares(sizes: Sequence[int], parts: int) -> list[int]:
    """Whole shares of `parts`, at least one and at most its size for each, the largest pieces cut first."""
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
    """`count` pieces of nearly the same size."""
    begin, size = run.offsets.start, len(run)
    cuts = [begin + size * number // count for number in range(count + 1)]
    return [OffsetRun(run.tp, range(low, high)) for low, high in pairwise(cuts)]
