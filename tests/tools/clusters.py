"""Clusters for tests: on a disk, on a disk whose writers do not queue, on three disks, and in object stores.

Hundreds of worker processes load this: what is not asked for is not imported, pytest least of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import Deadline
from kafkalike.storage.local import FolderCoordination, LocalStorage

if TYPE_CHECKING:
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
    from kafkalike.storage.objects import ObjectStorage
    from tests.tools.object_servers import ObjectServer


class UnqueuedCoordination(FolderCoordination):
    """That of a folder whose writers take no turns: what holds then rests on compare-and-set alone."""

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        del name, deadline
        meanwhile()
        yield


class UnqueuedStore(LocalStorage):
    """A folder whose writers take no turns."""

    def __init__(self, uri: str, root: FolderCoordination | None = None) -> None:
        super().__init__(uri, root or UnqueuedCoordination(uri))

    def at(self, folder: str) -> UnqueuedStore:
        return UnqueuedStore(f"{self.uri}/{folder}", self.coordination)


def on_disk(root: str | Path, *, queue: bool = True, **settings: Any) -> Cluster:
    """The cluster of a folder; of several, joined by commas; or of an object store, with the environment's options."""
    if "," in str(root):
        from kafkalike.replication.cluster.cluster_factory import open_several

        return open_several(str(root).split(","), **settings)
    if "://" in str(root):
        from kafkalike.storage.objects import open_objects

        store = open_objects(str(root))
        assert store is not None
        return Cluster(store, **settings)
    return Cluster(LocalStorage(str(root)) if queue else UnqueuedStore(str(root)), **settings)


def on_three_disks(root: str | Path, **settings: str) -> ReplicatedCluster:
    """A cluster of three folders, in which new topics have three replicas; with server settings."""
    from kafkalike.model.config.server_config import ServerProperties
    from kafkalike.replication.cluster.cluster_factory import open_several

    server = {"default.replication.factor": "3", **settings}
    return open_several(three_disks(root).split(","), server=ServerProperties.from_properties(server))


def three_disks(root: str | Path) -> str:
    """What a user gives as `bootstrap_servers` for that cluster."""
    return ",".join(f"{root}/{n}" for n in (1, 2, 3))


def in_buckets(
    server: ObjectServer, base: str, folder: str | Path | None = None, options: Mapping[str, str] | None = None
) -> ReplicatedCluster:
    """A cluster of three places of an object store, or of two and a folder, in which new topics have three replicas.

    Args:
        server: the object store.
        base: the place above them.
        folder: the folder, which is broker 2.
        options: more storage options.
    """
    from kafkalike.model.config.server_config import ServerProperties
    from kafkalike.model.config.storage_options import StorageOptions
    from kafkalike.replication.cluster.cluster_factory import open_several

    roots = [f"{base}/{n}" for n in (1, 2, 3)]
    if folder is not None:
        roots[1] = str(folder)
    settings = ServerProperties.from_properties({"default.replication.factor": "3"})
    return open_several(roots, server=settings, storage_options=StorageOptions({**server.options, **(options or {})}))


def object_store(server: ObjectServer, root: str | None = None) -> ObjectStorage:
    """A place in a real object store that nobody has used; or another handle on one."""
    from kafkalike.model.config.storage_options import StorageOptions
    from kafkalike.storage.objects import open_objects

    store = open_objects(server.new_root() if root is None else root, StorageOptions(server.options))
    assert store is not None
    return store
