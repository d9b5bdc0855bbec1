"""Sink of a batch query: checked options and a DataFrame's schema in, one table commit or transaction out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkalike.connect import connect_delta, connect_to_write
from kafkalike.errors import IllegalArgumentError
from kafkalike.maintenance.staging.folder import JobPlace, job_place
from kafkalike.spark.format.named import plainly
from kafkalike.spark.format.sink_options import SinkOptions, check_sink_columns
from kafkalike.spark.jvm.prompt_answer import PromptAnswer
from kafkalike.spark.jvm.task_number import task_number
from kafkalike.spark.staged.commit import Commit, begin, commit_results
from kafkalike.spark.staged.naming import Naming
from kafkalike.spark.staged.topics import TaskResult, stage_topics

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from kafkalike.model.appends import Appended

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
        cluster = connect_to_write(options.root, options.storage)
        check_sink_columns(schema, options)
        self._options = options
        self._target = begin(cluster, options.topic, options.txn, codec=options.codec, timestamps=options.timestamps)
        self._folder = job_place(cluster.store, scratch=options.scratch)
        self._folder.make()
        self._prompt = PromptAnswer()

    @plainly
    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task; those of a rerun are not looked at."""
        return Message(stage_topics(self._target, self._folder, iterator, task_number()))

    @plainly
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
) -> Mapping[str, Appended]:
    """Number and commit what the tasks say; one that has failed has no message. See `commit_results`."""
    return commit_results(
        connect_delta(options.root, options.storage),
        options.topic,
        [message.result for message in messages if isinstance(message, Message)],
        folder.files,
        Commit(codec=options.codec, timeout_ms=options.timeout_ms, naming=naming),
    )


def say_duplicates(written: Mapping[str, Appended], why: str) -> None:
    """Say in the log which topics had the records already."""
    for topic, done in written.items():
        if done.duplicate:
            _log.warning("%s: nothing was written: %s", topic, why)
