"""Log files: a table's `_delta_log` in, which versions and checkpoints lie in it out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafkalike.delta.actions import version_of
from kafkalike.model.replication.log_spans import Span, holding
from kafkalike.model.row_value import UNREADABLE
from kafkalike.storage.port import Storage

READ_BESIDE: Final = 16
"""Files of a table that are read side by side, where that is a request each."""

LOG: Final = "_delta_log"

LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"

NOTE: Final = "_uncounted."
"""Beginning of the names of a replica's notes on its own versions; Delta's own readers skip names that begin so."""

_NOTE: Final = re.compile(r"_uncounted\.(\d{20})\.(\d{20})(\.final)?")
"""The last version that does not count, the first one, and whether that is final."""

_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
"""A checkpoint in one file, or one of several parts: its number, and how many there are."""


_JOINED: Final = re.compile(r"(\d{20})\.commits")
"""Commits of a block in one file; other readers of Delta skip the name."""

BLOCK: Final = 100
"""Versions whose commits may stand together in one file; the tables' `delta.checkpointInterval`, so that those above a
checkpoint are one block as a rule."""


def block_of(version: int) -> int:
    """The block that a version belongs to: the number of the version before its first one, and 0 for the first one."""
    return max(version - 1, 0) // BLOCK * BLOCK


def joined_name(block: int) -> str:
    """The file with the commits of a block, relative to the table's folder."""
    return f"_delta_log/{block:020d}.commits"


def note_name(span: Span) -> str:
    """The file of a replica's note, relative to the table's folder."""
    return f"{LOG}/{NOTE}{span.last:020d}.{span.first:020d}" + (".final" if span.final else "")


def noted_span(name: str) -> Span | None:
    """What a file of `_delta_log` notes of a replica; None for any other file."""
    match = _NOTE.fullmatch(name) if name.startswith(NOTE) else None
    return None if match is None else Span(int(match[2]), int(match[1]), match[3] is not None)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What lies in a table's `_delta_log`."""

    commits: tuple[int, ...]
    """Versions that have a commit file which counts, in order."""
    checkpoints: Mapping[int, Sequence[str]]
    """Names of the files of each complete checkpoint, by version."""
    modified_ms: Mapping[int, int] = field(default_factory=dict)
    """When the commit files were written, ms, by version."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Bytes of the commit files, by version."""
    tags: Mapping[int, str] = field(default_factory=dict)
    """What the storage calls the contents of the commit files, by version; see `Entry.tag`."""
    joined: frozenset[int] = frozenset()
    """Blocks that have a file with their commits."""
    spans: tuple[Span, ...] = ()
    """What was noted where the table is a replica: which of its commits do not count."""
    left_over: tuple[int, ...] = ()
    """Versions whose commit files do not count, in order."""

    @property
    def present(self) -> Sequence[int]:
        """Versions that have a commit file, whether it counts or not, in order."""
        return sorted((*self.commits, *self.left_over)) if self.left_over else self.commits

    @classmethod
    def listed(cls, store: Storage, since: int = 0) -> LogFiles:
        """List the folder: for opening, recovery and maintenance; not for the hot path.

        Args:
            store: the table.
            since: the first version of interest.

        A list of a folder is of no one moment: it may lack a file made meanwhile, and have one that was made later.
        So where a commit is missing, the folder is listed once more, and counts up to what the first list knew of.
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
            version = version_of(entry.name)
            if version is not None:
                modified[version], sizes[version], tags[version] = entry.modified_ms, entry.size, entry.tag
            elif match := _JOINED.fullmatch(entry.name):
                joined.add(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(entry.name):
                # A checkpoint of several parts is one only when all of them are there.
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
    """Whether a version can be made from what a log still has."""
    return any(
        first_missing(files.commits, base, version) is None for base in [*files.checkpoints, -1] if base <= version
    )


def first_missing(commits: Sequence[int], base: int, target: int) -> int | None:
    """The first version above a checkpoint, up to a target, that has no commit file.

    Args:
        commits: versions that have one.
        base: the checkpoint's version; -1 for none.
        target: the last version that is looked at.

    Returns:
        None when none is missing.
    """
    there = {v for v in commits if base < v <= target}
    if len(there) == target - base:
        return None
    return next(v for v in range(base + 1, target + 1) if v not in there)


def last_checkpoint(store: Storage) -> int:
    """Version of the last checkpoint; -1 when there is none, or none that can be found out."""
    try:
        return int(json.loads(store.read(LAST_CHECKPOINT))["version"])
    except (OSError, *UNREADABLE):
        return -1
