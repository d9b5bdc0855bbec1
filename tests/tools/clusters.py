"""Clusters for tests: on a disk, on a disk whose writers do not queue, on tables in memory, and in object stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalike.clock import Deadline
from kafkalike.config.server import ServerConfig
from kafkalike.config.storage import StorageOptions
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster
from kafkalike.log.cluster.replicated.opening import open_several
from kafkalike.log.store.local import LocalStore
from kafkalike.log.store.objects import ObjectStore, open_objects
from tests.tools.object_servers import AZURE, GOOGLE, S3, ObjectServer

ASKED = os.environ.get("KAFKALIKE_OBJECT_STORES", f"{S3},{AZURE}").split(",")
"""Which object stores a run is over; `google` is tried only where it is asked for, or in `GOOGLE_TOO`."""

OBJECT_STORES = [pytest.param(kind, marks=[pytest.mark.objects, pytest.mark.slow]) for kind in ASKED]
"""Parameters of a fixture that is to run over real object stores too."""

GOOGLE_TOO = [
    pytest.param(kind, marks=[pytest.mark.objects, pytest.mark.slow]) for kind in dict.fromkeys([*ASKED, GOOGLE])
]
"""Those, and what stands for Google: no judge of what Google's own storage does, but of our client for it."""

DISK = "disk"

SEVERAL = "three roots"
THREE_ROOTS = pytest.param(SEVERAL, marks=pytest.mark.slow)
"""Parameter of a fixture that is to run over a cluster whose tables have three replicas each, too."""

BUCKETS, MIXED = "three buckets", "two buckets and a folder"
THREE_BUCKETS = [pytest.param(kind, marks=[pytest.mark.objects, pytest.mark.slow]) for kind in (BUCKETS, MIXED)]
"""Parameters of a fixture that is to run over clusters of several roots in object stores, too: places of one server."""


def only_on_disk(fixture: str) -> pytest.MarkDecorator:
    """Marks a test that looks into its root's folder, or asks more of it than an object store has.

    Args:
        fixture: the one with several places as its `params`.
    """
    return pytest.mark.parametrize(fixture, [DISK], indirect=True)


ALL_STORES = ["local", "memory", *OBJECT_STORES]


class UnqueuedStore(LocalStore):
    """A folder whose writers take no turns: what holds then rests on compare-and-set alone."""

    def at(self, folder: str) -> UnqueuedStore:
        return UnqueuedStore(f"{self.uri}/{folder}", self._root)

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        del name, deadline
        meanwhile()
        yield


def on_disk(root: str | Path, *, queue: bool = True, **settings: Any) -> DeltaCluster:
    """The cluster of a folder; of an object store, with the environment's options, where the root is a URI."""
    if "://" in str(root):
        store = open_objects(str(root))
        assert store is not None
        return DeltaCluster(store, **settings)
    return DeltaCluster(LocalStore(str(root)) if queue else UnqueuedStore(str(root)), **settings)


def on_three_disks(root: str | Path, **settings: str) -> ReplicatedCluster:
    """A cluster of three folders, in which new topics have three replicas; with server settings."""
    server = {"default.replication.factor": "3", **settings}
    return open_several([f"{root}/{n}" for n in (1, 2, 3)], server=ServerConfig.from_properties(server))


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
    roots = [f"{base}/{n}" for n in (1, 2, 3)]
    if folder is not None:
        roots[1] = str(folder)
    settings = ServerConfig.from_properties({"default.replication.factor": "3"})
    return open_several(roots, server=settings, storage_options=StorageOptions({**server.options, **(options or {})}))


def object_store(server: ObjectServer, root: str | None = None) -> ObjectStore:
    """A place in a real object store that nobody has used; or another handle on one."""
    store = open_objects(server.new_root() if root is None else root, StorageOptions(server.options))
    assert store is not None
    return store
