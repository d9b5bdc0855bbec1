"""Levels and modes: what a new version of a subject must be able to read, and what may be written at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BACKWARD: Final = "BACKWARD"
NONE: Final = "NONE"

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
FORWARD: Final = "FORWARD"

SETTABLE_MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
MODES: Final = (*SETTABLE_MODES, FORWARD)
READ_ONLY_MODES: Final = frozenset({READONLY, READONLY_OVERRIDE, FORWARD})
"""Nothing is changed in these. FORWARD is for registries that pass changes on; there is none here to pass them
to, so it is no longer set, but older releases have set it."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What a compatibility level asks of a new version."""

    backward: bool = False
    """The new schema must read what the old ones wrote."""
    forward: bool = False
    """The old schemas must read what the new one writes."""
    transitive: bool = False
    """Of all versions, not of the last one alone."""


LEVELS: Final = {
    NONE: Demands(),
    BACKWARD: Demands(backward=True),
    "BACKWARD_TRANSITIVE": Demands(backward=True, transitive=True),
    "FORWARD": Demands(forward=True),
    "FORWARD_TRANSITIVE": Demands(forward=True, transitive=True),
    "FULL": Demands(backward=True, forward=True),
    "FULL_TRANSITIVE": Demands(backward=True, forward=True, transitive=True),
}
"""Confluent's levels by name."""
