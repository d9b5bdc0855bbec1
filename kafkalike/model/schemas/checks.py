"""Checks: what the rules of a registry ask of those who can read schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kafkalike.model.schemas.values import Schema

Resolve = Callable[[Schema], Mapping[str, Schema]]
"""Gives the schemas that one uses; see `RegistryState.referenced`."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What is known of Avro, Protobuf and JSON Schema. The functions are pure, and may be called again."""

    check: Callable[[Schema, Resolve], None]
    """Raises ValueError when a text is not a schema of its type, or uses what is not there."""
    normalized: Callable[[Schema], Schema]
    """The schema in the one form that all have that mean the same to a reader; ValueError as `check`."""
    problems: Callable[[Schema, Schema, Resolve], Sequence[str]]
    """What a reader with the first schema cannot read of what the second one wrote; empty when it can read all."""


def remembered(checks: Checks) -> Checks:
    """The same checks, each made once for the same schemas: for a plan that may be made again and again.

    What a schema refers to never changes, so the schemas alone say what comes out.
    """
    checked: set[Schema] = set()
    normal: dict[Schema, Schema] = {}
    found: dict[tuple[Schema, Schema], Sequence[str]] = {}

    def check(schema: Schema, resolve: Resolve) -> None:
        if schema not in checked:
            checks.check(schema, resolve)
            checked.add(schema)

    def normalized(schema: Schema) -> Schema:
        if schema not in normal:
            normal[schema] = checks.normalized(schema)
        return normal[schema]

    def problems(new: Schema, old: Schema, resolve: Resolve) -> Sequence[str]:
        if (new, old) not in found:
            found[new, old] = checks.problems(new, old, resolve)
        return found[new, old]

    return Checks(check, normalized, problems)
