"""Dead tables: a root in an object store in; the files of topics that are gone removed, one by one.

On a local disk a deletion takes a table away in one step, by renaming its folder. In an object store there are names
only, so a deletion is its row in the metadata and a mark that says where the table lies; maintenance removes the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import version_of
from kafkalike.delta.layout import DELETED, TOPIC_SCHEMA
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.log.cluster.topic_folders import (
    UNDER_WAY_MS,
    VERSION_FILE,
    Fate,
    Found,
    fate_of,
    live_topic,
    may_be_dead,
)
from kafkalike.maintenance.upkeep.vacuum import CHUNK
from kafkalike.model import faults
from kafkalike.storage.port import Entry

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.storage.port import Storage

_DATA: Final = re.compile(r"(partition=\d+|_waiting)/[^/]+")
"""A data file of ours; what else lies in a topic's folder is somebody's, and stays."""

_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class _Mark:
    """Somebody was about to delete a topic."""

    location: str
    age_ms: float


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that no topic has, with its files: the data go first."""

    found: Found
    data: tuple[str, ...]
    log: tuple[str, ...]
    """From the newest version down: a run that is killed leaves a table that still says its id."""
    foreign: int
    """How many files lie there that kafkalike did not make."""


def clear_dead_tables(cluster: Cluster, say: Callable[[str], None] = lambda _: None) -> int:
    """Remove the files of deleted topics, of creations that were killed or too late, and of their late writers.

    The metadata are read from nothing for it, after the folders were listed: what was created meanwhile has a topic.

    Args:
        cluster: of its roots those in object stores are meant.
        say: told what stays, and why.

    Returns:
        How many folders were cleared.

    Raises:
        LogCorruptError: the metadata cannot be read; nothing was removed.
        OSError: the storage did not answer; what was removed was no longer needed.
    """
    return sum(_cleared(cluster, place, say) for place in cluster.places() if place.reach != "machine")


def _cleared(cluster: Cluster, store: Storage, say: Callable[[str], None]) -> int:
    folders = store.folders()
    now_ms = store.now_ns() // 1_000_000
    marks = dict(_marks(store, now_ms))
    deleted = {topic_id: mark.location for topic_id, mark in marks.items()}
    state = cluster.metadata_on_disk()
    looked = [_look(store, folder, now_ms) for folder in folders if may_be_dead(state, folder)]
    if any(fate_of(state, folder.found, deleted) is Fate.GOES_AFTER_FENCE for folder in looked):
        cluster.metadata.fence()
        state = cluster.metadata_on_disk()
    count = 0
    for folder in looked:
        if not (folder.data or folder.log) or fate_of(state, folder.found, deleted) is Fate.STAYS:
            continue
        _remove(store.at(folder.found.folder), folder)
        count += 1
        if folder.foreign:
            say(f"{folder.found.folder}: {folder.foreign} files that kafkalike did not make stay")
    _clear_marks(store, state, marks, {folder.found.folder for folder in looked})
    return count


def _marks(store: Storage, now_ms: int) -> Iterator[tuple[str, _Mark]]:
    for entry in store.list(DELETED):
        try:
            location = store.read(f"{DELETED}/{entry.name}").decode()
        except FileNotFoundError:
            continue
        yield entry.name, _Mark(location, now_ms - entry.modified_ms)


def _clear_marks(store: Storage, state: ClusterState, marks: Mapping[str, _Mark], looked: set[str]) -> None:
    """Remove marks that tell nothing any more: of topics that live all the same, and of folders that are gone."""
    for topic_id, mark in marks.items():
        if mark.age_ms >= UNDER_WAY_MS and (live_topic(state, topic_id) or mark.location not in looked):
            store.remove(f"{DELETED}/{topic_id}")


def _look(store: Storage, folder: str, now_ms: int) -> _Folder:
    files = store.at(folder)
    log = files.list(_LOG)
    below = files.list(deep=True)
    data = [entry for entry in below if _DATA.fullmatch(entry.name)]
    changed_ms = max((entry.modified_ms for entry in (*log, *data)), default=0)
    table_id, is_new = _table(files, log)
    return _Folder(
        Found(folder=folder, table_id=table_id, is_new=is_new, age_ms=now_ms - changed_ms),
        tuple(entry.name for entry in data),
        tuple(f"{_LOG}/{entry.name}" for entry in sorted(log, key=_last_the_oldest)),
        len(below) - len(data),
    )


def _last_the_oldest(entry: Entry) -> tuple[bool, int]:
    """Commits from the newest down, then checkpoints."""
    version = version_of(entry.name)
    return version is None, 0 if version is None else -version


def _table(files: Storage, log: list[Entry]) -> tuple[str | None, bool]:
    """Id of the table at a place, and whether it is a new one; see `Found`."""
    if not any(VERSION_FILE.fullmatch(entry.name) for entry in log):
        return "", False
    try:
        found = load_snapshot(files)
        metadata = found.metadata()
        if json.loads(metadata["schemaString"]) != TOPIC_SCHEMA:
            return None, False
        return str(metadata["id"]), found.newest == 0
    except (LogCorruptError, UnsupportedVersionError, FileNotFoundError, KeyError, ValueError):
        # Not so for a storage that does not answer: what cannot be read now may be read later.
        return None, False


def _remove(files: Storage, folder: _Folder) -> None:
    for at in range(0, len(folder.data), CHUNK):
        files.beside([partial(files.remove, name) for name in folder.data[at : at + CHUNK]])
    for name in folder.log:
        faults.point("dead_tables.before_remove")
        files.remove(name)
