"""Reading: what brings values of one writer's schema to the columns of the reader's, for each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import IllegalArgumentError, InvalidSchemaError, SerializationError
from kafkalike.model.schemas.values import Schema, SchemaType
from kafkalike.schemas.arrow.avro_plan import UnmatchedError, plan
from kafkalike.schemas.arrow.avro_types import columns_of
from kafkalike.schemas.arrow.cursor import Cursor, Numbers
from kafkalike.schemas.arrow.json_columns import JsonColumns
from kafkalike.schemas.arrow.protobuf_columns import message_columns
from kafkalike.schemas.arrow.values import WRONG, Column, converted
from kafkalike.schemas.avro_schema import parse_avro
from kafkalike.schemas.proto.files import build_file
from kafkalike.schemas.source import SchemaSource
from kafkalike.schemas.wire import split_indexes

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
        case "PROTOBUF":
            return ProtobufReader(schema, source, depth, message)
        case "JSON":
            return JsonReader(schema, source, depth)
    raise IllegalArgumentError(f"{schema.type} is no type of schemas")


class AvroReader:
    """See `reader_of`."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._source = source
        self._depth = depth
        self._wants = parse_avro(schema, source.referenced(schema), strict=False)
        self.columns = columns_of(self._wants, depth)

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        _check_type(schema, "AVRO")
        wrote = parse_avro(schema, self._source.referenced(schema), strict=False)
        node = plan(wrote, self._wants, self._depth)

        def read(data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> tuple[pa.StructArray, Problems]:
            cursor = Cursor(data, starts, ends)
            found = node.read(cursor, np.arange(len(starts)))
            cursor.finish()
            bad = np.flatnonzero(cursor.problem)
            return found, {int(row): cursor.problems[cursor.problem[row]] or "" for row in bad}

        return read


class ProtobufReader:
    """See `reader_of`. Fields have their numbers in the value: the writer's schema only says which message it is."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int, message: str | None) -> None:
        self._source = source
        self._message = _message(build_file(schema, source.referenced(schema)), message)
        self._class = GetMessageClass(self._message)
        self._top = message_columns(self._message, depth)
        self.columns = pa.schema(list(self._top.kind))

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        _check_type(schema, "PROTOBUF")
        file = build_file(schema, self._source.referenced(schema))
        names: dict[tuple[int, ...], str] = {}

        def parse_one(value: bytes) -> Message:
            indexes, start = split_indexes(value)
            name = names.get(indexes)
            if name is None:
                name = names[indexes] = message_at(file, indexes).full_name
            if name != self._message.full_name:
                raise ValueError(f"the value is a message {name}, not {self._message.full_name}")
            return self._class.FromString(value[start:])

        return partial(_one_by_one, self._top, parse_one)


def message_at(file: FileDescriptor, indexes: tuple[int, ...]) -> Descriptor:
    """The message at a place in a file.

    Raises:
        SerializationError: there is none.
    """
    inside: Sequence[Descriptor] = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if not 0 <= index < len(inside):
            raise SerializationError(f"the schema has no message at {list(indexes)}")
        found = inside[index]
        inside = found.nested_types
    assert found is not None, "a place has at least one number"
    return found


def _message(file: FileDescriptor, name: str | None) -> Descriptor:
    if name is None:
        first = next(iter(file.message_types_by_name.values()), None)
        if first is None:
            raise InvalidSchemaError("the Protobuf schema has no message")
        return first
    try:
        return file.pool.FindMessageTypeByName(name)
    except KeyError:
        raise IllegalArgumentError(f"the Protobuf schema has no message {name}") from None


class JsonReader:
    """See `reader_of`. JSON says itself what it is, so it does not matter which schema a value was written with."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int) -> None:
        self._top = JsonColumns(schema.text, _used(schema, source), depth).top()
        self.columns = pa.schema(list(self._top.kind))

    def of(self, schema: Schema) -> Reading:
        """See `Reader.of`."""
        _check_type(schema, "JSON")
        return partial(_one_by_one, self._top, _parsed)


def _parsed(value: bytes) -> Any:  # noqa: ANN401 - any JSON
    # A BOM and other encodings than UTF-8 are refused here, where `json.loads` would guess.
    found = json.loads(str(value, "utf-8"), parse_constant=_no_constant)
    if found is None:
        raise ValueError("the value is null")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _one_by_one(
    column: Column, parse_one: Callable[[bytes], Any], data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers
) -> tuple[pa.StructArray, Problems]:
    """Parse values one by one, and make columns of them all."""
    problems: dict[int, str] = {}
    plain = data.tobytes()
    parsed = []
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        try:
            parsed.append(parse_one(plain[start:end]))
        except WRONG as cause:
            problems[row] = str(cause) or type(cause).__name__
            parsed.append(None)
    found, wrong = converted(column, parsed)
    return found, {**wrong, **problems}


def _check_type(schema: Schema, wants: SchemaType) -> None:
    if schema.type != wants:
        raise UnmatchedError(f"it is a schema of type {schema.type}, not {wants}")


def _used(schema: Schema, source: SchemaSource) -> dict[str, str]:
    """The texts of the schemas that a schema uses, by their names."""
    return {name: used.text for name, used in source.referenced(schema).items()} if schema.references else {}
