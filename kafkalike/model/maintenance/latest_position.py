"""Position of a table that holds the newest row of each key of a topic, and the plan of its next refresh; no I/O.

A refresh merges the newest record of each key from the offsets that the table has not seen. This gives the same rows as
a merge of the whole topic, because a later record of a key replaces all earlier ones, with three exceptions: records
below a risen log start leave the topic without a later record, corrections remove records below the position,
and compaction removes tombstones some time after it has cleaned them. The plan notices each of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

KIND: Final = "kafkalike.latest"
"""Key of a position in the user metadata of a table's commit; also the Delta application of these commits."""

HARMLESS: Final = frozenset(
    {
        "ADD CONSTRAINT",
        "CLUSTER BY",
        "COMPUTE STATS",
        "DROP CONSTRAINT",
        "OPTIMIZE",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations of others, by their names in the table's history, that change no row. After any other one the table is
refreshed as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestPosition:
    """How far a table has followed its topic. Each commit of a refresh carries it."""

    topic_id: str
    ends: Mapping[int, int]
    """By partition: the offset after the last record that the table has seen."""
    starts: Mapping[int, int]
    """By partition: the log start at that time."""
    corrections: int
    """Number of corrections that the topic had."""
    columns: str
    """Fingerprint of the table's columns and of how values become columns."""
    run: str = ""
    """Id of the refresh."""

    def encode(self) -> str:
        """Return the user metadata of the commit."""
        return json.dumps({KIND: asdict(self)}, separators=(",", ":"), sort_keys=True)

    @classmethod
    def decode(cls, text: str | None) -> LatestPosition | None:
        """Return the position in a commit's user metadata; None if it has none."""
        try:
            given: Any = json.loads(text or "")[KIND]
            for name in ("ends", "starts"):
                given[name] = {int(partition): int(at) for partition, at in given[name].items()}
            return cls(**given)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """One refresh of a table."""

    full: bool
    """True to merge the whole topic and delete all rows that it lacks."""
    ranges: Mapping[int, range]
    """By partition: the offsets to read."""
    below: Mapping[int, int]
    """By partition: the risen log start below which rows are deleted."""

    @property
    def due(self) -> bool:
        """True if there is anything to do."""
        return self.full or bool(self.below) or any(self.ranges.values())


def plan_refresh(before: LatestPosition | None, now: LatestPosition, settled: Mapping[int, int]) -> RefreshPlan:
    """Plan the refresh of a table.

    Args:
        before: the table's position; None if it is unknown.
        now: the position to reach: the topic at one version of its table.
        settled: by partition, the offset below which compaction has removed tombstones, at that version.
    """
    live = {p: range(now.starts.get(p, 0), end) for p, end in now.ends.items()}
    if before is None or _is_stale(before, now, settled):
        return RefreshPlan(full=True, ranges=live, below={})
    ranges = {p: range(max(before.ends.get(p, 0), run.start), run.stop) for p, run in live.items()}
    below = {
        p: start
        for p, start in now.starts.items()
        # A partition without rows in the table has none to delete.
        if start > before.starts.get(p, 0) and before.ends.get(p, 0) > before.starts.get(p, 0)
    }
    return RefreshPlan(full=False, ranges=ranges, below=below)


def _is_stale(before: LatestPosition, now: LatestPosition, settled: Mapping[int, int]) -> bool:
    """Return whether the table may have rows that no new record replaces."""
    return (
        before.columns != now.columns
        or before.corrections != now.corrections
        # Only a foreign writer can take records back.
        or any(now.ends.get(p, 0) < end for p, end in before.ends.items())
        # Tombstones that the table has not seen were removed.
        or any(0 < end < settled.get(p, 0) for p, end in before.ends.items())
    )
