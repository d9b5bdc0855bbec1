"""Sink commit: what the tasks of a Spark job have put down in, one table commit for each of its topics out.

For jobs that write through the format: Spark calls for their commit in a Python process of its own on the driver's
machine, which has no Spark session. What is put down where, and the loop that numbers and commits it, is that of
`append_staged`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.errors import IllegalArgumentError, OutOfOrderSequenceNumberError, TopicDeletedError
from kafkalike.log.delta_cluster import DeltaCluster
from kafkalike.log.port import Appended, TxnId
from kafkalike.log.staged_payload import StagedPayload, raise_told
from kafkalike.log.staged_topics import MAX_TOPICS, TOO_MANY_TOPICS, KnownTopic, Target, TaskResult
from kafkalike.log.staging import Run
from kafkalike.log.staging_folder import clear_staging
from kafkalike.log.staging_lease import Driver, JobFolder
from kafkalike.log.topic_log import DeltaTopicLog


def begin(cluster: DeltaCluster, topic: str | None, txn: TxnId | None = None) -> Target:
    """Make ready for a job: create its topic if need be, and remove what jobs that were killed have left.

    Args:
        cluster: where the records go.
        topic: the topic of all records; None: each record names its own.
        txn: names the write; with a topic of its own the job is told when it is a rerun.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: a bad name, or a topic that is missing and must not be created.
        OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never written.
    """
    infos = cluster.topics() if topic is None else {topic: cluster.ensure_topic(topic)}
    clear_staging(cluster.root, Deadline(SYSTEM_CLOCK, None))
    known = {name: KnownTopic.of(cluster, info) for name, info in infos.items()}
    written = topic is not None and txn is not None and _again(cluster.log(topic), txn) is not None
    return Target(cluster.root, topic, known, written)


def job_folder(cluster: DeltaCluster, name: str | None = None) -> JobFolder:
    """A folder for a job of the Spark driver that this process belongs to; a new one without a name."""
    return JobFolder(cluster.root, uuid.uuid4().hex if name is None else name, Driver.above())


def commit_results(
    cluster: DeltaCluster,
    target_topic: str | None,
    results: Sequence[TaskResult],
    *,
    codec: str,
    timeout_ms: float,
    txn: Callable[[DeltaTopicLog], TxnId | None],
) -> Mapping[str, Appended]:
    """Number and commit what the tasks of a job have put down.

    Args:
        cluster: where the topics are.
        target_topic: the topic of all records; None: what the tasks say.
        results: one of each task.
        codec: compression, used when a topic says `producer`.
        timeout_ms: how long to wait for rivals, for each topic, ms.
        txn: names the write to a topic; all topics are asked before the first one is written.

    Returns:
        What was written, by topic.

    Raises:
        KafkaError: see `kafkalike.spark.write`.
        OutOfOrderSequenceNumberError: tasks left out rows that the topic had, and has them no more; nothing was
            written.
    """
    for result in results:
        if result.error is not None:
            raise_told(result.refused_by or "the write", result.refusal, result.error)
    runs = _runs(results)
    names = sorted(runs) if target_topic is None else [target_topic]
    if len(names) > MAX_TOPICS:
        raise IllegalArgumentError(TOO_MANY_TOPICS)
    faults.point("append.staged")
    logs = {
        name: _same(cluster.log(name), {r.topics[name].topic_id for r in results if name in r.topics}) for name in names
    }
    txns = {name: txn(log) for name, log in logs.items()}
    left_out = {name for result in results for name, put in result.topics.items() if put.left_out}
    written = {}
    for name, log in logs.items():
        if name in left_out:
            written[name] = _still_there(log, txns[name])
            continue
        payload = StagedPayload(runs.get(name, []))
        deadline = Deadline(SYSTEM_CLOCK, timeout_ms)
        written[name] = log.append_payload(payload, codec=codec, deadline=deadline, txn=txns[name])
        faults.point("stream.between_topics")
    return written


def _again(log: DeltaTopicLog, txn: TxnId) -> Appended | None:
    """The earlier write of the same `TxnId`, if the topic has it now."""
    log.ready_to_append()
    return log.already_appended(txn)


def _still_there(log: DeltaTopicLog, txn: TxnId | None) -> Appended:
    """The write that made tasks leave their rows out."""
    found = None if txn is None else _again(log, txn)
    if found is None:
        raise OutOfOrderSequenceNumberError(
            f"{log.info.name}: nothing was written: the topic had the records when the job began, and does not show "
            "them any more; run it again"
        )
    return found


def _runs(results: Sequence[TaskResult]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for result in results:
        for name, put in result.topics.items():
            found.setdefault(name, []).extend(put.runs)
    return found


def _same(log: DeltaTopicLog, ids: set[str]) -> DeltaTopicLog:
    """Refuse records that were given their partitions for another life of the topic."""
    for known in ids - {log.info.topic_id}:
        raise TopicDeletedError(log.info.name, known, log.info.topic_id)
    return log
