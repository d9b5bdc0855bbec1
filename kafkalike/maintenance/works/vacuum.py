"""Vacuum: remove unneeded files of tables and of deleted topics.

A file may be removed if the newest table version does not name it, and either the commit that removed it from the table
is old enough, or no commit ever named it and the file is old, because a killed process left it. If the root has locks,
files of the second kind are removed under the table's lock, so that no writer is about to commit them.

On a local disk, the deletion of a topic renames its table's folder in one step. An object store has names only, so a
deletion consists of a row in the metadata and a mark with the table's location, and maintenance removes the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
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
from kafkalike.log.cluster import topic_folders
from kafkalike.log.topic.topic_commits import OPERATIONS, versions
from kafkalike.model import faults
from kafkalike.storage.port import TABLE_LOG, Entry, Storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.cluster_state import ClusterState


ORPHAN_MS: Final = 3_600_000
"""Minimum age, ms, of a removed file that no commit has named; longer than any writer takes from file to commit."""

SLACK_MS: Final = 60_000
"""Maximum difference, ms, between a file's modification time and the clocks of committing writers."""

READ_PAST: Final = 1_000
"""Number of consecutive old commits after which all earlier ones count as old; about 30 ms."""

CHUNK: Final = 32
"""Number of files removed between two looks at the live files, or under one hold of the lock; 1 ms."""

WAITING_MS: Final = 86_400_000
"""Minimum age, ms, of removed files that waited beside the table."""

_TEMPORARY: Final = re.compile(r"\..*\.tmp")
_TIMESTAMP: Final = re.compile(rb'"timestamp"\s*:\s*(\d+)')
_CHECKSUM: Final = re.compile(r"\.?(\d{20})\..*crc|(\d{20})\.crc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long, ms, files stay after the commit that removed them from the table."""

    deleted_ms: int
    """For files with removed records: `file.delete.delay.ms`."""
    replaced_ms: int
    """For files whose records are in other files: `kafkalike.replaced.file.delay.ms`."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file that may be removed."""

    path: str
    """Relative to the table's folder."""
    size: int
    was_live: bool = False
    """True if a commit removed it from the table, so that no writer is about to commit it."""


def leftovers(
    files: Storage,
    live: Callable[[], Collection[str]],
    now_ms: int,
    delays: Delays,
    orphan_ms: float = ORPHAN_MS,
    *,
    known: Collection[str] = (),
) -> list[Leftover]:
    """Return the files that may be removed.

    Args:
        files: the table.
        live: returns the paths of the newest table version; called after the folder was listed, so that a file that is
            committed meanwhile counts as live.
        now_ms: the time, ms.
        delays: how long files stay.
        orphan_ms: minimum age, ms, of a file that no commit has named.
        known: paths of a version that the caller has just read. If the folder has no other file, `live` is not called.

    Raises:
        LogCorruptError: the table's log cannot be read.
    """
    entries = files.list(deep=True)
    found = _data_files(entries)
    unnamed = found.keys() - known
    if unnamed:
        unnamed = found.keys() - live()
    litter = [*_old_temporaries(files, now_ms), *_old_waiting(entries, now_ms)]
    if not unnamed:
        return litter
    # A file that no recent commit has removed either left the table long ago, or is young and never was in it. To tell
    # these apart, commits must be read back to the file's modification time.
    young = [found[path][1] for path in unnamed if now_ms - found[path][1] < orphan_ms]
    horizon = min([now_ms - max(delays.deleted_ms, delays.replaced_ms), *(time_ms - SLACK_MS for time_ms in young)])
    removed = _removal_times(files, unnamed, horizon)
    due = []
    for path in unnamed:
        size, time_ms = found[path]
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
    """Remove files in chunks; files that never were in the table under its lock.

    Args:
        files: the table.
        due: from `leftovers`.
        live: returns the paths of the newest table version; a file that is live again stays.
        exclusive: holds the table's lock.
        stop: called between two chunks; True ends the work early.

    Yields:
        Each removed file; a file that cannot be removed stays for the next run.
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
            # Hadoop writes a checksum file beside each of Spark's files on a disk.
            files.remove(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
    except OSError:
        return False
    return True


def _data_files(entries: Iterable[Entry]) -> dict[str, tuple[int, int]]:
    """Return bytes and modification time (ms) of the data files, committed or not, by path."""
    return {
        entry.name: (entry.size, entry.modified_ms)
        for entry in entries
        if entry.name.endswith(".parquet") and not entry.name.rpartition("/")[2].startswith(".")
    }


def _removal_times(files: Storage, paths: Collection[str], horizon_ms: int) -> dict[str, tuple[int, bool]]:
    """Return when commits removed files from the table, and whether the records went with them.

    Commits before the horizon usually need not be read, because their files are older than every delay. But the clock
    of a committing writer may be slow, which must neither hide older commits nor remove files early. So more commits
    are read, and a commit counts as no older than earlier ones, as in Delta.
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
    """Return the time of a commit, ms, without parsing the rest; 0 if it has none. In statistics, a time is text."""
    found = _TIMESTAMP.search(content)
    return int(found.group(1)) if found else 0


def _old_temporaries(files: Storage, now_ms: int) -> Iterator[Leftover]:
    """Yield half-written files of the log, and checksums of versions that the log does not have anymore."""
    entries = files.list(TABLE_LOG)
    suspects = [entry for entry in entries if entry.name.endswith((".tmp", "crc"))]
    if not suspects:
        return
    oldest = min((v for e in entries if (v := version_of(e.name)) is not None), default=0)
    for entry in suspects:
        stale = _TEMPORARY.fullmatch(entry.name) or _is_stale_checksum(entry.name, oldest)
        if stale and now_ms - entry.modified_ms >= ORPHAN_MS:
            yield Leftover(f"{TABLE_LOG}/{entry.name}", entry.size)


def _old_waiting(entries: Iterable[Entry], now_ms: int) -> list[Leftover]:
    """Return appends that waited beside the table, and marks against them, once no request can be that late."""
    return [
        Leftover(entry.name, entry.size)
        for entry in entries
        if entry.name.startswith(f"{WAITING}/") and now_ms - entry.modified_ms >= WAITING_MS
    ]


def _is_stale_checksum(name: str, oldest: int) -> bool:
    match = _CHECKSUM.fullmatch(name)
    return match is not None and int(match.group(1) or match.group(2)) < oldest


def log_reach_ms(files: Storage) -> int:
    """Return the guaranteed retention of a table's log, ms, which limits all delays.

    Raises:
        LogCorruptError: the table's log cannot be read.
    """
    properties = load_snapshot(files).metadata().get("configuration") or {}
    return duration_ms(properties, LOG_STAYS)


_DATA: Final = re.compile(r"(partition=\d+|_waiting)/[^/]+")
"""Matches our data files; other files in a topic's folder are foreign, and stay."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """A mark that a deletion of a topic has started."""

    location: str
    age_ms: float


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder without a topic, with its files in the order of their removal: data first."""

    found: topic_folders.Found
    data: tuple[str, ...]
    log: tuple[str, ...]
    """From the newest version down, so that a killed run leaves a table that still has its id."""
    foreign: int
    """Number of files that kafkalike did not make."""


def clear_dead_tables(cluster: Cluster, say: Callable[[str], None] = lambda _: None) -> int:
    """Remove the files of deleted topics, of creations that were killed or too late, and of their late writers.

    The metadata are read from scratch after the folders were listed, so tables that are created meanwhile have a topic.

    Args:
        cluster: the cluster, whose roots in object stores are cleaned.
        say: called with each thing that stays, and the reason.

    Returns:
        The number of cleared folders.

    Raises:
        LogCorruptError: the metadata cannot be read; nothing was removed.
        OSError: the storage did not answer; only unneeded files were removed.
    """
    return sum(_cleared(cluster, place, say) for place in cluster.places() if place.coordination.reach != "machine")


def _cleared(cluster: Cluster, store: Storage, say: Callable[[str], None]) -> int:
    folders = store.folders()
    now_ms = store.coordination.now_ns() // 1_000_000
    marks = dict(_marks(store, now_ms))
    deleted = {topic_id: mark.location for topic_id, mark in marks.items()}
    state = cluster.metadata_on_disk()
    looked = [_look(store, folder, now_ms) for folder in topic_folders.suspects(state, folders)]
    if any(
        topic_folders.fate_of(state, folder.found, deleted) is topic_folders.Fate.GOES_AFTER_FENCE for folder in looked
    ):
        cluster.metadata.fence()
        state = cluster.metadata_on_disk()
    count = 0
    for folder in looked:
        if (
            not (folder.data or folder.log)
            or topic_folders.fate_of(state, folder.found, deleted) is topic_folders.Fate.STAYS
        ):
            continue
        _remove(store.at(folder.found.folder), folder)
        count += 1
        if folder.foreign:
            say(f"{folder.found.folder}: foreign files that stay: {folder.foreign}")
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
    """Remove obsolete marks, of topics that still exist and of folders that were removed."""
    for topic_id, mark in marks.items():
        if mark.age_ms >= topic_folders.UNDER_WAY_MS and (
            topic_folders.live_topic(state, topic_id) or mark.location not in looked
        ):
            store.remove(f"{DELETED}/{topic_id}")


def _look(store: Storage, folder: str, now_ms: int) -> _Folder:
    files = store.at(folder)
    log = files.list(TABLE_LOG)
    below = files.list(deep=True)
    data = [entry for entry in below if _DATA.fullmatch(entry.name)]
    changed_ms = max((entry.modified_ms for entry in (*log, *data)), default=0)
    table_id, is_new = _table(files, log)
    return _Folder(
        topic_folders.Found(folder=folder, table_id=table_id, is_new=is_new, age_ms=now_ms - changed_ms),
        tuple(entry.name for entry in data),
        tuple(f"{TABLE_LOG}/{entry.name}" for entry in sorted(log, key=_last_the_oldest)),
        len(below) - len(data),
    )


def _last_the_oldest(entry: Entry) -> tuple[bool, int]:
    """Order commits from the newest down, then checkpoints."""
    version = version_of(entry.name)
    return version is None, 0 if version is None else -version


def _table(files: Storage, log: list[Entry]) -> tuple[str | None, bool]:
    """Return the id of the table in a folder, and whether the table is new; see `Found`."""
    if not any(topic_folders.VERSION_FILE.fullmatch(entry.name) for entry in log):
        return "", False
    try:
        found = load_snapshot(files)
        metadata = found.metadata()
        if json.loads(metadata["schemaString"]) != TOPIC_SCHEMA:
            return None, False
        return str(metadata["id"]), found.newest == 0
    except (LogCorruptError, UnsupportedVersionError, FileNotFoundError, KeyError, ValueError):
        # A storage that does not answer raises instead, because a later attempt may succeed.
        return None, False


def _remove(files: Storage, folder: _Folder) -> None:
    for at in range(0, len(folder.data), CHUNK):
        files.scheduler.beside([partial(files.remove, name) for name in folder.data[at : at + CHUNK]])
    for name in folder.log:
        faults.point("dead_tables.before_remove")
        files.remove(name)
