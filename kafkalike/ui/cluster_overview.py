"""Cluster overview: figures of all topics and groups, which a thread keeps up to date while pages ask for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kafkalike.admin.group_lag import Lags
from kafkalike.errors import KafkaError
from kafkalike.log.topic.write_history import NOTHING, WriteHistory, WriteVolume
from kafkalike.model.lag import Lag, PartitionIndex, total
from kafkalike.ui.charts import MINUTE_MS, step_of

if TYPE_CHECKING:
    from kafkalike.admin import KafkaAdminClient
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.clock import Clock

HORIZON_MS: Final = 24 * 3_600_000
"""Length of the history of writes."""

SPANS: Final = {"30min": 1_800_000, "3h": 3 * 3_600_000, "24h": HORIZON_MS}
"""Lengths of the charts, ms."""

STEPS: Final = tuple(dict.fromkeys((MINUTE_MS, *map(step_of, SPANS.values()))))
"""Steps of the charts, ms; the first one is a minute."""

NOW_MS: Final = 5 * MINUTE_MS
"""Time over which current rates are averaged."""

COMMITS_PER_LOOK: Final = 300
"""Most older commits of a topic that one look reads."""

COMMIT_SECONDS: Final = 0.05

REST: Final = 4
"""A look is repeated after this many times its duration."""

SHORTEST_REST_SECONDS: Final = 1.0

FAR_REST_SECONDS: Final = 30.0
"""Shortest rest in an object store, where a look at each topic is a paid request."""

STOP_SECONDS: Final = 5.0
"""Time for the end of a look whose storage does not answer."""

LISTED_SECONDS: Final = 60.0
"""Interval at which the files of a topic on the disk are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """Figures of a topic, as of one look."""

    name: str
    partitions: int
    records: int
    size_bytes: int
    segments: int
    newest_ms: int | None
    """Time of the newest record."""
    written_ms: int | None
    """Time of the newest commit; None if no record was ever written."""
    expired_bytes: int
    """Bytes below the log start, which maintenance removes."""
    stale: tuple[int, int] | None
    """Number and bytes of data files on the disk that are not in the table; None if they were not counted."""
    now: WriteVolume
    """Written in the last `NOW_MS`."""
    history: WriteHistory = field(compare=False)

    @property
    def records_per_second(self) -> float:
        """Return the current rate of records."""
        return self.now.records / (NOW_MS / 1000)

    @property
    def bytes_per_second(self) -> float:
        """Return the current rate of bytes."""
        return self.now.size_bytes / (NOW_MS / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """Figures of a group, as of one look."""

    group_id: str
    state: str
    members: int
    topics: Sequence[str]
    lag: Lag
    waiting_ms: int
    """Age of the oldest unread record."""
    beyond: bool
    """True if it has committed offsets above a log end: the log has lost records that the group has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagThresholds:
    """Age of the oldest unread record from which on a group is late."""

    warn_seconds: float = 60.0
    bad_seconds: float = 600.0

    def level(self, waiting_ms: int) -> str:
        """Return `ok`, `warn` or `bad`."""
        if waiting_ms >= self.bad_seconds * 1000:
            return "bad"
        return "warn" if waiting_ms >= self.warn_seconds * 1000 else "ok"

    def of(self, group: GroupFigures) -> str:
        """Return the level of a group; also `bad` if the topic lost records that the group had read."""
        return "bad" if group.beyond else self.level(group.waiting_ms)


THRESHOLDS: Final = LagThresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterProblem:
    """A fault of the cluster that somebody should look at."""

    what: str
    href: str
    since_ms: int | None = None
    level: str = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFigures:
    """A root of the cluster."""

    id: int
    uri: str
    alive: bool
    draining: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """State of the cluster as of one look."""

    looked_ms: int = 0
    """Time of the look; 0 before the first one."""
    left: int = 0
    """Topics that were not read yet."""
    topics: Mapping[str, TopicFigures] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Errors of topics that cannot be read."""
    groups: Mapping[str, GroupFigures] = field(default_factory=dict)
    brokers: Sequence[BrokerFigures] = ()
    problems: Sequence[ClusterProblem] = ()


class OverviewSampler:
    """Looks at the cluster in a thread when somebody asks and the last look is old. Thread-safe.

    Only tables' logs, the offsets table and lists of files are read. A look costs little for topics that have not
    changed; a page that does not want to wait for one gets the state before it.

    Args:
        cluster: the cluster.
        admin: its admin client.
        clock: source of times.
    """

    def __init__(self, cluster: Cluster, admin: KafkaAdminClient, clock: Clock) -> None:
        self._cluster = cluster
        self._admin = admin
        self._clock = clock
        self._lock = threading.Lock()
        self._known = Overview()
        self._running: threading.Event | None = None
        self._due = 0.0
        """Time from which on another look is worth its cost, seconds of the machine's clock."""
        self._lags: Lags | None = None
        self._figures: dict[str, tuple[Any, TopicFigures]] = {}
        """Figures by topic with their cache key. Only the thread of a look uses this and the following fields."""
        self._histories: dict[str, tuple[Any, WriteHistory]] = {}
        self._listed: dict[str, tuple[int, float, tuple[int, int]]] = {}
        """Table version and time at which a topic's files were counted, and the result."""
        self._stopped = False

    def newest(self, patience_seconds: float) -> Overview:
        """Return the newest state; start a look if the last one is old, and wait for it.

        Args:
            patience_seconds: how long to wait for a running look.
        """
        with self._lock:
            if self._running is None and time.monotonic() >= self._due and not self._stopped:
                self._running = threading.Event()
                threading.Thread(
                    target=self._run, args=(self._running,), name="kafkalike-ui-overview", daemon=True
                ).start()
            running = self._running
        if running is not None:
            running.wait(patience_seconds)
        return self._known

    def expire(self) -> None:
        """Start another look at the next question, because something was changed."""
        self._due = 0.0

    def stop(self) -> None:
        """End a running look soon, and start no other one; waits for its end for some seconds."""
        with self._lock:
            self._stopped = True
            running = self._running
        if running is not None:
            running.wait(STOP_SECONDS)

    def _run(self, done: threading.Event) -> None:
        begun, reason = time.monotonic(), "the log of the console has the traceback"
        try:
            self._known = self._look()
            reason = ""
        except (KafkaError, OSError) as error:
            reason = str(error)
        finally:
            if reason:
                self._lags = None
                problem = ClusterProblem(what=f"The cluster cannot be read: {reason}", href="/cluster")
                self._known = replace(self._known, problems=[problem], looked_ms=self._clock.now_ms(), left=0)
            took = time.monotonic() - begun
            with self._lock:
                self._due = time.monotonic() + rest_seconds(took, is_remote=self._cluster.store.scheduler.is_remote)
                self._running = None
            done.set()

    def _look(self) -> Overview:
        if self._lags is None:
            self._lags = Lags(self._cluster, leave_out_damaged=True)
        else:
            self._lags.refresh()
        lags, now_ms = self._lags, self._clock.now_ms()
        names = sorted(lags.topics)
        topics: dict[str, TopicFigures] = {}
        first, shown = self._known.looked_ms == 0 or self._known.left > 0, time.monotonic()
        for at, name in enumerate(names):
            if self._stopped:
                return self._known
            found = self._topic(lags, name, now_ms)
            if found is not None:
                topics[name] = found
            if first and time.monotonic() - shown > COMMIT_SECONDS:
                # Pages show the topics so far.
                self._known = Overview(looked_ms=now_ms, left=len(names) - at, topics=dict(topics))
                shown = time.monotonic()
        if self._stopped:
            return self._known
        gone = self._figures.keys() - lags.topics.keys()
        for name in gone:
            for kept in (self._figures, self._histories, self._listed):
                kept.pop(name, None)
        groups = {found.group_id: found for found in self._groups(lags, now_ms)}
        brokers = list(self._brokers())
        return Overview(
            looked_ms=now_ms,
            topics=topics,
            damaged={name: str(error) for name, error in lags.damaged.items()},
            groups=groups,
            brokers=brokers,
            problems=[*self._problems(lags, now_ms), *self._of_brokers(brokers), *_of_groups(groups)],
        )

    def _topic(self, lags: Lags, name: str, now_ms: int) -> TopicFigures | None:
        indexes, log = lags.partitions(name), lags.log(name)
        if log is None or not indexes:
            return None
        identity = log.info.topic_id
        known_id, history = self._histories.get(name, (None, None))
        if history is None or known_id != identity:
            history = WriteHistory()
            self._histories[name] = (identity, history)
        try:
            history.read(log, now_ms - HORIZON_MS, most=COMMITS_PER_LOOK, seconds=COMMIT_SECONDS)
        except (KafkaError, OSError):
            # The figures of the table do not need its old commits.
            self._histories[name] = (identity, WriteHistory())
        key = (identity, log.version, log.info.num_partitions, tuple(index.log_start for index in indexes.values()))
        known = self._figures.get(name)
        figures = known[1] if known is not None and known[0] == key else _figures(log, indexes, history)
        stale = self._stale(log)
        # Pages find the sums of the charts' steps made.
        by_step = {step: history.by_step(step) for step in STEPS}
        sums = by_step[MINUTE_MS]
        first = -(-(now_ms - NOW_MS) // MINUTE_MS) * MINUTE_MS
        now = _sum(sums[at] for at in range(first, now_ms + 1, MINUTE_MS) if at in sums)
        if figures.stale != stale or figures.now != now or figures.history is not history:
            figures = replace(figures, stale=stale, now=now, history=history)
        self._figures[name] = (key, figures)
        return figures

    def _stale(self, log: TopicLog) -> tuple[int, int] | None:
        """Count data files that the table does not have any more; not in an object store, where lists cost money."""
        if log.files.scheduler.is_remote:
            return None
        known = self._listed.get(log.info.name)
        if known is not None and (known[0] == log.version or time.monotonic() - known[1] < LISTED_SECONDS):
            return known[2]
        live = log.live_paths()
        # A newer file may belong to an unfinished commit.
        before_ms = self._clock.now_ms() - MINUTE_MS
        try:
            found = [
                entry.size
                for entry in log.files.list(deep=True)
                if entry.name.endswith(".parquet")
                and not entry.name.startswith("_")
                and entry.name not in live
                and entry.modified_ms < before_ms
            ]
        except (OSError, KafkaError):
            return None
        self._listed[log.info.name] = (log.version, time.monotonic(), (len(found), sum(found)))
        return len(found), sum(found)

    def _groups(self, lags: Lags, now_ms: int) -> Iterator[GroupFigures]:
        described = self._admin.describe_groups(sorted(lags.groups)) if lags.groups else {}
        for group_id, group in described.items():
            if group["group_state"] == "Dead":
                continue
            own = list(lags.of(group_id))
            lag = total(one.lag for one in own)
            yield GroupFigures(
                group_id=group_id,
                state=str(group["group_state"]),
                members=len(group["members"]),
                topics=sorted({one.partition.topic for one in own}),
                lag=lag,
                waiting_ms=lag.waiting_ms(now_ms),
                beyond=any(one.beyond for one in own),
            )

    def _brokers(self) -> Iterator[BrokerFigures]:
        replication = self._cluster.replication
        for broker in replication.brokers():
            alive = replication.alive(broker.id)
            yield BrokerFigures(id=broker.id, uri=broker.uri, alive=alive, draining=broker.draining)

    def _problems(self, lags: Lags, now_ms: int) -> Iterator[ClusterProblem]:
        for name, error in sorted(lags.damaged.items()):
            yield ClusterProblem(what=f"Topic {name} cannot be read: {error}", href=f"/topics/{name}")
        for found in self._admin.find_hanging_transactions():
            yield ClusterProblem(
                what=f"The transaction of {found['transactional_id']} hangs in {found['state']}.",
                href="/transactions",
                since_ms=now_ms - int(found["age_ms"]),
            )
        if self._cluster.metadata.state.mirrors:
            from kafkalike.replication.mirrors.mirror_lag import mirror_lags

            for mirror in mirror_lags(self._cluster):
                if mirror.problem:
                    what = f"Mirror {mirror.topic} does not follow {mirror.source}: {mirror.problem}"
                    yield ClusterProblem(what=what, href=f"/topics/{mirror.topic}", since_ms=mirror.seen_ms)

    def _of_brokers(self, brokers: Sequence[BrokerFigures]) -> Iterator[ClusterProblem]:
        for broker in brokers:
            if not broker.alive:
                yield ClusterProblem(what=f"Root {broker.id} does not answer: {broker.uri}", href="/replicas")
        if len(brokers) == 1:
            return
        replication = self._cluster.replication
        late = [name for name in replication.tables() if replication.replicas(name).under_replicated]
        if late:
            few = ", ".join(late[:3]) + (", …" if len(late) > len(late[:3]) else "")
            yield ClusterProblem(
                what=f"Tables with a replica out of sync ({len(late)}): {few}", href="/replicas", level="warn"
            )


def rest_seconds(took_seconds: float, *, is_remote: bool) -> float:
    """Return the time between two looks.

    Args:
        took_seconds: duration of the last look.
        is_remote: True if each request is paid for.
    """
    return max(FAR_REST_SECONDS if is_remote else SHORTEST_REST_SECONDS, REST * took_seconds)


def _figures(log: TopicLog, indexes: Mapping[int, PartitionIndex], history: WriteHistory) -> TopicFigures:
    newest = [index.newest_ms for index in indexes.values() if index.newest_ms is not None]
    size = sum(segment.size_bytes for index in indexes.values() for segment in index.segments)
    whole = sum(segment.size_bytes for partition in indexes for segment in log.table_segments(partition))
    return TopicFigures(
        name=log.info.name,
        partitions=log.info.num_partitions,
        records=sum(index.records_from(index.log_start) for index in indexes.values()),
        size_bytes=size,
        segments=sum(len(index.segments) for index in indexes.values()),
        newest_ms=max(newest, default=None),
        written_ms=log.last_append_ms() if any(index.log_end for index in indexes.values()) else None,
        expired_bytes=whole - size,
        stale=None,
        now=NOTHING,
        history=history,
    )


def _sum(written: Iterable[WriteVolume]) -> WriteVolume:
    known = list(written)
    return WriteVolume(sum(one.records for one in known), sum(one.size_bytes for one in known))


def _of_groups(groups: Mapping[str, GroupFigures]) -> Iterator[ClusterProblem]:
    for found in groups.values():
        if found.beyond:
            yield ClusterProblem(
                what=f"Group {found.group_id} has committed offsets above the log end: the log has lost records.",
                href="/groups",
            )
