"""Snapshot: a cluster in, one moment of it as plain values out, for JSON and for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.lag.history import lag_history
from kafkalike.admin.lag.measure import GroupLag, Lags
from kafkalike.admin.metrics.transactions import TransactionCounter
from kafkalike.model.lag import Lag, total
from kafkalike.model.lag_history import Moment
from kafkalike.model.structs import TopicPartition

Rates = Mapping[tuple[str, TopicPartition], Moment]
LagOf = Callable[[Lag], dict[str, float]]


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group at a moment."""

    group_id: str
    state: str
    members: int
    generation: int
    lags: tuple[GroupLag, ...]
    """By partition, sorted."""


def group_views(admin: KafkaAdminClient, lags: Lags) -> list[GroupView]:
    """All groups, sorted; `lags` as of its last refresh."""
    described = admin.describe_groups(sorted(lags.groups))
    return [
        GroupView(
            group_id, group["group_state"], len(group["members"]), group["generation_id"], tuple(lags.of(group_id))
        )
        for group_id, group in described.items()
        if group["group_state"] != "Dead"
    ]


def snapshot(admin: KafkaAdminClient, lags: Lags, now_ms: int) -> dict[str, Any]:
    """A cluster as a dict of plain values.

    Returns:
        `{"time_ms", "cluster", "topics": {topic: {"partitions": {p: {"log_start_offset", "log_end_offset", "records",
        "segments", "bytes", "newest_ms"}}}}, "groups": {group: {"state", "members", "generation", "lag", "topics":
        {topic: {"lag", "partitions": {p: {"committed_offset", "commit_ms", "log_end_offset", "lag",
        "consumed_per_second", "produced_per_second", "catch_up_seconds"}}}}}},
        "transactions": {"ids", "open", "unapplied", "oldest_open_seconds", "oldest_unapplied_seconds", "commits",
        "aborts"}}`. A lag is `{"offsets", "records",
        "seconds", "waiting_seconds"}`; the last one is the time since the oldest record that was not read. Rates are
        those of the last 15 minutes, null where they are not known.
    """
    lag = partial(_lag, now_ms)
    rates = {(group_id, tp): moment for group_id, tp, moment in lag_history(lags, now_ms, span_ms=0, step_ms=1)}
    return {
        "time_ms": now_ms,
        "cluster": lags.cluster.root,
        "topics": {name: _topic(lags, name) for name in sorted(lags.topics)},
        "groups": {view.group_id: _group(view, rates, lag) for view in group_views(admin, lags)},
        "transactions": asdict(TransactionCounter(lags.cluster).look(now_ms)),
    }


def _topic(lags: Lags, name: str) -> dict[str, Any]:
    partitions = {}
    for p, index in lags.partitions(name).items():
        partitions[str(p)] = {
            "log_start_offset": index.log_start,
            "log_end_offset": index.log_end,
            "records": index.records_from(index.log_start),
            "segments": len(index.segments),
            "bytes": sum(segment.size_bytes for segment in index.segments),
            "newest_ms": index.newest_ms,
        }
    return {"partitions": partitions}


def _group(view: GroupView, rates: Rates, lag: LagOf) -> dict[str, Any]:
    topics = {}
    for topic, run in groupby(view.lags, key=lambda found: found.partition.topic):
        own = list(run)
        topics[topic] = {
            "lag": lag(total(found.lag for found in own)),
            "partitions": {str(found.partition.partition): _partition(found, rates, lag) for found in own},
        }
    return {
        "state": view.state,
        "members": view.members,
        "generation": view.generation,
        "lag": lag(total(found.lag for found in view.lags)),
        "topics": topics,
    }


def _partition(found: GroupLag, rates: Rates, lag: LagOf) -> dict[str, Any]:
    moment = rates.get((found.group_id, found.partition))
    return {
        "committed_offset": found.committed.position.offset,
        "commit_ms": found.committed.time_ms,
        "log_end_offset": found.index.log_end,
        "lag": lag(found.lag),
        "consumed_per_second": None if moment is None else moment.consumed_per_second,
        "produced_per_second": None if moment is None else moment.produced_per_second,
        "catch_up_seconds": None if moment is None else moment.catch_up_seconds,
    }


def _lag(now_ms: int, lag: Lag) -> dict[str, float]:
    times = {"seconds": lag.behind_ms / 1000, "waiting_seconds": lag.waiting_ms(now_ms) / 1000}
    return {"offsets": lag.offsets, "records": lag.records, **times}
