"""Lag report: the lags of a group and how they moved in, lines by partition, topic and group out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kafkalike.admin.group_lag import GroupLag, Lags, lag_history
from kafkalike.cli.groups.group_report import MISSING, table
from kafkalike.model.lag import RATE_MS, Lag, Moment, total
from kafkalike.model.structs import TopicPartition

HEADS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "RECORD-LAG",
    "SECONDS-BEHIND",
    "WAITING-S",
    "CONSUMED/S",
    "PRODUCED/S",
    "CATCH-UP-S",
)
WIDTHS: Final = (15, 15, 10, 15, 15, 15, 15, 15, 12, 12, 12, 12)

ALL: Final = "*"
"""Stands for all partitions of a topic, and all topics of a group."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Offsets per second over the last minutes; None where they are not known."""

    consumed: float | None
    produced: float | None

    @classmethod
    def of(cls, moments: Sequence[Moment | None]) -> Rates:
        """The sum over partitions; not known where one is not."""
        consumed = [None if moment is None else moment.consumed_per_second for moment in moments]
        produced = [None if moment is None else moment.produced_per_second for moment in moments]
        return cls(_sum(consumed), _sum(produced))

    def catch_up(self, lag: int) -> float | None:
        """Seconds until so many offsets are gone; None when the lag does not shrink, or a rate is not known."""
        if lag == 0:
            return 0.0
        if self.consumed is None or self.produced is None or self.consumed <= self.produced:
            return None
        return lag / (self.consumed - self.produced)


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def rates_now(lags: Lags, group_ids: Sequence[str], now_ms: int) -> dict[tuple[str, TopicPartition], Moment]:
    """How fast groups consume and their topics grow, over the last 15 minutes."""
    wanted = set(group_ids)
    found = lag_history(
        lags, now_ms, span_ms=0, step_ms=1, rate_ms=RATE_MS, wanted=lambda group_id, _: group_id in wanted
    )
    return {(group_id, tp): moment for group_id, tp, moment in found}


def lag_lines(
    group_id: str, lags: Lags, moments: Mapping[tuple[str, TopicPartition], Moment], now_ms: int
) -> Iterator[str]:
    """Lines of `--describe --lag`: every partition, the sum of each topic that has several, the sum of the group.

    Args:
        group_id: the group.
        lags: how far it is behind.
        moments: how fast it was, by group and partition.
        now_ms: until when the oldest record that was not read has waited.
    """
    found = list(lags.of(group_id))
    if not found:
        return
    rows: list[Sequence[str]] = []
    topics = 0
    for topic, run in groupby(found, key=lambda lag: lag.partition.topic):
        own = list(run)
        topics += 1
        rows += [_partition_row(lag, moments, now_ms) for lag in own]
        if len(own) > 1:
            rows.append(_sum_row(group_id, topic, own, moments, now_ms))
    if topics > 1:
        rows.append(_sum_row(group_id, ALL, found, moments, now_ms))
    yield from table(HEADS, rows, WIDTHS, {0, 1})


def _partition_row(
    found: GroupLag, moments: Mapping[tuple[str, TopicPartition], Moment], now_ms: int
) -> tuple[str, ...]:
    where = (found.group_id, found.partition.topic, str(found.partition.partition))
    ends = (str(found.committed.position.offset), str(found.index.log_end))
    rates = Rates.of([moments.get((found.group_id, found.partition))])
    offsets, *numbers = _numbers(found.lag, rates, now_ms)
    return (*where, *ends, MISSING if found.beyond else offsets, *numbers)


def _sum_row(
    group_id: str,
    topic: str,
    found: Sequence[GroupLag],
    moments: Mapping[tuple[str, TopicPartition], Moment],
    now_ms: int,
) -> tuple[str, ...]:
    rates = Rates.of([moments.get((group_id, lag.partition)) for lag in found])
    return (group_id, topic, ALL, MISSING, MISSING, *_numbers(total(lag.lag for lag in found), rates, now_ms))


def _numbers(lag: Lag, rates: Rates, now_ms: int) -> tuple[str, ...]:
    fast = (_rounded(rates.consumed), _rounded(rates.produced), _rounded(rates.catch_up(lag.offsets)))
    return (
        str(lag.offsets),
        str(lag.records),
        f"{lag.behind_ms / 1000:.3f}",
        f"{lag.waiting_ms(now_ms) / 1000:.3f}",
        *fast,
    )


def _rounded(number: float | None) -> str:
    return MISSING if number is None else f"{number:.1f}"
