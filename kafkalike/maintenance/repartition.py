"""Repartition: write a topic again with more partitions, with each key's order and all positions kept.

The rules are in `kafkalike.model.groups.partition_split`: records keep their offsets. The steps, each of which any
process can repeat or continue:

1. The metadata name a successor with an empty table in a folder of its own (`TopicInfo.target`).
2. Passes copy records, while producers and consumers continue. One table version of the successor commits some files of
   some partitions together with their log ends, from which the next pass continues.
3. One change of `__consumer_offsets` moves all committed offsets of the topic to the successor, and refuses commits
   for the old topic from then on. Decided transactions are applied to the topic; open ones cannot commit any more.
4. A fence in the topic's table ends all appends (`SEALED`). The last pass copies the rest.
5. One change of the metadata gives the name to the successor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.delta import table_change
from kafkalike.delta.actions import Add
from kafkalike.delta.table import Table
from kafkalike.delta.table_state import END_APP, REPLICAS, TableState, end_app
from kafkalike.log.cluster.topic_lineage import ORIGIN_APP, origin_ids
from kafkalike.log.topic.producer_append import PlacedSequence, record_sequences
from kafkalike.log.topic.topic_commits import OPERATIONS, RUN_KEY, WORK_KEY, segment_of
from kafkalike.maintenance.file_tasks import Tasks, where_possible
from kafkalike.maintenance.handles import opened, tasks_of
from kafkalike.maintenance.maintenance_commit import COMMIT_TIMEOUT_MS, discard_all, without_maintenance
from kafkalike.maintenance.works.file_rewrite import groups
from kafkalike.maintenance.works.partition_files import PartitionSplit, SplitFiles, split_files
from kafkalike.model import faults
from kafkalike.model.appends.producer_sequences import PRODUCERS_APP
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.group_rows import GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.partition_split import check_split, family, successor
from kafkalike.model.names import check_topic_name
from kafkalike.model.offset_commit import moved_offsets
from kafkalike.model.record_batch import CLEANER_APP, CORRECTIONS, HOLES, SEALED, cleaner_app
from kafkalike.model.transactions.roll_forward import pending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo

ROUND_BYTES: Final = 256 * 1024 * 1024
"""Bytes of source files after which their copies are committed."""

FEW_RECORDS: Final = 100_000
"""A pass that has copied fewer records is the last one before appends end: the rest takes less than a second."""

MOST_PASSES: Final = 8
"""Passes before appends end even if producers are as fast as the copy."""

QUIET_MS: Final = 120_000
"""Time after which a Kafka client has given up a batch: the default of its `delivery.timeout.ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned:
    """A topic that was repartitioned."""

    topic: str
    topic_id: str
    """Id of the topic from now on."""
    before: int
    """Number of partitions before."""
    partitions: int
    records: int
    """Records that this call has copied; fewer than the topic has if it continued an interrupted call."""

    def as_dict(self) -> dict[str, Any]:
        """Return the values as a dict for JSON."""
        return asdict(self)


def repartition(
    topic: str,
    partitions: int,
    bootstrap_servers: Address | None = None,
    *,
    spark: SparkSession | None = None,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Repartitioned:
    """Give a topic more partitions, and move its records to them in order.

    The records of a partition are distributed by key over the new partitions whose number has the old number as its
    remainder, which is where the default partitioner sends the same keys from then on. Each record keeps its offset,
    timestamp and headers; the offsets of the others are gaps, as after compaction. So a key's records stay in order,
    and a committed offset of a partition applies to all partitions that its records went to: no record is skipped, and
    no committed record is read again.

    Producers and consumers continue during the copy. While the last records are copied, appends and commits of
    offsets are refused; then clients continue with the new partitions. An open transaction with records or offsets of
    the topic cannot be committed: abort it and retry. The topic gets a new id.

    If the call is interrupted, call it again: it continues. Two calls at once are safe.

    Args:
        topic: the topic's name.
        partitions: the new number of partitions, a multiple of the present one.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        spark: a session whose tasks copy the files; None copies them in this process.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.
        clock: time.

    Returns:
        The topic, even if an earlier call has given it that number of partitions.

    Raises:
        InvalidPartitionsError: the number is not a higher multiple of the present one; nothing was done.
        UnknownTopicOrPartitionError, InvalidTopicError: the topic does not exist, or was deleted meanwhile.
        MirrorTopicError: the topic is a read-only copy of another cluster's; nothing was done.
        PolicyViolationError: the cluster has several roots, other engines may write to the table, or a share group
            reads the topic; nothing was done.
        ReassignmentInProgressError: a call with another number was interrupted; the error has the command that ends it.
            Or a Kafka client has written through a gateway within two minutes: stop these producers, which could repeat
            or misplace batches, then call again.
        CorruptRecordError, LogCorruptError: the topic is damaged; the old topic stays in use.
        KafkaTimeoutError: a maintenance run held the topic for a minute.

    Example:
        >>> from kafkalike import KafkaAdminClient, KafkaProducer, NewTopic
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> _ = KafkaAdminClient(bootstrap_servers=cluster).create_topics([NewTopic("orders", num_partitions=2)])
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     for key in (b"alice", b"bob", b"alice"):
        ...         _ = producer.send("orders", b"tea", key=key)
        >>> done = repartition("orders", 8, cluster)
        >>> done.before, done.partitions, done.records
        (2, 8, 3)
    """
    name = check_topic_name(topic)
    cluster = opened(bootstrap_servers, storage_options, writes=True)
    info = cluster.topic(name)
    if info.target is None and info.num_partitions == partitions and info.ancestors:
        return _report(info, 0)
    _check(cluster, info, partitions, clock)
    with without_maintenance(cluster, name):
        return _Repartition(cluster, name, partitions, tasks_of(spark), clock).run()


def _report(info: TopicInfo, records: int) -> Repartitioned:
    return Repartitioned(
        topic=info.name,
        topic_id=str(info.topic_id),
        before=info.ancestors[-1].num_partitions,
        partitions=info.num_partitions,
        records=records,
    )


def _check(cluster: Cluster, info: TopicInfo, partitions: int, clock: Clock) -> None:
    """Refuse a topic that cannot be repartitioned, before anything is written."""
    info.check_own()
    if info.target is None:
        check_split(info.name, info.num_partitions, partitions)
    elif info.target.num_partitions != partitions:
        info.check_settled()
    if cluster.several:
        raise errors.PolicyViolationError(
            f"topic {info.name!r} has replicas at several roots, and only topics of a cluster of one root can be "
            "repartitioned; copy it to a new topic instead"
        )
    if not cluster.server.is_closed(info.configs):
        raise errors.PolicyViolationError(
            f"other engines may write to topic {info.name!r}, and would write past the end of a repartition: set "
            "kafkalike.foreign.writes=reject first"
        )
    _check_share_groups(cluster.groups.refresh(), info)
    _check_quiet(cluster.log(info.name), clock)


def _check_share_groups(state: GroupsState, info: TopicInfo) -> None:
    """Refuse a topic with the state of a share group, which is a state of single records and not an offset."""
    sharing = sorted(
        group_id
        for group_id, shares in state.shares.items()
        if any(tp.topic == info.name and share.topic_id == info.topic_id for tp, share in shares.items())
    )
    if sharing:
        raise errors.PolicyViolationError(
            f"share group {sharing[0]!r} reads topic {info.name!r}, and its locks cannot be moved: stop its "
            f"members and run `kafkalike share-groups --delete-offsets --group {sharing[0]} --topic {info.name}`"
        )


def _check_quiet(log: TopicLog, clock: Clock) -> None:
    """Refuse a topic with idempotent producers of the wire protocol, whose batches have partitions already."""
    now = clock.now_ms()
    known = log.producer_sequences(now)
    recent = sorted({key[0] for key, entry in known.entries.items() if now - entry.time_ms < QUIET_MS})
    if recent:
        raise errors.ReassignmentInProgressError(
            f"Kafka clients have written to topic {log.info.name!r} through a gateway within {QUIET_MS // 60_000} "
            f"minutes (producer id {recent[0]}): stop them, wait, and call again; nothing was done"
        )


OWN_APPS: Final = (END_APP, CLEANER_APP, REPLICAS, PRODUCERS_APP, SEALED)
"""Prefixes of the Delta applications whose versions are facts about one table alone."""


class _Repartition:
    """One call, in a topic that passed the checks."""

    def __init__(self, cluster: Cluster, name: str, partitions: int, tasks: Tasks, clock: Clock) -> None:
        self._cluster = cluster
        self._name = name
        self._partitions = partitions
        self._tasks = tasks
        self._clock = clock
        self._records = 0

    def run(self) -> Repartitioned:
        """Do all steps that have not been done."""
        cluster, name = self._cluster, self._name
        known = cluster.topic(name)
        if known.target is None and known.num_partitions == self._partitions and known.ancestors:
            # Another process has ended it while this one waited.
            return _report(known, 0)
        info = cluster.begin_repartition(name, self._partitions)
        while True:
            copy = _Copy(cluster, info, self._tasks, self._clock)
            try:
                self._to_the_end(copy)
            except _OutdatedCopyError as outdated:
                info = cluster.begin_repartition(name, self._partitions, instead_of=outdated.target_id)
                continue
            finally:
                self._records += copy.records
            return _report(cluster.end_repartition(info), self._records)

    def _to_the_end(self, copy: _Copy) -> None:
        for _ in range(MOST_PASSES):
            faults.point("repartition.before_pass")
            if copy.catch_up() < FEW_RECORDS:
                break
        if not copy.is_sealed:
            _check_quiet(copy.log, self._clock)
            self._move_offsets(copy.log.info)
            faults.point("repartition.after_offsets")
            self._apply_transactions(copy.log)
            copy.log.seal(SEALED, Deadline(self._clock, COMMIT_TIMEOUT_MS))
            faults.point("repartition.after_seal")
        while copy.catch_up():
            pass
        copy.hand_over()
        faults.point("repartition.after_copy")

    def _move_offsets(self, info: TopicInfo) -> None:
        """Move the committed offsets of all groups to the successor, and refuse further commits for the topic."""
        target = info.target
        assert target is not None, info.name

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            if successor(state.groups, info.name, info.topic_id) == target.topic_id:
                return []
            _check_share_groups(state, info)
            return moved_offsets(state, info, target, self._clock.now_ms())

        self._cluster.groups.transact(plan)

    def _apply_transactions(self, log: TopicLog) -> None:
        """Apply all decided transactions to the topic; none can be decided for it any more."""
        deadline = Deadline(self._clock, COMMIT_TIMEOUT_MS)
        while True:
            log.refresh()
            state = self._cluster.groups.refresh()
            if not pending(state, log.info.topic_id, log.last_transaction, state.seq):
                return
            problems = self._cluster.transactions.maintain(deadline)
            if problems and deadline.expired():
                raise errors.KafkaTimeoutError(f"{log.info.name}: decided transactions were not applied: {problems[0]}")


class _OutdatedCopyError(Exception):
    """Records were corrected in the topic after they were copied, so the copy starts over."""

    def __init__(self, target_id: str) -> None:
        super().__init__(target_id)
        self.target_id = target_id


class _Copy:
    """The records of a topic in its successor's table."""

    def __init__(self, cluster: Cluster, info: TopicInfo, tasks: Tasks, clock: Clock) -> None:
        assert info.target is not None, info.name
        self.log = cluster.log(info.name)
        self.records = 0
        self._target = info.target
        self._before = info.num_partitions
        self._files = cluster.store.at(info.target.location)
        self._table = Table(self._files, clock, to_segment=segment_of, durable=self.log.config.flush)
        self._tasks = tasks
        self._clock = clock

    @property
    def is_sealed(self) -> bool:
        """True if nothing is appended to the topic any more."""
        self.log.refresh()
        return self.log.txn_version(SEALED) is not None

    def catch_up(self) -> int:
        """Copy the records up to the present log ends; return how many offsets there were."""
        log, table, count, size = self.log, self._table, 0, 0
        log.refresh()
        table.refresh()
        corrections = log.txn_version(CORRECTIONS) or 0
        if table.state.txns.get(CORRECTIONS, corrections) != corrections:
            raise _OutdatedCopyError(self._target.topic_id)
        parts: list[SplitFiles] = []
        files = log.files
        for part in where_possible(self._tasks, files).run(split_files, self._jobs(), Deadline(self._clock, None)):
            parts.append(part)
            size += part.size
            count += part.stop - part.start
            if size >= ROUND_BYTES:
                self._commit(parts, corrections)
                parts, size = [], 0
        if parts:
            self._commit(parts, corrections)
        return count

    def _jobs(self) -> Iterator[PartitionSplit]:
        log, state = self.log, self._table.state
        for partition in log.info.partitions:
            start, stop = state.end(partition), log.log_end(partition)
            if start >= stop:
                continue
            low = max(start, log.log_start(partition))
            found = [s for s in log.table_segments(partition) if s.stop > low]
            parts = list(groups(found)) or [[]]
            for nth, part in enumerate(parts, 1):
                end = stop if nth == len(parts) else part[-1].stop
                yield PartitionSplit(
                    files=log.files.tasks.sendable(log.files),
                    target=self._files.tasks.sendable(self._files),
                    partition=partition,
                    segments=tuple(part),
                    low=max(start, low),
                    start=start,
                    stop=end,
                    before=self._before,
                    after=self._target.num_partitions,
                    compression=log.config.compression_type,
                )
                start = end

    def _commit(self, parts: Sequence[SplitFiles], corrections: int) -> None:
        """Commit the files of some parts as one version, unless another process has copied them."""
        adds = [add for part in parts for add in part.adds]
        txns: dict[str, int] = {CLEANER_APP: self._clock.now_ms(), CORRECTIONS: corrections}
        starts: dict[int, int] = {}
        for part in parts:
            for partition in family(part.partition, self._before, self._target.num_partitions):
                starts.setdefault(partition, part.start)
                txns[end_app(partition)] = part.stop
                txns[cleaner_app(partition, HOLES)] = part.stop
        requires: list[table_change.Requirement] = [
            table_change.EndsAt(partition, start) for partition, start in starts.items()
        ]
        requires.append(table_change.LastOf(CORRECTIONS, self._table.state.txns.get(CORRECTIONS)))
        faults.point("repartition.before_commit")
        if self._change(adds, txns, requires):
            self.records += sum(part.records for part in parts)

    def hand_over(self) -> None:
        """Record what the topic's table says about more than its records: names of writes, decisions, relations."""
        log = self.log
        txns = {app: log.txn_version(app) or 0 for app in log.apps("") if not app.startswith(OWN_APPS)}
        for topic_id in (log.info.table_id, *origin_ids(log)):
            txns[f"{ORIGIN_APP}{topic_id}"] = log.version
        self._table.refresh()
        known = self._table.state.txns
        txns = {app: version for app, version in txns.items() if known.get(app) != version}
        sequences: list[PlacedSequence] = []
        if PRODUCERS_APP not in known:
            entries = log.producer_sequences(self._clock.now_ms()).entries
            sequences = [placed for key, entry in entries.items() for placed in entry.placed(*key)]
        if txns or sequences:
            self._change([], txns, [], sequences)

    def _change(
        self,
        adds: list[Add],
        txns: Mapping[str, int],
        requires: Sequence[table_change.Requirement],
        sequences: Sequence[PlacedSequence] = (),
    ) -> bool:
        def plan(state: TableState) -> table_change.Change | table_change.Unchanged[None]:
            if any(one.broken(state) for one in requires):
                return table_change.Unchanged(None)
            change = table_change.Change(
                operation=OPERATIONS["repartition"],
                time_ms=self._clock.now_ms(),
                adds=adds,
                txns=txns,
                note={WORK_KEY: "repartition", RUN_KEY: self._target.topic_id},
                requires=requires,
            )
            return record_sequences(change, state, sequences) if sequences else change

        deadline = Deadline(self._clock, COMMIT_TIMEOUT_MS)
        if isinstance(self._table.change(plan, deadline, discard=lambda _: None), table_change.Unchanged):
            discard_all(self._files, adds)
            return False
        return True
