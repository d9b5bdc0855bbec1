"""The format's sinks: rows of a batch or streaming query are staged by tasks, then committed to topics by the driver.

Spark gives a streaming sink a batch's number, but not the query it belongs to. The tasks know that from their local
properties, and the checkpoint, which the options name, says it as well; so a batch can carry both into the table
(decision 012).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.maintenance.staging.staging_folder import JobPlace, job_place
from kafkalike.maintenance.staging.staging_lease import DriverProcess
from kafkalike.model import faults
from kafkalike.spark.format.error_text import hide_frames
from kafkalike.spark.format.sink_options import SinkOptions, check_sink_columns
from kafkalike.spark.jvm.python_worker import PromptAnswer, task_number
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets, checkpoint_at
from kafkalike.spark.writes.commit import StagedCommit, begin, commit_results
from kafkalike.spark.writes.staged_files import TaskResult, stage_topics
from kafkalike.spark.writes.write_ids import Naming, StreamVersion, app_id, next_txn

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.record_batch import Appended


_log = logging.getLogger(__name__)


@dataclass
class Message(WriterCommitMessage):
    """What a task has staged."""

    result: TaskResult


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: made on the driver, sent to the tasks, and again to the process that commits.

    Args:
        options: checked options.
        schema: the DataFrame's.
        overwrite: whether the mode asks to replace what is there.

    Raises:
        IllegalArgumentError: a mode other than append.
        UnsafeStorageError: the root can only be read.
        AnalysisException: a column is missing or has a wrong type.
        InvalidTopicError, UnknownTopicOrPartitionError: a bad name, or a topic that is missing and must not be created.
        OutOfOrderSequenceNumberError: `txnVersion` is below the latest one and was never written.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise IllegalArgumentError(
                "a topic cannot be overwritten: records are added to it, with mode append or INSERT INTO; retention, "
                "kafkalike delete-records and tombstones of a compacted topic take records away"
            )
        cluster = connect(options.root, options.storage, access="spark_write")
        check_sink_columns(schema, options)
        self._options = options
        self._target = begin(
            cluster,
            options.topic,
            options.txn,
            codec=options.codec,
            timestamps=options.timestamps,
            names_partitions="partition" in schema.fieldNames(),
        )
        self._folder = job_place(cluster.store, scratch=options.scratch)
        self._folder.make()
        self._prompt = PromptAnswer()

    @hide_frames
    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task; those of a rerun are not looked at."""
        return Message(stage_topics(self._target, self._folder, iterator, task_number()))

    @hide_frames
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Number and commit what the tasks have staged.

        Raises:
            KafkaError: see `kafkalike.spark.write`.
        """
        options = self._options
        try:
            naming = None if options.txn is None else Naming.of(options.txn)
            written = commit_messages(options, messages, self._folder, naming)
        finally:
            self._folder.remove()
        if options.txn is not None:
            say_duplicates(written, f"{options.txn.app_id} had written version {options.txn.version} before")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Remove what was staged."""
        self._folder.remove()


def commit_messages(
    options: SinkOptions,
    messages: Sequence[WriterCommitMessage | None],
    folder: JobPlace,
    naming: Naming | None,
    sources: Mapping[str, int] | None = None,
) -> Mapping[str, Appended]:
    """Number and commit what the tasks say; one that has failed has no message. See `commit_results`."""
    return commit_results(
        connect(options.root, options.storage, access="spark"),
        options.topic,
        [message.result for message in messages if isinstance(message, Message)],
        folder.files,
        StagedCommit(codec=options.codec, timeout_ms=options.timeout_ms, naming=naming, sources=sources),
    )


def say_duplicates(written: Mapping[str, Appended], why: str) -> None:
    """Say in the log which topics had the records already."""
    for topic, done in written.items():
        if done.duplicate:
            _log.warning("%s: nothing was written: %s", topic, why)


NAME_LENGTH: Final = 32
"""Characters of the name of a query's folder."""

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property in which Spark gives its tasks the query."""


@dataclass
class StreamMessage(Message):
    """What a task has staged, and for which query."""

    query_id: str | None


class StreamSink(DataSourceStreamArrowWriter):
    """Writes the batches of one query. Spark makes one for each batch, and another one for its commit.

    Args:
        options: checked options.
        schema: the DataFrame's.

    Raises:
        AnalysisException: a column is missing or has a wrong type.
        InvalidTopicError, UnknownTopicOrPartitionError: a bad name, or a topic that is missing and must not be created.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        # An object store is tried out by the process that commits: Spark makes two writers for each batch.
        cluster = connect(options.root, options.storage, access="offline")
        check_sink_columns(schema, options)
        self._options = options
        self._target = begin(
            cluster,
            options.topic,
            codec=options.codec,
            timestamps=options.timestamps,
            names_partitions="partition" in schema.fieldNames(),
        )
        self._folder = _folder(cluster, options)
        self._folder.make()
        self._prompt = PromptAnswer()

    @hide_frames
    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        return StreamMessage(stage_topics(self._target, self._folder, iterator, task_number()), query_id)

    @hide_frames
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Number and commit a batch, unless it was committed before.

        Raises:
            CheckpointMismatchError: another checkpoint has used the id; nothing was written.
            IllegalArgumentError: the checkpoint is another query's; nothing was written.
            KafkaError: see `kafkalike.spark.write`.
        """
        options = self._options
        faults.point("stream.before_write")
        try:
            owner, offsets = self._batch(messages, batchId)
            version = StreamVersion.of(batchId, owner, offsets.fingerprint)
            app = app_id(options.txn_id, owner)
            naming = Naming(app, version.encode(), lambda topic, known: next_txn(topic, app, known, version))
            written = commit_messages(options, messages, self._folder, naming, offsets.partitions)
        finally:
            self._folder.remove()
        faults.point("stream.after_write")
        say_duplicates(written, f"batch {batchId} had been written before")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what was staged."""
        self._folder.remove()

    def _batch(self, messages: list[WriterCommitMessage | None], batch_id: int) -> tuple[str, BatchOffsets]:
        """The query that a batch belongs to, and what the batch reads."""
        checkpoint = checkpoint_at(self._options.checkpoint or "", self._options.storage)
        owner = checkpoint.query_id()
        queries = {message.query_id for message in messages if isinstance(message, StreamMessage)}
        if owner is None or queries != {owner}:
            raise IllegalArgumentError(
                f"{checkpoint.location} is not the checkpoint of this query, or not a folder of this machine; nothing "
                f"was written: it belongs to {owner or 'none'}, and the query is "
                f"{', '.join(sorted(map(str, queries))) or 'not known'}"
            )
        return owner, checkpoint.offsets(batch_id)


def _folder(cluster: Cluster, options: SinkOptions) -> JobPlace:
    """The query's folder: the same in all processes of a driver, another one after its restart."""
    name = hashlib.sha256(f"{options.checkpoint or ''}\0{DriverProcess.above()}".encode()).hexdigest()[:NAME_LENGTH]
    return job_place(cluster.store, name, options.scratch)
