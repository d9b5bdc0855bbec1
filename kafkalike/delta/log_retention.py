"""Log retention: which commits and checkpoints of a log are too old, or are replaced by newer checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import BLOCK, LogFiles, joined_name
from kafkalike.storage.port import Storage

KEPT: Final = 2
"""Checkpoints that stay although a newer one has all that they have: readers may be at them."""

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
"""Property: how long commits stay that a checkpoint has replaced."""

DELETED_FILES_STAY: Final = "delta.deletedFileRetentionDuration"
"""Property: how long a checkpoint names removed files, for readers of older versions."""

CLEAN_UP: Final = "delta.enableExpiredLogCleanup"
"""Property of a table whose log stays as it is when this is `false`."""

DURATIONS: Final = {LOG_STAYS: 30 * 24 * HOUR_MS, DELETED_FILES_STAY: 7 * 24 * HOUR_MS}
"""Properties that hold durations, with Delta's defaults, ms."""


def clean_log(
    store: Storage, now_ms: int, properties: Mapping[str, str], note: Callable[[int], object] | None = None
) -> int:
    """Remove commits past the table's `delta.logRetentionDuration`, and checkpoints that newer ones make unnecessary.

    Time travel reaches back as far as that setting says; a version within it stays readable. Nothing is removed from a
    table that has `delta.enableExpiredLogCleanup=false`.

    Args:
        store: the table.
        now_ms: the time, ms.
        properties: the table's configuration.
        note: is told below which version commits go, before one does.

    Returns:
        How many files went.

    Raises:
        OSError: the storage refused.
    """
    files = LogFiles.listed(store)
    base, gone = _expired(files, now_ms, properties)
    if note is not None and any(version < base for version in files.present):
        note(base)
    # From the oldest on: cut off anywhere, what is left is a log without holes.
    for name in sorted(gone, key=lambda name: name.rpartition("/")[2]):
        store.remove(name)
    return len(gone)


def is_clean(store: Storage, now_ms: int, properties: Mapping[str, str]) -> bool:
    """Return whether `clean_log` would remove nothing. Costs a list of the log.

    Raises:
        OSError: the storage does not answer.
    """
    return not _expired(LogFiles.listed(store), now_ms, properties)[1]


def _expired(files: LogFiles, now_ms: int, properties: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the version that the log shall begin with, and the files that may go."""
    if properties.get(CLEAN_UP, "").lower() == "false":
        return -1, []
    base = _base(files, now_ms - duration_ms(properties, LOG_STAYS))
    gone = [log_name(v) for v in files.present if v < base]
    # Those of which no commit stays.
    gone += [joined_name(block) for block in files.joined if block + BLOCK < base]
    for version in _superseded(files, base):
        gone += [f"_delta_log/{name}" for name in files.checkpoints[version]]
    return base, gone


def _base(files: LogFiles, horizon_ms: int) -> int:
    """Version of the checkpoint that the log shall begin with; -1 when it shall stay as it is.

    The newest one at or below the last commit that is older than the horizon: the versions since then stay readable. A
    commit counts as no older than those before it, whatever its writer's clock said.
    """
    last, latest_ms = -1, 0
    for version in files.commits:
        latest_ms = max(latest_ms, files.modified_ms.get(version, 0))
        if latest_ms >= horizon_ms:
            break
        last = version
    return max((c for c in files.checkpoints if c <= last), default=-1)


def _superseded(files: LogFiles, base: int) -> list[int]:
    """Checkpoints that nobody needs: below the log's beginning, or with all commits since then still there."""
    kept = set(sorted(files.checkpoints)[-KEPT:])
    begins = base if base >= 0 else (files.commits or (0,))[0] - 1
    if begins >= 0:
        # A log without its first commits rests on the oldest checkpoint that the others follow on from.
        kept.add(min((c for c in files.checkpoints if c >= begins), default=-1))
    return [c for c in files.checkpoints if c not in kept]


def duration_ms(properties: Mapping[str, str], name: str) -> int:
    """A duration among a table's properties, ms; Delta's default where it is not set, or not said as Delta says it.

    Args:
        properties: the table's configuration, which anybody may change.
        name: a key of `DURATIONS`.
    """
    found = _parsed_ms(properties.get(name, ""))
    return DURATIONS[name] if found is None else found


def _parsed_ms(interval: str) -> int | None:
    """A duration such as `interval 1 days 12 hours`, ms; None for anything else: nothing may go because of it."""
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
