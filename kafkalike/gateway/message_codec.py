"""Message codec: read requests of Kafka's protocol within bounds, and write answers, by the schemas of the package kio.

kio's own parser allocates whatever length a message claims, and five bytes can end the process. This reader checks each
length against the bytes that are left. The writer takes plain mappings, so that a handler names all fields that it
knows, and each version of an answer takes its own fields.
"""

from __future__ import annotations

import datetime as dt
import struct
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import _introspect
from kio.serial._implicit_defaults import get_tagged_field_default

MAX_ITEMS: Final = 100_000
"""Most items of all arrays of a message. Requests of this size list one item for each partition; reading them takes a
part of a second, in which no other client is served."""


class _Left(threading.local):
    """Items that the message which a thread is reading may still have."""

    items = MAX_ITEMS


_LEFT: Final = _Left()

MAX_TAGS: Final = 10_000
"""Most tagged fields of one structure."""

_VARINT_BITS: Final = 28

NO_UUID: Final = bytes(16)

MAX_TIMEDELTA_MS: Final = 86_400_000 * 999_999_999
"""Longest duration that a `timedelta` can hold, ms."""


class MalformedRequestError(Exception):
    """The bytes are not a message of the protocol; the connection is closed."""


Read = Callable[[memoryview, int], tuple[Any, int]]
"""Reads a value at an offset; returns the value and the offset behind it."""

Write = Callable[[bytearray, Any], None]
"""Appends a value."""

_NUMBERS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Formats of `struct` by kio's names of types."""


# --- reading ---------------------------------------------------------------------------------------


def _uvarint(data: memoryview, at: int) -> tuple[int, int]:
    if at < len(data) and (byte := data[at]) < 128:  # noqa: PLR2004 - nearly all numbers have one byte
        return byte, at + 1
    value = shift = 0
    while True:
        if at >= len(data) or shift > _VARINT_BITS:
            raise MalformedRequestError("a varint does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 - the highest bit continues the number
            return value, at
        shift += 7


def _number(form: str) -> tuple[Read, int]:
    packed = struct.Struct(">" + form)
    size, unpack = packed.size, packed.unpack_from

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise MalformedRequestError("the message ends within a number")
        return unpack(data, at)[0], at + size

    return read, size


_INT16: Final = _number("h")[0]
_INT32: Final = _number("i")[0]


def _duration(form: str) -> tuple[Read, int]:
    number, size = _number(form)

    def read(data: memoryview, at: int) -> tuple[dt.timedelta, int]:
        ms, at = number(data, at)
        if abs(ms) > MAX_TIMEDELTA_MS:
            raise MalformedRequestError("a duration is too long")
        return dt.timedelta(milliseconds=ms), at

    return read, size


def _error_code(data: memoryview, at: int) -> tuple[ErrorCode, int]:
    number, at = _INT16(data, at)
    try:
        return ErrorCode(number), at
    except ValueError:
        raise MalformedRequestError("unknown error code") from None


def _boolean(data: memoryview, at: int) -> tuple[bool, int]:
    if at >= len(data):
        raise MalformedRequestError("the message ends within a flag")
    return data[at] != 0, at + 1


def _uuid(data: memoryview, at: int) -> tuple[uuid.UUID | None, int]:
    if at + 16 > len(data):
        raise MalformedRequestError("the message ends within an id")
    raw = bytes(data[at : at + 16])
    return None if raw == NO_UUID else uuid.UUID(bytes=raw), at + 16


def _sized(length: Read | None, *, nullable: bool, text: bool) -> tuple[Read, int]:
    """Return a reader of text or bytes.

    Args:
        length: reads the length; None for a compact length.
        nullable: null is allowed.
        text: decode UTF-8; otherwise return a view, so that records are not copied.
    """

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        if length is None:
            size, at = _uvarint(data, at)
            size -= 1
        else:
            size, at = length(data, at)
        if size < 0:
            if size == -1 and nullable:
                return None, at
            raise MalformedRequestError("a value is null or has a negative length")
        if size > len(data) - at:
            raise MalformedRequestError("a value is longer than the message")
        raw = data[at : at + size]
        if not text:
            return raw, at + size
        try:
            return str(raw, "utf-8"), at + size
        except UnicodeDecodeError:
            raise MalformedRequestError("text is not UTF-8") from None

    return read, 1


def _primitive(kind: str, *, flexible: bool, nullable: bool) -> tuple[Read, int]:
    """Return a reader and the least number of bytes that it reads."""
    if kind.startswith("timedelta"):
        return _duration(_NUMBERS[kind])
    simple: dict[str, tuple[Read, int]] = {"error_code": (_error_code, 2), "bool": (_boolean, 1), "uuid": (_uuid, 16)}
    if kind in simple:
        return simple[kind]
    if kind == "string":
        return _sized(None if flexible else _INT16, nullable=nullable, text=True)
    if kind in {"bytes", "records"}:
        return _sized(None if flexible else _INT32, nullable=nullable, text=False)
    return _number(_NUMBERS[kind])


def _array(item: Read, least: int, *, flexible: bool, nullable: bool) -> tuple[Read, int]:
    def read(data: memoryview, at: int) -> tuple[Any, int]:
        if flexible:
            count, at = _uvarint(data, at)
            count -= 1
        else:
            count, at = _INT32(data, at)
        if count < 0:
            if count == -1 and nullable:
                return None, at
            raise MalformedRequestError("an array is null or has a negative length")
        if count * least > len(data) - at:
            raise MalformedRequestError("an array is longer than the message")
        _LEFT.items -= count
        if _LEFT.items < 0:
            raise MalformedRequestError(f"the arrays of a message have more than {MAX_ITEMS} items")
        items = []
        for _ in range(count):
            value, at = item(data, at)
            items.append(value)
        return tuple(items), at

    return read, 1


def _field_reader(field: Field[Any], *, flexible: bool, tagged: bool, header: bool) -> tuple[Read, int]:
    if header and field.name == "client_id":
        # The request header keeps this string in its old form in all versions.
        return _sized(_INT16, nullable=True, text=True)
    nullable = _introspect.is_optional(field)
    kind = _introspect.classify_field(field)
    if isinstance(kind, _introspect.PrimitiveField):
        return _primitive(_introspect.get_schema_field_type(field), flexible=flexible, nullable=nullable)
    if isinstance(kind, _introspect.PrimitiveTupleField):
        item, least = _primitive(_introspect.get_schema_field_type(field), flexible=flexible, nullable=False)
        return _array(item, least, flexible=flexible, nullable=nullable)
    read, least = _entity_reader(kind.type_)
    if isinstance(kind, _introspect.EntityTupleField):
        return _array(read, least, flexible=flexible, nullable=nullable)
    if not nullable or tagged:
        return read, least

    def nullable_entity(data: memoryview, at: int) -> tuple[Any, int]:
        if at >= len(data):
            raise MalformedRequestError("the message ends within a structure")
        return (None, at + 1) if data[at] == 0xFF else read(data, at + 1)  # noqa: PLR2004 - the byte of int8 -1

    return nullable_entity, 1


@cache
def _entity_reader(schema: Any) -> tuple[Read, int]:  # noqa: ANN401 - a class of kio
    flexible = bool(schema.__flexible__)
    header = schema.__name__ == "RequestHeader"
    plain: list[tuple[str, Read]] = []
    tags: dict[int, tuple[str, Read]] = {}
    defaults: dict[str, Any] = {}
    least = int(flexible)
    for field in fields(schema):
        tag = _introspect.get_field_tag(field)
        read, size = _field_reader(field, flexible=flexible, tagged=tag is not None, header=header)
        if tag is None:
            plain.append((field.name, read))
            least += size
        else:
            tags[int(tag)] = field.name, read
            defaults[field.name] = get_tagged_field_default(field)

    def entity(data: memoryview, at: int) -> tuple[Any, int]:
        values = dict(defaults)
        for name, read in plain:
            values[name], at = read(data, at)
        if flexible:
            # Nearly all structures have none.
            at = at + 1 if at < len(data) and not data[at] else _read_tags(data, at, tags, values)
        return schema(**values), at

    return entity, max(1, least)


def _read_tags(data: memoryview, at: int, tags: Mapping[int, tuple[str, Read]], values: dict[str, Any]) -> int:
    """Read tagged fields into `values`, and skip unknown ones; return the offset behind them."""
    count, at = _uvarint(data, at)
    if count > min(MAX_TAGS, len(data) - at):
        raise MalformedRequestError("more tagged fields than bytes")
    _LEFT.items -= count
    if _LEFT.items < 0:
        raise MalformedRequestError(f"a message has more than {MAX_ITEMS} items and tagged fields")
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        if size > len(data) - at:
            raise MalformedRequestError("a tagged field is longer than the message")
        known = tags.get(tag)
        if known is not None:
            name, read = known
            values[name], end = read(data, at)
            if end != at + size:
                raise MalformedRequestError("a tagged field has another length than it says")
        at += size
    return at


def reader_of(schema: type) -> Read:
    """Return the reader of a message class of kio.

    The reader raises `MalformedRequestError` for any other bytes, allocates no more than a small multiple of the
    message, and returns fields of bytes as views of it.
    """
    entity = _entity_reader(schema)[0]

    def read(data: memoryview, at: int) -> tuple[Any, int]:
        _LEFT.items = MAX_ITEMS
        return entity(data, at)

    return read


# --- writing ---------------------------------------------------------------------------------------


def _write_uvarint(out: bytearray, value: int) -> None:
    while value > 127:  # noqa: PLR2004
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_length(out: bytearray, size: int | None, form: struct.Struct | None) -> None:
    """Append a length, None for null; a compact one without a form."""
    if form is None:
        _write_uvarint(out, 0 if size is None else size + 1)
    else:
        out += form.pack(-1 if size is None else size)


_SHORT: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">i")


def _primitive_writer(kind: str, *, flexible: bool) -> Write:
    if kind in {"string", "bytes", "records"}:
        form = None if flexible else _SHORT if kind == "string" else _LONG

        def write(out: bytearray, value: Any) -> None:  # noqa: ANN401
            raw = value.encode() if isinstance(value, str) else value
            _write_length(out, None if raw is None else len(raw), form)
            if raw is not None:
                out += raw

    elif kind == "uuid":

        def write(out: bytearray, value: Any) -> None:  # noqa: ANN401
            out += NO_UUID if value is None else uuid.UUID(str(value)).bytes

    elif kind == "bool":

        def write(out: bytearray, value: Any) -> None:  # noqa: ANN401
            out.append(bool(value))

    else:
        pack = struct.Struct(">" + _NUMBERS[kind]).pack

        def write(out: bytearray, value: Any) -> None:  # noqa: ANN401
            out += pack(value)

    return write


def _array_writer(item: Write, *, flexible: bool) -> Write:
    form = None if flexible else _LONG

    def write(out: bytearray, value: Any) -> None:  # noqa: ANN401
        _write_length(out, None if value is None else len(value), form)
        for one in value or ():
            item(out, one)

    return write


def _field_writer(field: Field[Any], *, flexible: bool) -> Write:
    kind = _introspect.classify_field(field)
    if isinstance(kind, _introspect.PrimitiveField):
        return _primitive_writer(_introspect.get_schema_field_type(field), flexible=flexible)
    if isinstance(kind, _introspect.PrimitiveTupleField):
        return _array_writer(
            _primitive_writer(_introspect.get_schema_field_type(field), flexible=flexible), flexible=flexible
        )
    entity = writer_of(kind.type_)
    if isinstance(kind, _introspect.EntityTupleField):
        return _array_writer(entity, flexible=flexible)
    if not _introspect.is_optional(field):
        return entity

    def write(out: bytearray, value: Any) -> None:  # noqa: ANN401
        out.append(0xFF if value is None else 1)
        if value is not None:
            entity(out, value)

    return write


def _default(field: Field[Any]) -> Any:  # noqa: ANN401
    """Return the value of a field that an answer does not give: the schema's default, or an empty value."""
    kind = _introspect.classify_field(field)
    if isinstance(kind, _introspect.EntityField):
        return None if _introspect.is_optional(field) else {}
    if not isinstance(kind, _introspect.PrimitiveField):
        return () if field.default is MISSING else field.default
    type_name = _introspect.get_schema_field_type(field)
    if type_name in _NUMBERS:
        known = field.default
        if type_name == "datetime_i64":
            return -1
        # kio has enums and durations here; on the wire they are numbers, and their defaults are 0.
        return known if type(known) is not bool and isinstance(known, int | float) else 0
    if field.default is not MISSING:
        return field.default
    empty: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": None}
    return None if _introspect.is_optional(field) else empty[type_name]


@cache
def writer_of(schema: Any) -> Write:  # noqa: ANN401 - a class of kio
    """Return the writer of a message class of kio.

    It takes a mapping by the names of kio's fields: numbers for durations (ms), times and error codes, sequences of
    mappings for arrays. Missing fields have their default; names that the class lacks are ignored, so one answer
    serves all versions. Tagged fields are written only if the mapping names them.
    """
    flexible = bool(schema.__flexible__)
    plain: list[tuple[str, Write, Any]] = []
    tags: list[tuple[int, str, Write]] = []
    for field in fields(schema):
        tag = _introspect.get_field_tag(field)
        write = _field_writer(field, flexible=flexible)
        if tag is None:
            plain.append((field.name, write, _default(field)))
        else:
            tags.append((int(tag), field.name, write))
    tags.sort()

    def entity(out: bytearray, values: Any) -> None:  # noqa: ANN401
        for name, write, default in plain:
            write(out, values.get(name, default))
        if not flexible:
            return
        given = [(tag, write, values[name]) for tag, name, write in tags if name in values]
        _write_uvarint(out, len(given))
        for tag, write, value in given:
            body = bytearray()
            write(body, value)
            _write_uvarint(out, tag)
            _write_uvarint(out, len(body))
            out += body

    return entity
