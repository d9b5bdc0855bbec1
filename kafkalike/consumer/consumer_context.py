"""Consumer context: state that the modules of one consumer share: its counters, its open logs, its group member."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalike import errors
from kafkalike.consumer.subscription import Subscription, check_partition
from kafkalike.log.call_view import CallView
from kafkalike.log.group.assignors import DEFAULT_STRATEGY, schemes_of
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import MemberSettings
from kafkalike.model.clock import Clock
from kafkalike.model.config.consumer_config import ConsumerConfig
from kafkalike.model.names import check_topic_name
from kafkalike.model.structs import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.dead_letter_buffer import DeadLetterBuffer, DeadLetterTransactions
    from kafkalike.log.topic.topic_log import TopicLog


@dataclass(slots=True)
class ConsumerMetrics:
    """Totals since the consumer was made."""

    records_consumed: int = 0
    bytes_fetched: int = 0
    fetches: int = 0
    polls: int = 0
    commits: int = 0
    failed_commits: int = 0
    rebalances: int = 0
    records_skipped: int = 0
    """Records that could not be deserialized and were skipped."""
    letters: int = 0
    """Skipped records that are, or become, dead letters."""
    errors_logged: int = 0

    def by_group(self, subscription: Subscription) -> dict[str, dict[str, float]]:
        """Return the numbers by Kafka's metric group and metric name."""
        states = [state for _, state in subscription.items()]
        lags = [s.highwater - s.position for s in states if s.highwater is not None and s.position is not None]
        return {
            "consumer-metrics": {"poll-total": self.polls},
            "consumer-fetch-manager-metrics": {
                "records-consumed-total": self.records_consumed,
                "bytes-consumed-total": self.bytes_fetched,
                "fetch-total": self.fetches,
                "records-lag-max": max(0, *lags) if lags else 0,
            },
            "consumer-coordinator-metrics": {
                "assigned-partitions": len(subscription),
                "commit-total": self.commits,
                "failed-commit-total": self.failed_commits,
                "rebalance-total": self.rebalances,
            },
            "task-error-metrics": {
                "total-records-skipped": self.records_skipped,
                "deadletterqueue-produce-requests": self.letters,
                "total-errors-logged": self.errors_logged,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerContext:
    """The parts of one consumer, made once. Belongs to the consumer's thread."""

    cluster: Cluster
    config: ConsumerConfig
    clock: Clock
    subscription: Subscription
    logs: OpenedLogs
    offsets: GroupOffsets
    member: GroupMember | None
    """This consumer as a member of its group; None without `group_id`."""
    letters: DeadLetterBuffer | None = None
    """Dead letters that wait for a commit; None if the consumer makes none."""
    letter_commits: DeadLetterTransactions | None = None
    """Commits dead letters with the offsets above them."""
    metrics: ConsumerMetrics = field(default_factory=ConsumerMetrics)

    @classmethod
    def of(cls, cluster: Cluster, config: ConsumerConfig, clock: Clock) -> ConsumerContext:
        """Return the parts of a new consumer."""
        subscription = Subscription(exclude_internal=config.exclude_internal_topics, hidden=config.is_letters)
        letters = letter_commits = None
        if config.tolerant and config.group_id is not None and config.errors_deadletterqueue_topic_name != "":
            # Most consumers have none of it.
            from kafkalike.log.dead_letter_buffer import DeadLetterBuffer, DeadLetterTransactions

            letters = DeadLetterBuffer(cluster, config.group_id, clock, lambda: subscription.held)
            letter_commits = DeadLetterTransactions(cluster, letters, config.client_id, clock)
        return cls(
            cluster=cluster,
            config=config,
            clock=clock,
            subscription=subscription,
            logs=OpenedLogs(cluster),
            offsets=GroupOffsets.of(cluster, clock),
            member=_member(cluster, config, clock),
            letters=letters,
            letter_commits=letter_commits,
        )


def _member(cluster: Cluster, config: ConsumerConfig, clock: Clock) -> GroupMember | None:
    """Return the group member; also checks the assignors of a consumer without a group."""
    strategy = config.partition_assignment_strategy
    schemes = schemes_of(DEFAULT_STRATEGY if strategy is None else strategy)
    if config.group_id is None:
        return None
    settings = MemberSettings(
        group_id=config.group_id,
        schemes=schemes,
        client_id=config.client_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
    )
    return GroupMember.of(cluster, settings, clock)


class OpenedLogs:
    """The open logs of one consumer. Not thread-safe; belongs to its consumer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.looks_ahead = cluster.store.scheduler.is_remote
        """True if `ahead` saves time, because each look is a request."""
        self._logs: dict[str, TopicLog] = {}

    def ahead(self, topics: Iterable[str], view: CallView, *, waiting: bool = False) -> None:
        """Look at several topics in parallel, so that `of` waits for none of them; nothing where that saves no time.

        Errors are ignored here; `of` raises them.
        """
        if not self.looks_ahead:
            return
        wanted = set(topics) - view.topics
        known = self._logs.keys() & wanted
        view.logs_since = self._cluster.look_ahead([self._logs[topic] for topic in known], waiting=waiting)
        opened = self._cluster.open_ahead(wanted - known)
        self._logs.update(opened)
        view.topics.update(opened)

    def of(self, topic: str, topic_id: str | None, view: CallView, *, waiting: bool = False) -> TopicLog:
        """Return the log of a topic, refreshed once per call.

        Args:
            topic: the name.
            topic_id: id of the topic.
            view: the call's.
            waiting: see `TopicLog.refresh`.

        Raises:
            TopicDeletedError: the topic of that id was deleted; the error has the id of the current topic of that name.
        """
        log = self._logs.get(topic)
        try:
            if log is None or topic not in view.topics:
                log = self._fresh(topic, view, waiting=waiting)
            if log.info.topic_id != topic_id:
                # The assignment may come from a newer look at the topics than this call's.
                log = self._logs[topic] = self._cluster.log(topic)
        except errors.UnknownTopicOrPartitionError as cause:
            raise errors.TopicDeletedError(topic, topic_id or "", None) from cause
        if log.info.topic_id != topic_id:
            raise errors.TopicDeletedError(topic, topic_id or "", log.info.topic_id)
        return log

    def is_repartitioned(self, error: errors.TopicDeletedError) -> bool:
        """Return whether the topic of an error was repartitioned, so that a consumer continues in its successor."""
        info = self._cluster.metadata.state.topics.get(error.topic)
        return info is not None and info.partitions_as(error.topic_id) is not None

    def _fresh(self, topic: str, view: CallView, *, waiting: bool = False) -> TopicLog:
        """Return the log of the current topic of a name, refreshed now.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        log = self._logs.pop(topic, None)
        if log is None:
            known = view.metadata().topics.get(check_topic_name(topic))
            log = self._cluster.log(topic) if known is None else self._cluster.open(known)
        else:
            try:
                view.metadata(waiting=waiting)
                log.refresh(metadata=False, waiting=waiting, since=view.logs_since)
            except errors.TopicDeletedError:
                # The error for a deleted topic needs fresh metadata.
                log = self._cluster.log(topic)
        self._logs[topic] = log
        view.topics.add(topic)
        return log

    @property
    def opened(self) -> list[TopicLog]:
        """The open logs, as of their last refresh."""
        return list(self._logs.values())

    def forget(self) -> None:
        """Close all logs of the consumer."""
        self._logs.clear()

    # --- questions that do not need an assignment ----------------------------------------------

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, TopicLog]]:
        """Return partitions with their logs, each log refreshed once."""
        wanted = [check_partition(tp) for tp in partitions]
        topics = sorted({tp.topic for tp in wanted})
        view = CallView(self._cluster, 0.0)
        self.ahead(topics, view)
        for topic in topics:
            if topic not in view.topics:
                self._fresh(topic, view)
        logs = {topic: self._logs[topic] for topic in topics}
        for tp in wanted:
            count = logs[tp.topic].info.num_partitions
            if tp.partition >= count:
                raise errors.UnknownTopicOrPartitionError(
                    f"{tp.topic}-{tp.partition} does not exist: the topic has partitions 0 to {count - 1}"
                )
        return [(tp, logs[tp.topic]) for tp in wanted]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start of each partition."""
        return {tp: log.log_start(tp.partition) for tp, log in self._existing(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end of each partition."""
        return {tp: log.log_end(tp.partition) for tp, log in self._existing(partitions)}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, by partition."""
        times = {tp: _check_time(tp, time) for tp, time in timestamps.items()}
        return {tp: log.offset_for_time(tp.partition, times[tp]) for tp, log in self._existing(times)}


def _check_time(tp: TopicPartition, time: object) -> int:
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        raise errors.IllegalArgumentError(f"the target time for {tp} must be an int of ms, not {time!r}")
    number = operator.index(time)
    if number < 0:
        raise errors.IllegalArgumentError(f"the target time for {tp} is {number}; it must not be negative")
    return number


class RootCheck:
    """Refuses a root that has vanished or never held a cluster. Belongs to its consumer.

    If the root is missing, each poll looks. A root that has vanished (removed, or its file system is not mounted) and a
    misspelled one would look like roots without news, and a group would create a cluster there.

    Args:
        cluster: the cluster of the root.
        clock: time.
        opened: whether the caller has opened the cluster, which then may be empty, such as a `MemoryCluster`.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, opened: bool) -> None:
        self._cluster = cluster
        self._clock = clock
        self._due = clock.monotonic()
        self._there = False
        self._opened = opened

    def check(self, now: float, cause: errors.LogCorruptError | None = None) -> None:
        """Look at the root, if that is due. Caller: poll.

        Args:
            now: s of the monotonic clock.
            cause: error of a log that could not be read, which makes the look due.

        Raises:
            KafkaConnectionError: the root has vanished, or never held a cluster.
        """
        if cause is None and now < self._due:
            return
        if self._cluster.there and (self._there or self._opened or self._founded()):
            self._there, self._due = True, now + self._cluster.root_interval
        elif self._there:
            raise errors.KafkaConnectionError(
                f"the storage root {self._cluster.root} has vanished, or has lost its topics; check that its file "
                "system is mounted"
            ) from cause
        elif not self._opened:
            raise errors.KafkaConnectionError(
                f"{self._cluster.root} does not hold a cluster: check bootstrap_servers, or create one there with "
                "`kafkalike topics --create` or a producer"
            )

    def _founded(self) -> bool:
        """True if something was ever created there; in an object store, by the metadata that `there` has read."""
        return not self._cluster.store.scheduler.is_remote or bool(self._cluster.metadata.state.seq)
