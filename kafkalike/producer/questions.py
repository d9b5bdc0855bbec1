"""Questions: the methods of `KafkaProducer` that only ask; its parts in, answers out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalike.errors import IllegalStateError, KafkaConnectionError, KafkaStorageError
from kafkalike.log.cluster.cluster import request_metrics
from kafkalike.model.config.producer import ProducerConfig
from kafkalike.model.topic import TopicInfo
from kafkalike.producer.record_accumulator import Buffer
from kafkalike.producer.sender import Sender

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


class Questions:
    """What a producer can be asked."""

    config: ProducerConfig
    _cluster: Cluster
    _buffer: Buffer
    _sender: Sender

    def partitions_for(self, topic: str) -> set[int]:
        """Partition numbers of a topic, fresh; a missing topic is created when that is allowed.

        Raises:
            UnknownTopicOrPartitionError: no such topic, and none may be created.
            InvalidTopicError: a name that no topic can have.
            IllegalStateError: closed, or used after a fork.
        """
        if self._buffer.refusal is not None:
            raise IllegalStateError(self._buffer.refusal)
        return set(self._look_up(topic).partitions)

    def bootstrap_connected(self) -> bool:
        """Whether the storage root can be read now."""
        try:
            self._cluster.metadata.refresh()
        except (KafkaConnectionError, KafkaStorageError):
            return False
        return True

    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:  # noqa: FBT001, FBT002 - kafka-python's
        """Totals since the producer was made, `{group: {name: number}}` with Kafka's names; times in ms.

        With a root in an object store, `object-store-metrics` are the requests of this process there, by kind: all
        that its clients of that root have made.

        Args:
            raw: `{(group, name): number}` instead.

        Returns:
            None with `metrics_enabled=False`.
        """
        if not self.config.metrics_enabled:
            return None
        groups = self._sender.metrics.by_group(limit=self._buffer.limit, used=self._buffer.used) | request_metrics(
            self._cluster.requests
        )
        if not raw:
            return groups
        return {(group, name): number for group, names in groups.items() for name, number in names.items()}

    def _look_up(self, topic: str) -> TopicInfo:
        create = self.config.allow_auto_create_topics
        return self._cluster.ensure_topic(topic) if create else self._cluster.topic(topic)
