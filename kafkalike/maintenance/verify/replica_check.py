"""Replica check: compare the replicas of a table, and restore files from an intact replica.

Replicas in sync have the same versions and the same data files, byte by byte, up to the version that the leader has
published. Versions beyond it were not acknowledged, and files at or below a replica's checkpoint are not compared.
Files of a table never change, so a replica repair copies them from a sound replica, loses nothing, and runs beside
other writers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.replica_files import is_whole
from kafkalike.delta.row_files import seq_segment
from kafkalike.delta.table_state import TableState, load_table
from kafkalike.errors import KafkaError
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.maintenance.verify.verify_report import Finding
from kafkalike.storage.parquet import UNREADABLE, open_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.segments import Segment
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
    from kafkalike.storage.port import Storage


Stores = Mapping[int, "Storage"]
"""Reachable replicas in sync, by broker."""


def repair_replicas(cluster: Cluster, allowed: Callable[[str], bool], *, dry_run: bool) -> Iterator[str]:
    """Restore files that one replica in sync has damaged, or lacks, from an intact replica.

    Args:
        cluster: the cluster; with one root, nothing is compared.
        allowed: selects topics and control tables by name.
        dry_run: whether to report only.

    Returns:
        A sentence for each file.
    """
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster

    if not isinstance(cluster, ReplicatedCluster):
        return
    state = cluster.metadata.refresh()
    for name in filter(allowed, cluster.replication.tables()):
        info = state.topics.get(name)
        replicas = cluster.store.replicas(name if info is None else info.location)
        stores = {
            replica.broker: replicas.store_of(replica)
            for replica in replicas.in_sync()
            if cluster.store.root_of(replica.broker).is_there()
        }
        if len(stores) < 2:  # noqa: PLR2004 - nobody else has it
            continue
        with contextlib.suppress(KafkaError, OSError):
            for said in (*_versions(stores, dry_run=dry_run), *_data(stores, info is not None, dry_run=dry_run)):
                yield f"replicas of {name}: {said}"


def _versions(stores: Stores, *, dry_run: bool) -> Iterator[str]:
    listed = {broker: LogFiles.listed(store) for broker, store in stores.items()}
    for version in sorted({version for files in listed.values() for version in files.commits}):
        # A version that one replica ignores may be its own.
        having = [broker for broker, files in listed.items() if version in files.commits]
        found = {broker: stores[broker].look(log_name(version)) for broker in having}
        damaged = [broker for broker, content in found.items() if content is not None and not is_whole(content)]
        whole = next((content for content in found.values() if content is not None and is_whole(content)), None)
        if whole is not None:
            yield from _put(stores, damaged, log_name(version), whole, dry_run=dry_run)


def _data(stores: Stores, is_topic: bool, *, dry_run: bool) -> Iterator[str]:  # noqa: FBT001
    for segment in _state(list(stores.values()), is_topic).index:
        found: dict[int, bytes | None] = {}
        for broker, store in stores.items():
            try:
                found[broker] = store.read(segment.path)
            except FileNotFoundError:
                found[broker] = None
        contents = set(found.values())
        if len(contents) == 1:
            continue
        sound = [broker for broker, content in found.items() if content is not None]
        sound = [broker for broker in sound if _is_sound(stores[broker], segment, is_topic)]
        # Among several readable copies, prefer the most frequent content, because a flipped bit may lie where no check
        # sees it.
        kept = max((found[broker] for broker in sound), key=list(found.values()).count, default=None)
        if kept is not None:
            wrong = [broker for broker, content in found.items() if content != kept]
            yield from _put(stores, wrong, segment.path, kept, dry_run=dry_run)


def _state(stores: Sequence[Storage], is_topic: bool) -> TableState:  # noqa: FBT001
    """Load the table from the first replica with a readable log; the leader comes first."""
    for store in stores[:-1]:
        with contextlib.suppress(KafkaError):
            found = load_table(store, segment_of if is_topic else seq_segment)
            if found.damage is None:
                return found
    return load_table(stores[-1], segment_of if is_topic else seq_segment)


def _is_sound(store: Storage, segment: Segment, is_topic: bool) -> bool:  # noqa: FBT001
    try:
        if is_topic:
            for _ in read_segment(store, segment):
                pass
        else:
            with open_parquet(store, segment.path) as file:
                file.read(use_threads=False)
    except (KafkaError, *UNREADABLE):
        return False
    return True


def _put(stores: Stores, wrong: Collection[int], path: str, content: bytes, *, dry_run: bool) -> Iterator[str]:
    for broker in wrong:
        if not dry_run:
            store = stores[broker]
            store.make_folder(path.rpartition("/")[0])
            store.replace(path, content)
            store.sync(path)
        yield f"{path} of broker {broker} is damaged, or missing, and another replica has it"


def check_replicas(
    cluster: Cluster, wanted: Callable[[str], bool] = lambda _: True, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding]:
    """Compare the replicas of tables, file by file.

    Args:
        cluster: the cluster; with one root, nothing is compared.
        wanted: selects topics and control tables by name.
        progress: called with the bytes of each compared file.
    """
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster

    if not isinstance(cluster, ReplicatedCluster):
        return
    state = cluster.metadata.refresh()
    for name in cluster.replication.tables():
        if wanted(name):
            topic = name if name in state.topics else None
            yield from _table(cluster, name, topic, progress)


def _table(
    cluster: ReplicatedCluster, name: str, topic: str | None, progress: Callable[[int], None]
) -> Iterator[Finding]:
    described = cluster.replication.replicas(name)
    for broker in described.replicas:
        if broker in described.offline:
            yield Finding(
                kind="replica-behind",
                message=_said(name, f"broker {broker} gives no answer"),
                topic=topic,
                warning=True,
            )
        elif broker not in described.isr:
            yield Finding(
                kind="replica-behind", message=_said(name, f"broker {broker} is not in sync"), topic=topic, warning=True
            )
    if described.leader < 0:
        yield Finding(kind="replica-differs", message=_said(name, "its leader gives no answer"), topic=topic)
        return
    info = cluster.metadata.state.topics.get(name)
    replicas = cluster.store.replicas(name if info is None else info.location)
    members = {replica.broker: replica for replica in replicas.in_sync() if replica.broker not in described.offline}
    leader = replicas.store_of(members.pop(described.leader))
    try:
        logged = LogFiles.listed(leader)
        published = max((*logged.commits, *logged.checkpoints), default=-1)
        live = {segment.path for segment in load_table(leader, segment_of, published).index} if topic else set()
        for _, replica in sorted(members.items()):
            for message in _different(leader, replicas.store_of(replica), published, live, progress):
                said = _said(name, f"broker {replica.broker}: {message}")
                yield Finding(kind="replica-differs", message=said, topic=topic)
    except (KafkaError, OSError) as error:
        yield Finding(kind="replica-differs", message=_said(name, str(error)), topic=topic)


def _said(name: str, what: str) -> str:
    return f"replicas of {name}: {what}"


def _different(
    leader: Storage, other: Storage, published: int, live: Collection[str], progress: Callable[[int], None]
) -> Iterator[str]:
    mine, theirs = LogFiles.listed(leader), LogFiles.listed(other)
    covered = max((version for version in theirs.checkpoints if version <= published), default=-1)
    for version in mine.commits:
        if version > published:
            continue
        here, there = leader.look(log_name(version)), other.look(log_name(version))
        if here is None or (there is None and version <= covered):
            # Log cleaning has removed it.
            continue
        if there is None:
            yield f"{log_name(version)} is missing"
        elif here != there and version > covered:
            yield f"{log_name(version)} is not that of the leader"
    for path in sorted(live):
        try:
            content = other.read(path)
        except FileNotFoundError:
            yield f"{path} is missing"
            continue
        if content != leader.read(path):
            yield f"{path} is not that of the leader"
        progress(len(content))
