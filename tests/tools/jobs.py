"""Jobs: rows in, what Spark's tasks stage of them, and one commit as a driver makes it, out; without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.staging_folder import staging_place
from kafkalike.maintenance.staging_prefix import StagingFolder
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.spark.writes.commit import StagedCommit, commit_results
from kafkalike.spark.writes.staged_files import StagingTarget, TaskResult, stage_topics
from kafkalike.spark.writes.targets import target_of
from kafkalike.spark.writes.transactional_write import Naming

if TYPE_CHECKING:
    from kafkalike.model.transactions.group_claims import GroupOffsets

Rows = Sequence[tuple[str, str]]
"""Topic and value of each row."""


def arrow(rows: Iterable[tuple[str | None, str]], partition: int | None = None) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    topics, values = zip(*rows, strict=True)
    columns = {"topic": pa.array(topics, pa.string()), "value": pa.array(values)}
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(topics), pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def staged(target: StagingTarget, folder: StagingFolder, tasks: Sequence[Rows]) -> list[TaskResult]:
    """The results of tasks, which write all of their rows to partition 0."""
    return [stage_topics(target, folder, [arrow(rows, 0)] if rows else [], number) for number, rows in enumerate(tasks)]


def write_rows(
    cluster: Cluster, *tasks: Rows, name: tuple[str, int] | None = None, **more: Any
) -> Mapping[str, Appended]:
    """Write what a job of some tasks computes, each row to its topic.

    Args:
        cluster: where to.
        tasks: the rows of each.
        name: application and version.
        more: other fields of `StagedCommit`.
    """
    naming = None if name is None else Naming.of(TxnId(*name))
    how = StagedCommit(**{"codec": "none", "timeout_ms": 60_000, "naming": naming, **more})
    with staging_place(cluster.store) as folder:
        results = staged(target_of(cluster, None, codec="none"), folder, tasks)
        return commit_results(cluster, None, results, folder.files, how)


def spread(values: Iterable[str], topics: Sequence[str]) -> list[tuple[str, str]]:
    """Each value for each topic."""
    return [(topic, value) for value in values for topic in topics]


def offsets_of(group_id: str, topic: str, at: int) -> GroupOffsets:
    """An offset of partition 0 for a group without members."""
    from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
    from kafkalike.model.transactions.group_claims import GroupClaim

    claim = GroupClaim(group_id=group_id, alone=True, client_id="test")
    return {claim: {TopicPartition(topic, 0): OffsetAndMetadata(at)}}
