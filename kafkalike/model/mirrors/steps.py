"""Steps: what a source's log and its copy have in, what the copy is to be given next out."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Final

AT_ONCE: Final = 5_000
"""Versions that a pass brings one by one at most; a copy that is further behind begins anew at a checkpoint."""

FIRST_AT_ONCE: Final = 1_000
"""The same for a copy that has nothing yet, and nobody who reads it version by version."""


class Step(Enum):
    """What a copy of a table is to be given."""

    NOTHING = auto()
    FOLLOW = auto()
    """The versions after its last one, byte by byte."""
    RESTART = auto()
    """A checkpoint of the wanted version: what is missing cannot be had, or is too much, version by version."""
    DIVERGED = auto()
    """Nothing: it has what its source does not have."""


def next_step(*, end: int, wanted: int, there: Collection[int], same: bool | None, newest: int) -> Step:
    """What a copy is to be given.

    Args:
        end: last version of the copy; -1 when it has nothing, 0 also where it has a first version of its own.
        wanted: version of the source that it shall have.
        there: versions that the source's log still has.
        same: whether the copy's last version is the source's version of that number; None when the source's log no
            longer says.
        newest: last version of the source.

    Returns:
        The step. Whether data files are still there is for the caller to find out, who restarts if not.
    """
    if end > newest or (same is False and end > 0):
        return Step.DIVERGED
    if wanted <= end:
        return Step.NOTHING
    missing = any(version not in there for version in range(end + 1, wanted + 1))
    begins = end < 0 or (end == 0 and same is not True)
    most = FIRST_AT_ONCE if end <= 0 else AT_ONCE
    if missing or (begins and end == 0) or wanted - end > most:
        return Step.RESTART
    return Step.FOLLOW
