"""Past: what topics' tables were at a time in, versions of them that are one moment of all transactions out.

A transaction reaches its topics one after the other, so what they were at a time may show a part of one. Whatever any
of them showed by then was decided by then, and by now all of them have it: the others are taken so much later that they
show it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

APPLIED: Final = "kafkalike.transactions"
"""Delta application whose version, in a topic's table, is the number of the last decision that the topic has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A topic's table at a time, and what came after it."""

    version: int
    """The newest version of that time."""
    applied: int
    """Number of the last decision that it has; 0 for none."""
    later: Sequence[tuple[int, int]] = ()
    """Versions above it that brought in a decision, and its number, in any order; all up to now."""


def whole_versions(pasts: Mapping[str, Past]) -> tuple[int, dict[str, int]]:
    """The first versions, not before those of the time, that show all or nothing of every transaction.

    Args:
        pasts: the topics; all that was decided has been brought into them.

    Returns:
        Number of the last decision that counts, and the version of each topic.
    """
    last = max((past.applied for past in pasts.values()), default=0)
    return last, {
        topic: max([past.version, *(version for version, applied in past.later if applied <= last)])
        for topic, past in pasts.items()
    }
