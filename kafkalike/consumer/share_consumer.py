"""KafkaShareConsumer: a member of a share group, which locks, delivers and acknowledges single records."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, NoReturn, Self

from kafkalike import errors
from kafkalike.connect import connect
from kafkalike.consumer.call_checks import ThreadGuard, check_deserializer, check_max, check_timeout, guarded
from kafkalike.consumer.record_builders import record_builder
from kafkalike.consumer.share_delivery import HeldRecords, offsets_in
from kafkalike.consumer.share_fetcher import ShareFetcher
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.client_config import refuse_to_pickle
from kafkalike.model.config.consumer_config import ShareConsumerConfig
from kafkalike.model.names import check_topic_name
from kafkalike.model.shares.share_partition import Acknowledgements, RecordVerdict
from kafkalike.model.structs import AcknowledgeType, ConsumerRecord, ShareGroupMetadata, TopicPartition

log = logging.getLogger(__name__)

AcknowledgementCommitCallback = Callable[[dict[TopicPartition, set[int]], errors.KafkaError | None], Any]
"""Called with the offsets of acknowledgements, and None or the error that they all had."""

_VERDICTS: Final = {kind: RecordVerdict(kind.name.lower()) for kind in AcknowledgeType}


class KafkaShareConsumer:
    """Takes records from topics as from work queues: each record goes to one member of the share group at a time.

    Any number of members share the records of a partition, so there may be more members than partitions. A record that
    a member has acquired is locked for `share_record_lock_duration_ms`. If the member does not acknowledge it in time,
    another member may acquire it, until the record was delivered `share_delivery_count_limit` times.

    Methods have the names of Kafka's `ShareConsumer`. One `poll` is one compare-and-set of the table of groups: it
    commits the acknowledgements of the last records, and acquires the next ones.

    Not thread-safe: a call while another thread is inside raises `IllegalStateError`.

    Args:
        *topics: topics to subscribe to; more in `subscribe`.
        clock: source of time and waits; for tests.
        **configs: settings of `ShareConsumerConfig`; `group_id` is required.

    Raises:
        KafkaConfigurationError: an unknown setting or a bad value.
        InvalidTopicError: an invalid topic name.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     _ = producer.send("jobs", b"paint"), producer.send("jobs", b"fail")
        >>> settings = {"bootstrap_servers": cluster, "group_id": "work", "share_auto_offset_reset": "earliest"}
        >>> with KafkaShareConsumer("jobs", **settings) as consumer:
        ...     for record in consumer.poll(timeout_ms=1000):
        ...         done = AcknowledgeType.ACCEPT if record.value == b"paint" else AcknowledgeType.RELEASE
        ...         consumer.acknowledge(record, done)
        ...     _ = consumer.commit_sync()
        ...     [(record.value, record.delivery_count) for record in consumer.poll(timeout_ms=1000)]
        [(b'fail', 2)]
    """

    def __init__(self, *topics: str, clock: Clock = SYSTEM_CLOCK, **configs: Any) -> None:  # noqa: ANN401 - as settings
        self.config = ShareConsumerConfig.of(configs)
        config = self.config
        build = record_builder(
            check_deserializer(config.key_deserializer, "key_deserializer"),
            check_deserializer(config.value_deserializer, "value_deserializer"),
        )
        cluster = connect(config.bootstrap_servers, config.storage_options, access="write")
        self._clock = clock
        self._guard = ThreadGuard("KafkaShareConsumer")
        self._held = HeldRecords()
        self._member_id = f"{config.client_id}-{uuid.uuid4()}"
        self._fetcher = ShareFetcher(
            cluster, config, member_id=self._member_id, held=self._held, build=build, clock=clock
        )
        self._callback: AcknowledgementCommitCallback | None = None
        self._results: list[tuple[dict[TopicPartition, set[int]], errors.KafkaError | None]] = []
        """Results of commits that the callback has not been told."""
        if topics:
            self.subscribe(topics)

    # --- topics --------------------------------------------------------------------------------

    @guarded
    def subscribe(self, topics: Sequence[str]) -> None:
        """Take records of these topics, replacing the earlier subscription. Takes effect in `poll`.

        Args:
            topics: names; a missing topic is waited for.

        Raises:
            TypeError: `topics` is a text, or not a sequence of texts.
            IllegalArgumentError: no topic.
            InvalidTopicError: an invalid name.
        """
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not the text {topics!r}")
        names = tuple(sorted({check_topic_name(topic) for topic in topics}))
        if not names:
            raise errors.IllegalArgumentError("name at least one topic, or call unsubscribe")
        self._fetcher.topics = names

    @guarded
    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics."""
        return set(self._fetcher.topics)

    @guarded
    def unsubscribe(self) -> None:
        """Commit the acknowledgements, release the other records, and leave the group.

        Raises:
            KafkaError: the group could not be left; its locks end by time.
        """
        self._leave(self.config.request_timeout_ms)
        self._fetcher.topics = ()

    # --- records -------------------------------------------------------------------------------

    @guarded
    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """Commit the acknowledgements of the records so far, and acquire and return others.

        A missing or deleted topic has no records, as in Kafka; the log has a warning.

        In implicit mode, all records that were not acknowledged are accepted. Errors of these commits go to the
        callback of `set_acknowledgement_commit_callback`, or else to the log.

        Args:
            timeout_ms: ms to wait for the first record; 0 looks once, infinity waits without end.
            max_records: maximum number of records; None takes `max_poll_records`.

        Returns:
            Records in offset order within each partition; `record.delivery_count` is 1 for the first delivery.

        Raises:
            IllegalStateError: nothing is subscribed, or explicit mode is on and a record was not acknowledged.
            IllegalArgumentError: a negative timeout, or less than one record (a ValueError).
            RecordDeserializationError: a deserializer failed. Earlier records have been delivered; the record is
                released, and archived after its last delivery.
            InconsistentGroupProtocolError: the group has members that are not share consumers.
            GroupIdNotFoundError: the group has committed offsets, so it is a consumer group.
            DataLossError, CorruptRecordError: the log is damaged there.
            KafkaConnectionError: the storage root has vanished, or never held a cluster.
            KafkaStorageError: the storage cannot be read.
        """
        most = self.config.max_poll_records if max_records is None else check_max(max_records)
        timeout = check_timeout(timeout_ms)
        if not self._fetcher.topics:
            raise errors.IllegalStateError("subscribe to topics first")
        self._run_callback()
        self._judge_open("poll")
        deadline = Deadline(self._clock, None if math.isinf(timeout) else timeout)
        try:
            return self._fetcher.wait(deadline, most, self._note)
        finally:
            self._log_failures()

    def _judge_open(self, call: str) -> None:
        if self.config.share_acknowledgement_mode == "implicit":
            self._held.judge_open(RecordVerdict.ACCEPT)
        elif call == "poll" and (found := self._held.open_record()) is not None:
            tp, offset = found
            raise errors.IllegalStateError(
                f"the record {tp.topic}-{tp.partition} @ {offset} was not acknowledged: in explicit mode, call "
                "acknowledge for every record before the next poll"
            )

    @guarded
    def acknowledge(
        self,
        record: ConsumerRecord,
        ack_type: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        delay_ms: float = 0,
    ) -> None:
        """Say what became of a record. Takes effect with the next `poll`, commit or `close`; a later call replaces it.

        A renewed record stays with this consumer, and must be acknowledged again before its new lock ends.

        Args:
            record: a record that `poll` returned.
            ack_type: `ACCEPT`, `RELEASE`, `REJECT` or `RENEW`.
            delay_ms: for `RELEASE`: ms from now until the record may be delivered again. Kafka does not have it.

        Raises:
            IllegalStateError: this consumer does not hold the record.
            TypeError: not an `AcknowledgeType`.
            IllegalArgumentError: a delay that is negative, or for another type.
        """
        self._acknowledge(TopicPartition(record.topic, record.partition), record.offset, ack_type, delay_ms)

    @guarded
    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        ack_type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Say what became of a record that is named by its place; see `acknowledge`."""
        self._acknowledge(TopicPartition(topic, partition), offset, ack_type, 0)

    def _acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType, delay_ms: float) -> None:
        if not isinstance(kind, AcknowledgeType):
            raise TypeError(
                f"{kind!r} is not an AcknowledgeType: give AcknowledgeType.ACCEPT, RELEASE, REJECT or RENEW"
            )
        delay = check_timeout(delay_ms)
        if delay and kind is not AcknowledgeType.RELEASE:
            raise errors.IllegalArgumentError(f"delay_ms is only for RELEASE, not for {kind.name}")
        due_ms = self._clock.now_ms() + int(delay) if delay else 0
        self._held.judge(tp, offset, _VERDICTS[kind], due_ms)

    # --- commits -------------------------------------------------------------------------------

    @guarded
    def commit_sync(self, timeout_ms: float | None = None) -> dict[TopicPartition, errors.KafkaError | None]:
        """Commit the acknowledgements so far; in implicit mode, accept all other delivered records first.

        Args:
            timeout_ms: how long concurrent writers may delay it; None takes `default_api_timeout_ms`.

        Returns:
            By partition, None, or the error: `InvalidRecordStateError` if other members have acquired some of the
            records meanwhile. The acknowledgements of the other records of the partition count all the same.
        """
        timeout = self.config.default_api_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        self._run_callback()
        return self._commit(timeout)

    def commit(self, timeout_ms: float | None = None) -> None:
        """Commit as `commit_sync`, and raise the first error."""
        for error in self.commit_sync(timeout_ms).values():
            if error is not None:
                raise error

    @guarded
    def commit_async(self) -> None:
        """Commit as `commit_sync`, but report errors only to the callback, which a later call of a method runs.

        The write happens at once, in this thread, because a commit is one small file.
        """
        self._run_callback()
        self._commit(self.config.default_api_timeout_ms)

    def _commit(self, timeout_ms: float) -> dict[TopicPartition, errors.KafkaError | None]:
        self._judge_open("commit")
        found: dict[TopicPartition, errors.KafkaError | None] = {}
        for acks, error in self._fetcher.commit(None if math.isinf(timeout_ms) else timeout_ms):
            self._note(acks, error)
            for tp in acks:
                found[tp] = found.get(tp) or error
        return found

    @guarded
    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Set the function that is told the results of commits, in the next call of a method of this consumer.

        Args:
            callback: called as `callback(offsets, error_or_None)` with the offsets by partition; None for none.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"a callable is needed, not {callback!r}")
        self._callback = callback

    def _note(self, acks: Acknowledgements, error: errors.KafkaError | None) -> None:
        if acks and (self._callback is not None or error is not None):
            self._results.append(({tp: set(offsets_in(said)) for tp, said in acks.items()}, error))

    def _run_callback(self) -> None:
        while self._callback is not None and self._results:
            offsets, error = self._results.pop(0)
            self._callback(offsets, error)

    def _log_failures(self) -> None:
        if self._callback is None:
            for _, error in self._results:
                log.warning("share group %s: %s", self.config.group_id, error)
            self._results.clear()

    # --- transactions --------------------------------------------------------------------------

    @guarded
    def share_group_metadata(self) -> ShareGroupMetadata:
        """Return this membership, for `KafkaProducer.send_share_acknowledgements_to_transaction`."""
        return self._fetcher.metadata

    @guarded
    def take_acknowledgements(self) -> Acknowledgements:
        """Return the acknowledgements so far, for a producer's transaction; this consumer does not commit them.

        In implicit mode, all other delivered records are accepted first. Send letters of rejected records in the
        transaction: `errors_deadletterqueue_topic_name` has no effect on them. If the transaction aborts, acknowledge
        the records again, for example with `RELEASE`, or let their locks end.
        """
        self._judge_open("commit")
        found = self._held.acknowledgements()
        self._held.stage(found)
        return found

    # --- the end -------------------------------------------------------------------------------

    @property
    def acquisition_lock_timeout_ms(self) -> int:
        """Duration of the locks, ms."""
        return self._fetcher.group.limits.lock_ms

    @guarded
    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Return totals since the consumer was made, by group and name."""
        return {"consumer-share-metrics": self._fetcher.metrics.as_dict()}

    def close(self, timeout_ms: float | None = None) -> None:
        """Commit the acknowledgements, release all other records, and leave the group. A second call does nothing.

        Args:
            timeout_ms: ms that each step may take; None takes `request_timeout_ms`.

        Raises:
            IllegalStateError: another thread is inside.
            KafkaError: the group could not be left. The consumer is closed all the same, and its locks end by time.
        """
        timeout = self.config.request_timeout_ms if timeout_ms is None else check_timeout(timeout_ms)
        if self._guard.forked:
            return
        self._guard.enter()
        try:
            if not self._guard.closed:
                try:
                    self._leave(timeout)
                finally:
                    self._guard.closed = True
                    self._fetcher.close(timeout)
        finally:
            self._guard.__exit__()

    def _leave(self, timeout_ms: float) -> None:
        self._run_callback()
        for acks, error in self._fetcher.leave(timeout_ms):
            self._note(acks, error)
        self._run_callback()
        self._log_failures()

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: a client belongs to its process."""
        refuse_to_pickle(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Close."""
        self.close()
        return False
