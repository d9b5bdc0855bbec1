"""`transaction`: DataFrames for topics and tables, offsets and acknowledgements of groups: all together or none.

```python
with kafkalike.spark.transaction("nightly", "./data") as t:
    t.write(orders, "orders")
    t.write(payments, "payments")
    t.commit_offsets("loader", {TopicPartition("raw", 0): 1200})
print(t.written)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, IllegalStateError, KafkaStorageError, TransactionAbortableError
from kafkalike.log.group.group_offsets import DEFAULT_METADATA_BYTES, check_position, given_ids
from kafkalike.log.topic.record_rules import not_in_order
from kafkalike.maintenance.staging_folder import staging_place
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.concurrency import OnError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.model.shares.share_partition import Acknowledgements
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim, joined_lives, with_lives
from kafkalike.model.transactions.transactional_id import TransactionAttempt
from kafkalike.spark.call_options import ProducerOptions
from kafkalike.spark.jvm.spark_connect import check_same_root
from kafkalike.spark.queue_batch import QueueBatch
from kafkalike.spark.record_columns import sink_columns
from kafkalike.spark.writes.batch_write import Written, ranges_of, run_job, task_writing, with_partitioner
from kafkalike.spark.writes.commit import found_again, open_targets, written_before
from kafkalike.spark.writes.table_rows import StagedTables
from kafkalike.spark.writes.targets import target_of
from kafkalike.spark.writes.transactional_write import Naming, Together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

APP_PREFIX: Final = "transaction:"
"""Separates the names of transactions from streams and batch writes."""


class Transaction:
    """Writes that are committed together, from `transaction`. To be used by one thread.

    `with` begins it. It commits at the end of the block, or aborts after an error, and readers never see any of it
    then. It can be entered repeatedly; each time is a transaction of its own.

    Attributes:
        written: the offsets of the last committed transaction, as `kafkalike.spark.write` returns them.
        duplicate: whether the open transaction, or the last one, was committed by an earlier run under its version;
            then its writes compute nothing.
    """

    def __init__(
        self,
        transactional_id: str,
        bootstrap_servers: Address | None = None,
        *,
        version: int | None = None,
        producer_options: ProducerOptions | None = None,
        storage_options: StorageOptionsLike | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Open the cluster; see `transaction` for the arguments and errors."""
        named: object = transactional_id
        if not isinstance(named, str) or not named:
            raise IllegalArgumentError(f"a transactional id must be a text that is not empty, not {named!r}")
        self.written = Written()
        self.duplicate = False
        self._id = transactional_id
        self._version = _checked(version)
        self._producer_options = producer_options or ProducerOptions()
        self._clock = clock
        self._cluster = connect(bootstrap_servers, storage_options, access="spark_write")
        self._together = Together(self._cluster, transactional_id, f"spark {transactional_id}")
        self._tables = StagedTables(self._cluster, transactional_id)
        self._batches: list[tuple[QueueBatch, Acknowledgements]] = []
        """Batches of queues that are acknowledged with it."""
        self._open = False
        self._half = False
        """True while a DataFrame may be staged for only some of its topics."""
        self._topics: set[str] = set()
        self._offsets: dict[GroupClaim, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._lives: dict[str, str] = {}
        """Ids by name of the topics to which these offsets belong."""

    def at(self, version: int) -> Self:
        """Set the version of this object's next transaction; see `transaction`.

        Raises:
            IllegalArgumentError: the version is not a whole number from 0.
            IllegalStateError: a transaction is open.
        """
        if self._open:
            raise IllegalStateError(f"the transaction of {self._id!r} is open; its version cannot be changed")
        self._version = _checked(version)
        return self

    def __enter__(self) -> Self:
        """Begin a transaction. The first time, fence other producers of the id, and complete their decided ones.

        Raises:
            IllegalStateError: the transaction is already open.
            OutOfOrderSequenceNumberError: a higher version was committed, and this one is not known.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not begun; enter it once more.
            Exception of Spark: an earlier transaction of the id is committed, and a table still does not take its rows.
        """
        if self._open:
            raise IllegalStateError(f"the transaction of {self._id!r} is open already")
        deadline = self._deadline()
        self._together.begin(deadline)
        self._batches = []
        with OnError(self._together.abort):
            self._tables.begin(self._together.attempt, self._together.last)
        self._topics, self._offsets, self._lives, self.written, self._half = set(), {}, {}, Written(), False
        naming = self._naming
        self.duplicate = naming is not None and self._committed_before(naming)
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, or abort after an error.

        Raises:
            TransactionAbortableError: an error of the storage or Ctrl-C interrupted the staging of a `write`, and the
                block continued; nothing is committed.
            InvalidRecordStateError: another worker has acquired a record of a queue; nothing is committed.
            KafkaError: see `TransactionSession.commit`.
            Exception of Spark: the transaction is committed, and a table does not take its rows. They wait, and the
                next transaction of the id tries again.
        """
        self._check_open()
        self._open = False
        attempt, committed = self._together.attempt, False
        try:
            committed = self._end(attempt, failed=kind is not None)
        finally:
            for batch, _ in self._batches:
                batch.settle(committed=committed)
        if committed and self._tables:
            self._tables.append(attempt)

    def _end(self, attempt: TransactionAttempt, *, failed: bool) -> bool:
        """Commit or abort; return whether the transaction was committed by this call."""
        if failed:
            self._abort(attempt)
            return False
        if self._half:
            self._abort(attempt)
            raise TransactionAbortableError(
                f"the transaction of {self._id!r} was aborted: a DataFrame was staged in part, as its write ended early"
            )
        naming = self._naming
        if self.duplicate and naming is not None:
            self.written = ranges_of(self._found(naming))
            self.written.duplicate = True
            return False
        try:
            done = self._together.commit(
                with_lives(self._offsets, self._lives),
                self._deadline(),
                None if naming is None else naming.name,
                acknowledgements={batch.member: acks for batch, acks in self._batches},
                decide=len(self._tables) > 0,
            )
        finally:
            if self._together.refused:
                self._tables.drop(attempt)
        self.written = ranges_of(done)
        faults.point("transaction.committed")
        return True

    def _abort(self, attempt: TransactionAttempt) -> None:
        self._together.abort()
        self._tables.drop(attempt)

    def write(
        self,
        frame: DataFrame,
        topic: str | None = None,
    ) -> None:
        """Add the rows of a DataFrame. They are computed now, and stored where readers do not see them.

        If a topic rejects a record, this call raises; the transaction may continue without the DataFrame.

        Args:
            frame: columns as for `kafkalike.spark.write`.
            topic: the topic; wins over the column `topic`. Several writes to one topic keep their order.

        Raises:
            IllegalStateError: the transaction is not open.
            KafkaError: see `kafkalike.spark.write`; nothing was written. After an error of the storage the transaction
                cannot be committed, because some of the rows may be staged.
        """
        self._check_open()
        records = sink_columns(frame, needs_topic=topic is None)
        if topic is not None:
            self._topics.add(check_topic_name(topic))
        if self.duplicate:
            return
        partitioner = self._producer_options.partitioner
        names = partitioner is None and "partition" in records.columns
        target = target_of(self._cluster, topic, codec=self._producer_options.codec, names_partitions=names)
        spark = frame.sparkSession
        check_same_root(spark, self._cluster)
        with staging_place(self._cluster.store) as folder:
            results = run_job(with_partitioner(records, partitioner, target), target, folder)
            deadline = self._deadline()
            opened = open_targets(self._cluster, topic, results, folder.files)
            before, self._half = self._half, True
            for log, runs in opened:
                self._topics.add(log.info.name)
                if runs:
                    self._together.stage(
                        log, folder.files, runs, self._producer_options.codec, deadline, task_writing(spark)
                    )
            self._half = before

    def commit_offsets(
        self,
        group: str | ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Add offsets of a group, to be committed with the records.

        Args:
            group: a group's id; or `KafkaConsumer.group_metadata()`, with which the commit is refused if the group has
                had a rebalance since.
            offsets: by partition, the next offset to read.

        Raises:
            IllegalStateError: the transaction is not open.
            InvalidGroupIdError, IllegalArgumentError, OffsetMetadataTooLargeError: bad arguments.
            UnknownTopicOrPartitionError: a topic was recreated since earlier offsets were added.
            KafkaStorageError: the topics cannot be read.
        """
        self._check_open()
        try:
            claim = GroupClaim.of(group, f"spark {self._id}")
        except ValueError as cause:
            raise IllegalArgumentError(str(cause)) from None
        check_group_id(claim.group_id)
        checked = {
            tp: check_position(
                tp, at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at), DEFAULT_METADATA_BYTES
            )
            for tp, at in offsets.items()
        }
        found = given_ids(self._cluster.metadata, {tp.topic for tp in checked}, group)
        self._lives = joined_lives(self._lives, found)
        self._offsets.setdefault(claim, {}).update(checked)

    def write_table(self, frame: DataFrame, table: str) -> None:
        """Add the rows of a DataFrame to a Delta table that is not a topic.

        The rows are computed now and stored, and appended to the table when the transaction is committed: with
        `txnAppId` and `txnVersion`, so each row is in the table once. If the program dies after the commit, the next
        transaction of the id appends them, before anything else.

        Args:
            frame: columns of the table, with its types. Columns of the table that are missing are null.
            table: a name, or a path or URI, which has a slash. A missing table is created.

        Raises:
            IllegalStateError: the transaction is not open.
            IllegalArgumentError: the columns do not fit the table.
            UnsupportedVersionError: the cluster has several roots.
            Exception of Spark: the rows cannot be computed or stored; nothing was written.
            KafkaStorageError: the storage refused the rows, or the next user of the id has removed them; the
                transaction cannot be committed.
        """
        self._check_open()
        if self.duplicate:
            return
        attempt = self._together.attempt
        rows = self._tables.store(attempt, frame, table)
        before, self._half = self._half, True
        try:
            self._tables.add(attempt, rows)
        except OSError as cause:
            raise KafkaStorageError(f"{table}: the storage refused its rows, or they were removed: {cause}") from cause
        self._half = before

    def acknowledge(self, batch: QueueBatch, verdicts: DataFrame | None = None) -> None:
        """Acknowledge a batch of a queue with the transaction, which is committed only if the job still holds it.

        If `read_queue` got `errors_deadletterqueue_topic_name`, rejected records become dead letters in the same
        transaction. If a `version` was committed before, the batch is released.

        Args:
            batch: from `kafkalike.spark.read_queue`, of the same cluster.
            verdicts: see `QueueBatch.acknowledge`; None accepts all records.

        Raises:
            IllegalStateError: the transaction is not open; or the batch is closed, acknowledged, or part of another
                transaction.
            IllegalArgumentError: bad verdicts, or another cluster.
            KafkaError: the dead letters cannot be stored. The transaction cannot be committed then.
        """
        self._check_open()
        if self.duplicate:
            return
        if batch.root != self._cluster.root:
            raise IllegalArgumentError(
                f"the batch belongs to {batch.root}, but the transaction to {self._cluster.root}"
            )
        acks = batch.acknowledgements(verdicts)
        before, self._half = self._half, True
        fetcher = batch.stage()
        self._batches.append((batch, acks))
        fetcher.stage_letters(self._together.session, self._together.attempt.number, acks, self._deadline())
        self._half = before

    @property
    def _naming(self) -> Naming | None:
        if self._version is None:
            return None
        made = Naming.of(TxnId(APP_PREFIX + self._id, self._version))
        return Naming(made.app_id, made.version, made.check, self._id)

    def _committed_before(self, naming: Naming) -> bool:
        """Return whether an earlier run has committed this version."""
        last = self._together.last
        if last is None or last.name is None or last.name.app_id != naming.app_id:
            return False
        if last.name.version > naming.version:
            raise not_in_order(f"transaction {self._id!r}", naming.app_id, naming.version, last.name.version)
        return last.name == naming.name

    def _found(self, naming: Naming) -> Mapping[str, Appended]:
        """Return the offsets of an earlier run's records."""
        found = dict(written_before(self._cluster, naming, None) or {})
        known = self._cluster.topics()
        for name in self._topics - found.keys():
            place = found_again(self._cluster.log(name), TxnId(*naming.name)) if name in known else None
            if place is not None:
                found[name] = place
        return found

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._producer_options.delivery_timeout_ms)

    def _check_open(self) -> None:
        if not self._open:
            raise IllegalStateError(f"no transaction of {self._id!r} is open; use it in a with statement")


def transaction(
    transactional_id: str,
    bootstrap_servers: Address | None = None,
    *,
    version: int | None = None,
    producer_options: ProducerOptions | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> Transaction:
    """Write several DataFrames, and commit offsets of groups, all together or not at all.

    To be used in a `with` statement. Each write is computed at once, and stored where readers do not see it. At the end
    one decision commits everything: from then on all topics get their parts, even if this process is killed. Each topic
    gets its part in one table commit; a `kafkalike.snapshot` shows all of it or nothing. Readers never wait for an open
    transaction, however long it takes.

    Args:
        transactional_id: names the job: the same in each run of it, and not used by other programs. Entering a
            transaction fences all other users of the id, including producers with this `transactional_id`.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        version: number of the transaction, which must rise with each transaction of the id. A rerun under a committed
            version adds nothing. Without it, a rerun writes its records once more, unless the earlier run was not
            decided.
        producer_options: see `kafkalike.spark.write`; the timeout applies to each step.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.write`.

    Returns:
        The transaction; see `Transaction`.

    Raises:
        IllegalArgumentError, UnsupportedCodecError: bad arguments.
        UnsafeStorageError: the root is read-only, or its storage cannot coordinate several writers.
    """
    return Transaction(
        transactional_id,
        bootstrap_servers,
        version=version,
        producer_options=producer_options,
        storage_options=storage_options,
    )


def _checked(version: object) -> int | None:
    if version is None:
        return None
    if type(version) is not int or version < 0:
        raise IllegalArgumentError(f"a version must be a whole number from 0, not {version!r}")
    return version
