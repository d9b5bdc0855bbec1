"""Start positions: partitions without a position in; committed offset, else `auto_offset_reset`, out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.subscription import PartitionState, Reset
from kafkalike.errors import NoOffsetForPartitionError, TopicDeletedError
from kafkalike.log.call_view import CallView
from kafkalike.model.structs import TopicPartition

log = logging.getLogger(__name__)


class StartPositions:
    """Finds positions. Belongs to its consumer.

    Partitions that are added to a topic while it is read begin as any partition without a committed offset:
    at `auto_offset_reset`, which is Kafka's rule. With `latest`, records written to them before they were noticed are
    passed over.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self.awaited: set[str] = set()
        """Topics that were missing when they were asked for by name: they begin at their log start."""
        self._logs = context.logs
        self._subscription = context.subscription
        self._offsets = context.offsets
        self._config = context.config
        self._seen = -1
        """Changes of the subscription after which no position was missing."""

    def resolve(self, view: CallView) -> None:
        """Find the positions that are missing and whose topic exists.

        Caller: client, before it fetches or returns a position. Changes: positions.

        Args:
            view: the call's.

        Raises:
            NoOffsetForPartitionError: nothing is committed and `auto_offset_reset` is `none`.
            TopicDeletedError: the topic went away under the consumer.
        """
        changes = self._subscription.changes
        if changes.count == self._seen:
            return
        missing = [
            (tp, state)
            for tp, state in self._subscription.items()
            if state.position is None and state.topic_id is not None
        ]
        if missing:
            self._find(missing, view)
        self._seen = changes.count

    def _find(self, missing: Sequence[tuple[TopicPartition, PartitionState]], view: CallView) -> None:
        self._take_committed(missing)
        without = [tp for tp, state in missing if state.position is None and self._reset_of(tp, state) is None]
        if without:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in without)
            raise NoOffsetForPartitionError(f"no committed offset and auto_offset_reset='none': {names}")
        still = [(tp, state) for tp, state in missing if state.position is None]
        self._logs.ahead((tp.topic for tp, _ in still), view)
        for tp, state in still:
            self._reset(tp, state, view)
        self.awaited -= {tp.topic for tp, _ in missing}

    def _take_committed(self, missing: Iterable[tuple[TopicPartition, PartitionState]]) -> None:
        """Go on from what the group committed, where no seek said otherwise."""
        wanted = {tp: state for tp, state in missing if state.reset is None}
        group_id = self._config.group_id
        if group_id is None or not wanted:
            return
        ids = {tp.topic: state.topic_id or "" for tp, state in wanted.items()}
        for tp, position in self._offsets.committed(group_id, wanted, ids).items():
            wanted[tp].seek(position.offset)

    def _reset_of(self, tp: TopicPartition, state: PartitionState) -> Reset | None:
        """Return the reset policy of a partition without a committed offset; None if the user must choose."""
        if state.reset is not None:
            return state.reset
        if tp.topic in self.awaited:
            return "earliest"
        policy = self._config.auto_offset_reset
        return "earliest" if policy == "earliest" else "latest" if policy == "latest" else None

    def _reset(self, tp: TopicPartition, state: PartitionState, view: CallView) -> None:
        try:
            topic_log = self._logs.of(tp.topic, state.topic_id, view)
        except TopicDeletedError:
            self._subscription.forget_topic(tp.topic)
            raise
        earliest = self._reset_of(tp, state) == "earliest"
        state.highwater = topic_log.log_end(tp.partition)
        state.seek(topic_log.log_start(tp.partition) if earliest else topic_log.log_end(tp.partition))
        log.info("%s-%s begins at offset %s", tp.topic, tp.partition, state.position)
