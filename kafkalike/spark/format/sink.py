"""The format's sinks: tasks stage the rows of a batch or streaming query, then the driver commits them to topics.

Options have the names of Spark's Kafka sink.

Spark tells a streaming sink a batch's number, but not the query. The tasks find the query's id in their local
properties, and the checkpoint, which the options name, holds it as well. So each batch carries both into the table
(decision 012).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, UnsupportedCodecError
from kafkalike.maintenance.staging_folder import JobPlace, job_place
from kafkalike.maintenance.staging_lease import DriverProcess
from kafkalike.model import faults
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.config.topic_config import CODECS
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.spark.format.option_values import MAX_INT, MAX_LONG, by_known_name, flag, is_first, number, warn_of_names
from kafkalike.spark.format.source_options import BOOTSTRAP, root_of
from kafkalike.spark.format.source_options import KNOWN as SOURCE_OPTIONS
from kafkalike.spark.jvm.python_worker import PromptAnswer, task_number
from kafkalike.spark.jvm.spark_errors import hide_frames
from kafkalike.spark.jvm.spark_version import StreamArrowWriter
from kafkalike.spark.jvm.stream_checkpoint import check_location, checkpoint_at
from kafkalike.spark.record_columns import check_columns
from kafkalike.spark.writes.commit import StagedCommit, begin, commit_results
from kafkalike.spark.writes.staged_files import TaskResult, stage_topics
from kafkalike.spark.writes.transactional_write import Naming, StreamVersion, app_id, next_txn

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.storage.port import Storage


CHECKPOINT: Final = "checkpointLocation"
COMPRESSION: Final = "kafka.compression.type"
TIMEOUT: Final = "kafka.delivery.timeout.ms"
TIMEOUT_MS: Final = 120_000

USE_TIMESTAMP: Final = "useTimestampColumn"

KNOWN: Final = (BOOTSTRAP, "topic", COMPRESSION, TIMEOUT, USE_TIMESTAMP, "txnAppId", "txnVersion", CHECKPOINT)
"""Options with an effect."""

OF_SOURCES: Final = {name.lower() for name in SOURCE_OPTIONS} - {"kafka.group.id", "includeheaders"}

NO_MEANING: Final = {"includeHeaders": "the column headers is written wherever there is one"}
"""Options of Spark's Kafka sink without an effect here; each one gets a warning."""

REFUSED: Final = {
    "kafka.key.serializer": "keys are written as bytes; cast them in the query",
    "kafka.value.serializer": "values are written as bytes; cast them in the query",
    "kafka.key.deserializer": "it belongs to a consumer",
    "kafka.value.deserializer": "it belongs to a consumer",
    "kafka.interceptor.classes": "there is no Kafka client that could call them",
    "kafka.partitioner.class": "it is a class of the JVM; give rows a column partition, or use kafkalike.spark.write "
    "with a partitioner",
    "kafka.transactional.id": "a write is one table commit per topic; txnAppId and txnVersion make a rerun add nothing",
}
"""Kafka settings that Spark's Kafka sink refuses, or that would change the written bytes, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of a sink."""

    root: str
    """The cluster's root, as given."""
    storage: SentOptions | None
    """Credentials and endpoint of an object store. None takes the environment's."""
    topic: str | None
    """The topic of all rows. None takes the column `topic`."""
    codec: str
    timeout_ms: int
    """Longest wait for other writers, per topic, ms."""
    timestamps: bool
    """Takes the column `timestamp` as the time of the records; Spark's Kafka sink ignores it."""
    txn: TxnId | None
    """Name of a batch query's write."""
    txn_id: str | None
    """Name of a streaming query."""
    checkpoint: str | None
    """Checkpoint location of a streaming query."""
    scratch: str | None = None
    """A folder of this machine for staged files, if all tasks share it and one table commit completes the write."""


def parse_batch(given: Mapping[str, str], storage: SentOptions | None = None) -> SinkOptions:
    """Check the options of a batch query, and log a warning for options without an effect.

    Raises:
        IllegalArgumentError, UnsupportedCodecError, InvalidTopicError: an option is unknown, refused, missing, or has a
            value that is not allowed.
    """
    options = _known(given, warn=True)
    if options.pop(CHECKPOINT, None) is not None:
        _log.warning("option %s has no effect in a batch query, which has no checkpoint", CHECKPOINT)
    app, version = options.get("txnAppId"), number(options, "txnVersion", MAX_LONG, 0)
    if (app is None) != (version is None):
        raise IllegalArgumentError("options txnAppId and txnVersion go together")
    if app is None or version is None:
        return _parse(options, None, storage)
    if not app:
        raise IllegalArgumentError("option txnAppId must not be empty")
    return _parse(options, TxnId(app, version), storage)


def parse_stream(given: Mapping[str, str], storage: SentOptions | None = None) -> SinkOptions:
    """Check the options of a streaming query, and log a warning for options without an effect.

    Raises:
        IllegalArgumentError, UnsupportedCodecError, InvalidTopicError: as for a batch query; or the checkpoint is not
            named, or is neither on this machine nor in an object store.
    """
    # Spark creates two writers for each batch, but the warning should appear once per run of the query.
    options = _known(given, warn=is_first(f"sink {given.get(CHECKPOINT, '')} {sorted(given)}"))
    if "txnVersion" in options:
        raise IllegalArgumentError("option txnVersion belongs to batch queries: a stream's batches have numbers")
    if options.get("txnAppId") == "":
        raise IllegalArgumentError("option txnAppId must not be empty")
    instead = "; kafkalike.spark.write_stream takes it from anywhere"
    if not options.get(CHECKPOINT):
        raise IllegalArgumentError(
            f"option {CHECKPOINT} must be given to the writer, even if the session has a default, because the "
            f"checkpoint tells which batches were written{instead}"
        )
    try:
        check_location(options[CHECKPOINT])
    except IllegalArgumentError as cause:
        raise IllegalArgumentError(f"option {CHECKPOINT}: {cause}{instead}") from cause
    return _parse(options, None, storage)


def _known(given: Mapping[str, str], *, warn: bool) -> dict[str, str]:
    options = by_known_name(given, KNOWN, NO_MEANING, REFUSED)
    flag(options, "includeHeaders", default=True)
    if warn:
        # A table has the options of source and sink.
        own = {name: value for name, value in given.items() if name.lower() not in OF_SOURCES}
        warn_of_names(own, KNOWN, NO_MEANING)
    return options


def _parse(options: Mapping[str, str], txn: TxnId | None, storage: SentOptions | None) -> SinkOptions:
    codec = options.get(COMPRESSION, "none")
    if codec not in CODECS:
        raise UnsupportedCodecError(f"option {COMPRESSION} must be one of {', '.join(CODECS)}, not {codec!r}")
    topic = options.get("topic")
    timeout_ms = number(options, TIMEOUT, MAX_INT)
    return SinkOptions(
        root=root_of(options),
        storage=storage,
        topic=None if topic is None else check_topic_name(topic),
        codec=codec,
        timeout_ms=TIMEOUT_MS if timeout_ms is None else timeout_ms,
        timestamps=flag(options, USE_TIMESTAMP, default=False),
        txn=txn,
        txn_id=options.get("txnAppId"),
        checkpoint=options.get(CHECKPOINT),
    )


def check_sink_columns(schema: StructType, options: SinkOptions) -> None:
    """Check that the columns of a DataFrame make up records.

    Raises:
        AnalysisException: a column is missing or has a wrong type. The type of `timestamp` matters only with
            `useTimestampColumn`.
    """
    fields = [field for field in schema.fields if options.timestamps or field.name != "timestamp"]
    if options.timestamps and "timestamp" not in schema.fieldNames():
        raise AnalysisException(
            f"option {USE_TIMESTAMP} is true, but the DataFrame has no column 'timestamp'; it has "
            f"{', '.join(schema.fieldNames()) or 'no columns'}"
        )
    types = check_columns(StructType(fields), needs_topic=options.topic is None)
    if isinstance(types.get("timestamp"), StringType):
        raise AnalysisException(f"option {USE_TIMESTAMP}: timestamp must be a(n) timestamp, not string; cast it")


_log = logging.getLogger(__name__)


@dataclass
class Message(WriterCommitMessage):
    """The commit message of a task, with its staged files."""

    result: TaskResult


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Spark creates it on the driver, and sends it to the tasks and to the process that commits.

    Args:
        options: checked options.
        schema: the DataFrame's.
        overwrite: whether the mode is overwrite.

    Raises:
        IllegalArgumentError: a mode other than append.
        UnsafeStorageError: the root is read-only.
        AnalysisException: a column is missing or has a wrong type.
        InvalidTopicError, UnknownTopicOrPartitionError: the name is invalid, or the topic is missing and topics are not
            created automatically.
        OutOfOrderSequenceNumberError: `txnVersion` is below the latest version and was never written.
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
        """Stage the rows of a task; skips the rows of a rerun."""
        return Message(stage_topics(self._target, self._folder, iterator, task_number()))

    @hide_frames
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Number and commit the staged rows.

        Raises:
            KafkaError: see `kafkalike.spark.write`.
        """
        options = self._options
        try:
            written = commit_results(
                connect(options.root, options.storage, access="spark"),
                options.topic,
                [message.result for message in messages if isinstance(message, Message)],
                self._folder.files,
                StagedCommit(
                    codec=options.codec,
                    timeout_ms=options.timeout_ms,
                    naming=None if options.txn is None else Naming.of(options.txn),
                ),
            )
        finally:
            self._folder.remove()
        if options.txn is not None:
            say_duplicates(written, f"{options.txn.app_id} had written version {options.txn.version} before")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Remove the staged files."""
        self._folder.remove()


def say_duplicates(written: Mapping[str, Appended], why: str) -> None:
    """Log a warning for each topic that already had the records."""
    for topic, done in written.items():
        if done.duplicate:
            _log.warning("%s: nothing was written: %s", topic, why)


NAME_LENGTH: Final = 32
"""Length of the name of a query's folder."""

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property in which Spark gives its tasks the query's id."""


@dataclass
class StreamMessage(Message):
    """The commit message of a task of a streaming query, with the query's id."""

    query_id: str | None


class StreamSink(StreamArrowWriter):
    """Writes the batches of one query. Spark creates one for each batch, and another one for its commit.

    Args:
        options: checked options.
        schema: the DataFrame's.

    Raises:
        AnalysisException: a column is missing or has a wrong type.
        InvalidTopicError, UnknownTopicOrPartitionError: the name is invalid, or the topic is missing and topics are not
            created automatically.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        # The process that commits probes an object store; a second probe per batch would be wasted here.
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
        queries = {message.query_id for message in messages if isinstance(message, StreamMessage)}
        results = [message.result for message in messages if isinstance(message, Message)]
        try:
            cluster = connect(options.root, options.storage, access="spark")
            commit_batch(cluster, options, queries, batchId, results, self._folder.files)
        finally:
            self._folder.remove()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove the staged files."""
        self._folder.remove()


def commit_batch(  # noqa: PLR0917
    cluster: Cluster,
    options: SinkOptions,
    queries: Collection[str | None],
    batch_id: int,
    results: Sequence[TaskResult],
    staged: Storage,
) -> Mapping[str, Appended]:
    """Number and commit the staged rows of a batch, unless it was committed before.

    Args:
        cluster: cluster of the topics.
        options: options of the sink.
        queries: ids of the running query, as the tasks know them.
        batch_id: number of the batch.
        results: the results of its tasks.
        staged: the job's folder.

    Returns:
        The offsets written, by topic.

    Raises:
        CheckpointMismatchError, IllegalArgumentError, KafkaError: see `StreamSink.commit`.
    """
    faults.point("stream.before_write")
    checkpoint = checkpoint_at(options.checkpoint or "", options.storage)
    owner = checkpoint.query_id()
    if owner is None or set(queries) != {owner}:
        raise IllegalArgumentError(
            f"{checkpoint.location} is not the checkpoint of this query, or not a folder of this machine; nothing "
            f"was written: it belongs to {owner or 'none'}, and the query is "
            f"{', '.join(sorted(map(str, queries))) or 'not known'}"
        )
    offsets = checkpoint.offsets(batch_id)
    version = StreamVersion.of(batch_id, owner, offsets.fingerprint)
    app = app_id(options.txn_id, owner)
    naming = Naming(app, version.encode(), lambda topic, known: next_txn(topic, app, known, version))
    how = StagedCommit(codec=options.codec, timeout_ms=options.timeout_ms, naming=naming, sources=offsets.partitions)
    written = commit_results(cluster, options.topic, results, staged, how)
    faults.point("stream.after_write")
    say_duplicates(written, f"batch {batch_id} had been written before")
    return written


def _folder(cluster: Cluster, options: SinkOptions) -> JobPlace:
    """Return the query's folder: the same in all processes of a driver, and another one after a restart."""
    name = hashlib.sha256(f"{options.checkpoint or ''}\0{DriverProcess.above()}".encode()).hexdigest()[:NAME_LENGTH]
    return job_place(cluster.store, name, options.scratch)
