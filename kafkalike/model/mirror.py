"""Mirror: the state of a copy of another cluster's topic, its row, and the copy's next step."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Final

from kafkalike.model.row_value import VERSION, text, whole

SEAL: Final = "kafkalike.promoted/"
"""Beginning of the Delta application that says a promotion was done. Versions of the table up to its own are those of
the source: their transactions have numbers of another cluster."""

FORMAT: Final = 1
"""Newest format of a `mirror` row. Releases that know no mirrors refuse the kind of row: they would write to one."""


class Phase(StrEnum):
    """What may be done with a mirror."""

    FOLLOWING = "following"
    """It is brought what its source has. Nothing else may be written to it."""
    PROMOTING = "promoting"
    """It is becoming a topic like any other: it gets no more of its source, and nothing may be written to it yet."""
    PROMOTED = "promoted"
    """It is a topic like any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """How a topic stands that is a copy."""

    source: str
    """Root of the cluster that it is a copy of: an absolute path or a URI, as this cluster's mirrors reach it."""
    phase: Phase = Phase.FOLLOWING
    version: int = -1
    """Version of its table that the last decided pass brings it to; -1 before the first one."""
    groups_version: int = 0
    """Version of the source's `__consumer_offsets` that the same pass has the committed offsets of."""
    run: str = ""
    """Id of that pass."""
    seal: str = ""
    """Id of its promotion; empty before."""
    began_ms: int
    """When it was made a mirror, ms."""
    time_ms: int = 0
    """Time of its last pass or change, ms."""


def dump_mirror(mirrored: Mirrored) -> str:
    """The `value` of a `mirror` row."""
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
    """What a `mirror` row says.

    Raises:
        LookupError, TypeError, ValueError: it is damaged.
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
