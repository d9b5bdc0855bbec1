"""Cluster view: the state of a cluster as plain values, for JSON and for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.admin.group_lag import GroupLag, Lags, lag_history
from kafkalike.admin.share_group_operations import share_partitions
from kafkalike.admin.transaction_operations import since_ms
from kafkalike.model.group_rows import TRANSACTION, standing_of
from kafkalike.model.lag import Lag, Moment, total
from kafkalike.model.structs import TopicPartition
from kafkalike.model.transactions.transaction_views import TransactionState
from kafkalike.model.transactions.transactional_id import Why

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

Rates = Mapping[tuple[str, TopicPartition], Moment]
LagOf = Callable[[Lag], dict[str, float]]


@dataclass(frozen=True, slots=True)
class GroupView:
    """State of a group."""

    group_id: str
    state: str
    members: int
    generation: int
    lags: tuple[GroupLag, ...]
    """Lags of the group, sorted by partition."""


def group_views(admin: KafkaAdminClient, lags: Lags) -> list[GroupView]:
    """Return all groups, sorted, with `lags` as of its last refresh."""
    described = admin.describe_groups(sorted(lags.groups))
    return [
        GroupView(
            group_id, group["group_state"], len(group["members"]), group["generation_id"], tuple(lags.of(group_id))
        )
        for group_id, group in described.items()
        if group["group_state"] != "Dead"
    ]


def snapshot(admin: KafkaAdminClient, lags: Lags, now_ms: int) -> dict[str, Any]:
    """Return the state of a cluster as plain values.

    Returns:
        `{"time_ms", "cluster", "topics": {topic: {"partitions": {p: {"log_start_offset", "log_end_offset", "records",
        "segments", "bytes", "newest_ms"}}}}, "groups": {group: {"state", "members", "generation", "lag", "topics":
        {topic: {"lag", "partitions": {p: {"committed_offset", "commit_ms", "log_end_offset", "lag",
        "consumed_per_second", "produced_per_second", "catch_up_seconds"}}}}}}, "share_groups": {group: {topic: {p:
        {"start_offset", "lag", "acquired", "scheduled"}}}}, "transactions": {"ids", "open", "unapplied",
        "oldest_open_seconds", "oldest_unapplied_seconds", "commits", "aborts"}}`. A lag is `{"offsets", "records",
        "seconds", "waiting_seconds"}`; `waiting_seconds` is the time since the oldest unread record. Rates
        are averages of the last 15 minutes, null if unknown.
    """
    lag = partial(_lag, now_ms)
    rates = {(group_id, tp): moment for group_id, tp, moment in lag_history(lags, now_ms, span_ms=0, step_ms=1)}
    return {
        "time_ms": now_ms,
        "cluster": lags.cluster.root,
        "topics": {name: _topic(lags, name) for name in sorted(lags.topics)},
        "groups": {view.group_id: _group(view, rates, lag) for view in group_views(admin, lags)},
        "share_groups": _share_groups(lags),
        "transactions": asdict(TransactionCounter(lags.cluster).look(now_ms)),
    }


def _share_groups(lags: Lags) -> dict[str, dict[str, dict[str, dict[str, int]]]]:
    found: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    for report in share_partitions(lags.cluster):
        topic = found.setdefault(report.group_id, {}).setdefault(report.tp.topic, {})
        topic[str(report.tp.partition)] = {
            "start_offset": report.start_offset,
            "lag": report.lag,
            "acquired": report.acquired,
            "scheduled": report.scheduled,
        }
    return found


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


ABORTED: Final = frozenset({Why.ABORT, Why.TIMEOUT, Why.ADMIN})
"""Reasons of rows that abort a transaction. Aborts by `init_transactions` do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFigures:
    """Numbers of transactions in a cluster."""

    ids: int
    """Transactional ids that have not expired."""
    open: int
    unapplied: int
    """Committed transactions not yet applied to all of their topics."""
    oldest_open_seconds: float
    """Age of the oldest open transaction; 0 without one."""
    oldest_unapplied_seconds: float
    commits: int
    """Commits since the oldest row that the groups' table had at the first look."""
    aborts: int
    """Aborts since that row, by producers, timeouts or administrators."""


class TransactionCounter:
    """Counts transactions; the numbers of commits and aborts never decrease. Not thread-safe.

    Args:
        cluster: the cluster of the transactions.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seq = 0
        self._commits = 0
        self._aborts = 0

    def look(self, now_ms: int) -> TransactionFigures:
        """Return the current numbers. Refreshes the groups' table, and reads it if it has changed.

        Raises:
            KafkaStorageError, LogCorruptError: the table cannot be read.
        """
        transactions = self._cluster.transactions
        listed = transactions.listed()
        if listed:
            self._count()
        names = [one.transactional_id for one in listed if one.state is not TransactionState.EMPTY]
        described = transactions.described(names).values()
        ages: dict[TransactionState, list[float]] = {}
        for one in described:
            ages.setdefault(one.state, []).append(max(0, now_ms - since_ms(one)) / 1000)
        opened, waiting = (ages.get(s, []) for s in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT))
        return TransactionFigures(
            ids=len(listed),
            open=len(opened),
            unapplied=len(waiting),
            oldest_open_seconds=max(opened, default=0),
            oldest_unapplied_seconds=max(waiting, default=0),
            commits=self._commits,
            aborts=self._aborts,
        )

    def _count(self) -> None:
        """Count the rows since the last call; compaction keeps rows of the last hours."""
        groups = self._cluster.groups
        if groups.refresh().seq == self._seq:
            return
        rows = [row for row in groups.rows if row.seq > self._seq]
        reasons = [standing.why for row in rows if row.kind == TRANSACTION and (standing := standing_of(row))]
        self._commits += reasons.count(Why.COMMIT)
        self._aborts += sum(why in ABORTED for why in reasons)
        self._seq = max((row.seq for row in rows), default=self._seq)
