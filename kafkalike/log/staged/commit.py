"""Staged commit: what the tasks of a Spark job have staged in, one table commit for each of its topics out.

For every job that writes: that of `kafkalike.spark.write`, whose commit is made by the process that
called it, and those that write through the format, for which Spark calls in a Python process of its own on the driver's
machine. Nothing here needs a Spark session.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import (
    IllegalArgumentError,
    OutOfOrderSequenceNumberError,
    TopicAlreadyExistsError,
    TopicDeletedError,
)
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.log.runs.payload import StagedPayload, Writing, in_threads, raise_told
from kafkalike.log.runs.runs import LargeRun, Run
from kafkalike.log.staged.folder import clear_staging
from kafkalike.log.staged.topics import MAX_TOPICS, TOO_MANY_TOPICS, KnownTopic, Target, TaskResult
from kafkalike.log.store.port import Store
from kafkalike.log.topic.batch_payload import PARQUET_CODECS
from kafkalike.log.topic.column_rules import Rules
from kafkalike.log.topic.topic_log import DeltaTopicLog
from kafkalike.log.topic.validate import MAX_TIMESTAMP_MS, codec_for
from kafkalike.model.appends import Appended, TxnId
from kafkalike.model.topic import TopicInfo

TxnOf = Callable[[DeltaTopicLog], TxnId | None]
"""Names the write to a topic."""


def target_of(
    cluster: DeltaCluster, topic: str | None, *, codec: str, written: bool = False, timestamps: bool = True
) -> Target:
    """Where the records of a job go; creates the topic of all of them if need be.

    Args:
        cluster: where the records go.
        topic: the topic of all records; None: each record names its own.
        codec: compression, used when a topic says `producer`.
        written: whether that topic has the records already; see `found_again`.
        timestamps: whether a column `timestamp` is the time of the records.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: a bad name, or a topic that is missing and must not be created.
    """
    infos = cluster.topics() if topic is None else {topic: cluster.ensure_topic(topic)}
    known = {name: _known(cluster, info, codec) for name, info in infos.items()}
    missing = None
    if topic is None and cluster.server.auto_create_topics:
        missing = _rules(cluster, cluster.server.num_partitions, _config(cluster, {}))
    return Target(topic=topic, known=known, missing=missing, written=written, timestamps=timestamps)


def begin(
    cluster: DeltaCluster, topic: str | None, txn: TxnId | None = None, *, codec: str, timestamps: bool = True
) -> Target:
    """`target_of` for a job that writes through the format; removes what jobs that were killed have left.

    Args:
        cluster: where the records go.
        topic: the topic of all records; None: each record names its own.
        txn: names the write; with a topic of its own, the target says whether it is a rerun.
        codec: compression, used when a topic says `producer`.
        timestamps: whether a column `timestamp` is the time of the records.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: see `target_of`.
        OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never written.
    """
    target = target_of(cluster, topic, codec=codec, timestamps=timestamps)
    if cluster.store.reach == "machine":
        # In an object store that would be a request for each micro-batch, and only maintenance makes it.
        clear_staging(cluster.store, Deadline(SYSTEM_CLOCK, None))
    if topic is None or txn is None:
        return target
    return replace(target, written=found_again(cluster.log(topic), txn) is not None)


def _config(cluster: DeltaCluster, configs: Mapping[str, str]) -> TopicConfig:
    return TopicConfig.from_properties(cluster.server.effective(configs))


def _known(cluster: DeltaCluster, info: TopicInfo, codec: str) -> KnownTopic:
    config = _config(cluster, info.configs)
    # Elsewhere than on a disk no file is changed once it is there; and LogAppendTime is only known at the commit.
    ready = cluster.store.reach == "machine" and not config.log_append_time
    own = PARQUET_CODECS[codec_for(config, codec)] if ready else None
    return KnownTopic(info.topic_id, _rules(cluster, info.num_partitions, config), own)


def _rules(cluster: DeltaCluster, num_partitions: int, config: TopicConfig) -> Rules:
    """A topic's rules now; records without key begin at a partition drawn anew."""
    turn = random.randrange(num_partitions)  # noqa: S311 - spreads small writes, guards nothing
    return Rules.of(num_partitions, config, cluster.clock, turn)


def commit_results(
    cluster: DeltaCluster,
    target_topic: str | None,
    results: Sequence[TaskResult],
    staged: Store,
    *,
    codec: str,
    timeout_ms: float,
    txn: TxnOf,
    write_all: Writing = in_threads,
) -> Mapping[str, Appended]:
    """Number and commit what the tasks of a job have staged.

    Args:
        cluster: where the topics are.
        target_topic: the topic of all records; None: what the tasks say.
        results: one of each task.
        staged: the job's folder.
        codec: compression, used when a topic says `producer`.
        timeout_ms: how long to wait for other writers, for each topic, ms.
        txn: names the write to a topic; all topics are asked before the first one is written.
        write_all: writes the segments.

    Returns:
        What was written, by topic.

    Raises:
        KafkaError: see `kafkalike.spark.write`.
        OutOfOrderSequenceNumberError: tasks left out rows that the topic had, and has them no more; nothing was
            written.
        TopicAlreadyExistsError: a topic that was missing was created by somebody else with other settings; nothing
            was written.
    """
    for result in results:
        if result.error is not None:
            raise_told(result.refused_by or "the write", result.refusal, result.error)
    runs = _runs(results)
    names = sorted(runs) if target_topic is None else [target_topic]
    if len(names) > MAX_TOPICS:
        raise IllegalArgumentError(TOO_MANY_TOPICS)
    faults.point("append.staged")
    logs = {name: _open(cluster, name, results) for name in names}
    txns = {name: txn(log) for name, log in logs.items()}
    left_out = {name for result in results for name, put in result.topics.items() if put.left_out}
    written = {}
    for name, log in logs.items():
        if name in left_out:
            written[name] = _still_there(log, txns[name])
            continue
        payload = StagedPayload(staged, runs.get(name, []), write_all)
        deadline = Deadline(SYSTEM_CLOCK, timeout_ms)
        written[name] = log.append_payload(payload, codec=codec, deadline=deadline, txn=txns[name])
        faults.point("stream.between_topics")
    return written


def found_again(log: DeltaTopicLog, txn: TxnId) -> Appended | None:
    """The earlier write of the same `TxnId`, if the topic has it now.

    Raises:
        OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never written.
    """
    log.ready_to_append()
    return log.already_appended(txn)


def _still_there(log: DeltaTopicLog, txn: TxnId | None) -> Appended:
    """The write that made tasks leave their rows out."""
    found = None if txn is None else found_again(log, txn)
    if found is None:
        raise OutOfOrderSequenceNumberError(
            f"{log.info.name}: nothing was written: the topic had the records when the job began, and does not show "
            "them any more; run it again"
        )
    return found


def _runs(results: Sequence[TaskResult]) -> dict[str, list[Run | LargeRun]]:
    found: dict[str, list[Run | LargeRun]] = {}
    for result in results:
        for name, put in result.topics.items():
            found.setdefault(name, []).extend(put.runs)
    return found


def _open(cluster: DeltaCluster, name: str, results: Sequence[TaskResult]) -> DeltaTopicLog:
    """The log of a topic, which is created if it was missing when the job began.

    Raises:
        TopicDeletedError: records were given their partitions for another life of the topic.
        TopicAlreadyExistsError: it was missing, and has other settings now than it would have been created with.
    """
    staged = [result.topics[name] for result in results if name in result.topics]
    for assumed in {put.assumed for put in staged if put.assumed is not None}:
        info = cluster.ensure_topic(name)
        now = _rules(cluster, info.num_partitions, _config(cluster, info.configs))
        if _lasting(now) != _lasting(assumed):
            raise TopicAlreadyExistsError(
                f"topic {name!r} did not exist when the job began, and was created meanwhile with settings that are "
                "not the cluster's defaults; nothing was written; run it again"
            )
    log = cluster.log(name)
    for known in {put.topic_id for put in staged if put.topic_id is not None} - {log.info.topic_id}:
        raise TopicDeletedError(name, known, log.info.topic_id)
    return log


def _lasting(rules: Rules) -> Rules:
    """Rules without what differs from one moment to the next: the limits of time become what they are counted with."""
    before = 0 if rules.min_time_ms == 0 else rules.now_ms - rules.min_time_ms
    after = 0 if rules.max_time_ms == MAX_TIMESTAMP_MS else rules.max_time_ms - rules.now_ms
    return replace(rules, first_turn=0, now_ms=int(rules.now_ms > 0), min_time_ms=before, max_time_ms=after)
