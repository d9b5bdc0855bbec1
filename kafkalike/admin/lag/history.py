"""History: the rows of the offsets table in, how the lag of each group moved over the last hours out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafkalike.admin.lag.measure import Lags
from kafkalike.model.group_state import OFFSET, GroupRow
from kafkalike.model.lag_history import RATE_MS, CommitIndex, GrowthIndex, Moment, history, moments
from kafkalike.model.structs import TopicPartition

SPAN_MS: Final = 3 * 3_600_000
"""How far back (ms) history goes when nothing else is asked."""

STEP_MS: Final = 5 * 60_000
"""Time (ms) between two of its moments when nothing else is asked."""

Commits = list[tuple[int, int | None]]
Wanted = Callable[[str, str], bool]


def lag_history(
    lags: Lags,
    now_ms: int,
    *,
    span_ms: int = SPAN_MS,
    step_ms: int = STEP_MS,
    rate_ms: int = RATE_MS,
    wanted: Wanted = lambda group_id, topic: True,  # noqa: ARG005 - all of them
) -> Iterator[tuple[str, TopicPartition, Moment]]:
    """Lag at evenly spaced moments up to now, by group, partition and time.

    A group appears in a partition from its first commit on that the offsets table still has: maintenance drops those
    that later ones have overtaken after some hours. A group that is gone, or whose topic is, does not appear.

    Args:
        lags: of the cluster; refresh it before.
        now_ms: the last moment, ms.
        span_ms: how far back, ms.
        step_ms: time between two moments, ms.
        rate_ms: rates are means over so many ms before a moment.
        wanted: says of a group and a topic whether it is to be looked at.
    """
    times = moments(now_ms, span_ms, step_ms)
    for (group_id, tp), commits in sorted(_commits(lags, wanted).items(), key=lambda entry: entry[0]):
        index = lags.index(tp)
        if index is not None:
            growth = GrowthIndex(index.log_start, index.segments)
            for moment in history(CommitIndex(commits), growth, times, rate_ms):
                yield group_id, tp, moment


def _commits(lags: Lags, wanted: Wanted) -> dict[tuple[str, TopicPartition], Commits]:
    """Commits of the groups there are, for the topics there are, in the order in which they were written."""
    rows: Sequence[GroupRow] = lags.cluster.groups.rows
    found: dict[tuple[str, TopicPartition], Commits] = {}
    for row in rows:
        if row.kind != OFFSET or row.topic is None or row.partition is None or row.group_id not in lags.groups:
            continue
        info = lags.topics.get(row.topic)
        # A row that deletes names no topic id.
        if info is None or (row.offset is not None and row.topic_id != info.topic_id):
            continue
        if wanted(row.group_id, row.topic):
            where = (row.group_id, TopicPartition(row.topic, row.partition))
            found.setdefault(where, []).append((row.time_ms, row.offset))
    return found
