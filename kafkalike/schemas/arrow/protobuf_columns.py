"""Protobuf columns: messages of any version of a file as the Arrow columns of one version, and arrays as messages.

Google's C code parses messages one by one; the columns are then built field by field.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import IllegalArgumentError, InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow import value_arrays as arrays
from kafkalike.schemas.arrow.column_reader import UnmatchedError, ValueReader, check_struct, check_type
from kafkalike.schemas.arrow.exact_cast import at, check_kind, is_bytes, is_list, is_text, objects, without_doubles
from kafkalike.schemas.proto.field_changes import check_of
from kafkalike.schemas.proto.parser import TYPE_NAMES
from kafkalike.schemas.proto.proto_files import JSON_MESSAGES, WRAPPERS, build_file, indexes_of, message_at
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.wire import join_indexes, split_indexes

_F: Final = FieldDescriptor
_SCALARS: Final[Mapping[int, pa.DataType]] = {
    _F.CPPTYPE_INT32: pa.int32(),
    _F.CPPTYPE_INT64: pa.int64(),
    _F.CPPTYPE_UINT32: pa.int64(),
    # Spark's only type that holds all of them.
    _F.CPPTYPE_UINT64: pa.decimal128(20, 0),
    _F.CPPTYPE_DOUBLE: pa.float64(),
    _F.CPPTYPE_FLOAT: pa.float32(),
    _F.CPPTYPE_BOOL: pa.bool_(),
}
MICROS: Final = 1_000_000
MOST_SECONDS: Final = 315_576_000_000
"""Maximum seconds of a Duration, by its definition."""
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


def chosen_message(file: FileDescriptor, name: str | None) -> Descriptor:
    """Return the message of a full name; without a name, the first message of the file.

    Raises:
        IllegalArgumentError: the file has no such message.
        InvalidSchemaError: the file has no message at all.
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


def message_columns(message: Descriptor, depth: int) -> arrays.Structs:
    """Return a column that builds structs from messages.

    Args:
        message: descriptor of the messages.
        depth: how many times a message may be nested in itself; deeper fields are left out.
    """
    found = _message(message, depth, ())
    assert isinstance(found, arrays.Structs), "depth is at least 1"
    return found


def _message(message: Descriptor, depth: int, around: tuple[str, ...]) -> arrays.Structs | None:
    if around.count(message.full_name) >= depth:
        return None
    inside = (*around, message.full_name)
    fields = [(field, _column(field, depth, inside)) for field in message.fields]
    return arrays.Structs([(field.name, _taking(field), column) for field, column in fields if column is not None])


def _taking(field: FieldDescriptor) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that reads a field of all messages: None if the field has presence and is not set."""
    name = field.name
    get: Callable[[Any], Any] = attrgetter(name) if "." not in name else lambda message: getattr(message, name)
    if field.has_presence:
        return lambda messages: [get(message) if message.HasField(name) else None for message in messages]
    return lambda messages: list(map(get, messages))


def _column(field: FieldDescriptor, depth: int, around: tuple[str, ...]) -> arrays.Column | None:
    message = field.message_type
    if field.is_repeated and message is not None and message.GetOptions().map_entry:
        key, item = (_value(message.fields_by_name[name], depth, around) for name in ("key", "value"))
        return None if key is None or item is None else arrays.Maps(key, item)
    value = _value(field, depth, around)
    return arrays.Lists(value) if value is not None and field.is_repeated else value


def _value(field: FieldDescriptor, depth: int, around: tuple[str, ...]) -> arrays.Column | None:
    """Return the column of a field's single values."""
    if field.message_type is not None:
        return _well_known(field.message_type) or _message(field.message_type, depth, around)
    if field.enum_type is not None:
        return arrays.LeafColumn(pa.string(), _symbols(field.enum_type))
    if field.type == _F.TYPE_BYTES:
        return arrays.LeafColumn(pa.binary())
    if field.type == _F.TYPE_STRING:
        return arrays.LeafColumn(pa.string())
    return arrays.LeafColumn(_SCALARS[field.cpp_type])


def _symbols(enum: EnumDescriptor) -> Callable[[int], str]:
    """Return a function from an enum's numbers to names; a number without a name becomes its digits."""
    names = {value.number: value.name for value in reversed(enum.values)}
    return lambda number: names.get(number) or str(number)


def _well_known(message: Descriptor) -> arrays.Column | None:
    """Return the column of a well-known type of Google's that is not a plain struct; None for other messages."""
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return arrays.LeafColumn(pa.timestamp("us", "UTC"), _timestamp)
    if name == "google.protobuf.Duration":
        return arrays.LeafColumn(pa.duration("us"), _duration)
    if name in JSON_MESSAGES:
        return arrays.LeafColumn(pa.string(), _json)
    if name in WRAPPERS:
        inner = _value(message.fields_by_name["value"], 1, ())
        assert isinstance(inner, arrays.LeafColumn), "a wrapper has a scalar"
        return arrays.LeafColumn(inner.kind, attrgetter("value"))
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
    """Return whole microseconds.

    Raises:
        ValueError: the nanoseconds are not whole microseconds, or are a second or more.
    """
    if nanos % 1000:
        raise ValueError(f"{nanos} nanoseconds are not whole microseconds")
    if abs(nanos) >= 1000 * MICROS:
        raise ValueError(f"{nanos} nanoseconds are not below a second")
    return nanos // 1000


Parse = Callable[[bytes], Message]


class ProtobufReader:
    """Reader of Protobuf values as columns; see `reader_of`.

    Values contain the field numbers, so the writer's schema only identifies the message.
    """

    def __init__(self, schema: Schema, source: SchemaSource, depth: int, message: str | None) -> None:
        self._source = source
        self._message = chosen_message(build_file(schema, source.referenced(schema)), message)
        self._class = GetMessageClass(self._message)
        self._top = message_columns(self._message, depth)
        self.columns = pa.schema(list(self._top.kind))
        self.is_record = True

    def of(self, schema: Schema) -> ValueReader:
        """Return a reader of values written with a Protobuf schema; see `ColumnReader.of`."""
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
                raise ValueError(f"the value is not a message {name}: {cause}") from cause

        return partial(arrays.one_by_one, self._top, parse_one)

    def _parse(self, writer: Descriptor) -> Parse:
        """Return a parser of messages. If a field has changed its type, it checks that both schemas read the same."""
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


Fill = Callable[[Any, Any], None]
"""Copies a value of an array into a message, or the value of a field into the message that has the field."""

_WHOLE: Final = frozenset({_F.CPPTYPE_INT32, _F.CPPTYPE_INT64, _F.CPPTYPE_UINT32, _F.CPPTYPE_UINT64})


def protobuf_encoder(
    schema: Schema, source: SchemaSource, kind: pa.DataType, message: str | None
) -> Callable[[pa.Array], pa.BinaryArray]:
    """Return an encoder of values of a type; a null leaves its field unset.

    Raises:
        UnmatchedError: the type has fields that the message does not have.
    """
    found = chosen_message(build_file(schema, source.referenced(schema)), message)
    head, make = join_indexes(indexes_of(found)), GetMessageClass(found)
    fill = _fill(found, kind, "")

    def encode(value: Any) -> bytes:  # noqa: ANN401
        made = make()
        try:
            fill(made, value)
            return bytes(head + made.SerializeToString())
        except SerializationError:
            raise
        except (*arrays.WRONG, EncodeError) as cause:
            raise SerializationError(f"a value is not a {found.full_name}: {cause}") from cause

    return lambda values: pa.array([encode(value) for value in objects(values)], pa.binary())


def _fill(message: Descriptor, kind: pa.DataType, path: str) -> Fill:
    """Return a function that fills a message."""
    known = _fill_well_known(message, kind, path)
    if known is not None:
        return known
    check_struct(kind, message.fields_by_name, path, message.full_name)
    parts = [
        (field.name, _field(message.fields_by_name[field.name], field.type, f"{path}.{field.name}".lstrip(".")))
        for field in kind
    ]
    choices = [[f.name for f in one.fields if kind.get_field_index(f.name) >= 0] for one in message.oneofs]
    choices = [names for names in choices if len(names) > 1]

    def fill(made: Any, value: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        if value is None:
            raise SerializationError(f"{path or 'the value'} is null, and the schema takes no null there")
        for names in choices:
            given = [name for name in names if value[name] is not None]
            if len(given) > 1:
                raise SerializationError(f"{path or 'the value'} has {' and '.join(given)}, of which one may be set")
        for name, part in parts:
            inner = value[name]
            if inner is not None:
                part(made, inner)

    return fill


def _field(field: FieldDescriptor, kind: pa.DataType, path: str) -> Fill:
    """Return a function that sets a field of a message."""
    name, of = field.name, field.message_type
    if field.is_repeated and of is not None and of.GetOptions().map_entry:
        if not pa.types.is_map(kind):
            raise UnmatchedError(f"{path} is {kind}, and the schema has a map")
        return _map(name, of, kind, path)
    if field.is_repeated:
        if not is_list(kind):
            raise UnmatchedError(f"{path} is {kind}, and the schema has it repeated")
        if of is not None:
            return partial(_add_messages, name, _fill(of, kind.value_type, f"{path}[]"))
        convert = _scalar(field, kind.value_type, f"{path}[]")
        return at(path, lambda made, values: getattr(made, name).extend([convert(value) for value in values]))
    if of is not None:
        return partial(_set_message, name, _fill(of, kind, path))
    one = _scalar(field, kind, path)
    return at(path, lambda made, value: setattr(made, name, one(value)))


def _map(name: str, entry: Descriptor, kind: pa.MapType, path: str) -> Fill:
    key, item = entry.fields_by_name["key"], entry.fields_by_name["value"]
    key_of = _scalar(key, kind.key_type, f"{path}{{}}")
    put: Fill
    if item.message_type is not None:
        fill = _fill(item.message_type, kind.item_type, f"{path}{{}}")

        def put(made: Any, entries: list[tuple[Any, Any]]) -> None:  # noqa: ANN401
            for one, value in without_doubles(entries, path).items():
                fill(getattr(made, name)[key_of(one)], value)
    else:
        convert = _scalar(item, kind.item_type, f"{path}{{}}")

        def put(made: Any, entries: list[tuple[Any, Any]]) -> None:  # noqa: ANN401
            entries_of = without_doubles(entries, path)
            getattr(made, name).update({key_of(one): convert(value) for one, value in entries_of.items()})

    return at(path, put)


def _add_messages(name: str, fill: Fill, made: Any, values: list[Any]) -> None:  # noqa: ANN401
    for value in values:
        fill(getattr(made, name).add(), value)


def _set_message(name: str, fill: Fill, made: Any, value: Any) -> None:  # noqa: ANN401
    inner = getattr(made, name)
    # Marks the message as present even if it has no fields.
    inner.SetInParent()
    fill(inner, value)


def _scalar(field: FieldDescriptor, kind: pa.DataType, path: str) -> Callable[[Any], Any]:
    """Return a converter of a column's values to a field's values; Protobuf checks the range of whole numbers."""
    check_kind(kind, path)
    integer, number = pa.types.is_integer(kind), pa.types.is_integer(kind) or pa.types.is_floating(kind)
    of = field.cpp_type
    known: list[tuple[bool, bool, Callable[[Any], Any]]] = [
        (of == _F.CPPTYPE_ENUM, integer or is_text(kind), partial(_enum, field.enum_type)),
        (of in _WHOLE, number or pa.types.is_decimal(kind), arrays.whole_number),
        (of == _F.CPPTYPE_DOUBLE, number, _double),
        (of == _F.CPPTYPE_FLOAT, number, _float),
        (of == _F.CPPTYPE_BOOL, pa.types.is_boolean(kind), arrays.unchanged),
        (field.type == _F.TYPE_STRING, is_text(kind), arrays.unchanged),
        (field.type == _F.TYPE_BYTES, is_bytes(kind), arrays.unchanged),
    ]
    for is_wanted, is_kind, convert in known:
        if is_wanted and (is_kind or pa.types.is_null(kind)):
            return partial(_not_null, convert)
    raise UnmatchedError(f"{path} is {kind}, and the schema has {TYPE_NAMES[field.type]}")


def _not_null(convert: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    if value is None:
        raise ValueError("it has a null among its values")
    return convert(value)


def _double(value: float) -> float:
    found = float(value)
    if isinstance(value, int) and int(found) != value:
        raise ValueError(f"no double equals the whole number {value}")
    return found


def _float(value: float) -> float:
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        found = math.inf
    if found != value and not math.isnan(value):
        raise ValueError(f"no float equals the number {value}")
    return found


def _enum(enum: Any, value: str | int) -> int:  # noqa: ANN401 - its descriptor
    """Return the number of an enum's name; digits stand for a number without a name."""
    if isinstance(value, int):
        return value
    if value in enum.values_by_name:
        return int(enum.values_by_name[value].number)
    number = int(value)
    if str(number) != value or number in enum.values_by_number:
        raise ValueError(f"{enum.full_name} has no {value!r}")
    return number


def _fill_well_known(message: Descriptor, kind: pa.DataType, path: str) -> Fill | None:
    """Return a function that fills a well-known type of Google's; None for other messages."""
    name = message.full_name
    if name in WRAPPERS:
        convert = _scalar(message.fields_by_name["value"], kind, path)
        return at(path, lambda made, value: setattr(made, "value", convert(value)))
    known: dict[str, tuple[bool, Fill]] = {
        "google.protobuf.Timestamp": (pa.types.is_timestamp(kind) and kind.tz is not None, _fill_timestamp),
        "google.protobuf.Duration": (pa.types.is_duration(kind) or pa.types.is_integer(kind), _fill_duration),
        **dict.fromkeys(JSON_MESSAGES, (is_text(kind), _fill_json)),
    }
    if name not in known:
        return None
    check_kind(kind, path)
    fits, fill = known[name]
    if not (fits or pa.types.is_null(kind)):
        raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {name}")
    return at(path, partial(_fill_given, fill))


def _fill_given(fill: Fill, made: Any, value: Any) -> None:  # noqa: ANN401
    if value is None:
        raise ValueError("it is null")
    fill(made, value)


def _fill_json(made: Any, text: str) -> None:  # noqa: ANN401
    """Parse JSON into a message. Numbers become doubles, so a number without an equal double is rejected."""
    waiting = [arrays.parsed(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif arrays.is_number(value):
            arrays.nearest(value)
            arrays.exact(value)
    try:
        json_format.Parse(text, made)
    except json_format.ParseError as cause:
        raise ValueError(str(cause)) from cause


def _fill_timestamp(made: Any, value: datetime) -> None:  # noqa: ANN401
    made.FromDatetime(value)


def _fill_duration(made: Any, value: timedelta | int) -> None:  # noqa: ANN401
    """Set a duration, given as a `timedelta` or as microseconds, as in Spark."""
    micros = value if isinstance(value, int) else value // timedelta(microseconds=1)
    if abs(micros) > MOST_SECONDS * MICROS:
        raise ValueError(f"a duration of {micros} microseconds is beyond 10,000 years")
    made.FromMicroseconds(micros)
