"""Schemas of a registry as values, with levels, modes and subject strategies; what the rules ask of their readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]

SCHEMA_TYPES: Final[tuple[SchemaType, ...]] = get_args(SchemaType)


@dataclass(frozen=True, slots=True)
class Reference:
    """That a schema uses another one, which is registered."""

    name: str
    """What the schema's text calls it: an Avro full name, a `.proto` file to import, a JSON Schema `$ref`."""
    subject: str
    """Where it is registered."""
    version: int
    """Its version there, from 1."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as somebody wrote it. Equal ones have the same id in a registry."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a version of a subject."""

    subject: str
    version: int
    """From 1."""
    id: int
    """Of the schema, the same in all subjects; records begin with it."""
    schema: Schema
    deleted: bool = False
    """Whether the version was deleted softly: it still has its number, and records with its id can still be read."""


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

Part = Literal["key", "value"]

TOPIC_NAME: Final = "TopicNameStrategy"
"""`<topic>-key` and `<topic>-value`."""
RECORD_NAME: Final = "RecordNameStrategy"
"""The full name of the record's schema."""
TOPIC_RECORD_NAME: Final = "TopicRecordNameStrategy"
"""`<topic>-<full name>`."""

STRATEGIES: Final = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
