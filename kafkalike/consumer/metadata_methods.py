"""Metadata methods of `KafkaConsumer`: what it, its cluster and its group can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, overload

from kafkalike.consumer.argument_checks import check_no_effect
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.poll_loop import PollLoop
from kafkalike.consumer.subscription import Subscription
from kafkalike.consumer.thread_guard import ThreadGuard, guarded, readable
from kafkalike.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaStorageError,
)
from kafkalike.log.group.group_offsets import MetadataOfReader
from kafkalike.model.config.consumer_config import ConsumerConfig
from kafkalike.model.names import check_topic_name
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class MetadataMethods:
    """Questions to a consumer. None of these methods changes the records that `poll` returns.

    `timeout_ms` arguments are kafka-python's; none of these methods waits for anything, so they have no effect.
    """

    config: ConsumerConfig
    _context: ConsumerContext
    _guard: ThreadGuard
    _polling: PollLoop
    _subscription: Subscription

    # --- the consumer itself -------------------------------------------------------------------

    @guarded
    def subscription(self) -> set[str] | None:
        """Topics subscribed to: those named, or those that matched the pattern at the last poll; None without one."""
        return set(self._subscription.topics) if self._subscription.automatic else None

    @readable
    def assignment(self) -> set[TopicPartition]:
        """Partitions read; those of a subscription are there after the first poll. Any thread may ask."""
        return set(self._subscription)

    @guarded
    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:  # noqa: FBT001, FBT002 - kafka-python's
        """Totals since the consumer was made, `{group: {name: number}}` with Kafka's names.

        With a root in an object store, `object-store-metrics` are the requests of this process there, by kind: all
        that its clients of that root have made.

        Args:
            raw: `{(group, name): number}` instead.

        Returns:
            None with `metrics_enabled=False`.
        """
        if not self.config.metrics_enabled:
            return None
        from kafkalike.log.cluster.cluster import request_metrics

        groups = self._context.metrics.by_group(self._subscription) | request_metrics(self._context.cluster.requests)
        if not raw:
            return groups
        return {(group, name): number for group, names in groups.items() for name, number in names.items()}

    # --- the cluster ---------------------------------------------------------------------------

    @guarded
    def bootstrap_connected(self) -> bool:
        """True if the storage root can be read now."""
        try:
            self._context.cluster.metadata.refresh()
        except (KafkaConnectionError, KafkaStorageError):
            return False
        return True

    @guarded
    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Names of all topics, fresh."""
        check_no_effect(timeout_ms)
        return set(self._context.cluster.metadata.refresh().topics)

    @guarded
    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Partition numbers of a topic, fresh; empty when there is no such topic.

        Raises:
            InvalidTopicError: a name that no topic can have.
        """
        check_no_effect(timeout_ms)
        info = self._context.cluster.metadata.refresh().topics.get(check_topic_name(topic))
        return set() if info is None else set(info.partitions)

    @guarded
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """First offset that can be read, by partition; they need not be assigned.

        Raises:
            UnknownTopicOrPartitionError: one does not exist (kafka-python waits for it).
            TypeError: anything but `TopicPartition`.
        """
        check_no_effect(timeout_ms)
        return self._context.logs.beginning_offsets(partitions)

    @guarded
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Offset of the next record to be written, by partition: last one + 1. Errors as `beginning_offsets`."""
        check_no_effect(timeout_ms)
        return self._context.logs.end_offsets(partitions)

    @guarded
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record, in offset order, whose timestamp is at or after a time, by partition.

        Args:
            timestamps: ms since the epoch, by partition; they need not be assigned.
            timeout_ms: no effect.

        Returns:
            None for a partition that has no such record.

        Raises:
            IllegalArgumentError: a time that is no int, or negative (a ValueError).
            UnknownTopicOrPartitionError: a partition that does not exist.
        """
        check_no_effect(timeout_ms)
        return self._context.logs.offsets_for_times(timestamps)

    # --- the group -----------------------------------------------------------------------------

    @overload
    def committed(
        self, partition: TopicPartition, metadata: Literal[False] = ..., timeout_ms: float | None = ...
    ) -> int | None: ...

    @overload
    def committed(
        self, partition: TopicPartition, metadata: Literal[True], timeout_ms: float | None = ...
    ) -> OffsetAndMetadata | None: ...

    def committed(
        self,
        partition: TopicPartition,
        metadata: bool = False,  # noqa: FBT001, FBT002 - kafka-python's
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """The offset that the group committed, fresh, whoever committed it.

        Args:
            partition: it need not be assigned.
            metadata: True for `OffsetAndMetadata` instead of the offset alone.
            timeout_ms: no effect.

        Returns:
            None when nothing was committed, or only for a topic of the same name that was deleted since.

        Raises:
            IllegalStateError: there is no `group_id`.
            TypeError: it is no `TopicPartition`.
        """
        check_no_effect(timeout_ms)
        with self._guard:
            found = self._committed(partition)
        return found if metadata or found is None else found.offset

    def _committed(self, partition: object) -> OffsetAndMetadata | None:
        group_id = self._group_id()
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"a TopicPartition is needed, not {partition!r}")
        info = self._context.cluster.metadata.refresh().topics.get(partition.topic)
        if info is None:
            return None
        return self._context.offsets.committed(group_id, [partition], {info.name: info.topic_id}).get(partition)

    @readable
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The membership in the group; without a group or before the first poll it is `<unjoined>`.

        A snapshot, which any thread may ask for. With `errors_tolerance='all'` a transaction that is given it, by
        `send_offsets_to_transaction`, writes the dead letters below the offsets that it commits.
        """
        held, letters = self._context.subscription.held, self._context.letters
        topic_ids = {tp.topic: topic_id for tp, topic_id in list(held.items()) if topic_id is not None}
        known = MetadataOfReader.knowing(self._group_metadata(), tuple(sorted(topic_ids.items())))
        if letters is None:
            return known
        from kafkalike.log.dead_letters.dead_letter_buffer import MetadataWithLetters

        return MetadataWithLetters.of(known, letters)

    def _group_metadata(self) -> ConsumerGroupMetadata:
        mine = self._context.member
        member = None if mine is None else mine.membership
        if member is None:
            return ConsumerGroupMetadata(group_id=self.config.group_id, group_instance_id=self.config.group_instance_id)
        return ConsumerGroupMetadata(
            group_id=member.group_id,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=self.config.group_instance_id,
            state="<rebalancing>" if self._polling.assigner.waiting else "<stable>",
        )

    # --- shared with the methods that change something -----------------------------------------

    def _group_id(self) -> str:
        """The group.

        Raises:
            IllegalStateError: there is none.
        """
        if self.config.group_id is None:
            raise IllegalStateError("this needs a group_id")
        return self.config.group_id
