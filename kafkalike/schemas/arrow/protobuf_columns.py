"""Protobuf messages of any version of a file as the columns of one version.

Messages are parsed one by one, which Protobuf's C code does, and become columns field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import IllegalArgumentError, InvalidSchemaError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.column_reader import ValueReader, check_type
from kafkalike.schemas.arrow.value_arrays import Column, LeafColumn, Lists, Maps, Structs, one_by_one
from kafkalike.schemas.proto.field_changes import check_of
from kafkalike.schemas.proto.proto_files import JSON_MESSAGES, WRAPPERS, build_file, message_at
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.wire import split_indexes

_F: Final = FieldDescriptor
_SCALARS: Final[Mapping[int, pa.DataType]] = {
    _F.CPPTYPE_INT32: pa.int32(),
    _F.CPPTYPE_INT64: pa.int64(),
    _F.CPPTYPE_UINT32: pa.int64(),
    # The only type of Spark's that takes all of them.
    _F.CPPTYPE_UINT64: pa.decimal128(20, 0),
    _F.CPPTYPE_DOUBLE: pa.float64(),
    _F.CPPTYPE_FLOAT: pa.float32(),
    _F.CPPTYPE_BOOL: pa.bool_(),
}
MICROS: Final = 1_000_000
MOST_SECONDS: Final = 315_576_000_000
"""Of a Duration, by its definition."""
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def chosen_message(file: FileDescriptor, name: str | None) -> Descriptor:
    """The message of a full name, or the first one of a file.

    Raises:
        IllegalArgumentError: it has no such message.
        InvalidSchemaError: it has none at all.
    """
    if name is None:
        first = next(iter(file.message_types_by_name.values()), None)
        if first is None:
            raise InvalidSchemaError("the Protobuf schema has no message")
        return first
    try:
        return file.pool.FindMessageTypeByName(name)
    except KeyError:
        raise IllegalArgumentError(f"the Protobuf schema has no message {name}") from None


def message_columns(message: Descriptor, depth: int) -> Structs:
    """What makes structs of messages.

    Args:
        message: their descriptor.
        depth: how often a message may stand in itself; fields that would go deeper are left out.
    """
    found = _message(message, depth, ())
    assert isinstance(found, Structs), "depth is at least 1"
    return found


def _message(message: Descriptor, depth: int, around: tuple[str, ...]) -> Structs | None:
    if around.count(message.full_name) >= depth:
        return None
    inside = (*around, message.full_name)
    fields = [(field, _column(field, depth, inside)) for field in message.fields]
    return Structs([(field.name, _taking(field), column) for field, column in fields if column is not None])


def _taking(field: FieldDescriptor) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes a field of all messages: None where it has presence and is not there."""
    get = attrgetter(field.name) if "." not in field.name else partial(_get, field.name)
    if field.has_presence:
        name = field.name
        return lambda messages: [get(message) if message.HasField(name) else None for message in messages]
    return lambda messages: list(map(get, messages))


def _get(name: str, message: Any) -> Any:  # noqa: ANN401
    return getattr(message, name)


def _column(field: FieldDescriptor, depth: int, around: tuple[str, ...]) -> Column | None:
    message = field.message_type
    if field.is_repeated and message is not None and message.GetOptions().map_entry:
        key, item = (_value(message.fields_by_name[name], depth, around) for name in ("key", "value"))
        return None if key is None or item is None else Maps(key, item)
    value = _value(field, depth, around)
    return Lists(value) if value is not None and field.is_repeated else value


def _value(field: FieldDescriptor, depth: int, around: tuple[str, ...]) -> Column | None:
    """The column of a field's values, not repeated."""
    if field.message_type is not None:
        return _well_known(field.message_type) or _message(field.message_type, depth, around)
    if field.enum_type is not None:
        return LeafColumn(pa.string(), _symbols(field.enum_type))
    if field.type == _F.TYPE_BYTES:
        return LeafColumn(pa.binary())
    if field.type == _F.TYPE_STRING:
        return LeafColumn(pa.string())
    return LeafColumn(_SCALARS[field.cpp_type])


def _symbols(enum: EnumDescriptor) -> Callable[[int], str]:
    """Names of an enum's numbers; a number that has none is its own name."""
    names = {value.number: value.name for value in reversed(enum.values)}
    return lambda number: names.get(number) or str(number)


def _well_known(message: Descriptor) -> Column | None:
    """The column of one of Google's own messages, where it is more than its fields."""
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return LeafColumn(pa.timestamp("us", "UTC"), _timestamp)
    if name == "google.protobuf.Duration":
        return LeafColumn(pa.duration("us"), _duration)
    if name in JSON_MESSAGES:
        return LeafColumn(pa.string(), _json)
    if name in WRAPPERS:
        inner = _value(message.fields_by_name["value"], 1, ())
        assert isinstance(inner, LeafColumn), "a wrapper has a scalar"
        return LeafColumn(inner.kind, attrgetter("value"))
    return None


def _json(value: Any) -> str:  # noqa: ANN401
    try:
        return json_format.MessageToJson(value, indent=None, ensure_ascii=False)
    except json_format.Error as cause:
        raise ValueError(str(cause)) from cause


def _timestamp(value: Any) -> int:  # noqa: ANN401
    if not _FIRST_SECOND <= value.seconds <= _LAST_SECOND:
        raise ValueError(f"a timestamp of {value.seconds} s is beyond the years 1 to 9999")
    if value.nanos < 0:
        raise ValueError(f"a timestamp has {value.nanos} nanoseconds, which must not be below 0")
    return int(value.seconds * MICROS + _micros(value.nanos))


def _duration(value: Any) -> int:  # noqa: ANN401
    if abs(value.seconds) > MOST_SECONDS:
        raise ValueError(f"a duration of {value.seconds} s is beyond 10,000 years")
    if value.seconds * value.nanos < 0:
        raise ValueError("a duration has seconds of one sign and nanoseconds of the other one")
    return int(value.seconds * MICROS + _micros(value.nanos))


def _micros(nanos: int) -> int:
    """Whole microseconds.

    Raises:
        ValueError: there are parts of one, or a second or more.
    """
    if nanos % 1000:
        raise ValueError(f"{nanos} nanoseconds are no whole number of microseconds")
    if abs(nanos) >= 1000 * MICROS:
        raise ValueError(f"{nanos} nanoseconds are no part of a second")
    return nanos // 1000


Parse = Callable[[bytes], Message]


class ProtobufReader:
    """See `reader_of`. Fields have their numbers in the value: the writer's schema only says which message it is."""

    def __init__(self, schema: Schema, source: SchemaSource, depth: int, message: str | None) -> None:
        self._source = source
        self._message = chosen_message(build_file(schema, source.referenced(schema)), message)
        self._class = GetMessageClass(self._message)
        self._top = message_columns(self._message, depth)
        self.columns = pa.schema(list(self._top.kind))
        self.is_record = True

    def of(self, schema: Schema) -> ValueReader:
        """See `Reader.of`."""
        check_type(schema, "PROTOBUF")
        file = build_file(schema, self._source.referenced(schema))
        known: dict[tuple[int, ...], tuple[str, Parse]] = {}

        def parse_one(value: bytes) -> Message:
            indexes, start = split_indexes(value)
            found = known.get(indexes)
            if found is None:
                writer = message_at(file, indexes)
                found = known[indexes] = writer.full_name, self._parse(writer)
            name, parse = found
            if name != self._message.full_name:
                raise ValueError(f"the value is a message {name}, not {self._message.full_name}")
            try:
                return parse(value[start:])
            except DecodeError as cause:
                raise ValueError(f"the value is no message {name}: {cause}") from cause

        return partial(one_by_one, self._top, parse_one)

    def _parse(self, writer: Descriptor) -> Parse:
        """What parses a message: by both schemas where a field has changed its type, which have to agree then."""
        read = self._class.FromString
        check = check_of(writer, self._message) if writer.full_name == self._message.full_name else None
        if check is None:
            return read
        written = GetMessageClass(writer).FromString

        def parse(value: bytes) -> Message:
            found = read(value)
            check(written(value), found)
            return found

        return parse
