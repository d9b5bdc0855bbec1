"""Group lag: how far each group is behind in each partition, now and in recent hours, without reading records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.connect import connect
from kafkalike.errors import KafkaError, UnknownTopicOrPartitionError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import Group
from kafkalike.model.lag import RATE_MS, CommitIndex, GrowthIndex, Lag, Moment, PartitionIndex, history, moments
from kafkalike.model.structs import CommittedOffset, TopicPartition
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in a partition."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset
    index: PartitionIndex
    """State of the partition when the lag was computed."""
    lag: Lag

    @property
    def beyond(self) -> bool:
        """True if the committed offset is above the log end: the log has lost records that the group has read."""
        return self.committed.position.offset > self.index.log_end


_Seen = tuple["TopicLog", int, tuple[int, ...]]
"""A log, its table version, and its log starts: what the index of a topic depends on."""


class Lags:
    """Lags of all groups in a cluster. It keeps the topics' logs open, so refreshing is cheap.

    Only Delta logs and the offsets table are read. Not thread-safe.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        storage_options: options of an object store; see `kafkalike.connect.connect`.
        leave_out_damaged: treat a topic whose table is missing or damaged as a topic without partitions, and add it to
            `damaged`; otherwise reading it raises an error.
    """

    def __init__(
        self,
        bootstrap_servers: Address | None = None,
        *,
        storage_options: StorageOptionsLike | None = None,
        leave_out_damaged: bool = False,
    ) -> None:
        self.cluster = connect(bootstrap_servers, storage_options, access="read")
        self.damaged: dict[str, KafkaError] = {}
        """Errors of topics that could not be read since the last refresh."""
        self._leave_out_damaged = leave_out_damaged
        self._topics: Mapping[str, TopicInfo] = {}
        self._groups: Mapping[str, Group] = {}
        self._logs: dict[str, TopicLog] = {}
        self._indexes: dict[str, dict[int, PartitionIndex]] = {}
        self._versions: dict[str, int] = {}
        self._kept: dict[str, tuple[_Seen, dict[int, PartitionIndex]]] = {}
        """The last index of each topic, with the state that it was made from."""
        self.refresh()

    def refresh(self) -> None:
        """Refresh groups and topics; each log is refreshed on first use."""
        self._groups = self.cluster.groups.refresh().consumer_groups
        self._topics = self.cluster.topics()
        self._indexes, self._versions, self.damaged = {}, {}, {}
        self._logs = {
            name: log
            for name, log in self._logs.items()
            if name in self._topics and self._topics[name].topic_id == log.info.topic_id
        }
        self._kept = {name: kept for name, kept in self._kept.items() if name in self._logs}

    @property
    def groups(self) -> Mapping[str, Group]:
        """The groups as of the last refresh."""
        return self._groups

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """The topics as of the last refresh."""
        return self._topics

    def index(self, tp: TopicPartition) -> PartitionIndex | None:
        """Return the index of a partition, or None if it does not exist."""
        return self.partitions(tp.topic).get(tp.partition)

    def partitions(self, topic: str) -> Mapping[int, PartitionIndex]:
        """Return the indexes of a topic's partitions; empty if the topic does not exist."""
        if topic not in self._indexes:
            self._indexes[topic] = self._look(topic) if topic in self._topics else {}
        return self._indexes[topic]

    def version(self, topic: str) -> int | None:
        """Return the table version of a topic that `partitions` has read, or None if it could not be read."""
        return self._versions.get(topic) if self.partitions(topic) else None

    def log(self, topic: str) -> TopicLog | None:
        """Return the log that `partitions` has read, or None if it could not be read."""
        return self._logs.get(topic) if self.partitions(topic) else None

    def _look(self, topic: str) -> dict[int, PartitionIndex]:
        try:
            log = self._logs.get(topic)
            if log is None:
                log = self._logs[topic] = self.cluster.log(topic)
            log.check_sound() if self._leave_out_damaged else log.refresh()
        except UnknownTopicOrPartitionError:
            # The topic was deleted after the list of topics was read.
            self._logs.pop(topic, None)
            return {}
        except KafkaError as error:
            if not self._leave_out_damaged:
                raise
            self._logs.pop(topic, None)
            self.damaged[topic] = error
            return {}
        self._versions[topic] = log.version
        # Building an index takes longer than a look at an unchanged table.
        seen: _Seen = (log, log.version, tuple(map(log.log_start, log.info.partitions)))
        known = self._kept.get(topic)
        if known is not None and known[0] == seen:
            return known[1]
        made = {p: PartitionIndex(log.log_start(p), log.log_end(p), log.segments(p)) for p in log.info.partitions}
        self._kept[topic] = (seen, made)
        return made

    def of(self, group_id: str) -> Iterator[GroupLag]:
        """Yield the lag of a group in each partition with a committed offset, sorted; nothing for an unknown group.

        Commits for topics that were deleted, or deleted and created again, are omitted.
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
        """Yield the lags of all groups, by group and partition."""
        for group_id in sorted(self._groups):
            yield from self.of(group_id)


SPAN_MS: Final = 3 * 3_600_000
"""Default length of the history, in ms."""

STEP_MS: Final = 5 * 60_000
"""Default time between two moments of the history, in ms."""

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
    """Yield the lag at evenly spaced moments up to now, by group, partition and time.

    A group appears in a partition from its oldest commit in the offsets table; after some hours maintenance removes
    commits that newer ones have superseded. Deleted groups, and groups in deleted topics, do not appear.

    Args:
        lags: lags of the cluster, refreshed.
        now_ms: the last moment, in ms.
        span_ms: length of the history, in ms.
        step_ms: time between two moments, in ms.
        rate_ms: length of the interval before a moment over which rates are averaged, in ms.
        wanted: returns True for a group and topic to include.
    """
    times = moments(now_ms, span_ms, step_ms)
    for (group_id, tp), commits in sorted(_commits(lags, wanted).items(), key=lambda entry: entry[0]):
        index = lags.index(tp)
        if index is not None:
            growth = GrowthIndex(index.log_start, index.segments)
            for moment in history(CommitIndex(commits), growth, times, rate_ms):
                yield group_id, tp, moment


def _commits(lags: Lags, wanted: Wanted) -> dict[tuple[str, TopicPartition], Commits]:
    """Return the commits of existing groups for existing topics, in the order in which they were written."""
    rows: Sequence[GroupRow] = lags.cluster.groups.rows
    found: dict[tuple[str, TopicPartition], Commits] = {}
    for row in rows:
        if row.kind != OFFSET or row.topic is None or row.partition is None or row.group_id not in lags.groups:
            continue
        info = lags.topics.get(row.topic)
        # A row that deletes an offset has no topic id.
        if info is None or (row.offset is not None and row.topic_id != info.topic_id):
            continue
        if wanted(row.group_id, row.topic):
            where = (row.group_id, TopicPartition(row.topic, row.partition))
            found.setdefault(where, []).append((row.time_ms, row.offset))
    return found
