"""Logs: topic names in, opened logs out, and what they say of offsets and times."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalike.consumer.subscription import check_partition
from kafkalike.errors import IllegalArgumentError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.model.structs import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


class Logs:
    """The opened logs of one consumer. Not thread-safe; belongs to its consumer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._logs: dict[str, TopicLog] = {}
        self._fresh: set[str] = set()
        self._asked = math.inf
        """Since when the answers of the storage will do in this round."""
        self.looked = math.inf
        """Since when looks at the topics will do in this poll; else none that was made before."""

    def new_round(self) -> None:
        """Let each log be looked at once more. Caller: fetcher and resolver, once per poll round."""
        self._fresh.clear()
        self._asked = math.inf

    def ahead(self, topics: Iterable[str], *, waiting: bool = False) -> None:
        """Look at several topics of this round side by side, so that `of` waits for none of them.

        What goes wrong is met again by `of`, in its turn.
        """
        wanted = set(topics)
        known = self._logs.keys() & wanted
        self._asked = self._cluster.look_ahead([self._logs[topic] for topic in known], waiting=waiting)
        opened = self._cluster.open_ahead(wanted - known)
        self._logs.update(opened)
        self._fresh.update(opened)

    def of(self, topic: str, topic_id: str | None, *, waiting: bool = False) -> TopicLog:
        """The log of a topic that the consumer stands in, looked at in this round.

        Args:
            topic: the name.
            topic_id: of the topic.
            waiting: see `TopicLog.refresh`.

        Raises:
            TopicDeletedError: the topic of that id is gone; says what the name is now.
        """
        log = self._logs.get(topic)
        if log is None or topic not in self._fresh:
            try:
                # The metadata are one table for all topics: a look at it in each round is enough.
                log = self.fresh(topic, metadata=not self._fresh, waiting=waiting)
            except UnknownTopicOrPartitionError as cause:
                raise TopicDeletedError(topic, topic_id or "", None) from cause
        if log.info.topic_id != topic_id:
            raise TopicDeletedError(topic, topic_id or "", log.info.topic_id)
        return log

    def fresh(self, topic: str, *, metadata: bool = True, waiting: bool = False) -> TopicLog:
        """The log of the topic that has a name now, looked at now.

        Args:
            topic: the name.
            metadata: whether to look at the cluster's metadata, too.
            waiting: see `TopicLog.refresh`.

        Raises:
            UnknownTopicOrPartitionError: there is none.
        """
        log = self._logs.pop(topic, None)
        if log is not None:
            try:
                log.refresh(metadata=metadata, waiting=waiting, since=self._asked)
            except TopicDeletedError:
                log = None
        if log is None:
            log = self._cluster.log(topic, since=self.looked)
        self._logs[topic] = log
        self._fresh.add(topic)
        return log

    @property
    def opened(self) -> list[TopicLog]:
        """The logs that are open, as they were when they were looked at last."""
        return list(self._logs.values())

    def forget(self) -> None:
        """Let go of all logs."""
        self._logs.clear()
        self._fresh.clear()

    # --- questions that do not need an assignment ----------------------------------------------

    def _existing(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, TopicLog]]:
        """Partitions with their logs, each log looked at once."""
        wanted = [check_partition(tp) for tp in partitions]
        topics = sorted({tp.topic for tp in wanted})
        self.new_round()
        self.ahead(topics)
        for topic in topics:
            if topic not in self._fresh:
                self.fresh(topic, metadata=not self._fresh)
        logs = {topic: self._logs[topic] for topic in topics}
        for tp in wanted:
            count = logs[tp.topic].info.num_partitions
            if tp.partition >= count:
                raise UnknownTopicOrPartitionError(
                    f"{tp.topic}-{tp.partition} does not exist: the topic has partitions 0 to {count - 1}"
                )
        return [(tp, logs[tp.topic]) for tp in wanted]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Log start by partition."""
        return {tp: log.log_start(tp.partition) for tp, log in self._existing(partitions)}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Log end by partition."""
        return {tp: log.log_end(tp.partition) for tp, log in self._existing(partitions)}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, by partition."""
        times = {tp: _check_time(tp, time) for tp, time in timestamps.items()}
        return {tp: log.offset_for_time(tp.partition, times[tp]) for tp, log in self._existing(times)}


def _check_time(tp: TopicPartition, time: object) -> int:
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        raise IllegalArgumentError(f"the target time for {tp} must be an int of ms, not {time!r}")
    number = operator.index(time)
    if number < 0:
        raise IllegalArgumentError(f"the target time for {tp} is {number}; it must not be negative")
    return number
