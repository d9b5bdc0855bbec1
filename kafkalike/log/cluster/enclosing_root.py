"""Enclosing root: the Delta table or the cluster that a new root would lie in, which is refused."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalike.delta.layout import BROKERS, CLUSTER_METADATA
from kafkalike.errors import KafkaConfigurationError
from kafkalike.storage.port import TABLE_LOG

if TYPE_CHECKING:
    from kafkalike.storage.objects import ObjectStorage
    from kafkalike.storage.port import Storage


class EnclosingPlaces(NamedTuple):
    """What a root would lie in."""

    table: str | None
    """The Delta table that it is, or that it lies in; the innermost one."""
    cluster: str | None
    """The root of a cluster that it lies in; the innermost one."""


def check_not_enclosed(store: Storage) -> None:
    """Refuse a root that is a Delta table, or lies in one, or in the root of another cluster.

    Args:
        store: the root, which is none yet.

    Raises:
        KafkaConfigurationError: it does. Places above the root that give no answer do not count.
    """
    found = _enclosing(store)
    if found.table is None and found.cluster is None:
        return
    what, harm = f"it lies in the root {found.cluster} of another cluster", ""
    if found.table is not None:
        what = "it is a Delta table" if found.table == store.uri else f"it lies in the Delta table {found.table}"
        harm = ", and a VACUUM of that table would delete the records"
    instead = "name a folder outside" if found.cluster is None else f"name the root of the cluster, {found.cluster}"
    raise KafkaConfigurationError(f"{store.uri} cannot be the root of a cluster: {what}{harm}; {instead}")


def _enclosing(store: Storage) -> EnclosingPlaces:
    if store.coordination.reach == "machine":
        return _in_folders(store.uri)
    if not store.scheduler.is_remote:
        return EnclosingPlaces(None, None)
    # It brings obstore: 0.1 s, and a runtime with threads that a fork does not survive.
    from kafkalike.storage.objects import ObjectStorage

    return _in_objects(store) if isinstance(store, ObjectStorage) else EnclosingPlaces(None, None)


def _in_folders(uri: str) -> EnclosingPlaces:
    table = cluster = None
    own = (uri, os.path.realpath(uri))
    for place in _folders_above(uri):
        if table is None and os.path.isdir(f"{place}/{TABLE_LOG}"):  # noqa: PTH112 - quick
            table = place
        if cluster is None and place not in own and _is_root(place):
            cluster = place
    return EnclosingPlaces(table, cluster)


def _is_root(place: str) -> bool:
    # A root that was added may have its sign alone.
    return os.path.isdir(f"{place}/{CLUSTER_METADATA}") or os.path.isfile(f"{place}/{BROKERS}")  # noqa: PTH112, PTH113


def _folders_above(uri: str) -> Iterator[str]:
    """A folder and those above it, by its name and, where links lead there, by where it is."""
    real = os.path.realpath(uri)
    # In `a/../b` the folder `a` is not above `b`.
    for path in dict.fromkeys((real if ".." in Path(uri).parts else uri, real)):
        yield from (str(each).rstrip("/") for each in (Path(path), *Path(path).parents))


def _in_objects(store: ObjectStorage) -> EnclosingPlaces:
    table = cluster = None
    for place in itertools.chain((store,), store.above()):
        # Who may not list a place above may still use the root.
        with contextlib.suppress(OSError):
            if table is None and place.holds(TABLE_LOG):
                table = place.uri
            if cluster is None and place is not store and place.holds(CLUSTER_METADATA):
                cluster = place.uri
    return EnclosingPlaces(table, cluster)
