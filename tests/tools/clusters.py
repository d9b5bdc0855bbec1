"""Clusters for tests: on a disk, on a disk whose writers do not queue, and on tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkalike.clock import Deadline
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.log.store.local import LocalStore


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
    """The cluster of a folder."""
    return DeltaCluster(LocalStore(str(root)) if queue else UnqueuedStore(str(root)), **settings)
