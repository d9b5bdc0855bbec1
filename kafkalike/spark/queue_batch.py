"""`read_queue`: a slice of a share group's records as a DataFrame, locked until the job has acknowledged them.

The driver acquires the slice by one compare-and-set of the groups' table, and renews its locks in a thread. The tasks
read its records from the topics' tables. The acknowledgements are part of a transaction with the job's output, or a
change of their own.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql import DataFrame, SparkSession

from kafkalike.connect import connect
from kafkalike.consumer.call_checks import check_max, check_timeout
from kafkalike.consumer.record_builders import record_builder
from kafkalike.consumer.share_delivery import HeldRecords
from kafkalike.consumer.share_fetcher import ShareFetcher
from kafkalike.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError, KafkaError
from kafkalike.log.group.share_group import gaps
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import OnError, ReportErrors
from kafkalike.model.config.consumer_config import ShareConsumerConfig
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.shares.share_partition import Acknowledgement, Acknowledgements, RecordVerdict
from kafkalike.model.structs import ShareGroupMetadata, TopicPartition
from kafkalike.spark.reads.frames import log_of, read
from kafkalike.spark.reads.record_slices import RecordSlice, acquired_slices, records_of, verdict_runs

if TYPE_CHECKING:
    from kafkalike.spark.writes.transactional_write import Together

_log = logging.getLogger(__name__)

SETTINGS: Final = frozenset(
    {
        "client_id",
        "default_api_timeout_ms",
        "errors_deadletterqueue_topic_name",
        "heartbeat_interval_ms",
        "request_timeout_ms",
        "session_timeout_ms",
        "share_auto_offset_reset",
        "share_delivery_count_limit",
        "share_partition_max_record_locks",
        "share_record_lock_duration_ms",
    }
)
"""Settings of a share consumer that a job can have."""

UNLIMITED: Final = 2**31 - 1
"""A job may lock any number of records of a partition, and take any time between two polls."""


class QueueBatch:
    """Records that a job has taken from a queue, from `read_queue`. To be used by one thread.

    Its locks are renewed until it is acknowledged or closed. `len(batch)` is the number of acquired offsets, 0 if the
    queue was empty. At the end of a `with` block, records that were not acknowledged are released to other workers.

    Attributes:
        frame: the records, with the columns of `kafkalike.spark.read` and `delivery_count` INT, which is 1 for the
            first delivery. Each query over it reads the records anew.
        root: the cluster's root.
    """

    def __init__(
        self, root: str, fetcher: ShareFetcher, frame: DataFrame, slices: Sequence[RecordSlice], timeout_ms: float
    ) -> None:
        """Start to renew the locks; see `read_queue`."""
        self.root = root
        self.frame = frame
        self._fetcher = fetcher
        self._slices = slices
        self._timeout_ms = timeout_ms
        self._done = False
        """True after the acknowledgements were committed."""
        self._staged = False
        """True while an open transaction has the acknowledgements."""
        self._closing = False
        """True if it was closed in that time."""
        self._closed = False
        self._renewal: tuple[threading.Thread, threading.Event] | None = None
        self._renew()

    def __len__(self) -> int:
        """Return the number of acquired offsets; compaction may have removed some of their records."""
        return sum(run.size for _, run in self._slices)

    @property
    def offsets(self) -> dict[TopicPartition, list[range]]:
        """The acquired offsets as half-open ranges."""
        found: dict[TopicPartition, list[range]] = {}
        for tp, run in self._slices:
            found.setdefault(tp, []).append(range(run.first, run.last + 1))
        return found

    @property
    def member(self) -> ShareGroupMetadata:
        """The membership that holds the locks."""
        return self._fetcher.metadata

    # --- acknowledgements ------------------------------------------------------------------------

    def acknowledge(self, verdicts: DataFrame | None = None) -> None:
        """Acknowledge the batch on its own, after its output was written. Its records may be processed twice.

        For exactly-once output, call `acknowledge` of `kafkalike.spark.transaction` instead.

        Args:
            verdicts: `partition`, `offset` and `verdict` STRING (`accept`, `release` for another delivery, or `reject`
                for none), and `topic` for a batch of several topics. Records without a row are accepted. The DataFrame
                is computed, so make it of stored or `localCheckpoint`ed results. None accepts all records.

        Raises:
            IllegalStateError: the batch was acknowledged or closed, or a transaction has its acknowledgements.
            IllegalArgumentError: a column is missing, a verdict is unknown, a record has two verdicts, or is not in the
                batch; nothing was acknowledged.
            InvalidRecordStateError: other members have acquired some of the records meanwhile, because their locks have
                ended. The acknowledgements of the others count.
            KafkaError: nothing was acknowledged, or the outcome is unknown; the locks end by time.
        """
        self._check_open()
        acks = self.acknowledgements(verdicts)
        self._stop()
        self._done = True
        for _, error in self._fetcher.acknowledge(acks, self._timeout_ms):
            if error is not None:
                raise error

    def acknowledgements(self, verdicts: DataFrame | None = None) -> dict[TopicPartition, list[Acknowledgement]]:
        """Return the acknowledgements of all records, as ranges; see `acknowledge`."""
        told = verdict_runs(verdicts, {tp.topic for tp, _ in self._slices}) if verdicts is not None else {}
        found: dict[TopicPartition, list[Acknowledgement]] = {}
        used = 0
        for tp, run in self._slices:
            mine = [
                (max(first, run.first), min(last, run.last), verdict)
                for first, last, verdict in told.get(tp, ())
                if first <= run.last and last >= run.first
            ]
            used += sum(last - first + 1 for first, last, _ in mine)
            others = gaps(run.first, run.last, ((first, last) for first, last, _ in mine))
            acks = [*mine, *((first, last, RecordVerdict.ACCEPT) for first, last in others)]
            found.setdefault(tp, []).extend(
                Acknowledgement(first, last, verdict, run.deliveries) for first, last, verdict in sorted(acks)
            )
        if used != sum(last - first + 1 for runs in told.values() for first, last, _ in runs):
            raise IllegalArgumentError("the verdicts name records that are not in the batch; nothing was acknowledged")
        return found

    def stage(self) -> None:
        """Leave the acknowledgements to a transaction, which calls `settle` at its end.

        Raises:
            IllegalStateError: see `acknowledge`.
        """
        self._check_open()
        self._staged = True

    def stage_letters(self, together: Together, acknowledgements: Acknowledgements, deadline: Deadline) -> None:
        """Add the dead letters of rejected records to a transaction, if the settings name a topic for them.

        Raises:
            KafkaError: a record cannot be read, or its letter cannot be stored.
        """
        letters = self._fetcher.letters
        if letters is None:
            return
        rejected = {
            tp: [ack for ack in acks if ack.verdict is RecordVerdict.REJECT] for tp, acks in acknowledgements.items()
        }
        letters.stage_rejected(together.session, together.attempt.number, rejected, self._fetcher.logs, deadline)

    def settle(self, *, committed: bool) -> None:
        """End the transaction that has the acknowledgements; close the batch if it was closed meanwhile."""
        self._staged, self._done = False, committed
        if committed:
            self._stop()
        if self._closing:
            self.close()

    def _check_open(self) -> None:
        if self._closed or self._closing:
            raise IllegalStateError("the batch is closed, and its records were released")
        if self._done:
            raise IllegalStateError("the batch was acknowledged")
        if self._staged:
            raise IllegalStateError("an open transaction has the acknowledgements of the batch")

    # --- locks -----------------------------------------------------------------------------------

    def _renew(self) -> None:
        if not self._slices:
            return
        stop = threading.Event()
        arguments = (weakref.ref(self), stop, self._fetcher.group.limits.lock_ms / 3000)
        thread = threading.Thread(target=_renew_until, args=arguments, name="kafkalike-queue-locks", daemon=True)
        self._renewal = thread, stop
        thread.start()

    def renew_locks(self) -> None:
        """Renew the locks; a thread of the batch calls it three times per lock duration.

        Raises:
            KafkaError: not renewed, or possibly not.
        """
        acks: dict[TopicPartition, list[Acknowledgement]] = {}
        for tp, run in self._slices:
            renewed = Acknowledgement(run.first, run.last, RecordVerdict.RENEW, run.deliveries)
            acks.setdefault(tp, []).append(renewed)
        lost = self._fetcher.group.exchange(self.member.member_id, acks, timeout_ms=self._timeout_ms).refused
        if lost:
            _log.warning(
                "share group %s: another member has acquired records of this job, whose locks had ended; its output "
                "cannot be committed with them: %s",
                self.member.group_id,
                ", ".join(f"{tp.topic}-{tp.partition} @ {a.first}-{a.last}" for tp, no in lost.items() for a in no),
            )

    def _stop(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal[1].set()
            if renewal[0].is_alive():
                renewal[0].join()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the records that were not acknowledged, and leave the group. A second call does nothing.

        If an open transaction has the acknowledgements, the batch closes at its end.

        Raises:
            KafkaError: the group could not be left; the locks end by time.
        """
        if self._staged:
            self._closing = True
            return
        if self._closed:
            return
        self._closed = True
        self._stop()
        _leave(self._fetcher, self._timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def read_queue(
    spark: SparkSession,
    topic: str | Iterable[str],
    bootstrap_servers: Address | None = None,
    *,
    group_id: str,
    max_records: int = 10_000,
    timeout_ms: float = 0,
    include_headers: bool = True,
    storage_options: StorageOptionsLike | None = None,
    **settings: Any,  # noqa: ANN401 - as the settings of a consumer
) -> QueueBatch:
    """Take records from topics as from a work queue, to process them with Spark.

    The job is a member of a share group: no other member gets its records while it runs. If it fails or dies, they are
    delivered again. Results, dead letters and acknowledgements can be one transaction, which is committed only if the
    job still holds all records; see `kafkalike.spark.transaction`.

    Args:
        spark: a session with Delta.
        topic: a name, or names.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        group_id: the share group.
        max_records: most records to take.
        timeout_ms: ms to wait for the first record; 0 looks once, infinity waits without end.
        include_headers: whether the frame has the column `headers`.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.
        **settings: settings of a share consumer: `client_id`, `share_auto_offset_reset` (`latest` by default),
            `share_record_lock_duration_ms`, `share_delivery_count_limit`, `share_partition_max_record_locks` (no limit
            by default), `errors_deadletterqueue_topic_name`, `session_timeout_ms`, `heartbeat_interval_ms`,
            `default_api_timeout_ms`, `request_timeout_ms`.

    Returns:
        The batch; use it in a `with` statement.

    Raises:
        KafkaConfigurationError: an unknown setting, a bad value, or a session without Delta.
        InvalidTopicError, UnknownTopicOrPartitionError: the topic does not exist.
        InconsistentGroupProtocolError: the group has members that are not share consumers.
        UnsafeStorageError: the root is read-only, or its storage cannot coordinate several writers.
        KafkaError: see `kafkalike.spark.read` and `KafkaShareConsumer.poll`.

    Example:
        ```python
        with (
            ks.read_queue(spark, "jobs", "./data", group_id="workers", share_auto_offset_reset="earliest") as batch,
            ks.transaction("worker", "./data") as t,
        ):
            t.write(batch.frame.select("key", F.upper(F.col("value").cast("string")).alias("value")), "results")
            t.acknowledge(batch)
        ```
    """
    most, timeout = check_max(max_records), check_timeout(timeout_ms)
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names:
        raise IllegalArgumentError("at least one topic is needed")
    config = _config(group_id, settings)
    clock = SYSTEM_CLOCK
    cluster = connect(bootstrap_servers, storage_options, access="spark_write")
    for name in names:
        log_of(cluster, name)
    fetcher = ShareFetcher(
        cluster,
        config,
        member_id=f"{config.client_id}-{uuid.uuid4()}",
        held=HeldRecords(),
        build=record_builder(None, None),
        clock=clock,
    )
    fetcher.topics = tuple(sorted(set(names)))
    with OnError(partial(_leave, fetcher, config.request_timeout_ms)):
        deadline = Deadline(clock, None if timeout == float("inf") else timeout)
        acquire = partial(acquired_slices, fetcher.group, fetcher.metadata.member_id, clock)
        slices = fetcher.take(deadline, most, _ignore, acquire)
        faults.point("queue.acquired")
        frames = [
            records_of(spark, read(spark, name, cluster, include_headers=include_headers), name, slices)
            for name in fetcher.topics
        ]
        frame = reduce(DataFrame.unionByName, frames)
        return QueueBatch(cluster.root, fetcher, frame, slices, config.default_api_timeout_ms)


def _config(group_id: str, settings: Mapping[str, Any]) -> ShareConsumerConfig:
    unknown = sorted(settings.keys() - SETTINGS)
    if unknown:
        raise KafkaConfigurationError(
            f"read_queue has no setting {unknown[0]!r}; it takes {', '.join(sorted(SETTINGS))}"
        )
    defaults = {"client_id": "spark", "share_partition_max_record_locks": UNLIMITED}
    return ShareConsumerConfig.of({**defaults, **settings, "group_id": group_id, "max_poll_interval_ms": UNLIMITED})


def _ignore(acknowledgements: Acknowledgements, error: KafkaError | None) -> None:
    """Take the outcome of acknowledgements, of which a new member has none."""


def _leave(fetcher: ShareFetcher, timeout_ms: float) -> None:
    try:
        fetcher.leave(timeout_ms)
    finally:
        fetcher.close(timeout_ms)


def _renew_until(reference: weakref.ref[QueueBatch], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        batch = reference()
        if batch is None:
            return
        with ReportErrors(_log, "share group %s: the locks were not renewed", batch.member.group_id):
            batch.renew_locks()
        del batch
