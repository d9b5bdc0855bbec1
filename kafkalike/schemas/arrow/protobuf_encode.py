"""Protobuf encode: Arrow arrays in, the message of each value out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.arrow.protobuf_columns import JSON_MESSAGES, WRAPPERS, chosen_message
from kafkalike.schemas.arrow.reading import UnmatchedError
from kafkalike.schemas.arrow.values import WRONG
from kafkalike.schemas.proto.files import build_file, indexes_of
from kafkalike.schemas.source import SchemaSource
from kafkalike.schemas.wire import join_indexes

Fill = Callable[[Any, Any], None]
"""Puts a value of an array into a message, or a field's value into the message that has the field."""

_MICROS: Final = 1_000_000


def encoder(
    schema: Schema, source: SchemaSource, kind: pa.DataType, message: str | None
) -> Callable[[pa.Array], pa.BinaryArray]:
    """What writes values of a type; a null field is one that is not set.

    Raises:
        UnmatchedError: they have fields that the message does not have.
    """
    found = chosen_message(build_file(schema, source.referenced(schema)), message)
    head, make = join_indexes(indexes_of(found)), GetMessageClass(found)
    fill = _fill(found, kind, "")

    def encode(value: Any) -> bytes:  # noqa: ANN401
        made = make()
        try:
            fill(made, value)
            return bytes(head + made.SerializeToString())
        except (*WRONG, json_format.ParseError) as cause:
            raise SerializationError(f"a value is no {found.full_name}: {cause}") from cause

    return lambda values: pa.array([encode(value) for value in values.to_pylist()], pa.binary())


def _fill(message: Descriptor, kind: pa.DataType, path: str) -> Fill:
    """What fills a message."""
    known = _well_known(message)
    if known is not None:
        return known
    if not pa.types.is_struct(kind):
        raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {message.full_name}")
    extra = sorted({field.name for field in kind} - set(message.fields_by_name))
    if extra:
        raise UnmatchedError(f"{path or 'the value'} has {', '.join(extra)}, which {message.full_name} does not have")
    parts = [
        (field.name, _field(message.fields_by_name[field.name], field.type, f"{path}.{field.name}".lstrip(".")))
        for field in kind
    ]

    def fill(made: Any, value: Mapping[str, Any]) -> None:  # noqa: ANN401
        for name, part in parts:
            inner = value[name]
            if inner is not None:
                part(made, inner)

    return fill


def _field(field: FieldDescriptor, kind: pa.DataType, path: str) -> Fill:
    """What sets a field of a message."""
    name, of = field.name, field.message_type
    if field.is_repeated and of is not None and of.GetOptions().map_entry:
        if not pa.types.is_map(kind):
            raise UnmatchedError(f"{path} is {kind}, and the schema has a map")
        return _map(name, of.fields_by_name["value"], kind.item_type, path)
    if field.is_repeated:
        if not pa.types.is_list(kind):
            raise UnmatchedError(f"{path} is {kind}, and the schema has it repeated")
        if of is not None:
            return partial(_add_messages, name, _fill(of, kind.value_type, f"{path}[]"))
        convert = _scalar(field, kind.value_type, path)
        return lambda made, values: getattr(made, name).extend([convert(value) for value in values])
    if of is not None:
        return partial(_set_message, name, _fill(of, kind, path))
    one = _scalar(field, kind, path)
    return lambda made, value: setattr(made, name, one(value))


def _map(name: str, item: FieldDescriptor, kind: pa.DataType, path: str) -> Fill:
    if item.message_type is not None:
        fill = _fill(item.message_type, kind, f"{path}{{}}")

        def put(made: Any, entries: list[tuple[Any, Any]]) -> None:  # noqa: ANN401
            for key, value in entries:
                fill(getattr(made, name)[key], value)

        return put
    convert = _scalar(item, kind, path)
    return lambda made, entries: getattr(made, name).update({key: convert(value) for key, value in entries})


def _add_messages(name: str, fill: Fill, made: Any, values: list[Any]) -> None:  # noqa: ANN401
    for value in values:
        if value is None:
            raise TypeError(f"{name} has a null among its messages")
        fill(getattr(made, name).add(), value)


def _set_message(name: str, fill: Fill, made: Any, value: Any) -> None:  # noqa: ANN401
    inner = getattr(made, name)
    # Also one without fields is there.
    inner.SetInParent()
    fill(inner, value)


def _scalar(field: FieldDescriptor, kind: pa.DataType, path: str) -> Callable[[Any], Any]:
    if pa.types.is_nested(kind):
        raise UnmatchedError(f"{path} is {kind}, and the schema has one value")
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda value: numbers[value] if value in numbers else int(value)
    if field.cpp_type in {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64} and pa.types.is_decimal(kind):
        return int
    return lambda value: value


def _well_known(message: Descriptor) -> Fill | None:
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return _timestamp
    if name == "google.protobuf.Duration":
        return _duration
    if name in JSON_MESSAGES:
        return lambda made, text: json_format.Parse(text, made)
    if name in WRAPPERS:
        return lambda made, value: setattr(made, "value", value)
    return None


def _timestamp(made: Any, value: datetime) -> None:  # noqa: ANN401
    made.FromDatetime(value)


def _duration(made: Any, value: timedelta | int) -> None:  # noqa: ANN401
    """Spark has durations as microseconds."""
    made.FromMicroseconds(value if isinstance(value, int) else value // timedelta(microseconds=1))
