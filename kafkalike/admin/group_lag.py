"""Group lag: how far each group is behind in each partition, now and over the last hours, without reading records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaError, UnknownTopicOrPartitionError
from kafkalike.model.group_state import OFFSET, CommittedOffset, Group, GroupRow
from kafkalike.model.lag import RATE_MS, CommitIndex, GrowthIndex, Lag, Moment, PartitionIndex, history, moments
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in one partition."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset
    index: PartitionIndex
    """The partition as it was looked at."""
    lag: Lag

    @property
    def beyond(self) -> bool:
        """Whether the committed offset is above the log end: the log has lost records that the group has read."""
        return self.committed.position.offset > self.index.log_end


class Lags:
    """Lag of all groups of a cluster. Keeps the topics' logs open, so that looking again costs little.

    Nothing is read but Delta logs and the offsets table. Not thread-safe.

    Args:
        cluster: where groups and topics are.
        leave_out_damaged: a topic whose table is gone or damaged has no partitions and stands in `damaged`; otherwise
            asking for it raises.
    """

    def __init__(self, cluster: Cluster, *, leave_out_damaged: bool = False) -> None:
        self.cluster = cluster
        self.damaged: dict[str, KafkaError] = {}
        """Topics that could not be read since the last refresh, and why."""
        self._leave_out_damaged = leave_out_damaged
        self._topics: Mapping[str, TopicInfo] = {}
        self._groups: Mapping[str, Group] = {}
        self._logs: dict[str, TopicLog] = {}
        self._indexes: dict[str, dict[int, PartitionIndex]] = {}
        self._versions: dict[str, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look at groups, topics and logs anew; each log when it is asked for."""
        self._groups = self.cluster.groups.refresh().groups
        self._topics = self.cluster.topics()
        self._indexes, self._versions, self.damaged = {}, {}, {}
        self._logs = {
            name: log
            for name, log in self._logs.items()
            if name in self._topics and self._topics[name].topic_id == log.info.topic_id
        }

    @property
    def groups(self) -> Mapping[str, Group]:
        """The groups, as of the last refresh."""
        return self._groups

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """The topics, as of the last refresh."""
        return self._topics

    def index(self, tp: TopicPartition) -> PartitionIndex | None:
        """What a partition's segments say; None for one that does not exist (any more)."""
        return self.partitions(tp.topic).get(tp.partition)

    def partitions(self, topic: str) -> Mapping[int, PartitionIndex]:
        """All partitions of a topic; empty for one that does not exist (any more)."""
        if topic not in self._indexes:
            self._indexes[topic] = self._look(topic) if topic in self._topics else {}
        return self._indexes[topic]

    def version(self, topic: str) -> int | None:
        """Table version of a topic, as `partitions` has seen it; None for one that could not be read."""
        return self._versions.get(topic) if self.partitions(topic) else None

    def _look(self, topic: str) -> dict[int, PartitionIndex]:
        try:
            log = self._logs.get(topic)
            if log is None:
                log = self._logs[topic] = self.cluster.log(topic)
            log.check_sound() if self._leave_out_damaged else log.refresh()
        except UnknownTopicOrPartitionError:
            # Deleted since the list of topics was read.
            self._logs.pop(topic, None)
            return {}
        except KafkaError as error:
            if not self._leave_out_damaged:
                raise
            self._logs.pop(topic, None)
            self.damaged[topic] = error
            return {}
        self._versions[topic] = log.version
        return {p: PartitionIndex(log.log_start(p), log.log_end(p), log.segments(p)) for p in log.info.partitions}

    def of(self, group_id: str) -> Iterator[GroupLag]:
        """Lag of a group in each partition it has committed, sorted; nothing for a group that does not exist.

        Commits for a topic that is gone, or was created again since, are left out.
        """
        group = self._groups.get(group_id)
        if group is None:
            return
        for tp, committed in sorted(group.offsets.items(), key=lambda entry: entry[0]):
            info = self._topics.get(tp.topic)
            if info is None or info.topic_id != committed.topic_id:
                continue
            index = self.index(tp)
            if index is not None:
                yield GroupLag(group_id, tp, committed, index, index.lag(committed.position.offset))

    def __iter__(self) -> Iterator[GroupLag]:
        """Lag of all groups, by group and partition."""
        for group_id in sorted(self._groups):
            yield from self.of(group_id)


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
