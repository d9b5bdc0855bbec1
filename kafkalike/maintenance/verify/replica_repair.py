"""Replica repair: files that a replica in sync has damaged, or lacks, in; the same files, as another one has them, out.

Files of a table never change once they are there, and replicas in sync have the same ones, so nothing is lost, and
nobody has to be kept out meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.row_files import seq_segment
from kafkalike.delta.table_loader import load_table
from kafkalike.delta.version_file import is_whole
from kafkalike.errors import KafkaError
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.storage.parquet import UNREADABLE, open_parquet

if TYPE_CHECKING:
    from kafkalike.delta.table_state import TableState
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage

Stores = Mapping[int, "Storage"]
"""Replicas in sync that answer, by broker."""


def repair_replicas(cluster: Cluster, allowed: Callable[[str], bool], *, execute: bool) -> Iterator[str]:
    """Put files right that one replica in sync has damaged, or lacks, and another one has whole.

    Args:
        cluster: where; one of one root has nothing to compare.
        allowed: names of topics and control tables to look at.
        execute: do it; else only say it.

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
            for said in (*_versions(stores, execute=execute), *_data(stores, info is not None, execute=execute)):
                yield f"replicas of {name}: {said}"


def _versions(stores: Stores, *, execute: bool) -> Iterator[str]:
    listed = {broker: LogFiles.listed(store) for broker, store in stores.items()}
    for version in sorted({version for files in listed.values() for version in files.commits}):
        # What does not count at one may be its own.
        having = [broker for broker, files in listed.items() if version in files.commits]
        found = {broker: stores[broker].look(log_name(version)) for broker in having}
        damaged = [broker for broker, content in found.items() if content is not None and not is_whole(content)]
        whole = next((content for content in found.values() if content is not None and is_whole(content)), None)
        if whole is not None:
            yield from _put(stores, damaged, log_name(version), whole, execute=execute)


def _data(stores: Stores, is_topic: bool, *, execute: bool) -> Iterator[str]:  # noqa: FBT001
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
        # Of several that can be read the one that most have: a bit may be another one where nothing looks at it.
        kept = max((found[broker] for broker in sound), key=list(found.values()).count, default=None)
        if kept is not None:
            wrong = [broker for broker, content in found.items() if content != kept]
            yield from _put(stores, wrong, segment.path, kept, execute=execute)


def _state(stores: Sequence[Storage], is_topic: bool) -> TableState:  # noqa: FBT001
    """The table, from the first replica whose log can be read; its leader comes first."""
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


def _put(stores: Stores, wrong: Collection[int], path: str, content: bytes, *, execute: bool) -> Iterator[str]:
    for broker in wrong:
        if execute:
            store = stores[broker]
            store.make_folder(path.rpartition("/")[0])
            store.replace(path, content)
            store.sync(path)
        yield f"{path} of broker {broker} is damaged, or missing, and another replica has it"
