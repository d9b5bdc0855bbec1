"""KafkaConsumer: kafka-python's consumer over a cluster of Delta tables, from `subscribe` to `close`."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, Unpack

from kafkalike.connect import connect
from kafkalike.consumer.call_checks import ThreadGuard, check_deserializer, check_timeout, guarded
from kafkalike.consumer.consumer_context import ConsumerContext
from kafkalike.consumer.delivery import AsyncRecords, Delivery, by_partition
from kafkalike.consumer.fetcher import FetchedRecords
from kafkalike.consumer.metadata_methods import MetadataMethods, PositionMethods
from kafkalike.consumer.offset_commits import CommitCallback, CommitFuture, Offsets
from kafkalike.consumer.poll_loop import PollLoop
from kafkalike.consumer.record_builders import Deserializers, arrow_builder, dead_letter_builder, record_builder
from kafkalike.consumer.subscription import ConsumerRebalanceListener
from kafkalike.errors import KafkaError
from kafkalike.model.brokers import ReadFrom
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.client_config import refuse_positional, refuse_to_pickle
from kafkalike.model.config.consumer_config import ConsumerConfig
from kafkalike.model.config.setting_types import ConsumerSettings, documented
from kafkalike.model.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


log = logging.getLogger(__name__)


@documented(ConsumerSettings)
class KafkaConsumer(MetadataMethods, PositionMethods):
    """Reads records of topics, and remembers the progress of its group.

    Methods, arguments, defaults and errors are kafka-python 3.x's; `ConsumerConfig` has the settings.

    At least once: positions are committed by `poll` before it fetches, and by `close`, so delivered records are
    committed only when the caller returns for more. An exception inside a `with` block skips the last commit.

    Consumers of one group share its partitions. The first `poll` joins, and each `poll` looks at the group and does its
    part of a rebalance: it gives up partitions, waits, takes others, and calls the listener. A thread sends heartbeats
    meanwhile. A consumer whose session has expired calls `on_partitions_lost`, cannot commit (`CommitFailedError`), and
    joins again with its next `poll`. docs/concepts.md has the guarantees.

    Not thread-safe: a call while another thread is inside raises `IllegalStateError`, and so does any call except
    `close` after `close`; any thread may call `assignment` and `group_metadata`. In a child process after a fork, every
    call raises `IllegalStateError`, except `close`, which does nothing there: make the consumer after the fork.

    Args:
        *topics: topics to subscribe to; more in `subscribe`.
        clock: source of time and waits; for tests.
        **configs: settings, see below and docs/reference/settings.md.

    Raises:
        KafkaConfigurationError: an unknown setting, a setting without meaning here, or a bad value.
        InvalidTopicError: an invalid topic name.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {f.name: f.default for f in fields(ConsumerConfig)}
    """The settings with their defaults, as kafka-python's `KafkaConsumer.DEFAULT_CONFIG`; read-only."""

    def __init__(self, *topics: str, clock: Clock = SYSTEM_CLOCK, **configs: Unpack[ConsumerSettings]) -> None:
        refuse_positional("KafkaConsumer", [topic for topic in topics if isinstance(topic, Mapping)])
        config = ConsumerConfig.of(configs)
        deserializers = Deserializers(
            key=check_deserializer(config.key_deserializer, "key_deserializer"),
            value=check_deserializer(config.value_deserializer, "value_deserializer"),
            key_given=config.key_deserializer,
            value_given=config.value_deserializer,
        )
        cluster = connect(
            config.bootstrap_servers,
            config.storage_options,
            access="read" if config.group_id is None else "write",
            read_from=ReadFrom(config.client_rack, config.stripe_reads),
        )
        self.config = config.at(cluster.heartbeat_ms, configs)
        self._context = ConsumerContext.of(cluster, self.config, clock)
        if self.config.tolerant:
            self._build = dead_letter_builder(deserializers, self._context)
        else:
            self._build = record_builder(deserializers.key, deserializers.value)
        self._subscription = self._context.subscription
        self._guard = ThreadGuard("KafkaConsumer")
        self._polling = PollLoop(self._context, self._guard)
        self._commits = self._polling.commits
        self._delivery = Delivery(self._context, self._polling, self._guard, self._build)
        if topics:
            self.subscribe(topics)
        if self.config.enable_auto_commit and self.config.group_id is None and "enable_auto_commit" in configs:
            log.warning(
                "consumer %s: nothing is committed without a group_id; set it, or enable_auto_commit=False",
                self.config.client_id,
            )

    # --- what to read --------------------------------------------------------------------------

    @guarded
    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Read all partitions of topics, replacing the earlier subscription. Takes effect in `poll`.

        `poll` notices added partitions, and topics that come to match a pattern, when it looks for new records. They
        begin at `auto_offset_reset`, as in Kafka. With a `group_id` the first `poll` joins the group.

        Args:
            topics: names; a missing topic is waited for.
            pattern: regular expression, matched at the start of a name (`re.match`); at most 1024 bytes. It runs in
                Python's `re`, so do not accept patterns from users you do not trust.
            listener: called at changes of the assignment.

        Raises:
            IllegalStateError: topics and pattern together, or after `assign`.
            IllegalArgumentError: neither, or a bad pattern (a ValueError).
            TypeError: `topics` is not a list, or the listener is not a `ConsumerRebalanceListener`.
            InvalidTopicError: an invalid topic name.
        """
        self._polling.assigner.refuse_in_callback("subscribe")
        self._subscription.subscribe(topics, pattern, listener)
        self._delivery.drop()

    @guarded
    def unsubscribe(self) -> None:
        """Stop reading; commit automatically first, and leave the group."""
        self._polling.assigner.refuse_in_callback("unsubscribe")
        self._release()

    @guarded
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without membership in the group. An empty list is `unsubscribe`.

        Partitions of the earlier assignment keep their position. A missing partition is waited for.

        Raises:
            IllegalStateError: the consumer is subscribed.
            TypeError: anything but `TopicPartition`.
            InvalidTopicError, IllegalArgumentError: a bad topic name or partition number.
        """
        self._polling.assigner.refuse_in_callback("assign")
        wanted = list(partitions)
        if not wanted:
            self._release()
            return
        self._commits.commit_automatically()
        self._subscription.assign(wanted)
        self._polling.assigner.renew()
        self._delivery.drop()

    def _release(self) -> None:
        self._commits.commit_automatically()
        self._delivery.drop()
        self._polling.fetcher.clear()
        self._polling.assigner.release()

    # --- records -------------------------------------------------------------------------------

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - kafka-python's
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records from the positions on, and move the positions past them.

        Partitions take turns. Records that were read but not delivered stay in a buffer, even while a partition is
        paused. Without records, it looks at the log again every `Cluster.tail_interval`, at growing intervals; on a
        local root, Linux also wakes it at each commit.

        Args:
            timeout_ms: ms to wait for the first record; 0 looks once, infinity waits without end.
            max_records: maximum number of records; None takes `max_poll_records`.
            update_offsets: False leaves the positions unchanged: the next poll returns the same records.

        Returns:
            Records in offset order by partition; empty after a timeout.

        Raises:
            IllegalArgumentError: a negative timeout, or less than one record (a ValueError).
            TypeError: `max_records` is not an int.
            NoOffsetForPartitionError: `auto_offset_reset` is `none` and nothing was committed.
            OffsetOutOfRangeError: `auto_offset_reset` is `none` and the position is outside the log.
            RecordDeserializationError: a deserializer failed. Earlier records have been delivered, and the position
                stays at the record: seek past it to continue. With `errors_tolerance='all'`, only if the record cannot
                become a dead letter either: its topic rejects it, too many wait for a commit, or the record is not the
                cause (a retriable error, an OSError).
            FencedInstanceIdError: another process has this consumer's `group_instance_id`.
            InconsistentGroupProtocolError: the group's members have no assignor in common with this one.
            GroupIdNotFoundError: it is a share group.
            TopicDeletedError: a topic was deleted, or deleted and created again, while it was read. Raised once; the
                next poll continues with the current topic of that name, at `auto_offset_reset`.
            DataLossError, CorruptRecordError: the log is damaged there; the position stays.
            KafkaConnectionError: the storage root has vanished, or never held a cluster; poll again when it is there.
            KafkaStorageError: the storage cannot be read. An unresponsive object store is retried for
                `default_api_timeout_ms` first; until then polls return nothing, and a warning with the reason is
                logged.

        Example:
            >>> from kafkalike import KafkaProducer
            >>> from kafkalike.testing import MemoryCluster
            >>> cluster = MemoryCluster()
            >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
            ...     _ = producer.send("orders", b"tea")
            >>> with KafkaConsumer("orders", bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
            ...     polled = consumer.poll(timeout_ms=1000)
            >>> [(record.offset, record.value) for records in polled.values() for record in records]
            [(0, b'tea')]
        """
        most = self.config.max_poll_records if max_records is None else max_records
        return self._delivery.hand_out("poll", timeout_ms, most, self._build, by_partition, update_offsets)

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> pa.Table | None:
        """Return records as one Arrow table, for throughput; move the positions as `poll` does.

        The columns are `kafkalike.log.topic.chunk.ARROW_SCHEMA`, as in Spark's Kafka source, headers included, with
        keys and values as bytes. Deserializers are not applied.

        Args:
            timeout_ms: as in `poll`.
            max_records: maximum number of records; None leaves it to `fetch_max_bytes`. `max_poll_records` has no
                effect.

        Returns:
            Records grouped by partition, in offset order; None after a timeout.

        Raises:
            KafkaError: as `poll`.
        """
        return self._delivery.hand_out(
            "poll_arrow",
            timeout_ms,
            max_records,
            arrow_builder,
            _as_table,
            True,  # noqa: FBT003
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """Return the next record; the position moves with each record, not with each poll.

        Raises:
            StopIteration: no record came for `consumer_timeout_ms`, or the consumer is closed.
            KafkaError: as `poll`.
        """
        if self._guard.closed:
            raise StopIteration
        return self._delivery.next()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate in a coroutine: `async for record in consumer`. Polls run in a thread, so the event loop runs on.

        As in a plain loop, the position moves with each record, and `consumer_timeout_ms` ends the loop. A cancelled
        loop has lost no record: the consumer continues at the next one. Cancel the loop before you call other methods.
        """
        return AsyncRecords(self._delivery, self._guard, self._context)

    # --- commits -------------------------------------------------------------------------------

    @guarded
    def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit offsets in one table commit; they are safe when it returns.

        Args:
            offsets: by partition, `OffsetAndMetadata` with the next offset to read: last processed one + 1. None
                commits the positions of all partitions.
            timeout_ms: how long concurrent writers may delay it; None takes `default_api_timeout_ms`.

        Raises:
            IllegalStateError: there is no `group_id`.
            CommitFailedError: this consumer is no longer a member of the group (then also an `UnknownMemberIdError`),
                or not yet; nothing was written.
            RebalanceInProgressError: it has given up its partitions and waits for others; nothing was written.
            FencedInstanceIdError: another process has its `group_instance_id`; nothing was written.
            OffsetMetadataTooLargeError: metadata above `offset.metadata.max.bytes`; nothing was written.
            UnknownTopicOrPartitionError, TopicDeletedError: the partition does not exist, or the topic it was read from
                was deleted.
            TypeError, IllegalArgumentError: bad offsets.
            KafkaTimeoutError: nothing was written.
            UnknownOutcomeError: it may have been written; committing again is harmless.
        """
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        self._commits.run_callbacks()
        self._commits.commit(offsets, None if math.isinf(timeout) else timeout)

    @guarded
    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> CommitFuture:
        """Commit offsets; errors go to the future and the callback.

        The write happens at once, in this thread, because a commit is one small file. So the returned future is done.
        The next `poll`, `commit`, `commit_async` or `close` calls `callback(offsets, error_or_None)` in its own thread
        and raises the callback's errors.

        Raises:
            IllegalStateError: there is no `group_id`.
            TypeError, IllegalArgumentError: bad offsets.
        """
        self._commits.run_callbacks()
        return self._commits.commit_async(offsets, callback)

    # --- the end -------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002
        """Commit if that is automatic, call the listener, leave the group.

        A second call does nothing, and so does a call in a child process after a fork. After an exception that
        interrupted it, such as `KeyboardInterrupt`, a second call does the remaining steps. If a signal handler calls
        it during a poll, the poll ends and returns nothing; the consumer is closed when the poll returns.

        A static member (`group_instance_id`) does not leave: its partitions stay reserved until its session expires.

        Args:
            autocommit: False skips the commit.
            timeout_ms: ms that commit and leaving may take each; None takes `request_timeout_ms`.

        Raises:
            IllegalStateError: another thread is inside, or a listener calls it.
            KafkaError: the listener failed, or the group could not be left; the consumer is closed all the same.
        """
        timeout = self.config.request_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        if self._guard.forked:
            return  # the group, the offsets and the threads are the parent's
        self._guard.enter()
        try:
            if self._guard.closed:
                return
            self._polling.assigner.refuse_in_callback("close")
            if self._polling.running.now:
                # A signal handler calls this, possibly in the middle of joining the group.
                self._polling.ending = partial(self.close, autocommit, timeout_ms)
                return
            self._delivery.drop()
            _end(self._context, self._polling, self._guard, timeout, autocommit=autocommit)
        finally:
            self._guard.__exit__()

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: a client belongs to its process."""
        refuse_to_pickle(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Close; an exception inside the block skips the automatic commit, because its record may be unfinished."""
        self.close(autocommit=exc_type is None)
        return False


def _as_table(taken: list[FetchedRecords]) -> pa.Table | None:
    if not taken:
        return None
    from kafkalike.log.topic.chunk import concat_tables

    return concat_tables([part for t in taken for part in t.parts])


def _end(
    context: ConsumerContext, polling: PollLoop, guard: ThreadGuard, timeout_ms: float, *, autocommit: bool
) -> None:
    """Commit if that is automatic, leave the group, then close.

    If an interrupt comes before it has left, the next call continues.

    Args:
        context: the consumer's parts.
        polling: the consumer's poll loop.
        guard: the consumer's, entered; it is closed after the group is left.
        timeout_ms: ms that commit and leaving may take each.
        autocommit: False skips the commit.

    Raises:
        KafkaError: the listener failed, or the group could not be left; the consumer is closed all the same.
    """
    try:
        if autocommit:
            polling.commits.commit_automatically(timeout_ms)
        polling.commits.run_callbacks()
    finally:
        try:
            polling.assigner.release(timeout_ms)
        except KafkaError:
            _give_back(context, polling, guard, timeout_ms)
            raise
        _give_back(context, polling, guard, timeout_ms)


def _give_back(context: ConsumerContext, polling: PollLoop, guard: ThreadGuard, timeout_ms: float) -> None:
    guard.closed = True
    polling.fetcher.clear()
    polling.watch.close()
    if context.letter_commits is not None:
        context.letter_commits.close()
    context.logs.forget()
    context.cluster.settle(timeout_ms / 1000)
    for deserializer in (context.config.key_deserializer, context.config.value_deserializer):
        close = getattr(deserializer, "close", None)
        if callable(close):
            close()
