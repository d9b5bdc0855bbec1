"""Offset commits: a consumer commits its positions for its group, and starts from the committed offsets."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kafkalike import errors
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.subscription import PartitionState, Reset
from kafkalike.log.call_view import CallView
from kafkalike.log.group.membership import Membership
from kafkalike.model.concurrency import ReportErrors
from kafkalike.model.structs import ConsumerRecord, OffsetAndMetadata, SettableFuture, TopicPartition


class CommitFuture:
    """The outcome of `commit_async`, which is known when it returns.

    Args:
        exception: the error; None for success, whose value is None.
    """

    __slots__ = ("exception", "is_done", "value")

    def __init__(self, exception: errors.KafkaError | None = None) -> None:
        self.exception = exception
        self.value = None
        self.is_done = True

    def get(self, timeout: float | None = None) -> None:
        """Return the value, which is None, or raise the error. Never waits, whatever `timeout` (seconds)."""
        del timeout
        if self.exception is not None:
            raise self.exception

    def succeeded(self) -> bool:
        """True if the offsets are committed."""
        return self.exception is None

    def failed(self) -> bool:
        """True if the commit failed."""
        return self.exception is not None

    def retriable(self) -> bool:
        """True if a retry may succeed."""
        return self.exception is not None and self.exception.retriable

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> CommitFuture:  # noqa: ANN401
        """Call `f(*args, None, **kwargs)` now if it succeeded. An error of `f` is logged."""
        if self.exception is None:
            _call(f, *args, None, **kwargs)
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> CommitFuture:  # noqa: ANN401
        """Call `f(*args, exception, **kwargs)` now if it failed. An error of `f` is logged."""
        if self.exception is not None:
            _call(f, *args, self.exception, **kwargs)
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> CommitFuture:  # noqa: ANN401
        """Call `f` now, with the value or the exception."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: SettableFuture) -> CommitFuture:
        """Pass the outcome on to another future."""
        if self.exception is None:
            future.success(self.value)
        else:
            future.failure(self.exception)
        return self


def _call(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    with ReportErrors(log, "a callback of commit_async failed"):
        f(*args, **kwargs)


log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, errors.KafkaError | None], Any]

REPEAT_SECONDS: Final = 3600.0
"""Automatic commits of unchanged positions are skipped, because each is a table version. After this time one is made,
so that the offsets of a group that uses `assign` do not expire while it waits for records."""


class OffsetCommits:
    """Commits for one consumer. Belongs to its consumer's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._cluster = context.cluster
        self._subscription = context.subscription
        self._offsets = context.offsets
        self._group_member = context.member
        self._letters = context.letters
        self._letter_commits = context.letter_commits
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._due = 0.0
        self._last: tuple[Offsets, float] | None = None
        """Offsets and time of the last successful automatic commit."""
        self._completed: deque[tuple[CommitCallback, Offsets, errors.KafkaError | None]] = deque()
        self.restart_timer()

    @property
    def automatic(self) -> bool:
        """True if positions are committed automatically."""
        return self._config.enable_auto_commit and self._config.group_id is not None

    def restart_timer(self) -> None:
        """Restart the interval of automatic commits. Caller: assigner, after a rebalance."""
        self._due = self._clock.monotonic() + self._config.auto_commit_interval_ms / 1000

    # --- at request ----------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None, timeout_ms: float | None) -> None:
        """Commit offsets, or all positions when None. See `KafkaConsumer.commit`."""
        checked = self._offsets.checked(self._wanted(offsets))
        if not checked:
            return
        self._last = None
        try:
            member = self._member()
            generation = self._commit(member, checked, timeout_ms)
        except errors.KafkaError:
            self._metrics.failed_commits += 1
            raise
        if self._group_member is not None and generation > member.generation:
            self._group_member.saw(generation)
        self._metrics.commits += 1

    def _wanted(self, offsets: object) -> Offsets:
        """Return the offsets to commit: the given ones, or all positions when None.

        Raises:
            IllegalStateError: the consumer has no group.
            TypeError: the offsets are not a mapping.
        """
        if self._config.group_id is None:
            raise errors.IllegalStateError("a commit needs a group_id; set it when the consumer is made")
        if offsets is None:
            return self._subscription.positions()
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets must map TopicPartition to OffsetAndMetadata, not {offsets!r}")
        return offsets

    def _commit(self, member: Membership, offsets: Offsets, timeout_ms: float | None) -> int:
        """Commit checked offsets together with the dead letters below them; return the group's generation."""
        ids = self._topic_ids(offsets)
        if self._letters is None or self._letter_commits is None:
            return self._offsets.commit_checked(member, offsets, ids, timeout_ms)
        if self._letter_commits.commit(member, offsets, ids, timeout_ms):
            generation = self._offsets.generation_of(member, next(iter(offsets)))
        else:
            generation = self._offsets.commit_checked(member, offsets, ids, timeout_ms)
        from kafkalike.log.dead_letter_buffer import plain

        self._letters.settle(plain(offsets))
        return generation

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> CommitFuture:
        """Commit now, and call the callback later. See `KafkaConsumer.commit_async`."""
        wanted = dict(self._wanted(offsets))
        error: errors.KafkaError | None = None
        try:
            self.commit(wanted, self._config.default_api_timeout_ms)
        except errors.KafkaError as cause:
            error = cause
        self._completed.append((callback or self._default_callback, wanted, error))
        return CommitFuture(error)

    def run_callbacks(self) -> None:
        """Call the callbacks of finished commits. Caller: client, at the start of poll, commit and close."""
        while self._completed:
            callback, offsets, error = self._completed.popleft()
            callback(offsets, error)

    def _default_callback(self, offsets: Offsets, error: errors.KafkaError | None) -> None:
        if self._config.default_offset_commit_callback is not None:
            self._config.default_offset_commit_callback(offsets, error)
        elif error is not None:
            log.warning("group %s: offsets were not committed: %s", self._config.group_id, error)

    # --- at intervals --------------------------------------------------------------------------

    def commit_if_due(self, view: CallView) -> None:
        """Commit the positions if the interval is over.

        Caller: client, in poll, before it fetches: all delivered records have been processed by then.
        """
        full = self._letters is not None and self._letters.full
        if self.automatic and (full or view.now >= self._due):
            self.restart_timer()
            self.commit_automatically()

    def commit_automatically(self, timeout_ms: float | None = None) -> None:
        """Commit the positions now, if automatic commits are on; errors go to the callback."""
        positions = self._subscription.positions()
        if not self.automatic or not positions or self._unchanged(positions):
            return
        error: errors.KafkaError | None = None
        try:
            self.commit(positions, self._config.default_api_timeout_ms if timeout_ms is None else timeout_ms)
            self._last = (positions, self._clock.monotonic())
        except errors.KafkaError as cause:
            error = cause
            if cause.retriable:
                self._due = min(self._due, self._clock.monotonic() + self._config.retry_backoff_ms / 1000)
        self._default_callback(positions, error)

    def forget(self) -> None:
        """Forget the last commit, because another assignment or membership begins. Caller: assigner."""
        self._last = None

    def _unchanged(self, positions: Offsets) -> bool:
        return (
            self._last is not None
            and self._last[0] == positions
            and self._clock.monotonic() - self._last[1] < REPEAT_SECONDS
        )

    # --- in whose name, of which topics --------------------------------------------------------

    def _member(self) -> Membership:
        group_id = self._config.group_id
        assert group_id is not None, "`_wanted` has checked it"
        if not self._subscription.automatic:
            return Membership(group_id=group_id, client_id=self._config.client_id)
        membership = None if self._group_member is None else self._group_member.membership
        if membership is None:
            raise errors.CommitFailedError(
                f"group {group_id!r}: offsets were not committed: this consumer is not its member; poll() joins it"
            )
        return membership

    def _topic_ids(self, offsets: Offsets) -> dict[str, str]:
        """Return the ids of the topics, which must be those the consumer has read."""
        topics = self._cluster.metadata.refresh().topics
        ids: dict[str, str] = {}
        for tp in offsets:
            info = topics.get(tp.topic)
            state = self._subscription.get(tp)
            known = None if state is None else state.topic_id
            if known is not None and (info is None or info.topic_id != known):
                if info is not None and info.partitions_as(known) is not None:
                    raise errors.RebalanceInProgressError(
                        f"topic {tp.topic!r} was repartitioned: no offset was committed; poll() continues with its "
                        f"{info.num_partitions} partitions, from the offsets committed before"
                    )
                raise errors.TopicDeletedError(tp.topic, known, None if info is None else info.topic_id)
            if info is None or not 0 <= tp.partition < info.num_partitions:
                raise errors.UnknownTopicOrPartitionError(
                    f"{tp.topic}-{tp.partition} does not exist; no offset was committed"
                )
            ids[tp.topic] = info.topic_id
        return ids


Polled = Mapping[TopicPartition, Sequence[ConsumerRecord]]
"""The result of `KafkaConsumer.poll`: records in offset order, at least one per partition."""


def offsets_after(polled: Polled) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets after the records, for `send_offsets_to_transaction`."""
    return {tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in polled.items()}


class StartPositions:
    """Resolves missing positions: the committed offset, else `auto_offset_reset`. Belongs to its consumer.

    Partitions that are added to a topic while it is read begin as any partition without a committed offset: at
    `auto_offset_reset`, which is Kafka's rule. With `latest`, records written to them before they were noticed are
    skipped.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self.awaited: set[str] = set()
        """Topics that were missing when they were requested by name: they begin at their log start."""
        self.carried: dict[tuple[TopicPartition, str], int] = {}
        """By partition and topic id, where this consumer was in the partition that a repartition has split: the start
        unless the group has a committed offset."""
        self._logs = context.logs
        self._subscription = context.subscription
        self._offsets = context.offsets
        self._config = context.config
        self._seen = -1
        """Subscription changes after which no position was missing."""

    def resolve(self, view: CallView) -> None:
        """Resolve the missing positions of existing topics.

        Caller: client, before it fetches or returns a position. Changes: positions.

        Args:
            view: the call's.

        Raises:
            NoOffsetForPartitionError: nothing is committed and `auto_offset_reset` is `none`.
            TopicDeletedError: the topic was deleted meanwhile.
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
        for tp, state in missing:
            at = self.carried.pop((tp, state.topic_id or ""), None)
            if at is not None and state.position is None and state.reset is None:
                state.seek(at)
        without = [tp for tp, state in missing if state.position is None and self._reset_of(tp, state) is None]
        if without:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in without)
            raise errors.NoOffsetForPartitionError(
                f"no committed offset and auto_offset_reset='none': {names}; call seek(), or set another policy"
            )
        still = [(tp, state) for tp, state in missing if state.position is None]
        self._logs.ahead((tp.topic for tp, _ in still), view)
        for tp, state in still:
            self._reset(tp, state, view)
        self.awaited -= {tp.topic for tp, _ in missing}

    def _take_committed(self, missing: Iterable[tuple[TopicPartition, PartitionState]]) -> None:
        """Start from the group's committed offsets, except after a seek."""
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
        except errors.TopicDeletedError as error:
            if not self._logs.is_repartitioned(error):
                self._subscription.forget_topic(tp.topic)
            raise
        earliest = self._reset_of(tp, state) == "earliest"
        state.highwater = topic_log.log_end(tp.partition)
        state.seek(topic_log.log_start(tp.partition) if earliest else topic_log.log_end(tp.partition))
        log.info("%s-%s begins at offset %s", tp.topic, tp.partition, state.position)
