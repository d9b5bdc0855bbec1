"""Reading: the replicas of a table and a data file in, in which order they are asked for it out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where a client has data files read, in a cluster of several roots."""

    rack: str = ""
    """At a replica of this rack that is in sync; empty: at the leader."""
    striped: bool = False
    """Whether the replicas take turns, file by file: those of the rack, or all in sync where it has none."""


LEADER: Final = ReadFrom()
"""What those want who say nothing."""


def nearest_first(in_sync: Sequence[T], is_near: Callable[[T], bool] | None) -> tuple[Sequence[T], int]:
    """Sort those who are asked for data files.

    Args:
        in_sync: replicas in sync, the leader first.
        is_near: whether one is in the rack of who reads; None: it has none.

    Returns:
        The near ones first, each in the order of before; and how many take turns where reads are striped.
    """
    if is_near is None:
        return in_sync, len(in_sync)
    near = [one for one in in_sync if is_near(one)]
    others = [one for one in in_sync if not is_near(one)]
    return (*near, *others), len(near) or len(others)


def by_turns(sorted_ones: Sequence[T], turns: int, name: str) -> Sequence[T]:
    """Give a file's turn to one of the first ones; who would come before it comes after the last of them.

    All processes give a file to the same one, so that what one of them has read is in that root's cache for others.

    Args:
        sorted_ones: replicas, the one that is asked first at the front.
        turns: how many of them, from the front, take turns; with less than two nothing changes.
        name: of the file.
    """
    if turns < 2:  # noqa: PLR2004
        return sorted_ones
    first = zlib.crc32(name.encode()) % turns
    return (*sorted_ones[first:turns], *sorted_ones[:first], *sorted_ones[turns:])
