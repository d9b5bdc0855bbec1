"""Mirror: the state of a topic that copies a topic of another cluster, its row, and the next step of the copy."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Final

from kafkalike.model.row_value import VERSION, text, whole

SEAL: Final = "kafkalike.promoted/"
"""Prefix of the Delta application that records a promotion. Versions of the table up to that of the promotion come from
the source: their transactions have numbers of another cluster."""

FORMAT: Final = 1
"""Newest format of a `mirror` row. Releases without mirrors reject this kind of row, because they would write to a
mirror."""


class Phase(StrEnum):
    """Phase of a mirror; it decides which writes are allowed."""

    FOLLOWING = "following"
    """It receives the source's versions, and accepts no other writes."""
    PROMOTING = "promoting"
    """It is becoming an ordinary topic: it receives nothing more from its source, and accepts no writes yet."""
    PROMOTED = "promoted"
    """It is an ordinary topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """State of a topic that is a mirror."""

    source: str
    """Root of the source cluster: an absolute path or a URI as this cluster's mirrors reach it."""
    phase: Phase = Phase.FOLLOWING
    version: int = -1
    """Version of its table after the last decided pass; -1 before the first one."""
    groups_version: int = 0
    """Version of the source's `__consumer_offsets` whose committed offsets the same pass copies."""
    run: str = ""
    """Id of that pass."""
    seal: str = ""
    """Id of its promotion; empty before."""
    began_ms: int
    """Time when it became a mirror, ms."""
    time_ms: int = 0
    """Time of its last pass or change, ms."""


def dump_mirror(mirrored: Mirrored) -> str:
    """Return the `value` of a `mirror` row."""
    value = {
        VERSION: FORMAT,
        "source": mirrored.source,
        "phase": mirrored.phase.value,
        "version": mirrored.version,
        "groups_version": mirrored.groups_version,
        "run": mirrored.run,
        "seal": mirrored.seal,
        "began_ms": mirrored.began_ms,
    }
    return json.dumps(value, sort_keys=True)


def load_mirror(value: Mapping[str, Any], time_ms: int) -> Mirrored:
    """Parse the `value` of a `mirror` row.

    Raises:
        LookupError, TypeError, ValueError: the value is damaged.
    """
    return Mirrored(
        source=text(value, "source"),
        phase=Phase(text(value, "phase")),
        version=whole(value, "version", at_least=-1),
        groups_version=whole(value, "groups_version"),
        run=text(value, "run"),
        seal=text(value, "seal"),
        began_ms=whole(value, "began_ms"),
        time_ms=time_ms,
    )


AT_ONCE: Final = 5_000
"""Most versions that a pass copies one by one; a copy that is further behind restarts at a checkpoint."""

FIRST_AT_ONCE: Final = 1_000
"""Most versions that a pass copies one by one to an empty copy, which has no readers that follow it by version."""


class Step(Enum):
    """Next step of the copy of a table."""

    NOTHING = auto()
    FOLLOW = auto()
    """Copy the versions after its last one, byte by byte."""
    RESTART = auto()
    """Start from a checkpoint of the wanted version, because single versions are missing or too many."""
    DIVERGED = auto()
    """Copy nothing: the copy has records that its source does not have."""


def next_step(*, end: int, wanted: int, there: Collection[int], same: bool | None, newest: int) -> Step:
    """Choose the next step of a copy.

    Args:
        end: last version of the copy; -1 if it is empty; 0 may be a first version of its own.
        wanted: version of the source to copy.
        there: versions that the source's log still has.
        same: whether the copy's last version equals the source's version of that number; None if the source's log no
            longer has it.
        newest: last version of the source.

    Returns:
        The step. The caller checks whether the data files still exist, and restarts if not.
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
