"""Replica check: tables of a cluster of several roots in, where replicas in sync are not the same out.

All replicas in sync have the same versions and the same data files, byte by byte, up to what the leader has published.
What a replica has beyond that was not acknowledged, and what lies at or below its checkpoint counts no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.table_loader import load_table
from kafkalike.errors import KafkaError
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.maintenance.verify.findings import Finding

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
    from kafkalike.storage.port import Storage


def check_replicas(
    cluster: Cluster, wanted: Callable[[str], bool] = lambda _: True, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Finding]:
    """Compare the replicas of tables, file by file.

    Args:
        cluster: where they are; one of one root has nothing to compare.
        wanted: names of topics and control tables to look at.
        progress: called with the bytes of each file after it was compared.
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
            # Cleaned up.
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
