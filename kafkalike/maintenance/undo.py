"""Undo: remove the records of one append, or of one transaction, from their topics."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.errors import IllegalArgumentError, KafkaTimeoutError, UnknownTopicOrPartitionError
from kafkalike.log.topic.topic_commits import maintenance_of, ranges_of, segment_of, transaction_of, versions
from kafkalike.maintenance.correction_report import Parts, UndoReport
from kafkalike.maintenance.deletion import Remover, ready_to_remove
from kafkalike.maintenance.handles import opened, tasks_of
from kafkalike.maintenance.maintenance_commit import COMMIT_TIMEOUT_MS, without_maintenance
from kafkalike.model.appends.taken_appends import parts_of
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.group_rows import standing_of
from kafkalike.model.maintenance.record_removal import GroupPast, Taking, Undone, groups_past, plan_undo
from kafkalike.model.mirror import SEAL
from kafkalike.model.names import check_topic_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


def undo(
    topics: str | Iterable[str],
    append: str,
    bootstrap_servers: Address | None = None,
    *,
    dry_run: bool = True,
    reason: str = "",
    timeout_ms: float | None = None,
    spark: SparkSession | None = None,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> UndoReport:
    """Remove the records of one append. A dry run by default.

    The offsets of all other records stay; removed records leave gaps, as after compaction. One table version removes
    all records of a topic. Groups that have read them are reported and keep their offsets, as do groups whose offsets
    were committed with the append's transaction. The name of the write stays known, so a rerun adds nothing.

    Args:
        topics: the topic, or all topics of the append's transaction.
        append: its id, as shown by `kafkalike history` and `kafkalike dump-log`.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        dry_run: whether to report only; on by default, because removed records cannot be restored.
        reason: the reason, for the table's history.
        timeout_ms: start nothing new after this time, ms; None: no limit.
        spark: a session whose tasks read and write the files; None: this process does.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.
        clock: time.

    Returns:
        The removed records, or in a dry run the planned ones. A repeated undo finds nothing left.

    Raises:
        IllegalArgumentError: the history of these topics has no such append, as far as it reaches back; it is part of a
            transaction that includes other topics, or that belongs to another cluster, because the topic was a mirror;
            or all of it is below the log start.
        UnknownTopicOrPartitionError, InvalidTopicError: the topic does not exist, or its name is invalid.
        PolicyViolationError: the table is append-only.
        UnsupportedVersionError, LogCorruptError: foreign writers have changed the table so that kafkalike does not
            write to it.
        CorruptRecordError: names a damaged data file.
        KafkaTimeoutError: time ran out, or another maintenance run held the topic for a minute.
        KafkaStorageError, UnknownOutcomeError: the storage refused, or did not answer. Run it again.
    """
    names: list[str] = [
        check_topic_name(name) for name in ([topics] if isinstance(topics, str) else dict.fromkeys(topics))
    ]
    if not names:
        raise IllegalArgumentError("at least one topic is needed")
    cluster = opened(bootstrap_servers, storage_options, writes=not dry_run)
    known = cluster.topics()
    for name in names:
        if name not in known:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
    run = _Run(
        cluster=cluster,
        dry_run=dry_run,
        reason=reason,
        budget=Deadline(clock, timeout_ms),
        spark=spark,
        append=append,
    )
    return run.go(names)


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run over all topics."""

    cluster: Cluster
    dry_run: bool
    reason: str
    budget: Deadline
    spark: SparkSession | None
    append: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    parts: Parts = field(default_factory=Parts)
    versions: dict[str, int] = field(default_factory=dict)

    def go(self, names: list[str]) -> UndoReport:
        """Plan or carry out the undo for all topics."""
        logs = {name: self.cluster.log(name) for name in names}
        if not self.dry_run:
            for log in logs.values():
                ready_to_remove(log)
        found, number = self._found(logs)
        plans = {
            name: plan_undo(one.ranges, {p: logs[name].log_start(p) for p in one.ranges}) for name, one in found.items()
        }
        below = sum(plan.below_start for plan in plans.values())
        total = sum(len(run) for one in found.values() for run in one.ranges.values())
        if total and below == total:
            raise IllegalArgumentError(
                f"append {self.append}: all of its records are below the log start, so retention has removed them"
            )
        groups = [past for name, plan in plans.items() for past in self._groups(name, plan)]
        for name, plan in plans.items():
            if plan.takes:
                self._one(logs[name], plan)
        return UndoReport(
            append=self.append,
            run=self.id,
            executed=not self.dry_run,
            transaction=number,
            parts=self.parts.all(),
            below_start=below,
            missing=total - below - sum(part.records for part in self.parts.all()),
            groups=tuple(groups),
            versions=self.versions,
        )

    # --- the append ----------------------------------------------------------------------------

    def _found(self, logs: Mapping[str, TopicLog]) -> tuple[dict[str, FoundAppend], int | None]:
        """Return the append, or the records of its transaction, by topic."""
        found = {name: one for name, log in logs.items() if (one := find_append(log, self.append)) is not None}
        if not found:
            raise IllegalArgumentError(
                f"the history of {', '.join(logs)} has no append {self.append!r}, as far as it reaches back "
                "(delta.logRetentionDuration); `kafkalike history` shows their ids"
            )
        one = next(iter(found.values()))
        if one.transaction is None:
            return found, None
        if one.is_foreign:
            raise IllegalArgumentError(
                f"append {self.append} is part of transaction {one.transaction} of the cluster of which this topic is, "
                "or was, a mirror: its other records are unknown in this cluster"
            )
        parts = self._parts_of(one.transaction, one.time_ms)
        others = sorted(parts.keys() - logs.keys())
        if others:
            raise IllegalArgumentError(
                f"append {self.append} is part of transaction {one.transaction}, which has written to "
                f"{', '.join(others)} as well: name all of its topics, or none of it is undone"
            )
        return parts, one.transaction

    def _parts_of(self, number: int, time_ms: int) -> dict[str, FoundAppend]:
        """Return the records of a transaction, by topic of the cluster.

        Raises:
            IllegalArgumentError: a topic's history does not reach back far enough to tell.
        """
        said = self._decided_topics(number)
        if said is not None:
            self._bring(number, said)
        parts: dict[str, FoundAppend] = {}
        for name, info in self.cluster.topics().items():
            if said is not None and info.topic_id not in said:
                continue
            log = self.cluster.log(name)
            if log.last_transaction < number:
                continue
            part = find_transaction(log, number)
            if part is not None:
                parts[name] = part
            elif said is not None or not (info.created_ms > time_ms or reaches_back_to(log, time_ms)):
                raise IllegalArgumentError(
                    f"append {self.append} is part of transaction {number}, and the history of {name} does not reach "
                    "back so far, so its records there are unknown"
                )
        return parts

    def _bring(self, number: int, topic_ids: Collection[str]) -> None:
        """Apply a decided transaction to topics that lack it; otherwise it would be applied after the undo.

        Raises:
            KafkaTimeoutError: it is a dry run, which writes nothing; or other writers held the topic for a minute.
        """
        late = []
        for name, info in self.cluster.topics().items():
            if info.topic_id in topic_ids:
                log = self.cluster.log(name)
                log.refresh()
                late += [name] if log.last_transaction < number else []
        if late and self.dry_run:
            raise KafkaTimeoutError(f"transaction {number} is being applied to {', '.join(late)}: try again")
        if late:
            self.cluster.transactions.cut(late, Deadline(self.cluster.clock, COMMIT_TIMEOUT_MS))

    def _decided_topics(self, number: int) -> set[str] | None:
        """Return the ids of a transaction's topics from the row that decided it; None if that row was removed."""
        self.cluster.groups.refresh()
        for row in self.cluster.groups.rows:
            if row.seq == number:
                standing = standing_of(row)
                unsettled = None if standing is None else standing.unsettled
                return None if unsettled is None else {str(part.topic.topic_id) for part in unsettled.parts}
        return None

    def _groups(self, name: str, plan: Undone) -> list[GroupPast]:
        state = self.cluster.groups.refresh()
        topic_id = self.cluster.topic(name).topic_id
        committed = {
            group_id: {
                tp.partition: known.position.offset
                for tp, known in group.offsets.items()
                if tp.topic == name and known.topic_id in {"", topic_id}
            }
            for group_id, group in state.groups.items()
        }
        return groups_past(name, plan.takes, committed)

    # --- its removal ---------------------------------------------------------------------------

    def _one(self, log: TopicLog, plan: Undone) -> None:
        takings = {p: Taking(below=runs[-1].stop, offsets=runs) for p, runs in plan.takes.items()}
        facts: dict[str, Any] = {"append": self.append}
        if self.reason:
            facts["reason"] = self.reason
        remover = Remover(log, self.id, work="undo", facts=facts, budget=self.budget, tasks=tasks_of(self.spark))
        if self.dry_run:
            for piece in remover.found(takings):
                self.parts.count(log.info.name, piece)
            return
        with without_maintenance(self.cluster, log.info.name):
            version, pieces = remover.removed_at_once(takings)
        if version is not None:
            self.versions[log.info.name] = version
        for piece in pieces:
            self.parts.count(log.info.name, piece)
        log.clean_log()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAppend:
    """An append in a table's history."""

    id: str
    version: int
    time_ms: int
    ranges: Mapping[int, range]
    """Its offsets, by partition."""
    transaction: int | None
    """Number of the transaction with its records; None for an append outside of transactions."""
    is_foreign: bool = False
    """True if a mirror has copied it, so that the number belongs to a transaction of another cluster."""


def appends_in(commit: TableCommit, log: TopicLog) -> Iterator[FoundAppend]:
    """Yield the appends in a commit: one, or several that one writer has committed for others."""
    if not commit.is_append or maintenance_of(commit):
        return
    whole = ranges_of(segment_of(add, log.files) for add in commit.adds)
    parts = parts_of(commit.note)
    if not parts:
        yield FoundAppend(
            id=str(commit.append_id),
            version=commit.version,
            time_ms=commit.timestamp_ms,
            ranges=whole,
            transaction=transaction_of(commit),
        )
        return
    for part_id, ranges, number in parts:
        yield FoundAppend(
            # The committing writer's own append has the id of the commit.
            id=part_id or str(commit.append_id),
            version=commit.version,
            time_ms=commit.timestamp_ms,
            ranges=ranges,
            transaction=number,
        )


def find_append(log: TopicLog, append_id: str) -> FoundAppend | None:
    """Find an append by its id, as far back as the table's log reaches.

    Raises:
        KafkaStorageError, LogCorruptError: the log cannot be read.
    """
    found: list[FoundAppend] = []
    is_foreign = log.info.mirror is not None

    def holds(commit: TableCommit) -> bool:
        nonlocal is_foreign
        is_foreign = is_foreign or _is_promotion(commit)
        if commit.append_id == append_id or append_id in _ids(commit):
            mine = (one for one in appends_in(commit, log) if one.id == append_id)
            found.extend(replace(one, is_foreign=is_foreign) for one in mine)
        return bool(found)

    log.find_commit(holds)
    return found[0] if found else None


def find_transaction(log: TopicLog, number: int) -> FoundAppend | None:
    """Find the records of a transaction in a topic, as far back as the table's log reaches; None if there are none.

    Records that a mirror has copied before its promotion have numbers of another cluster and are ignored.
    """
    if log.last_transaction < number:
        return None
    found: list[FoundAppend] = []

    def holds(commit: TableCommit) -> bool:
        found.extend(one for one in appends_in(commit, log) if one.transaction == number)
        return bool(found) or _is_promotion(commit)

    log.find_commit(holds)
    return found[0] if found else None


def _is_promotion(commit: TableCommit) -> bool:
    """Return whether a version ended a mirror."""
    return any(app.startswith(SEAL) for app in commit.txns)


def reaches_back_to(log: TopicLog, time_ms: int) -> bool:
    """Return whether the history of a topic has all commits since a time."""
    known = versions(log.files)
    if not known or known[0] == 0:
        return True
    oldest = parse_commit(known[0], log.files.read(log_name(known[0])), log.files.uri)
    return oldest.timestamp_ms < time_ms


def _ids(commit: TableCommit) -> list[str]:
    return [part_id for part_id, _, _ in parts_of(commit.note)]
