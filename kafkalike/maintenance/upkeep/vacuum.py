"""Vacuum: a table's folder in, the files that nothing can need are removed.

A file may go when the newest table version does not name it and either the commit that took it out is old enough, or no
commit ever named it and it is old: what a process that was killed has left. Where the root has locks, a file of the
second kind is removed while the table's lock is held, so that no writer has one that it is about to commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafkalike.delta.actions import log_name, parse_commit, version_of
from kafkalike.delta.group_commit.staging_area import FOLDER as WAITING
from kafkalike.delta.log_retention import LOG_STAYS, duration_ms
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.log.topic.segment_files import versions
from kafkalike.log.topic.topic_history import OPERATIONS
from kafkalike.model import faults
from kafkalike.storage.port import Storage

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

_LOG_DIR: Final = "_delta_log"
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
    files: Storage, live: Callable[[], Collection[str]], now_ms: int, delays: Delays, orphan_ms: float = ORPHAN_MS
) -> list[Leftover]:
    """The files that may go now.

    Args:
        files: the table.
        live: paths of the newest table version; asked after the folder was listed, so that a file that is committed
            meanwhile counts as live.
        now_ms: the time, ms.
        delays: how long files stay.
        orphan_ms: age, ms, from which on a file goes that no commit has named.

    Raises:
        LogCorruptError: the table's log cannot be read.
    """
    found = {path: (size, time_ms) for path, size, time_ms in _data_files(files)}
    living = live()
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
                gone = files.beside([partial(_unlink, files, file.path) for file in chunk])
                removed = [file for file, is_gone in zip(chunk, gone, strict=True) if is_gone]
            yield from removed


def _unlink(files: Storage, path: str) -> bool:
    faults.point("vacuum.before_unlink")
    folder, _, name = path.rpartition("/")
    try:
        files.remove(path)
        if files.reach == "machine":
            # Hadoop writes one beside each file of Spark's on a disk.
            files.remove(f"{folder}/.{name}.crc" if folder else f".{name}.crc")
    except OSError:
        return False
    return True


def _data_files(files: Storage) -> Iterator[tuple[str, int, int]]:
    """Path, bytes and modification time (ms) of the data files, committed or not."""
    for entry in files.list(deep=True):
        if entry.name.endswith(".parquet") and not entry.name.rpartition("/")[2].startswith("."):
            yield entry.name, entry.size, entry.modified_ms


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
    entries = files.list(_LOG_DIR)
    oldest = min((v for e in entries if (v := version_of(e.name)) is not None), default=0)
    for entry in entries:
        stale = _TEMPORARY.fullmatch(entry.name) or _is_stale_checksum(entry.name, oldest)
        if stale and now_ms - entry.modified_ms >= ORPHAN_MS:
            yield Leftover(f"{_LOG_DIR}/{entry.name}", entry.size)


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
