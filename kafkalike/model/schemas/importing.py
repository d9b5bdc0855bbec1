"""Importing: the contents of another registry and the state of this one in; rows for all of it, or a refusal, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkalike.model.schemas import refusals, settings
from kafkalike.model.schemas.checks import Checks
from kafkalike.model.schemas.levels import READ_ONLY_MODES
from kafkalike.model.schemas.registering import Wanted, take_over
from kafkalike.model.schemas.rows import SchemaRow
from kafkalike.model.schemas.state import RegistryState
from kafkalike.model.schemas.topic_records import Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import comes to."""

    versions: int
    """Versions that are new here, or stand otherwise than before."""
    known: int
    """Versions that are here already."""
    settings: int
    """Levels and modes that change."""


def import_all(
    state: RegistryState, contents: Contents, checks: Checks, now_ms: int
) -> tuple[Sequence[SchemaRow], Imported]:
    """Plan to take over schemas under their ids and versions, and levels and modes.

    What is compatible with what, the registry has judged where they come from.

    Args:
        state: of now.
        contents: of the other registry.
        checks: who can read schemas.
        now_ms: time of the rows.

    Raises:
        SchemaRegistryError: an id or a version belongs to another schema here, what a schema refers to is not among
            them, or a mode is against it; 42205, 42201, 409.
    """
    rows: list[SchemaRow] = []
    known = 0
    waiting = sorted(
        contents.schemas.values(), key=lambda wanted: (wanted.id or 0, wanted.subject, wanted.version or 0)
    )
    for wanted in _in_order(waiting):
        made, _ = take_over(state, wanted, checks, now_ms)
        if made and state.mode(wanted.subject) in READ_ONLY_MODES:
            raise refusals.not_permitted(f"Subject {wanted.subject} is in read-only mode")
        rows += made
        known += not made
        state = state.applied(made)
    versions = len(rows)
    for subject, config in contents.configs.items():
        made, _ = settings.set_config(state, subject, config, now_ms)
        rows, state = [*rows, *made], state.applied(made)
    for subject, mode in contents.modes.items():
        made, _ = settings.set_mode(state, subject, mode, now_ms, force=True)
        rows, state = [*rows, *made], state.applied(made)
    return rows, Imported(versions=versions, known=known, settings=len(rows) - versions)


def _in_order(waiting: Sequence[Wanted]) -> list[Wanted]:
    """What is referred to before what refers to it."""
    there = {(w.subject, w.version) for w in waiting}
    done: set[tuple[str, int | None]] = set()
    order: list[Wanted] = []
    while waiting:
        later = []
        for wanted in waiting:
            needed = {(r.subject, r.version) for r in wanted.schema.references} & there
            if needed <= done:
                order.append(wanted)
                done.add((wanted.subject, wanted.version))
            else:
                later.append(wanted)
        if len(later) == len(waiting):
            names = ", ".join(f"version {w.version} of subject {w.subject}" for w in later[:3])
            raise refusals.invalid_schema(f"schemas refer to each other in a circle: {names}")
        waiting = later
    return order
