"""Stage the rows of a Spark task in files, for each of their topics.

This runs in Spark's Python workers, which import nothing but this module and what it needs. A task that meets a record
which its topic does not take says so in its result: it must not fail, since Spark would try it again.
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
"""Most topics one DataFrame may name in its column: each one is a table commit."""

NULL_TOPIC: Final = (
    "null topic present in the data (KAFKA_NULL_TOPIC_IN_DATA); use the topic option for setting a topic, or give "
    "every row one"
)
TOO_MANY_TOPICS: Final = f"the DataFrame names more than {MAX_TOPICS} topics"

_COLUMNS: Final = ("partition", "timestamp", "key", "value")
_BYTES: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic when the job began."""

    topic_id: str
    rules: Rules
    codec: str | None
    """Compression of the segments that tasks write; None where only the commit can write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingTarget:
    """Where the rows of a job go; travels to its tasks."""

    topic: str | None
    """The topic of all rows; None: the column `topic` names it."""
    known: Mapping[str, KnownTopic]
    """That topic, or all of the cluster."""
    missing: Rules | None
    """Rules of a topic that does not exist: the commit will create it. None: every topic must exist."""
    named: Mapping[str, Rules] = field(default_factory=dict)
    """Rules of such topics that have schemas already, where topics check these by default."""
    missing_codec: str | None = None
    """See `KnownTopic.codec`; of a topic that does not exist, and is not among those `named`."""
    written: bool = False
    """The topic had the job's records before it began: a rerun, whose rows nobody needs."""
    timestamps: bool = True
    """Whether a column `timestamp` is the time of the records."""

    def rules(self, topic: str) -> Rules:
        """The rules of a topic.

        Raises:
            InvalidTopicError: the name is not one of a topic.
            UnknownTopicOrPartitionError: it does not exist and must not be created.
        """
        known = self.known.get(check_topic_name(topic))
        if known is not None:
            return known.rules
        if self.missing is None:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist, and auto.create.topics.enable=false")
        return self.named.get(topic, self.missing)

    def codec(self, topic: str) -> str | None:
        """See `KnownTopic`."""
        known = self.known.get(topic)
        if known is not None:
            return known.codec
        return None if topic in self.named else self.missing_codec


@dataclass(frozen=True, slots=True)
class TopicRuns:
    """What a task has staged for a topic."""

    topic_id: str | None
    """None: the topic did not exist when the job began."""
    runs: Sequence[StagedRun | LargeRun]
    left_out: bool = False
    """The rows were not looked at, as the topic had the job's records before; see `StagingTarget.written`."""
    assumed: Rules | None = None
    """The rules that a topic which did not exist must have for these records."""
    highest: int = WAITING
    """The highest partition that a record names, where the topic grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task has staged, or why it has not."""

    topics: Mapping[str, TopicRuns] = field(default_factory=dict)
    refusal: str | None = None
    """Class of the error of a record that its topic does not take."""
    error: str | None = None
    """What happened; with `refusal` None it was the storage that refused."""
    refused_by: str = ""
    """The topic it is about, where there is one."""


def left_out(target: StagingTarget) -> TaskResult:
    """The result of a task of a rerun: its rows are not looked at."""
    return TaskResult(
        topics={name: TopicRuns(known.topic_id, [], left_out=True) for name, known in target.known.items()}
    )


def stage_topics(
    target: StagingTarget, folder: StagingFolder, batches: Iterable[pa.RecordBatch], task: int
) -> TaskResult:
    """Stage the rows of one Spark task, sorted by topic and partition.

    Args:
        target: where they go.
        folder: the job's.
        batches: the DataFrame's columns, checked by `record_columns`; others than those of a record are left out.
            Headers that are null may also be empty ones with a column `has_headers`, see
            `record_columns.arrow_columns`.
        task: number of the Spark partition that they come from.

    Returns:
        What was staged. A file that no result names is removed with the folder at the latest.
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
    """Give the records that waited for it their partitions; see `ColumnRouter`.

    Args:
        staged: the job's folder, which gets files of them.
        topic: theirs.
        runs: what the tasks have staged for it.
        rules: the topic's, now that it exists.

    Returns:
        The runs, in which no record waits.

    Raises:
        KafkaError: the topic does not take a record.
        OSError, pa.ArrowException: the storage refused.
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
        # Behind the records of the task that named their partitions before the first one did not.
        found += file.runs[topic]
    return found


def _router(target: StagingTarget, topic: str, others: int, task: int) -> ColumnRouter:
    """What gives the records of a topic their partitions."""
    if others == MAX_TOPICS:
        raise IllegalArgumentError(TOO_MANY_TOPICS)
    return ColumnRouter(target.rules(topic), task)


def _runs_of(target: StagingTarget, topic: str, runs: Sequence[StagedRun | LargeRun], highest: int) -> TopicRuns:
    known = target.known.get(topic)
    if known is None:
        return TopicRuns(None, runs, assumed=target.rules(topic), highest=highest)
    return TopicRuns(known.topic_id, runs)


def _by_topic(topic: str | None, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order."""
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
    """The columns that `ColumnRouter.routed` takes."""
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
