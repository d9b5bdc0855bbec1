"""Commit the records that the tasks of a Spark job have staged: one table commit, or one transaction.

`kafkalike.spark.write` commits in the calling process. For writes through the format, Spark commits in a Python process
of its own on the driver's machine. Nothing here needs a Spark session.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError, OutOfOrderSequenceNumberError
from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.runs.run_payload import StagedPayload, Writing, in_threads, raise_told
from kafkalike.log.topic.column_rules import WAITING
from kafkalike.maintenance.staging_folder import clear_staging
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import OnError
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.spark.writes.staged_files import MAX_TOPICS, TOO_MANY_TOPICS, StagingTarget, TaskResult, place_waiting
from kafkalike.spark.writes.targets import open_logs, target_of
from kafkalike.spark.writes.transactional_write import WHOLE, Naming, Together
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.transactions.group_claims import GroupOffsets
    from kafkalike.model.transactions.transactional_id import CommittedTransaction

SETTLING_MS: Final = 120_000
"""Longest wait, ms, until all topics have the transaction of an earlier process."""


def begin(
    cluster: Cluster,
    topic: str | None,
    txn: TxnId | None = None,
    *,
    codec: str,
    timestamps: bool = True,
    names_partitions: bool = False,
) -> StagingTarget:
    """Resolve the target of a job that writes through the format, and remove the staged files of killed jobs.

    Args:
        cluster: cluster of the topics.
        topic: the topic of all records; None: each record names its own.
        txn: names the write; with `topic`, the target tells whether it is a rerun.
        codec: compression, used when a topic says `producer`.
        timestamps: whether a column `timestamp` is the time of the records.
        names_partitions: see `target_of`.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: see `target_of`.
        OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never written.
    """
    target = target_of(cluster, topic, codec=codec, timestamps=timestamps, names_partitions=names_partitions)
    if cluster.store.coordination.reach == "machine":
        # In an object store this would cost a request per micro-batch, so only maintenance does it.
        clear_staging(cluster.store, Deadline(SYSTEM_CLOCK, None))
    if txn is None:
        return target
    written = written_before(cluster, Naming.of(txn), topic) is not None
    if topic in target.known and topic is not None and not written:
        written = found_again(cluster.log(topic), txn) is not None
    return replace(target, written=written)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """Options to commit the results of a job."""

    codec: str
    """Compression, used when a topic says `producer`."""
    timeout_ms: float
    """Longest wait for other writers, ms."""
    naming: Naming | None = None
    """Names the write. All topics are checked for it before the first one is written."""
    offsets: GroupOffsets = field(default_factory=dict)
    """Offsets of groups to commit with the records."""
    together: Together | None = None
    """Transactions of the application's writes to several topics, if the session is reused from write to write."""
    sources: Mapping[str, int] | None = None
    """Numbers of partitions of the topics that a streaming query reads; see `open_logs`."""


def commit_results(  # noqa: PLR0917
    cluster: Cluster,
    target_topic: str | None,
    results: Sequence[TaskResult],
    staged: Storage,
    how: StagedCommit,
    write_all: Writing = in_threads,
    write_kept: Writing | None = None,
) -> Mapping[str, Appended]:
    """Number and commit the staged records of a job: all of them or none.

    Records of one topic, without offsets, are one commit of its table. Otherwise a transaction is decided, and then
    each topic gets its part.

    Args:
        cluster: cluster of the topics.
        target_topic: the topic of all records; None: as in the tasks' results.
        results: the results of all tasks.
        staged: the job's folder.
        how: see `StagedCommit`.
        write_all: writes the segments, and may consume the staged files.
        write_kept: writes the segments, and keeps the staged files; None: threads of this process.

    Returns:
        The offsets written, by topic.

    Raises:
        KafkaError: see `kafkalike.spark.write`.
        OutOfOrderSequenceNumberError: tasks skipped rows that the topic had, and the topic has lost them since; nothing
            was written.
        TopicAlreadyExistsError: a missing topic was created meanwhile with other settings; nothing was written.
    """
    _check_results(results)
    naming = how.naming
    if naming is not None:
        before = written_before(cluster, naming, target_topic)
        if before is not None:
            return before
    targets = open_targets(cluster, target_topic, results, staged, how.sources)
    logs = {str(log.info.name): log for log, _ in targets}
    runs = {str(log.info.name): found for log, found in targets}
    left_out = {name for result in results for name, put in result.topics.items() if put.left_out}
    deadline = Deadline(SYSTEM_CLOCK, how.timeout_ms)
    if len(logs) > 1 or how.offsets:
        return _commit_together(cluster, logs, runs, left_out, staged, how, deadline, write_kept)
    written = {}
    for name, log in logs.items():
        txn = None if naming is None else naming.check(name, log.txn_version(naming.app_id))
        if name in left_out:
            written[name] = _still_there(log, txn)
            continue
        payload = StagedPayload(staged, runs.get(name, []), write_all)
        written[name] = log.append_payload(payload, codec=how.codec, deadline=deadline, txn=txn)
    return written


def open_targets(
    cluster: Cluster,
    target_topic: str | None,
    results: Sequence[TaskResult],
    staged: Storage,
    sources: Mapping[str, int] | None = None,
) -> list[tuple[TopicLog, list[StagedRun | LargeRun]]]:
    """Open the topics of a job's records, and create the missing ones; returns each log with its staged runs.

    Args:
        cluster: cluster of the topics.
        target_topic: the topic of all records; None: as in the tasks' results.
        results: the results of all tasks.
        staged: the job's folder.
        sources: see `StagedCommit`.

    Raises: see `commit_results`.
    """
    _check_results(results)
    runs = _runs(results)
    if target_topic is None and len(runs) > MAX_TOPICS:
        raise IllegalArgumentError(TOO_MANY_TOPICS)
    faults.point("append.staged")
    return [
        (log, _placed(log, runs.get(log.info.name, []), results, staged))
        for log in open_logs(cluster, target_topic, results, sources)
    ]


def _placed(
    log: TopicLog, runs: Sequence[StagedRun | LargeRun], results: Sequence[TaskResult], staged: Storage
) -> list[StagedRun | LargeRun]:
    """Return a topic's runs, after giving each record its partition."""
    name = log.info.name
    rules = next((r.topics[name].assumed for r in results if name in r.topics), None)
    if rules is None or all(run.partition != WAITING for run in runs):
        return list(runs)
    try:
        return place_waiting(staged, name, runs, replace(rules, num_partitions=log.info.num_partitions, grows=False))
    except (OSError, pa.ArrowException) as cause:
        raise_told(name, None, f"{type(cause).__name__}: {cause}")


def _check_results(results: Sequence[TaskResult]) -> None:
    """Raise the error of a task."""
    for result in results:
        if result.error is not None:
            raise_told(result.refused_by or "the write", result.refusal, result.error)


def _commit_together(  # noqa: PLR0917
    cluster: Cluster,
    logs: Mapping[str, TopicLog],
    runs: Mapping[str, Sequence[StagedRun | LargeRun]],
    left_out: Collection[str],
    staged: Storage,
    how: StagedCommit,
    deadline: Deadline,
    write_kept: Writing | None,
) -> Mapping[str, Appended]:
    """Commit records of several topics, or records with offsets, in one transaction."""
    naming = how.naming
    own = None if naming is None else naming.transactional_id
    together = Together(cluster, own, "spark") if how.together is None else how.together
    together.begin(deadline)
    with OnError(together.abort):
        # Another process may have decided since the rows were computed; from here on it is fenced.
        before = None if naming is None else _decided_before(naming, together.last, logs)
        if before is not None:
            return before
        # Earlier writes to one topic each, of which transactions have no record.
        written: dict[str, Appended] = {}
        for name, log in logs.items():
            log.refresh()
            txn = None if naming is None else naming.check(name, log.txn_version(naming.app_id))
            found = _still_there(log, txn) if name in left_out else log.already_appended(txn)
            if found is not None:
                written[name] = found
            elif runs.get(name):
                together.stage(log, staged, runs[name], how.codec, deadline, write_kept)
    done = together.commit(how.offsets, deadline, None if naming is None else naming.name)
    if own is None and how.together is None:
        together.forget()
    return {**written, **done}


def written_before(cluster: Cluster, naming: Naming, topic: str | None) -> Mapping[str, Appended] | None:
    """Return the offsets of a write that was decided before, for several topics or with offsets; None if it was not.

    A decided transaction that some topics still lack is applied first. Writes to a single topic are not looked up here;
    see `found_again`.

    Args:
        cluster: cluster of the topics.
        naming: the write's.
        topic: the topic of all records; None: each record names its own.

    Raises:
        KafkaError: from `naming`, if the application has written something else; or the storage failed.
    """
    standing = cluster.groups.refresh().transactions.get(naming.transactional_id)
    if standing is None or standing.committed is None:
        return None
    committed = standing.committed
    names = {part.topic.name for part in committed.parts} or ({topic} if topic is not None else set())
    known = cluster.topics()
    if standing.unsettled is not None:
        # All topics get the decided transaction first, before a later write to a single topic.
        cluster.transactions.cut([name for name in names if name in known], Deadline(SYSTEM_CLOCK, SETTLING_MS))
    if committed.name != naming.name:
        # Before the computation, because the application may be an older copy.
        _check_decided(naming, committed)
        return None
    logs = {name: cluster.log(name) for name in sorted(names or known) if name in known}
    return _decided_before(naming, committed, logs)


def _decided_before(
    naming: Naming, committed: CommittedTransaction | None, logs: Mapping[str, TopicLog]
) -> dict[str, Appended] | None:
    """Return the offsets in some topics of a write, if it is the application's last decision; None otherwise."""
    if committed is None or committed.name is None:
        return None
    if committed.name != naming.name:
        _check_decided(naming, committed)
        return None
    txn = TxnId(naming.app_id, naming.version)
    found = {}
    for name, log in logs.items():
        log.refresh()
        if log.txn_version(naming.app_id) is not None:
            place = log.already_appended(txn)
            if place is not None:
                found[name] = place
    return found


def _check_decided(naming: Naming, committed: CommittedTransaction) -> None:
    if committed.name is not None and committed.name.app_id == naming.app_id:
        naming.check(WHOLE, committed.name.version)


def found_again(log: TopicLog, txn: TxnId) -> Appended | None:
    """Return the earlier write of the same `TxnId`, if the topic still has it.

    Raises:
        OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never written.
    """
    log.ready_to_append()
    return log.already_appended(txn)


def _still_there(log: TopicLog, txn: TxnId | None) -> Appended:
    """Return the earlier write that made tasks skip their rows."""
    found = None if txn is None else found_again(log, txn)
    if found is None:
        raise OutOfOrderSequenceNumberError(
            f"{log.info.name}: nothing was written: the topic had the records when the job began, and does not show "
            "them any more; run it again"
        )
    return found


def _runs(results: Sequence[TaskResult]) -> dict[str, list[StagedRun | LargeRun]]:
    found: dict[str, list[StagedRun | LargeRun]] = {}
    for result in results:
        for name, put in result.topics.items():
            found.setdefault(name, []).extend(put.runs)
    return found
