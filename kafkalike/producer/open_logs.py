"""Open logs: a topic's queue in, its log as it is now out; those that were not used for long are closed."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from kafkalike.errors import TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.producer.producer_batch import TopicQueue
from kafkalike.producer.record_accumulator import Buffer

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


JUST_SECONDS: Final = 1.0
"""How long ago the topics may have been read where a log is opened: its first append looks for itself."""

MAX_OPEN_LOGS: Final = 256
"""Topics that a producer keeps open: the least recently used ones are closed, but none that has records queued."""


class OpenLogs:
    """The logs that a producer writes to. Belongs to the sender.

    Args:
        cluster: where the topics are.
        buffer: where records wait.
        clock: time.
    """

    def __init__(self, cluster: Cluster, buffer: Buffer, clock: Clock) -> None:
        self._cluster = cluster
        self._buffer = buffer
        self._clock = clock
        self._used: OrderedDict[TopicQueue, None] = OrderedDict()
        """Topics whose log is open, the most recently used one last."""

    def current(self, queue: TopicQueue) -> TopicLog:
        """The log of a topic, as it is now.

        Raises:
            TopicDeletedError: this life of the topic is over.
            KafkaError: it cannot be opened or looked at.
        """
        log = queue.log
        try:
            if log is None:
                log = queue.log = self._cluster.log(queue.name, since=SYSTEM_CLOCK.monotonic() - JUST_SECONDS)
            else:
                # The append looks for itself, beside what it writes.
                log.refresh_info(waiting=True)
            self._note(queue)
        except TopicDeletedError:
            raise
        except UnknownTopicOrPartitionError as cause:
            raise TopicDeletedError(queue.name, queue.topic_id, None) from cause
        if log.info.topic_id != queue.topic_id:
            raise TopicDeletedError(queue.name, queue.topic_id, log.info.topic_id)
        queue.looked_at = self._clock.monotonic()
        if log.info.num_partitions != queue.num_partitions:
            queue.learn(log.info, queue.looked_at)
        return log

    def _note(self, queue: TopicQueue) -> None:
        """Note that a topic's log was used, and close those that were not for long."""
        self._used[queue] = None
        self._used.move_to_end(queue)
        excess = len(self._used) - MAX_OPEN_LOGS
        for old in list(self._used)[: max(0, excess)]:
            if old is not queue and (old.gone or self._buffer.drop_idle(old)):
                old.log = None
                del self._used[old]
