"""Offsets: the arithmetic of runs, half-open everywhere; counts in, ranges out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.structs import TopicPartition

MARK: Final = "kafkalike:offsets"
"""Stands beside the topics in the offsets of a checkpoint of `format("kafkalike")`; no topic's name has a colon."""

MAX_OFFSET: Final = 2**63 - 1
"""Largest value of Delta's BIGINT, so the largest offset."""


def plan_offsets(log_end: Mapping[int, int], counts: Mapping[int, int]) -> dict[int, range]:
    """Give each partition the next free run of offsets.

    Args:
        log_end: next offset to be written, by partition; a partition that is not named begins at 0.
        counts: records to be written, by partition.

    Returns:
        The run of each partition that gets at least one record.
    """
    return {p: range(log_end.get(p, 0), log_end.get(p, 0) + n) for p, n in counts.items() if n > 0}


@dataclass(frozen=True, slots=True)
class EndOffsetIs:
    """What must still hold when a plan is applied: the partition's log end is the one it was made from."""

    partition: int
    expected: int

    def holds(self, log_end: Mapping[int, int]) -> bool:
        """Whether the log end is still as expected."""
        return log_end.get(self.partition, 0) == self.expected


def requirements(plan: Mapping[int, range]) -> tuple[EndOffsetIs, ...]:
    """What must hold at commit time for this plan to keep offsets dense and unique."""
    return tuple(EndOffsetIs(p, run.start) for p, run in sorted(plan.items()))


def assign_offsets(partitions: Sequence[int], plan: Mapping[int, range]) -> list[int]:
    """Give each record its offset: records of one partition take its run in order.

    Args:
        partitions: the partition of each record, in sending order.
        plan: the run of each partition; as long as the partition has records.
    """
    following = {p: run.start for p, run in plan.items()}
    offsets = []
    for p in partitions:
        offset = following[p]
        following[p] = offset + 1
        offsets.append(offset)
    return offsets


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition that no segment holds."""

    partition: int
    missing: range


@dataclass(frozen=True, slots=True)
class Overlap:
    """Offsets of a partition that two segments hold."""

    partition: int
    doubled: range


def gaps_and_overlaps(partition: int, runs: Iterable[range], start: int) -> list[Gap | Overlap]:
    """Find where the runs of a partition, taken in order from `start`, leave a hole or cover an offset twice.

    What lies below `start` is ignored: retention has moved past it.
    """
    found: list[Gap | Overlap] = []
    expected = start
    above = (range(max(run.start, start), run.stop) for run in runs if run.stop > start)
    for run in sorted(above, key=lambda r: (r.start, r.stop)):
        if run.start > expected:
            found.append(Gap(partition, range(expected, run.start)))
        elif run.start < expected:
            found.append(Overlap(partition, range(run.start, min(expected, run.stop))))
        expected = max(expected, run.stop)
    return found


def shifted(
    committed: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], by: int
) -> dict[TopicPartition, int]:
    """Where a group is to go on so many offsets further on, or back; it may lie outside of the log.

    Args:
        committed: the group's offsets.
        partitions: which of them are moved.
        by: offsets; negative ones go back.

    Raises:
        IllegalArgumentError: nothing is committed in one of them.
    """
    moved = {}
    for tp in partitions:
        if tp not in committed:
            where = f"{tp.topic}-{tp.partition}"
            raise IllegalArgumentError(
                f"Cannot shift offset for partition {where} since there is no current committed offset"
            )
        moved[tp] = committed[tp] + by
    return moved


def storable(offset: int) -> int:
    """The nearest offset that a table can hold: what is below or beyond is below or beyond every log."""
    return min(max(offset, 0), MAX_OFFSET)
