"""Values of a schema registry: a schema, what it refers to, and where it is registered."""

from __future__ import annotations

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
