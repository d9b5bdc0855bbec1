"""Fork and restore: new topics that start as copies of another topic, as it is or at an earlier version of its table.

A copy has file names of its own: hard links on a disk, copies made by the storage in an object store; with several
roots on each root, beside the existing replica. So the vacuum of each topic, and that of any other engine, removes only
its own files and needs to ask about no other topic (decision 066).

A topic is never restored in place. Offsets above the earlier version were already given out, and every consumer,
checkpoint and copy that has seen them would take the next records for the ones it knows. The new topic has an id of its
own, so offsets cannot be confused.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from kafkalike import errors
from kafkalike.delta.actions import Add, log_name, parse_commit
from kafkalike.delta.table_change import maintenance_turn
from kafkalike.delta.table_state import end_app, load_table
from kafkalike.log.cluster.topic_lineage import COPY_APP, ORIGIN_APP, cut_at, origin_ids, origins_of
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.log.topic.batch_payload import add_of
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.maintenance.handles import opened, past_ms
from kafkalike.maintenance.maintenance_commit import COMMIT_TIMEOUT_MS, MaintenanceCommit, publish
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.cluster_state import LOG_START, LogStartsMoved, MetadataRow, Move, parse_row
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.record_batch import CLEANER_APP, HOLES, cleaner_app
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A topic that was forked."""

    topic: str
    topic_id: str
    source: str
    version: int
    """Table version of the source at the fork."""
    files: int
    shared: int
    """How many of them are hard links to the source's files and use no space of their own."""
    groups: tuple[str, ...]
    """Groups whose committed offsets were copied."""

    def as_dict(self) -> dict[str, Any]:
        """Return the values as a dict for JSON."""
        return asdict(self)


def fork(
    topic: str,
    new: str,
    bootstrap_servers: Address | None = None,
    *,
    as_of: int | datetime | None = None,
    groups: Iterable[str] = (),
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Forked:
    """Make a new topic with the records of another one, at the same offsets.

    No record is read. On a disk, hard links share the files without using space; file systems without hard links copy
    them. An object store copies them by itself. Either way each topic has its own file names, so files that
    maintenance, a deletion or another engine's VACUUM removes from one topic stay in the other.

    The new topic has the source's current settings and partitions.

    Args:
        topic: the source topic's name.
        new: the new topic's name.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        as_of: a version of the topic's table, as listed by `kafkalike history`; or a time, as a `datetime` with a zone;
            None: now.
        groups: ids of groups whose committed offsets are copied to the new topic; a group with members is refused.
            Offsets above the new topic's end become its end.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.
        clock: time.

    Returns:
        The new topic.

    Raises:
        IllegalArgumentError: `new` is `topic`, the version does not exist, or the time has no zone or is before the
            log.
        UnsafeStorageError: the root is read-only here.
        MirrorTopicError: the topic is a read-only copy of another cluster's.
        UnknownTopicOrPartitionError, TopicAlreadyExistsError, InvalidTopicError, InvalidGroupIdError: bad names.
        UnknownMemberIdError: a group has members; the topic was made, but the offsets of this group and later ones were
            not copied.
        KafkaStorageError: files of that version are missing, or the storage refused; nothing was made.
        KafkaTimeoutError: a maintenance run held the topic for a minute.

    Example:
        >>> from kafkalike import KafkaProducer, snapshot
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     for key in (b"alice", b"bob", b"alice"):
        ...         _ = producer.send("orders", b"tea", key=key)
        >>> fork("orders", "orders-test", cluster).source
        'orders'
        >>> snapshot("orders-test", cluster).topics["orders-test"].ends
        {0: 3}
    """
    wanted = [check_group_id(group) for group in ([groups] if isinstance(groups, str) else groups)]
    cluster = opened(bootstrap_servers, storage_options, writes=True)
    info = cluster.topic(check_topic_name(topic))
    version: int | None
    at_ms: int | None = None
    if isinstance(as_of, datetime):
        at_ms = past_ms(as_of, clock)
        version = cut_at(cluster, [info], at_ms).topics[info.name].version
    elif as_of is not None and (type(as_of) is not int or as_of < 0):
        raise errors.IllegalArgumentError(f"as_of must be a version or a datetime, not {as_of!r}")
    else:
        version = as_of
    run = uuid.uuid4().hex
    copied = copy_topic(cluster, info.name, check_topic_name(new), run, version=version, at_ms=at_ms, work="fork")
    log = cluster.log(new)
    offsets = GroupOffsets.of(cluster, clock)
    ids: dict[str, str] = {info.name: info.topic_id}
    partitions = [TopicPartition(info.name, p) for p in info.partitions]
    for group in wanted:
        known = offsets.committed(group, partitions, ids)
        placed = {
            TopicPartition(new, tp.partition): OffsetAndMetadata(
                min(at.offset, log.log_end(tp.partition)), at.metadata, at.leader_epoch
            )
            for tp, at in known.items()
        }
        offsets.commit(Membership(group_id=group), placed, {new: str(copied.info.topic_id)})
    return Forked(
        topic=new,
        topic_id=str(copied.info.topic_id),
        source=info.name,
        version=copied.version,
        files=copied.files,
        shared=copied.shared,
        groups=tuple(wanted),
    )


Work = Literal["restore", "fork"]
"""The purpose of a copy, which is recorded at the new topic's log starts and in its history."""

COPIED_BESIDE: Final = 32
"""Number of parallel requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTopic:
    """A topic that was copied."""

    info: TopicInfo
    """Metadata of the new topic."""
    version: int
    """Version of the source's table that was copied."""
    files: int
    shared: int
    """How many of them use no space of their own."""


def restore_as(cluster: Cluster, topic: str, version: int, new: str, run: str) -> TopicInfo:
    """Make a new topic with the records of an earlier version of a topic's table, at the same offsets.

    Files are shared by hard links where the disk allows it, else copied. Committed offsets are not copied, because they
    belong to the other topic's id.

    Args:
        cluster: the cluster; the new topic has its replicas on the brokers of the old one.
        topic: an existing topic.
        version: a version of its table, as listed by `kafkalike history`.
        new: name of the new topic; it gets the current settings and partitions of `topic`.
        run: id of the run in the new topic's history.

    Returns:
        The new topic.

    Raises:
        IllegalArgumentError: `new` is `topic`, or the version does not exist.
        KafkaStorageError: files of that version are missing (vacuumed, or deleted with the topic meanwhile), or the
            disk is full; nothing was made, unless topics cannot be deleted: then the new one stays, empty.
        KafkaTimeoutError: a maintenance run held `topic` for a minute, and nothing was made; or one held the new topic,
            which exists and is empty.
        TopicAlreadyExistsError, InvalidTopicError: see `create_topic`.
        UnknownTopicOrPartitionError: the topic does not exist.
    """
    return copy_topic(cluster, topic, new, run, version=version, work="restore").info


def copy_topic(
    cluster: Cluster,
    topic: str,
    new: str,
    run: str,
    *,
    version: int | None = None,
    at_ms: int | None = None,
    work: Work,
) -> CopiedTopic:
    """Copy a topic at any version; see `restore_as`.

    Args:
        cluster: see `restore_as`, as for the next three.
        topic: an existing topic.
        new: name of the new topic.
        run: id of the run.
        version: None: the newest one.
        at_ms: time whose log starts are copied, ms since the epoch; None: that of the version, or now for the newest
            one.
        work: the purpose.
    """
    if new == topic:
        at = "now" if version is None else f"version {version}"
        raise errors.IllegalArgumentError(
            f"{topic!r} cannot be restored in place: offsets above {at} were given out, and giving them "
            "to other records would mislead every consumer that has seen them; name another topic"
        )
    info = cluster.topic(topic)
    # The source of a mirror would not know of the copy, nor would a run that forgets keys there.
    info.check_own()
    files = cluster.files_of(info)
    files.coordination.check_writable()
    # The next maintenance run may remove files that only the earlier version names.
    with _no_vacuum(cluster, topic):
        source = cluster.log(topic)
        # Current log starts apply even if records were deleted since the newest version.
        when_ms = at_ms if version is not None else cluster.clock.now_ms()
        earlier = _table_at(files, info, source.version if version is None else version)
        starts = log_starts_at(cluster.metadata.rows, info.topic_id, earlier.when_ms if when_ms is None else when_ms)
        return _copied(cluster, source, earlier, starts, new=new, run=run, work=work)


def _copied(
    cluster: Cluster,
    source: TopicLog,
    earlier: _Earlier,
    starts: Mapping[int, int],
    *,
    new: str,
    run: str,
    work: Work,
) -> CopiedTopic:
    info, files, version = source.info, source.files, earlier.version
    topic = info.name
    adds = earlier.adds
    gone = [add.path for add in adds if not _is_there(files, add.path)]
    if gone:
        raise errors.KafkaStorageError(
            f"{topic!r}: version {version} cannot be restored: {len(gone)} of its files are missing, such as {gone[0]}"
        )
    within = {p: Move(start) for p, end in earlier.ends.items() if (start := min(starts.get(p, 0), end))}
    # Set from the start, so that deleted records never reappear, wherever this is interrupted.
    begins = LogStartsMoved(moves=within, reason=work, run=run) if within else None
    factor, assignments = _placed(cluster, info)
    made = cluster.create_topic(
        new, info.num_partitions, info.configs, begins=begins, replication_factor=factor, assignments=assignments
    )
    target = cluster.files_of(made)
    facts = {"forked" if work == "fork" else "restored": f"{topic} version {version}", "files": len(adds)}
    log = cluster.log(new)
    if log.info.topic_id != made.topic_id:
        raise errors.TopicDeletedError(new, made.topic_id, log.info.topic_id)
    origins = {f"{ORIGIN_APP}{topic_id}": version for topic_id in (info.table_id, *origin_ids(source))}
    txns = {**earlier.holes, **{end_app(p): end for p, end in earlier.ends.items()}, **origins}
    # A producer may send to the new topic at once, at the offsets of these files.
    untouched = dict.fromkeys(made.partitions, 0)
    change = MaintenanceCommit(work=work, adds=adds, fenced=log.fenced, ends=untouched, txns=txns, facts=facts)
    shared = 0
    # A linked file is as old as the original, so a maintenance run would take it for a dead writer's leftover.
    with _no_vacuum(cluster, new):
        try:
            for origin in (source, *(cluster.log(one.name) for one in origins_of(cluster, source))):
                _note_copy(origin, made, f"{topic} version {version}", version, run)
        except (errors.KafkaError, OSError) as cause:
            # A run that forgets keys at the source would not learn of the copy.
            left = _unmade(cluster, made)
            raise errors.KafkaStorageError(
                f"{topic!r}: the copy cannot be recorded in its table, {left}: {cause}"
            ) from cause
        try:
            faults.point("copy.before_files")
            for at in range(0, len(adds), COPIED_BESIDE):
                part = [partial(files.copy, add.path, target, add.path) for add in adds[at : at + COPIED_BESIDE]]
                shared += sum(map(bool, files.scheduler.beside(part)))
        except OSError as cause:
            left = _unmade(cluster, made)
            raise errors.KafkaStorageError(
                f"{topic!r}: the files of version {version} cannot be copied, {left}: {cause}"
            ) from cause
        # Even without a file: the notes record where the log ends, its legitimate gaps, and its origin.
        if publish(log, change, run) is None:
            left = _unmade(cluster, made)
            raise errors.KafkaStorageError(
                f"{topic!r}: a maintenance run has replaced files of version {version}, or a producer has sent to "
                f"{new!r} already, {left}; try again"
            )
    return CopiedTopic(info=made, version=version, files=len(adds), shared=shared)


def _placed(cluster: Cluster, info: TopicInfo) -> tuple[int, Mapping[int, Sequence[int]] | None]:
    """Return where to put the replicas of a copy: on the same brokers, because files are shared there.

    Returns:
        The number of replicas, or -1; and their brokers by partition, or None to let the cluster choose.
    """
    brokers = cluster.replication.brokers()
    if len(brokers) == 1:
        return -1, None
    placed = cluster.replication.replicas(info.name).replicas
    if any(broker.draining for broker in brokers if broker.id in placed):
        return len(placed), None
    return -1, dict.fromkeys(info.partitions, placed)


def _note_copy(source: TopicLog, made: TopicInfo, what: str, version: int, run: str) -> None:
    """Record the copy in the source topic's table, before it is made.

    A table that rejects writes, such as one rewound by a foreign writer, can still be copied.
    """
    change = MaintenanceCommit(
        work="forked",
        txns={f"{COPY_APP}{made.topic_id}": version},
        facts={"into": made.name, "from": what},
    )
    with contextlib.suppress(errors.LogCorruptError, errors.UnsupportedVersionError):
        publish(source, change, run)


def _no_vacuum(cluster: Cluster, name: str) -> AbstractContextManager[None]:
    """Exclude maintenance runs from a topic."""
    return cluster.store.coordination.turn(maintenance_turn(name), Deadline(cluster.clock, COMMIT_TIMEOUT_MS))


def _unmade(cluster: Cluster, made: TopicInfo) -> str:
    try:
        if cluster.topic(made.name).topic_id == made.topic_id:
            log = cluster.log(made.name)
            if any(log.log_end(p) > log.log_start(p) for p in made.partitions):
                return f"and {made.name!r} is left with what was sent to it"
            cluster.delete_topic(made.name)
    except errors.UnknownTopicOrPartitionError:
        return "and the new topic was deleted"
    except errors.KafkaError as error:
        return f"and {made.name!r} is left empty ({error})"
    return "nothing was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """A table at an earlier version."""

    version: int
    adds: list[Add]
    holes: dict[str, int]
    """For a topic that was ever compacted: the offsets below which gaps are legitimate."""
    ends: dict[int, int]
    """Log ends of the partitions that have one."""
    when_ms: int


def _table_at(files: Storage, info: TopicInfo, version: int) -> _Earlier:
    """Load the table at a version: its files, notes and time."""
    try:
        earlier = load_table(files, segment_of, version)
        commit = parse_commit(version, files.read(log_name(version)), files.uri)
    except (errors.LogCorruptError, OSError) as cause:
        raise errors.IllegalArgumentError(
            f"{files.uri} has no version {version}; see `kafkalike history`: {cause}"
        ) from cause
    apps = [CLEANER_APP, *(cleaner_app(p, HOLES) for p in info.partitions)]
    notes = {app: earlier.txns[app] for app in apps if app in earlier.txns}
    ends = {p: earlier.end(p) for p in info.partitions if earlier.end(p)}
    adds = [add_of(s) for s in earlier.index]
    return _Earlier(version=version, adds=adds, holes=notes, ends=ends, when_ms=commit.timestamp_ms)


def _is_there(files: Storage, name: str) -> bool:
    try:
        files.size(name)
    except FileNotFoundError:
        return False
    return True


def log_starts_at(rows: Iterable[MetadataRow], topic_id: str, when_ms: int) -> dict[int, int]:
    """Return the log starts of a topic's partitions at a time, as far as the metadata record them.

    The first move after that time records the earlier log start. If maintenance has removed later moves of a partition
    from the metadata, the result may be too high, so records deleted meanwhile never reappear.

    Args:
        rows: rows of `__cluster_metadata`, in `seq` order.
        topic_id: the topic.
        when_ms: the time, ms since the epoch.

    Returns:
        First offset by partition; partitions that start at 0 may be missing.
    """
    starts: dict[int, int] = {}
    moved_later: set[int] = set()
    for row in rows:
        if row.kind != LOG_START or row.topic_id != topic_id:
            continue
        said = parse_row(row)
        for partition, move in said.moves.items() if isinstance(said, LogStartsMoved) else ():
            if row.time_ms <= when_ms:
                starts[partition] = max(starts.get(partition, 0), move.offset)
            elif partition not in moved_later:
                moved_later.add(partition)
                starts[partition] = max(starts.get(partition, 0), move.before or 0)
    return starts
