"""Arrow arrays as Protobuf messages."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import EncodeError
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.arrow.exact_cast import is_bytes, is_text
from kafkalike.schemas.arrow.json_numbers import exact, is_number, nearest, parsed, whole_number
from kafkalike.schemas.arrow.protobuf_columns import MICROS, MOST_SECONDS, chosen_message
from kafkalike.schemas.arrow.python_objects import at, check_kind, is_list, objects, without_doubles
from kafkalike.schemas.arrow.value_arrays import WRONG
from kafkalike.schemas.proto.proto_files import JSON_MESSAGES, WRAPPERS, build_file, indexes_of
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.wire import join_indexes

Fill = Callable[[Any, Any], None]
"""Puts a value of an array into a message, or a field's value into the message that has the field."""

_WHOLE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_NAMES: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in vars(FieldDescriptor).items() if name[:5] == "TYPE_"
}


def protobuf_encoder(
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
        except SerializationError:
            raise
        except (*WRONG, EncodeError) as cause:
            raise SerializationError(f"a value is no {found.full_name}: {cause}") from cause

    return lambda values: pa.array([encode(value) for value in objects(values)], pa.binary())


def _fill(message: Descriptor, kind: pa.DataType, path: str) -> Fill:
    """What fills a message."""
    known = _fill_well_known(message, kind, path)
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
    """What sets a field of a message."""
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
    # Also one without fields is there.
    inner.SetInParent()
    fill(inner, value)


def _scalar(field: FieldDescriptor, kind: pa.DataType, path: str) -> Callable[[Any], Any]:
    """What makes a field's value of a column's; Protobuf checks the range of whole numbers."""
    check_kind(kind, path)
    integer, number = pa.types.is_integer(kind), pa.types.is_integer(kind) or pa.types.is_floating(kind)
    of = field.cpp_type
    known: list[tuple[bool, bool, Callable[[Any], Any]]] = [
        (of == FieldDescriptor.CPPTYPE_ENUM, integer or is_text(kind), partial(_enum, field.enum_type)),
        (of in _WHOLE, number or pa.types.is_decimal(kind), whole_number),
        (of == FieldDescriptor.CPPTYPE_DOUBLE, number, _double),
        (of == FieldDescriptor.CPPTYPE_FLOAT, number, _float),
        (of == FieldDescriptor.CPPTYPE_BOOL, pa.types.is_boolean(kind), _same),
        (field.type == FieldDescriptor.TYPE_STRING, is_text(kind), _same),
        (field.type == FieldDescriptor.TYPE_BYTES, is_bytes(kind), _same),
    ]
    for is_wanted, is_kind, convert in known:
        if is_wanted and (is_kind or pa.types.is_null(kind)):
            return partial(_not_null, convert)
    raise UnmatchedError(f"{path} is {kind}, and the schema has {_NAMES[field.type]}")


def _not_null(convert: Callable[[Any], Any], value: Any) -> Any:  # noqa: ANN401
    if value is None:
        raise ValueError("it has a null among its values")
    return convert(value)


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _double(value: float) -> float:
    found = float(value)
    if isinstance(value, int) and int(found) != value:
        raise ValueError(f"{value} is a whole number that no double is equal to")
    return found


def _float(value: float) -> float:
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        found = math.inf
    if found != value and not math.isnan(value):
        raise ValueError(f"{value} is a number that no float is equal to")
    return found


def _enum(enum: Any, value: str | int) -> int:  # noqa: ANN401 - its descriptor
    """The number of a name; a number without a name is its own name."""
    if isinstance(value, int):
        return value
    if value in enum.values_by_name:
        return int(enum.values_by_name[value].number)
    number = int(value)
    if str(number) != value or number in enum.values_by_number:
        raise ValueError(f"{enum.full_name} has no {value!r}")
    return number


def _fill_well_known(message: Descriptor, kind: pa.DataType, path: str) -> Fill | None:
    """What fills one of Google's own messages, where it is more than its fields."""
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
    return at(path, fill)


def _fill_json(made: Any, text: str | None) -> None:  # noqa: ANN401
    """Numbers become doubles, which have to be equal to them."""
    if text is None:
        raise ValueError("it is null")
    waiting = [parsed(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif is_number(value):
            nearest(value)
            exact(value)
    try:
        json_format.Parse(text, made)
    except json_format.ParseError as cause:
        raise ValueError(str(cause)) from cause


def _fill_timestamp(made: Any, value: datetime | None) -> None:  # noqa: ANN401
    if value is None:
        raise ValueError("it is null")
    made.FromDatetime(value)


def _fill_duration(made: Any, value: timedelta | int | None) -> None:  # noqa: ANN401
    """Spark has durations as microseconds."""
    if value is None:
        raise ValueError("it is null")
    micros = value if isinstance(value, int) else value // timedelta(microseconds=1)
    if abs(micros) > MOST_SECONDS * MICROS:
        raise ValueError(f"a duration of {micros} microseconds is beyond 10,000 years")
    made.FromMicroseconds(micros)
