"""Stage the rows of a Spark task in files, for each of their topics.

This code runs in Spark's Python workers, which import only this module and its dependencies. If a topic rejects a
record, the task returns the error in its result. It must not fail, because Spark would retry it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import IllegalArgumentError, InvalidTopicError, KafkaError, UnknownTopicOrPartitionError
from kafkalike.log.runs.run_files import RunFile, read_runs
from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.topic.column_rules import WAITING, ColumnRouter, Rules
from kafkalike.maintenance.staging_prefix import StagingFolder
from kafkalike.model import faults
from kafkalike.model.names import check_topic_name
from kafkalike.storage.port import Storage

MAX_TOPICS: Final = 1_000
"""Most topics in the column of one DataFrame, because each one is a table commit."""

NULL_TOPIC: Final = (
    "null topic present in the data (KAFKA_NULL_TOPIC_IN_DATA); use the topic option for setting a topic, or give "
    "every row one"
)
TOO_MANY_TOPICS: Final = f"the DataFrame names more than {MAX_TOPICS} topics"

_COLUMNS: Final = ("partition", "timestamp", "key", "value")
_BYTES: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic at the start of the job."""

    topic_id: str
    rules: Rules
    codec: str | None
    """Compression of the segments that tasks write. None if only the commit can write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTarget:
    """The topics of a job's rows, with their rules. It is sent to the tasks."""

    topic: str | None
    """The topic of all rows. None takes the column `topic`."""
    known: Mapping[str, KnownTopic]
    """That topic, or all topics of the cluster."""
    missing: Rules | None
    """Rules of missing topics, which the commit creates. None if every topic must exist."""
    named: Mapping[str, Rules] = field(default_factory=dict)
    """Rules of missing topics that already have schemas, if topics check schemas by default."""
    missing_codec: str | None = None
    """Compression of missing topics that are not in `named`; see `KnownTopic.codec`."""
    written: bool = False
    """True for a rerun: the topic had the job's records before, so the rows are skipped."""
    timestamps: bool = True
    """Takes the column `timestamp` as the time of the records."""

    def rules(self, topic: str) -> Rules:
        """Return the rules of a topic.

        Raises:
            InvalidTopicError: the name is not valid for a topic.
            UnknownTopicOrPartitionError: the topic does not exist, and topics are not created automatically.
        """
        known = self.known.get(check_topic_name(topic))
        if known is not None:
            return known.rules
        if self.missing is None:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist, and auto.create.topics.enable=false")
        return self.named.get(topic, self.missing)

    def codec(self, topic: str) -> str | None:
        """Return a topic's compression; see `KnownTopic`."""
        known = self.known.get(topic)
        if known is not None:
            return known.codec
        return None if topic in self.named else self.missing_codec


@dataclass(frozen=True, slots=True)
class TopicRuns:
    """The staged runs of a task for one topic."""

    topic_id: str | None
    """None if the topic did not exist when the job started."""
    runs: Sequence[StagedRun | LargeRun]
    left_out: bool = False
    """True if the rows were skipped, because the topic had the job's records before; see `StagingTarget.written`."""
    assumed: Rules | None = None
    """Rules that a missing topic must have when it is created."""
    highest: int = WAITING
    """Highest partition that a record names, if the number of partitions follows the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The staged rows of a task, or its error."""

    topics: Mapping[str, TopicRuns] = field(default_factory=dict)
    refusal: str | None = None
    """Class name of the error, if a topic rejected a record."""
    error: str | None = None
    """The error message. With `refusal` None, the storage failed."""
    refused_by: str = ""
    """The topic of the error, if there is one."""


def left_out(target: StagingTarget) -> TaskResult:
    """Return the result of a task of a rerun, whose rows are skipped."""
    return TaskResult(
        topics={name: TopicRuns(known.topic_id, [], left_out=True) for name, known in target.known.items()}
    )


def stage_topics(
    target: StagingTarget, folder: StagingFolder, batches: Iterable[pa.RecordBatch], task: int
) -> TaskResult:
    """Stage the rows of one Spark task, sorted by topic and partition.

    Args:
        target: topics of the rows.
        folder: the job's folder.
        batches: the DataFrame's columns, checked by `record_columns`. Other columns than a record's are left out. Null
            headers may also be empty ones with a column `has_headers`, see `record_columns.arrow_columns`.
        task: number of the Spark partition of the rows.

    Returns:
        The staged runs. A file that no result names is removed with the folder at the latest.
    """
    if target.written:
        return left_out(target)
    file = RunFile(folder.files, task, target.codec)
    routers: dict[str, ColumnRouter] = {}
    at_work = target.topic or ""
    kept = False
    try:
        lease = folder.enter()
        for batch in batches:
            at_work = target.topic or ""
            for name, rows in _by_topic(target.topic, batch):
                at_work = name
                if name not in routers:
                    routers[name] = _router(target, name, len(routers), task)
                file.add(name, routers[name].routed(_records(rows, timestamps=target.timestamps)))
            lease.renew()
        file.finish()
        faults.point("sink.staged")
        kept = True
        return TaskResult(
            topics={name: _runs_of(target, name, runs, routers[name].highest) for name, runs in file.runs.items()}
        )
    except KafkaError as cause:
        return TaskResult(refusal=type(cause).__name__, error=str(cause), refused_by=at_work)
    except OSError as cause:
        return TaskResult(error=f"{type(cause).__name__}: {cause}", refused_by=at_work)
    finally:
        if not kept:
            file.give_up()


def place_waiting(
    staged: Storage, topic: str, runs: Sequence[StagedRun | LargeRun], rules: Rules
) -> list[StagedRun | LargeRun]:
    """Give waiting records their partitions; see `ColumnRouter`.

    Args:
        staged: the job's folder, to which files are added.
        topic: the topic.
        runs: staged runs of the topic.
        rules: the rules of the topic, after its creation.

    Returns:
        The runs, without waiting records.

    Raises:
        KafkaError: the topic rejects a record.
        OSError, pa.ArrowException: the storage failed.
    """
    found = [run for run in runs if run.partition != WAITING]
    waiting: dict[int, list[StagedRun]] = {}
    for run in runs:
        if isinstance(run, StagedRun) and run.partition == WAITING:
            waiting.setdefault(run.task, []).append(run)
    for task, own in waiting.items():
        file, router = RunFile(staged, task, lambda _: None), ColumnRouter(rules, task)
        for batch in read_runs(staged, own):
            names = ["partition" if name == "given" else name for name in batch.schema.names]
            file.add(topic, router.routed(pa.Table.from_batches([batch]).rename_columns(names)))
        file.finish()
        # After records of the same task that named their partitions before the first waiting record.
        found += file.runs[topic]
    return found


def _router(target: StagingTarget, topic: str, others: int, task: int) -> ColumnRouter:
    """Return the router that gives a topic's records their partitions."""
    if others == MAX_TOPICS:
        raise IllegalArgumentError(TOO_MANY_TOPICS)
    return ColumnRouter(target.rules(topic), task)


def _runs_of(target: StagingTarget, topic: str, runs: Sequence[StagedRun | LargeRun], highest: int) -> TopicRuns:
    known = target.known.get(topic)
    if known is None:
        return TopicRuns(None, runs, assumed=target.rules(topic), highest=highest)
    return TopicRuns(known.topic_id, runs)


def _by_topic(topic: str | None, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by topic, in the order of its rows."""
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, batch
        return
    column = batch.column("topic")
    if column.null_count:
        raise IllegalArgumentError(NULL_TOPIC)
    try:
        names = pc.unique(column).to_pylist()
    except UnicodeDecodeError as cause:
        raise InvalidTopicError(f"a topic's name is not UTF-8: {cause.object!r}") from cause
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))


def _records(rows: pa.RecordBatch, *, timestamps: bool) -> pa.Table:
    """Select the columns for `ColumnRouter.routed`."""
    names = [name for name in _COLUMNS if name in rows.schema.names and (timestamps or name != "timestamp")]
    columns = {name: rows.column(name) for name in names}
    for name in columns.keys() & {"key", "value"}:
        kind = columns[name].type
        columns[name] = columns[name].cast(_BYTES.get(kind, kind))
    if "has_headers" in rows.schema.names:
        columns |= {name: rows.column(name) for name in ("headers", "has_headers")}
    elif "headers" in rows.schema.names:
        given = rows.column("headers")
        columns["has_headers"] = given.is_valid()
        columns["headers"] = pa.ListArray.from_arrays(given.offsets, given.values)
    return pa.table(columns)
