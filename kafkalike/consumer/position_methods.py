"""Position methods of `KafkaConsumer`: positions, seeks and pauses of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalike.consumer.argument_checks import check_no_effect
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.delivery import Delivery
from kafkalike.consumer.poll_loop import PollLoop
from kafkalike.consumer.subscription import Mode, PartitionState, Reset, Subscription
from kafkalike.consumer.thread_guard import ThreadGuard, guarded
from kafkalike.errors import IllegalArgumentError, IllegalStateError, UnknownTopicOrPartitionError
from kafkalike.log.call_view import CallView
from kafkalike.log.group.group_offsets import check_offset
from kafkalike.model.structs import TopicPartition


class PositionMethods:
    """Positions of a consumer. `timeout_ms` arguments are kafka-python's and have no effect."""

    _context: ConsumerContext
    _guard: ThreadGuard
    _delivery: Delivery
    _polling: PollLoop
    _subscription: Subscription

    @guarded
    def paused(self) -> set[TopicPartition]:
        """Partitions that `pause` was called for."""
        return {tp for tp, state in self._subscription.items() if state.paused}

    @guarded
    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The next offset that will be handed out; found now if it is not known yet.

        As in Kafka, this also finds the positions of all other assigned partitions that have none.

        Raises:
            TypeError, IllegalStateError: it is no `TopicPartition`, or not assigned.
            UnknownTopicOrPartitionError: it does not exist.
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
            raise UnknownTopicOrPartitionError(f"{partition.topic}-{partition.partition} does not exist")
        return state.position

    @guarded
    def highwater(self, partition: TopicPartition) -> int | None:
        """Log end of a partition at its last look; None before the first one.

        Raises:
            TypeError, IllegalStateError: it is no `TopicPartition`, or not assigned.
        """
        return self._subscription.require(partition).highwater

    @guarded
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go to an offset, which is checked when it is read: one out of range is subject to `auto_offset_reset`.

        Raises:
            IllegalArgumentError: the partition is not assigned, or no int from 0 to 2**63-1 (a ValueError).
            TypeError: it is no `TopicPartition`.
        """
        wanted = check_offset(offset)
        state = self._held([partition])[partition]
        # First: an iteration that an interrupt left with its records would go on as if there had been no seek.
        self._delivery.drop()
        state.seek(wanted)

    @guarded
    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the log start, of all partitions when none is named; found at the next poll or `position`.

        Raises:
            IllegalArgumentError: a partition, or any partition at all, is not assigned (a ValueError).
            TypeError: it is no `TopicPartition`.
        """
        self._seek_to("earliest", partitions)

    @guarded
    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the log end; as `seek_to_beginning`."""
        self._seek_to("latest", partitions)

    def _seek_to(self, reset: Reset, partitions: Sequence[TopicPartition]) -> None:
        if not partitions and not len(self._subscription):
            raise IllegalArgumentError("no partitions are assigned")
        states = self._held(partitions or list(self._subscription))
        self._delivery.drop()
        for state in states.values():
            state.find(reset)

    @guarded
    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until `resume`; what was read stays in the buffer.

        Raises:
            TypeError, IllegalStateError: it is no `TopicPartition`, or not assigned.
        """
        for state in [self._subscription.require(tp) for tp in partitions]:
            state.pause(on=True)

    @guarded
    def resume(self, *partitions: TopicPartition) -> None:
        """Deliver records of these partitions again after `pause`."""
        for state in [self._subscription.require(tp) for tp in partitions]:
            state.pause(on=False)

    def _held(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        """States of partitions to seek in; kafka-python raises a ValueError for one that is not assigned."""
        try:
            return {tp: self._subscription.require(tp) for tp in partitions}
        except IllegalStateError as cause:
            raise IllegalArgumentError(str(cause)) from cause
