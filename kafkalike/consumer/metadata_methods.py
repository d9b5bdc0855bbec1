"""Metadata methods of `KafkaConsumer`: questions to it, its cluster and its group; positions, seeks, pauses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

from kafkalike import errors
from kafkalike.consumer.call_checks import ThreadGuard, check_no_effect, guarded, readable
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.delivery import Delivery
from kafkalike.consumer.poll_loop import PollLoop
from kafkalike.consumer.subscription import Mode, PartitionState, Reset, Subscription
from kafkalike.log.call_view import CallView
from kafkalike.log.group.group_offsets import MetadataOfReader, check_offset
from kafkalike.model.config.consumer_config import ConsumerConfig
from kafkalike.model.names import check_topic_name
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class MetadataMethods:
    """Questions to a consumer. None of these methods changes the records that `poll` returns.

    `timeout_ms` arguments are kafka-python's; they have no effect, because none of these methods waits.
    """

    config: ConsumerConfig
    _context: ConsumerContext
    _guard: ThreadGuard
    _polling: PollLoop
    _subscription: Subscription

    # --- the consumer itself -------------------------------------------------------------------

    @guarded
    def subscription(self) -> set[str] | None:
        """Topics of the subscription: the given names, or the pattern's matches at the last poll; None without one."""
        return set(self._subscription.topics) if self._subscription.automatic else None

    @readable
    def assignment(self) -> set[TopicPartition]:
        """Assigned partitions. A subscription gets them with the first poll. Any thread may call this."""
        return set(self._subscription)

    @guarded
    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:  # noqa: FBT001, FBT002 - kafka-python's
        """Totals since the consumer was made, `{group: {name: number}}` with Kafka's names.

        With a root in an object store, `object-store-metrics` counts the requests of this process to the root, by kind,
        of all its clients.

        Args:
            raw: return `{(group, name): number}` instead.

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
        except (errors.KafkaConnectionError, errors.KafkaStorageError):
            return False
        return True

    @guarded
    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Names of all topics, fresh."""
        check_no_effect(timeout_ms)
        return set(self._context.cluster.metadata.refresh().topics)

    @guarded
    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of a topic, fresh; empty if the topic does not exist.

        Raises:
            InvalidTopicError: an invalid topic name.
        """
        check_no_effect(timeout_ms)
        info = self._context.cluster.metadata.refresh().topics.get(check_topic_name(topic))
        return set() if info is None else set(info.partitions)

    @guarded
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first readable offset of each partition, assigned or not.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist (kafka-python waits for it).
            TypeError: anything but `TopicPartition`.
        """
        check_no_effect(timeout_ms)
        return self._context.logs.beginning_offsets(partitions)

    @guarded
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the next offset to be written, by partition: last one + 1. Errors as `beginning_offsets`."""
        check_no_effect(timeout_ms)
        return self._context.logs.end_offsets(partitions)

    @guarded
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record, in offset order, whose timestamp is at or after a time, by partition.

        Args:
            timestamps: ms since the epoch, by partition, assigned or not.
            timeout_ms: no effect.

        Returns:
            None for a partition without such a record.

        Raises:
            IllegalArgumentError: a time that is not an int, or negative (a ValueError).
            UnknownTopicOrPartitionError: a partition does not exist.
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
        """Return the group's committed offset, fresh, from any of its members.

        Args:
            partition: assigned or not.
            metadata: True for `OffsetAndMetadata` instead of the offset alone.
            timeout_ms: no effect.

        Returns:
            None if nothing was committed, or only for a deleted topic of the same name.

        Raises:
            IllegalStateError: there is no `group_id`.
            TypeError: not a `TopicPartition`.
        """
        check_no_effect(timeout_ms)
        with self._guard:
            found = self._committed(partition)
        return found if metadata or found is None else found.offset

    def _committed(self, partition: object) -> OffsetAndMetadata | None:
        group_id = self.config.group_id
        if group_id is None:
            raise errors.IllegalStateError("this call needs a group_id; set it when the consumer is made")
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"a TopicPartition is needed, not {partition!r}")
        info = self._context.cluster.metadata.refresh().topics.get(partition.topic)
        if info is None:
            return None
        return self._context.offsets.committed(group_id, [partition], {info.name: info.topic_id}).get(partition)

    @readable
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the membership in the group, `<unjoined>` without a group or before the first poll.

        A snapshot, which any thread may request. With `errors_tolerance='all'`, a transaction that gets it through
        `send_offsets_to_transaction` writes the dead letters below the offsets that it commits.
        """
        held, letters = self._context.subscription.held, self._context.letters
        topic_ids = {tp.topic: topic_id for tp, topic_id in list(held.items()) if topic_id is not None}
        known = MetadataOfReader.knowing(self._group_metadata(), tuple(sorted(topic_ids.items())))
        if letters is None:
            return known
        from kafkalike.log.dead_letter_buffer import MetadataWithLetters

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


class PositionMethods:
    """Positions of a consumer. `timeout_ms` arguments are kafka-python's and have no effect."""

    _context: ConsumerContext
    _guard: ThreadGuard
    _delivery: Delivery
    _polling: PollLoop
    _subscription: Subscription

    @guarded
    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {tp for tp, state in self._subscription.items() if state.paused}

    @guarded
    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the next offset to be delivered; resolve it now if it is unknown.

        As in Kafka, this also resolves the positions of all other assigned partitions without one.

        Raises:
            TypeError, IllegalStateError: not a `TopicPartition`, or not assigned.
            UnknownTopicOrPartitionError: the partition does not exist.
            NoOffsetForPartitionError: nothing is committed, for this or another assigned partition, and
                `auto_offset_reset` is `none`.
        """
        check_no_effect(timeout_ms)
        state = self._subscription.require(partition)
        view = CallView(self._context.cluster, self._context.clock.monotonic())
        if state.position is None and self._subscription.mode is Mode.ASSIGNED:
            self._polling.assigner.look(view)
        self._polling.positions.resolve(view)
        if state.position is None:
            raise errors.UnknownTopicOrPartitionError(f"{partition.topic}-{partition.partition} does not exist")
        return state.position

    @guarded
    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the log end of a partition at its last look; None before the first one.

        Raises:
            TypeError, IllegalStateError: not a `TopicPartition`, or not assigned.
        """
        return self._subscription.require(partition).highwater

    @guarded
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move to an offset, which is checked at the next read: `auto_offset_reset` applies if it is out of range.

        Raises:
            IllegalArgumentError: the partition is not assigned, or the offset is not an int from 0 to 2**63-1 (a
                ValueError).
            TypeError: not a `TopicPartition`.
        """
        wanted = check_offset(offset)
        state = self._held([partition])[partition]
        # First, because an iteration that kept its records after an interrupt would ignore the seek.
        self._delivery.drop()
        state.seek(wanted)

    @guarded
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Move to the log start, of all partitions by default; resolved at the next poll or `position`.

        Raises:
            IllegalArgumentError: a partition, or any partition at all, is not assigned (a ValueError).
            TypeError: not a `TopicPartition`.
        """
        self._seek_to("earliest", partitions)

    @guarded
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Move to the log end; as `seek_to_beginning`."""
        self._seek_to("latest", partitions)

    def _seek_to(self, reset: Reset, partitions: Sequence[TopicPartition]) -> None:
        if not partitions and not len(self._subscription):
            raise errors.IllegalArgumentError("no partitions are assigned")
        states = self._held(partitions or list(self._subscription))
        self._delivery.drop()
        for state in states.values():
            state.find(reset)

    @guarded
    def pause(self, *partitions: TopicPartition) -> None:
        """Deliver no records of these partitions until `resume`; records that were read stay in the buffer.

        Raises:
            TypeError, IllegalStateError: not a `TopicPartition`, or not assigned.
        """
        for state in [self._subscription.require(tp) for tp in partitions]:
            state.pause(on=True)

    @guarded
    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these partitions again after `pause`."""
        for state in [self._subscription.require(tp) for tp in partitions]:
            state.pause(on=False)

    def _held(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """Return the states of partitions to seek in; as in kafka-python, an unassigned partition is a ValueError."""
        try:
            return {tp: self._subscription.require(tp) for tp in partitions}
        except errors.IllegalStateError as cause:
            raise errors.IllegalArgumentError(str(cause)) from cause
