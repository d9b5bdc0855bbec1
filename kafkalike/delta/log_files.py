"""Log files: the versions and checkpoints that a table's `_delta_log` holds, and the retention of both."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafkalike.delta.actions import log_name
from kafkalike.model.replication.registration import Span, holding
from kafkalike.model.row_value import UNREADABLE
from kafkalike.storage.port import Storage

READ_BESIDE: Final = 16
"""Most files of a table that are read side by side in an object store."""

LOG: Final = "_delta_log"

LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"

NOTE: Final = "_uncounted."
"""Prefix of a replica's notes on its own versions; Delta's readers skip such names."""

_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
"""Name of a commit file; the regular expression of `version_of`, for the loop over a log."""

_NOTE: Final = re.compile(r"_uncounted\.(\d{20})\.(\d{20})(\.final)?")
"""Name of a note: the last version that does not count, the first one, and a mark if that is final."""

_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
"""Name of a checkpoint in one file, or of one part of several: the part's number, and the number of parts."""


_JOINED: Final = re.compile(r"(\d{20})\.commits")
"""Name of a bundle of a block's commits; other readers of Delta skip it."""

CHECKPOINT_INTERVAL: Final = 100
"""Fewest commits between two checkpoints, also in the tables' property `delta.checkpointInterval`. Each checkpoint
writes the whole state: Delta's default of 10 doubled the mean cost of an append."""

SHARE: Final = 10
"""After a checkpoint of n entries, the next one is due after n / `SHARE` commits at the earliest. So all checkpoints of
a table's life together hold about `SHARE` times as many entries as the last one, however often the table is written."""

FAR_SHARE: Final = 100
"""`SHARE` for object stores: a reader pays one request per commit above a checkpoint, and a put costs the same for any
size."""

BLOCK: Final = CHECKPOINT_INTERVAL
"""Versions per bundle, so that the commits above a checkpoint are usually one block."""


def is_due(version: int, last: int, entries: int, share: int = SHARE) -> bool:
    """Return True if a checkpoint is due after a commit.

    Args:
        version: the commit's version.
        last: version of the latest checkpoint; -1 without one.
        entries: number of entries of the next one, about.
        share: `SHARE` or `FAR_SHARE`.
    """
    return version > 0 and version - max(last, 0) >= max(CHECKPOINT_INTERVAL, entries // share)


def checkpoint_name(version: int) -> str:
    """Return the path of a checkpoint in the table's folder."""
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def block_of(version: int) -> int:
    """Return the block of a version: the number before the block's first version; 0 for the first block."""
    return max(version - 1, 0) // BLOCK * BLOCK


def joined_name(block: int) -> str:
    """Return the path of a block's bundle in the table's folder."""
    return f"_delta_log/{block:020d}.commits"


def note_name(span: Span) -> str:
    """Return the path of a replica's note in the table's folder."""
    return f"{LOG}/{NOTE}{span.last:020d}.{span.first:020d}" + (".final" if span.final else "")


def noted_span(name: str) -> Span | None:
    """Return the span that a file of `_delta_log` notes of a replica; None for any other file."""
    match = _NOTE.fullmatch(name) if name.startswith(NOTE) else None
    return None if match is None else Span(int(match[2]), int(match[1]), match[3] is not None)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Files of a table's `_delta_log`."""

    commits: tuple[int, ...]
    """Versions whose commit files count, in order."""
    checkpoints: Mapping[int, Sequence[str]]
    """Names of the files of each complete checkpoint, by version."""
    modified_ms: Mapping[int, int] = field(default_factory=dict)
    """Modification times of the commit files, ms, by version."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Sizes of the commit files, bytes, by version."""
    tags: Mapping[int, str] = field(default_factory=dict)
    """Tags of the commit files by version; see `Entry.tag`."""
    joined: frozenset[int] = frozenset()
    """Blocks that have a bundle."""
    spans: tuple[Span, ...] = ()
    """Notes of a replica: spans of its commits that do not count."""
    left_over: tuple[int, ...] = ()
    """Versions whose commit files do not count, in order."""

    @property
    def present(self) -> Sequence[int]:
        """All versions that have a commit file, in order."""
        return sorted((*self.commits, *self.left_over)) if self.left_over else self.commits

    @classmethod
    def listed(cls, store: Storage, since: int = 0) -> LogFiles:
        """List the folder: for opening, recovery and maintenance; not for the hot path.

        A list is not a snapshot: it may lack a file made meanwhile, and have a later one. So if a commit is missing,
        the folder is listed once more, and counts up to the last version of the first list.

        Args:
            store: the table.
            since: the first version of interest.
        """
        first = cls._listed(store, since)
        if not first.commits or len(first.commits) == first.commits[-1] - first.commits[0] + 1:
            return first
        second = cls._listed(store, since)
        return replace(second, commits=tuple(v for v in second.commits if v <= first.commits[-1]))

    @classmethod
    def _listed(cls, store: Storage, since: int) -> LogFiles:
        modified: dict[int, int] = {}
        sizes: dict[int, int] = {}
        tags: dict[int, str] = {}
        joined: set[int] = set()
        parts: dict[int, dict[str, int]] = {}
        spans: list[Span] = []
        for entry in store.list("_delta_log", after=f"{since:020d}" if since > 0 else ""):
            if match := _COMMIT.fullmatch(entry.name):
                version = int(match[1])
                modified[version], sizes[version], tags[version] = entry.modified_ms, entry.size, entry.tag
            elif match := _JOINED.fullmatch(entry.name):
                joined.add(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(entry.name):
                # A checkpoint of several parts counts only if all parts exist.
                parts.setdefault(int(match[1]), {})[entry.name] = int(match[3] or 1)
            elif (span := noted_span(entry.name)) is not None:
                spans.append(span)
        whole: dict[int, Sequence[str]] = {}
        for version, names in parts.items():
            single = [name for name, count in names.items() if count == 1]
            several = sorted(name for name, count in names.items() if count > 1)
            if single or (several and len(several) == names[several[0]]):
                whole[version] = single[:1] or several
        # Only replicas have such notes.
        held = holding(spans, max(whole, default=-1)) if spans else []
        left = tuple(sorted(v for v in modified if any(span.has(v) for span in held))) if held else ()
        commits = tuple(sorted(modified.keys() - set(left)))
        return cls(commits, whole, modified, sizes, tags, frozenset(joined), tuple(spans), left)


def base_of(files: LogFiles, version: int) -> bool:
    """Return True if the log still has the files to make a version."""
    return any(
        first_missing(files.commits, base, version) is None for base in [*files.checkpoints, -1] if base <= version
    )


def first_missing(commits: Sequence[int], base: int, target: int) -> int | None:
    """Return the first version above a checkpoint, up to a target, without a commit file; None if all exist.

    Args:
        commits: versions with a commit file, in order.
        base: the checkpoint's version; -1 for none.
        target: the last version of interest.
    """
    if target <= base:
        return None
    there = set(commits[bisect_right(commits, base) : bisect_right(commits, target)])
    if len(there) == target - base:
        return None
    return next(v for v in range(base + 1, target + 1) if v not in there)


def last_checkpoint(store: Storage) -> int:
    """Return the version of the last checkpoint; -1 if none is known."""
    return named_checkpoint(store)[0]


def named_checkpoint(store: Storage) -> tuple[int, int]:
    """Return the version of the last checkpoint and its number of entries; -1 and 0 if none is known."""
    try:
        named = json.loads(store.read(LAST_CHECKPOINT))
        return int(named["version"]), int(named.get("size", 0))
    except (OSError, *UNREADABLE):
        return -1, 0


KEPT: Final = 2
"""Superseded checkpoints that are kept, because readers may be reading them."""

HOUR_MS: Final = 3_600_000

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": HOUR_MS,
    "day": 24 * HOUR_MS,
    "week": 7 * 24 * HOUR_MS,
}

LOG_STAYS: Final = "delta.logRetentionDuration"
"""Property: how long commits stay after a checkpoint has replaced them."""

DELETED_FILES_STAY: Final = "delta.deletedFileRetentionDuration"
"""Property: how long a checkpoint names removed files, for readers of older versions."""

CLEAN_UP: Final = "delta.enableExpiredLogCleanup"
"""Property: `false` keeps the table's log unchanged."""

DURATIONS: Final = {LOG_STAYS: 30 * 24 * HOUR_MS, DELETED_FILES_STAY: 7 * 24 * HOUR_MS}
"""Properties that hold durations, with Delta's defaults, ms."""


def clean_log(
    store: Storage, now_ms: int, properties: Mapping[str, str], note: Callable[[int], object] | None = None
) -> int:
    """Remove commits past the table's `delta.logRetentionDuration`, and superseded checkpoints.

    Time travel reaches back as far as that setting: a version within it stays readable. A table with
    `delta.enableExpiredLogCleanup=false` loses nothing.

    Args:
        store: the table.
        now_ms: the time, ms.
        properties: the table's configuration.
        note: called with the version below which commits are removed, before the first removal.

    Returns:
        Number of removed files.

    Raises:
        OSError: the storage refused.
    """
    files = LogFiles.listed(store)
    base, gone = _expired(files, now_ms, properties)
    if note is not None and any(version < base for version in files.present):
        note(base)
    # Oldest first: after an interrupt the rest is a log without holes.
    for name in sorted(gone, key=lambda name: name.rpartition("/")[2]):
        store.remove(name)
    return len(gone)


def is_clean(store: Storage, now_ms: int, properties: Mapping[str, str]) -> bool:
    """Return True if `clean_log` would remove nothing. Costs a list of the log.

    Raises:
        OSError: the storage does not answer.
    """
    return not _expired(LogFiles.listed(store), now_ms, properties)[1]


def _expired(files: LogFiles, now_ms: int, properties: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the version that the log is to start with, and the files to remove."""
    if properties.get(CLEAN_UP, "").lower() == "false":
        return -1, []
    base = _base(files, now_ms - duration_ms(properties, LOG_STAYS))
    gone = [log_name(v) for v in files.present if v < base]
    # Bundles whose commits are all removed.
    gone += [joined_name(block) for block in files.joined if block + BLOCK < base]
    for version in _superseded(files, base):
        gone += [f"_delta_log/{name}" for name in files.checkpoints[version]]
    return base, gone


def _base(files: LogFiles, horizon_ms: int) -> int:
    """Return the version of the checkpoint that the log is to start with; -1 to keep the log.

    It is the newest checkpoint at or below the last commit before the horizon, so that later versions stay readable. A
    commit counts as no older than its predecessors, whatever its writer's clock was.
    """
    last, latest_ms = -1, 0
    for version in files.commits:
        latest_ms = max(latest_ms, files.modified_ms.get(version, 0))
        if latest_ms >= horizon_ms:
            break
        last = version
    return max((c for c in files.checkpoints if c <= last), default=-1)


def _superseded(files: LogFiles, base: int) -> list[int]:
    """Return the checkpoints that no reader needs: below the log's start, or with all later commits present."""
    kept = set(sorted(files.checkpoints)[-KEPT:])
    begins = base if base >= 0 else (files.commits or (0,))[0] - 1
    if begins >= 0:
        # A log without its first commits rests on the oldest checkpoint that its commits continue.
        kept.add(min((c for c in files.checkpoints if c >= begins), default=-1))
    return [c for c in files.checkpoints if c not in kept]


def duration_ms(properties: Mapping[str, str], name: str) -> int:
    """Return a duration from a table's properties, ms; Delta's default if it is missing or is not a valid interval.

    Args:
        properties: the table's configuration, which any Delta writer may change.
        name: a key of `DURATIONS`.
    """
    found = _parsed_ms(properties.get(name, ""))
    return DURATIONS[name] if found is None else found


def _parsed_ms(interval: str) -> int | None:
    """Parse a duration such as `interval 1 days 12 hours` into ms; any other text is None, and expires nothing."""
    words = interval.lower().split()
    pairs = list(zip(words[1::2], words[2::2], strict=False))
    if len(pairs) * 2 + 1 != len(words) or words[0] != "interval" or not pairs:
        return None
    total = 0
    for amount, unit in pairs:
        of_unit = _UNITS_MS.get(unit.removesuffix("s"))
        if of_unit is None or not amount.isdecimal():
            return None
        total += int(amount) * of_unit
    return total
