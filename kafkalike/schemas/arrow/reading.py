"""Reading: what brings values of one writer's schema to the columns of the reader's, for each format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.arrow.avro_plan import UnmatchedError, plan
from kafkalike.schemas.arrow.avro_types import ArrowTypes, parse
from kafkalike.schemas.arrow.cursor import Cursor, Numbers
from kafkalike.schemas.source import SchemaSource

DEPTH: Final = 3
"""How often a type may stand in itself, unless the caller says otherwise."""

Problems = Mapping[int, str]
"""What is wrong with values, by their numbers."""


class Reader(Protocol):
    """The columns of one reader's schema."""

    @property
    def columns(self) -> pa.Schema:
        """The columns."""
        ...

    def of(self, schema: Schema) -> Reading:
        """What reads values of a writer's schema. It is made once for each schema.

        Raises:
            UnmatchedError: no value of that schema can be brought to these columns.
        """
        ...


class Reading(Protocol):
    """What reads values of one writer's schema."""

    def __call__(self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
        """Read values.

        Args:
            data: bytes in which the values lie, in their order.
            starts: where each begins, behind the id.
            ends: where each ends.

        Returns:
            A struct for each value, which means nothing where there is a problem.

        Raises:
            TooLargeError: fewer of them must be read at once.
        """
        ...


def reader_of(schema: Schema, source: SchemaSource, *, depth: int = DEPTH, message: str | None = None) -> Reader:
    """The columns that values are brought to.

    Args:
        schema: the reader's.
        source: where the schemas that it uses are.
        depth: how often a type may stand in itself; fields that would go deeper are left out.
        message: the full name of a Protobuf message; None for the first one of the file.

    Raises:
        IllegalArgumentError: it is no such schema, or has no such message.
        SchemaRegistryError: a schema that it uses is not registered.
    """
    if depth < 1:
        raise IllegalArgumentError(f"depth must be at least 1, not {depth}")
    if message is not None and schema.type != "PROTOBUF":
        raise IllegalArgumentError("message is for Protobuf")
    match schema.type:
        case "AVRO":
            return AvroReader(schema, source, depth)
    raise IllegalArgumentError(f"{schema.type} is no type of schemas")


class AvroReader:
    """See `reader_of`."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._source = source
        self._depth = depth
        self._wants = parse(schema.text, _used(schema, source))
        self.columns = ArrowTypes(self._wants, depth).columns()

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        if schema.type != "AVRO":
            raise UnmatchedError(f"the value is of a schema of type {schema.type}, not AVRO")
        node = plan(parse(schema.text, _used(schema, self._source)), self._wants, self._depth)

        def read(data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
            cursor = Cursor(data, starts, ends)
            found = node.read(cursor, np.arange(len(starts)))
            cursor.finish()
            bad = np.flatnonzero(cursor.problem)
            return found, {int(row): cursor.problems[cursor.problem[row]] or "" for row in bad}

        return read


def _used(schema: Schema, source: SchemaSource) -> list[str]:
    return [used.text for used in source.referenced(schema).values()] if schema.references else []
