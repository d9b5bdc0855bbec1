"""Vacuum: removes files that nothing can need, of tables and of topics that are gone.

A file may go when the newest table version does not name it and either the commit that took it out is old enough, or no
commit ever named it and it is old: what a process that was killed has left. Where the root has locks, a file of the
second kind is removed while the table's lock is held, so that no writer has one that it is about to commit.

On a local disk the deletion of a topic takes its table away in one step, by renaming its folder. In an object store
there are names only, so a deletion is its row in the metadata and a mark that says where the table lies; maintenance
removes the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike.delta.actions import log_name, parse_commit, version_of
from kafkalike.delta.group_commit.staging_area import FOLDER as WAITING
from kafkalike.delta.layout import DELETED, TOPIC_SCHEMA
from kafkalike.delta.log_files import LOG_STAYS, duration_ms
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
from kafkalike.log.topic.topic_commits import OPERATIONS, versions
from kafkalike.model import faults
from kafkalike.storage.port import TABLE_LOG, Entry, Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.cluster_state import ClusterState


ORPHAN_MS: Final = 3_600_000
"""Age, ms, of a file that no commit has named before it goes: longer than any writer takes from file to commit."""

SLACK_MS: Final = 60_000
"""How far, ms, a file's modification time and the clock of those who commit may be apart."""

READ_PAST: Final = 1_000
"""Commits in a row that look too old before the older ones are taken for old as well; some 30 ms."""

CHUNK: Final = 32
"""Files removed between two looks at what is live, or while the lock is held once: 1 ms."""

WAITING_MS: Final = 86_400_000
"""Age, ms, of what waited beside the table before it goes."""

_TEMPORARY: Final = re.compile(r"\..*\.tmp")
_TIMESTAMP: Final = re.compile(rb'"timestamp"\s*:\s*(\d+)')
_CHECKSUM: Final = re.compile(r"\.?(\d{20})\..*crc|(\d{20})\.crc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long, ms, files stay after the commit that took them out."""

    deleted_ms: int
    """Their records are gone: `file.delete.delay.ms`."""
    replaced_ms: int
    """Their records are in other files: `kafkalike.replaced.file.delay.ms`."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that may go."""

    path: str
    """Relative to the table's folder."""
    size: int
    was_live: bool = False
    """A commit has taken it out, so no writer is about to commit it."""


def leftovers(
    files: Storage,
    live: Callable[[], Collection[str]],
    now_ms: int,
    delays: Delays,
    orphan_ms: float = ORPHAN_MS,
    *,
    known: Collection[str] = (),
) -> list[Leftover]:
    """The files that may go now.

    Args:
        files: the table.
        live: paths of the newest table version; asked after the folder was listed, so that a file that is committed
            meanwhile counts as live.
        now_ms: the time, ms.
        delays: how long files stay.
        orphan_ms: age, ms, from which on a file goes that no commit has named.
        known: paths of a version that the caller has just seen. Where the folder has no other file, nothing may go, and
            `live` is not asked.

    Raises:
        LogCorruptError: the table's log cannot be read.
    """
    found = _data_files(files)
    living = known if found.keys() <= set(known) else live()
    unnamed = {path: facts for path, facts in found.items() if path not in living}
    litter = [*_old_temporaries(files, now_ms), *_old_waiting(files, now_ms)]
    if not unnamed:
        return litter
    # What no commit in sight has taken out is either long gone from the table, or young and never was in it; to tell
    # the two apart for a young file, commits must be read back to when it was written.
    young = [time_ms for _, time_ms in unnamed.values() if now_ms - time_ms < orphan_ms]
    horizon = min([now_ms - max(delays.deleted_ms, delays.replaced_ms), *(time_ms - SLACK_MS for time_ms in young)])
    removed = _removal_times(files, unnamed, horizon)
    due = []
    for path, (size, time_ms) in unnamed.items():
        if path in removed:
            when, deleted = removed[path]
            old = now_ms - when >= (delays.deleted_ms if deleted else delays.replaced_ms)
        else:
            old = now_ms - time_ms >= max(orphan_ms, delays.deleted_ms)
        if old:
            due.append(Leftover(path, size, was_live=path in removed))
    return [*due, *litter]


def vacuum(
    files: Storage,
    due: Collection[Leftover],
    live: Callable[[], Container[str]],
    exclusive: Callable[[], AbstractContextManager[None]],
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Leftover]:
    """Remove files, some at a time; those that never were in the table under its lock.

    Args:
        files: the table.
        due: from `leftovers`.
        live: paths of the newest table version; a file that someone has brought back stays.
        exclusive: holds the table's lock.
        stop: asked between two rounds; True ends the work early.

    Yields:
        Each file that is gone; one that cannot be removed stays for the next run.
    """
    for was_live in (True, False):
        waiting = sorted((file for file in due if file.was_live is was_live), key=lambda file: file.path)
        for at in range(0, len(waiting), CHUNK):
            if stop():
                return
            with nullcontext() if was_live else exclusive():
                living = live()
                chunk = [file for file in waiting[at : at + CHUNK] if file.path not in living]
                gone = files.scheduler.beside([partial(_unlink, files, file.path) for file in chunk])
                removed = [file for file, is_gone in zip(chunk, gone, strict=True) if is_gone]
            yield from removed


def _unlink(files: Storage, path: str) -> bool:
    faults.point("vacuum.before_unlink")
    folder, _, name = path.rpartition("/")
    try:
        files.remove(path)
        if files.coordination.reach == "machine":
            # Hadoop writes one beside each file of Spark's on a disk.
            files.remove(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
    except OSError:
        return False
    return True


def _data_files(files: Storage) -> dict[str, tuple[int, int]]:
    """Return bytes and modification time (ms) of the data files, committed or not, by path."""
    return {
        entry.name: (entry.size, entry.modified_ms)
        for entry in files.list(deep=True)
        if entry.name.endswith(".parquet") and not entry.name.rpartition("/")[2].startswith(".")
    }


def _removal_times(files: Storage, paths: Collection[str], horizon_ms: int) -> dict[str, tuple[int, bool]]:
    """When commits took files out, and whether their records went with them.

    Commits older than the horizon need not be read: what they took out is older than every delay. But a commit's time
    is its writer's, whose clock may be slow: that must neither hide older commits nor let files go early. So some more
    are read, and a commit counts as no older than those before it, as Delta has it.
    """
    missing = set(paths)
    seen: list[tuple[int, bool, set[str]]] = []
    past = 0
    for version in reversed(versions(files)):
        if past >= READ_PAST:
            break
        try:
            content = files.read(log_name(version))
        except FileNotFoundError:
            continue
        when, deleted, taken = _time_of(content), False, set[str]()
        if b'"remove"' in content:
            commit = parse_commit(version, content, files.uri)
            deleted = commit.operation == OPERATIONS["retention"] and not commit.adds
            taken = missing.intersection(commit.removes)
            missing -= taken
        seen.append((when, deleted, taken))
        past = 0 if missing and not 0 < when < horizon_ms else past + 1
    found: dict[str, tuple[int, bool]] = {}
    latest_ms = 0
    for when, deleted, taken in reversed(seen):
        latest_ms = max(latest_ms, when)
        found.update(dict.fromkeys(taken, (latest_ms, deleted)))
    return found


def _time_of(content: bytes) -> int:
    """Time of a commit, ms, without parsing the rest; 0 when it has none. In statistics a time is text."""
    found = _TIMESTAMP.search(content)
    return int(found.group(1)) if found else 0


def _old_temporaries(files: Storage, now_ms: int) -> Iterator[Leftover]:
    """Half-written files of the log, and checksums of versions that the log no longer has."""
    entries = files.list(TABLE_LOG)
    suspects = [entry for entry in entries if entry.name.endswith((".tmp", "crc"))]
    if not suspects:
        return
    oldest = min((v for e in entries if (v := version_of(e.name)) is not None), default=0)
    for entry in suspects:
        stale = _TEMPORARY.fullmatch(entry.name) or _is_stale_checksum(entry.name, oldest)
        if stale and now_ms - entry.modified_ms >= ORPHAN_MS:
            yield Leftover(f"{TABLE_LOG}/{entry.name}", entry.size)


def _old_waiting(files: Storage, now_ms: int) -> Iterator[Leftover]:
    """Appends that waited beside the table, and words that one must not be taken, when no request can be so late."""
    for entry in files.list(WAITING):
        if now_ms - entry.modified_ms >= WAITING_MS:
            yield Leftover(f"{WAITING}/{entry.name}", entry.size)


def _is_stale_checksum(name: str, oldest: int) -> bool:
    match = _CHECKSUM.fullmatch(name)
    return match is not None and int(match.group(1) or match.group(2)) < oldest


def log_reach_ms(files: Storage) -> int:
    """How far back a table's log reaches at least, ms: no delay can be longer.

    Raises:
        LogCorruptError: the table's log cannot be read.
    """
    properties = load_snapshot(files).metadata().get("configuration") or {}
    return duration_ms(properties, LOG_STAYS)


_DATA: Final = re.compile(r"(partition=\d+|_waiting)/[^/]+")
"""A data file of ours; what else lies in a topic's folder is somebody's, and stays."""


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
    return sum(_cleared(cluster, place, say) for place in cluster.places() if place.coordination.reach != "machine")


def _cleared(cluster: Cluster, store: Storage, say: Callable[[str], None]) -> int:
    folders = store.folders()
    now_ms = store.coordination.now_ns() // 1_000_000
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
    log = files.list(TABLE_LOG)
    below = files.list(deep=True)
    data = [entry for entry in below if _DATA.fullmatch(entry.name)]
    changed_ms = max((entry.modified_ms for entry in (*log, *data)), default=0)
    table_id, is_new = _table(files, log)
    return _Folder(
        Found(folder=folder, table_id=table_id, is_new=is_new, age_ms=now_ms - changed_ms),
        tuple(entry.name for entry in data),
        tuple(f"{TABLE_LOG}/{entry.name}" for entry in sorted(log, key=_last_the_oldest)),
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
        files.scheduler.beside([partial(files.remove, name) for name in folder.data[at : at + CHUNK]])
    for name in folder.log:
        faults.point("dead_tables.before_remove")
        files.remove(name)
