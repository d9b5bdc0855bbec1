"""Staged topics: rows that a Spark job writes through the format in, records put down for each of their topics out.

This runs in Spark's Python workers. A task that meets a record which its topic does not take says so in its result: it
must not fail, since Spark would try it again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalike import faults
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.log.connect import connect_delta
from kafkalike.log.routing import Router, Rules
from kafkalike.log.staging import Run, StagedFile, task_number
from kafkalike.model.names import check_topic_name

if TYPE_CHECKING:
    from kafkalike.log.delta_cluster import DeltaCluster
    from kafkalike.log.staging_lease import JobFolder
    from kafkalike.model.topic import TopicInfo

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

    @classmethod
    def of(cls, cluster: DeltaCluster, info: TopicInfo) -> KnownTopic:
        """The topic's rules now; records without key begin at a partition drawn anew."""
        config = TopicConfig.from_properties(cluster.server.effective(info.configs))
        turn = random.randrange(info.num_partitions)  # noqa: S311 - spreads small writes, guards nothing
        return cls(info.topic_id, Rules.of(info, config, cluster.clock, turn))


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows of a job go; travels to its tasks."""

    root: str
    """The cluster's."""
    topic: str | None
    """The topic of all rows; None: the column `topic` names it."""
    known: Mapping[str, KnownTopic]
    """That topic, or all of the cluster; what is missing is created by the task that names it first."""
    written: bool = False
    """The topic had the job's records before it began: a rerun, whose rows nobody needs."""


@dataclass(frozen=True, slots=True)
class TopicRuns:
    """What a task has put down for a topic."""

    topic_id: str
    runs: Sequence[Run]
    left_out: bool = False
    """The rows were not looked at, as the topic had the job's records before; see `Target.written`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task has put down, or why it has not."""

    topics: Mapping[str, TopicRuns] = field(default_factory=dict)
    refusal: str | None = None
    """Class of the error of a record that its topic does not take."""
    error: str | None = None
    """What happened; with `refusal` None it was the storage that refused."""
    refused_by: str = ""
    """The topic it is about, where there is one."""


def stage_topics(target: Target, folder: JobFolder, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Put the rows of one Spark task down, sorted by topic and partition.

    Args:
        target: where they go.
        folder: the job's.
        batches: the DataFrame's columns, checked by `expr.sink`; others than those of a record are left out.

    Returns:
        What was put down. A file that no result names is removed with the folder at the latest.
    """
    if target.written:
        return TaskResult(
            topics={name: TopicRuns(known.topic_id, [], left_out=True) for name, known in target.known.items()}
        )
    file = StagedFile(folder.path, task_number())
    topics = _Topics(target)
    kept = False
    try:
        lease = folder.enter()
        with file:
            for batch in batches:
                for name, rows in _by_topic(target.topic, batch):
                    file.add(name, topics.router(name).routed(_records(rows)))
                lease.renew()
        faults.point("sink.staged")
        kept = True
        return TaskResult(
            topics={name: TopicRuns(topics.known[name].topic_id, runs) for name, runs in file.runs.items()}
        )
    except KafkaError as cause:
        return TaskResult(refusal=type(cause).__name__, error=str(cause), refused_by=topics.last)
    except OSError as cause:
        return TaskResult(error=f"{type(cause).__name__}: {cause}", refused_by=topics.last)
    finally:
        if not kept:
            Path(file.path).unlink(missing_ok=True)


class _Topics:
    """The topics that one task writes to."""

    def __init__(self, target: Target) -> None:
        self.known = dict(target.known)
        self.last = target.topic or ""
        """The topic at work."""
        self._root = target.root
        self._routers: dict[str, Router] = {}

    def router(self, name: str) -> Router:
        """What gives the records of a topic their partitions."""
        self.last = name
        found = self._routers.get(name)
        if found is None:
            if len(self._routers) == MAX_TOPICS:
                self.last = ""
                raise IllegalArgumentError(TOO_MANY_TOPICS)
            if check_topic_name(name) not in self.known:
                cluster = connect_delta(self._root)
                self.known[name] = KnownTopic.of(cluster, cluster.ensure_topic(name))
            found = self._routers[name] = Router(self.known[name].rules, task_number())
        return found


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
    names = pc.unique(column).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))


def _records(rows: pa.RecordBatch) -> pa.Table:
    """The columns that `routing.routed` takes."""
    columns = {name: rows.column(name) for name in _COLUMNS if name in rows.schema.names}
    for name in columns.keys() & {"key", "value"}:
        kind = columns[name].type
        columns[name] = columns[name].cast(_BYTES.get(kind, kind))
    if "headers" in rows.schema.names:
        given = rows.column("headers")
        columns["has_headers"] = given.is_valid()
        columns["headers"] = pa.ListArray.from_arrays(given.offsets, given.values)
    return pa.table(columns)
