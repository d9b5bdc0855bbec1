"""Removal: which records are to go in, by key or by offset; the rule, runs of offsets and fingerprints of keys out.

What is asked to go leaves holes, as compaction does: the offsets of all other records stay.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Runs = tuple[range, ...]
"""Offsets as runs, in order, none of which touches the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """The records that are to go from one partition."""

    below: int
    """Records from this offset on stay: they were appended after the removal began."""
    keys: frozenset[bytes] = frozenset()
    """Records that have one of these keys go."""
    offsets: Runs = ()
    """And those at these offsets."""
    spared: frozenset[int] = frozenset()
    """Offsets of records that stay whatever their key: tombstones that say the same already."""
    source: str | None = None
    """Only dead letters of this topic go; None asks no record where it is from."""

    def takes(self, offset: int, key: bytes | None) -> bool:
        """Whether a record goes, where `source` does not matter: the rule that the applying code must keep."""
        if offset >= self.below or offset in self.spared:
            return False
        return (key is not None and key in self.keys) or any(offset in run for run in self.offsets)


def runs_of(offsets: Iterable[int]) -> Runs:
    """Offsets as runs.

    >>> runs_of([3, 1, 2, 7])
    (range(1, 4), range(7, 8))
    """
    ordered = sorted(set(offsets))
    if not ordered:
        return ()
    cuts = [at for at, (before, after) in enumerate(pairwise(ordered), 1) if after > before + 1]
    bounds = [0, *cuts, len(ordered)]
    return tuple(range(ordered[low], ordered[high - 1] + 1) for low, high in pairwise(bounds))


def joined(*several: Iterable[range]) -> Runs:
    """Runs of several kinds as one; those that touch or overlap become one run."""
    found: list[range] = []
    for run in sorted((run for runs in several for run in runs if run), key=lambda run: (run.start, run.stop)):
        if found and run.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, run.stop))
        else:
            found.append(run)
    return tuple(found)


def within(runs: Iterable[range], bounds: range) -> Runs:
    """The part of runs that lies in a range."""
    cut = (range(max(run.start, bounds.start), min(run.stop, bounds.stop)) for run in runs)
    return tuple(run for run in cut if run)


def count(runs: Iterable[range]) -> int:
    """How many offsets there are."""
    return sum(map(len, runs))


# --- keys ------------------------------------------------------------------------------------------


def fingerprint(salt: bytes, key: bytes) -> str:
    """What a certificate says of a key in its place: HMAC-SHA256 under a salt that stands in the certificate alone.

    Who has the certificate and the key can tell that it is the one that was meant. Who has the root alone learns
    nothing, also where there are few keys to guess from: the salt is not below the root.
    """
    return hmac.new(salt, key, hashlib.sha256).hexdigest()


def digest(fingerprints: Iterable[str]) -> str:
    """One word for all keys of a run, which stands in the table's history."""
    return hashlib.sha256("\n".join(sorted(fingerprints)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFound:
    """What a partition has of a key."""

    records: int
    last: int
    """Offset of the last record."""
    is_tombstone: bool
    """Whether that one is a tombstone."""


def tombstones_wanted(found: Mapping[bytes, KeyFound]) -> dict[bytes, bool]:
    """The keys of a partition that get a tombstone.

    A key whose only record is a tombstone keeps that one, so that a run that is made again adds no other.

    Args:
        found: what the partition has of the keys, those that it has at all.

    Returns:
        By key: True for a new tombstone, False where the one that is there stays.
    """
    return {key: not (one.is_tombstone and one.records == 1) for key, one in found.items()}


# --- undoing appends -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPast:
    """A group that has read records which are to be undone."""

    group_id: str
    topic: str
    partition: int
    committed: int
    read: int
    """How many of the offsets it has read."""


def groups_past(
    topic: str, undone: Mapping[int, Sequence[range]], committed: Mapping[str, Mapping[int, int]]
) -> list[GroupPast]:
    """Which groups have read past the first of some offsets.

    Args:
        topic: the topic.
        undone: offsets by partition.
        committed: by group: committed offsets by partition.
    """
    found = []
    for group_id, offsets in sorted(committed.items()):
        for partition, runs in sorted(undone.items()):
            at = offsets.get(partition)
            if at is None:
                continue
            read = count(within(runs, range(at)))
            if read:
                found.append(GroupPast(group_id=group_id, topic=topic, partition=partition, committed=at, read=read))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What undoing an append comes to in one topic."""

    takes: Mapping[int, Runs] = field(default_factory=dict)
    """Offsets that are to go, by partition, where a record is there still."""
    below_start: int = 0
    """Offsets that lie below the log start: their records are gone already."""


def plan_undo(ranges: Mapping[int, range], log_starts: Mapping[int, int]) -> Undone:
    """What of an append can be undone.

    Args:
        ranges: its offsets by partition.
        log_starts: where the partitions begin.
    """
    takes = {p: within((run,), range(log_starts.get(p, 0), run.stop)) for p, run in sorted(ranges.items())}
    left = sum(count(runs) for runs in takes.values())
    return Undone(
        takes={p: runs for p, runs in takes.items() if runs},
        below_start=sum(map(len, ranges.values())) - left,
    )
