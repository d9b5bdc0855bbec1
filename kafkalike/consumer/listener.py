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

    The order of a change, which is Kafka's. Eager assignors, and consumers without a group: automatic commit,
    `on_partitions_revoked` with all partitions held so far (an empty set at the first time), then, when all members
    have done so, `on_partitions_assigned` with all partitions held from now on. Cooperative assignors: automatic
    commit, `on_partitions_revoked` with what goes, if anything does; `on_partitions_assigned` with what comes.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        """Called before partitions are given up; committing is still possible.

        Args:
            revoked: what is given up; with an eager assignor all partitions held so far.
        """

    @abstractmethod
    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Called after partitions were assigned and before they are read: the place to `seek`.

        Args:
            assigned: what is new; with an eager assignor all partitions held from now on.
        """

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        """Called when the group has taken this consumer for dead, or another has its static name: committing fails.

        Calls `on_partitions_revoked` unless it is overridden.

        Args:
            lost: all partitions held so far.
        """
        self.on_partitions_revoked(lost)
