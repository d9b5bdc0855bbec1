"""ConsumerRebalanceListener: what a user implements to hear of partitions that come and go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set as AbstractSet

from kafkalike.model.structs import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Hears of changes of the assignment; given to `KafkaConsumer.subscribe`.

    Called by the thread that calls `poll`, `unsubscribe` or `close`, and only for subscriptions, never after
    `assign`. Inside a callback the consumer may be asked, sought and committed, but not polled, subscribed or closed:
    that raises `IllegalStateError`. What a callback raises is raised by the call it runs in, as the cause of a
    `KafkaError`, after the change of the assignment is finished.

    The order of a change, which is that of Kafka's eager rebalance: automatic commit, `on_partitions_revoked` with
    all partitions held so far (an empty set at the first time), the new assignment, `on_partitions_assigned` with
    all partitions held from now on. A partition held before and after keeps its position.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        """Called before partitions are given up; committing is still possible.

        Args:
            revoked: all partitions held so far.
        """

    @abstractmethod
    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Called after partitions were assigned and before they are read: the place to `seek`.

        Args:
            assigned: all partitions held from now on.
        """

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        """Called when another member has taken the group over, so that committing fails.

        Calls `on_partitions_revoked` unless it is overridden.

        Args:
            lost: all partitions held so far.
        """
        self.on_partitions_revoked(lost)
