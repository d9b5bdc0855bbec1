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
