"""Arrow arrays as JSON, checked by a schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.arrow.exact_cast import is_text
from kafkalike.schemas.arrow.json_columns import JsonColumns, json_text
from kafkalike.schemas.arrow.json_numbers import exact, nearest, parsed, whole_number
from kafkalike.schemas.arrow.python_objects import at, check_kind, is_list, objects, without_doubles
from kafkalike.schemas.arrow.value_arrays import Column, LeafColumn, Lists, Maps, Structs
from kafkalike.schemas.codecs.codec import codec_for
from kafkalike.schemas.schema_source import SchemaSource

Plain = Callable[[Any], Any]
"""A value of an array → what `json.dumps` takes."""


def json_encoder(
    schema: Schema, source: SchemaSource, kind: pa.DataType, depth: int
) -> Callable[[pa.Array], pa.BinaryArray]:
    """What writes values of a type. A null is left out, unless its property is required.

    Raises:
        UnmatchedError: they have fields that the schema does not name.
    """
    used = {name: other.text for name, other in source.referenced(schema).items()}
    top, is_record = JsonColumns(schema.text, used, depth).top()
    if not is_record and not (pa.types.is_struct(kind) and kind.names == ["value"]):
        plain = _plain(top.fields[0][2], kind, "")
    else:
        whole_number = _plain(top, kind, "")
        plain = whole_number if is_record else lambda value: whole_number(value).get("value")
    encode = codec_for(schema, source).encoder(b"")

    def write(values: pa.Array) -> pa.BinaryArray:
        return pa.array([encode(plain(value)) for value in objects(values)], pa.binary())

    return write


def _plain(column: Column, kind: pa.DataType, path: str) -> Plain:
    if isinstance(column, Structs):
        return _object(column, kind, path)
    if isinstance(column, Lists) and is_list(kind):
        item = _plain(column.item, kind.value_type, f"{path}[]")
        return lambda values: [None if value is None else item(value) for value in values]
    if isinstance(column, Maps) and pa.types.is_map(kind) and is_text(kind.key_type):
        inner = _plain(column.item, kind.item_type, f"{path}{{}}")
        return lambda entries: {
            key: None if value is None else inner(value) for key, value in without_doubles(entries, path).items()
        }
    if isinstance(column, LeafColumn):
        check_kind(kind, path)
        known = _leaf_encoder(column, kind)
        if known is not None:
            return at(path, known)
    raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {column.kind}")


def _object(column: Structs, kind: pa.DataType, path: str) -> Plain:
    if not pa.types.is_struct(kind):
        raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has an object")
    known = {name: inner for name, _, inner in column.fields}
    extra = sorted({field.name for field in kind} - set(known))
    if extra:
        raise UnmatchedError(f"{path or 'the value'} has {', '.join(extra)}, which the schema does not name")
    parts = [(f.name, _plain(known[f.name], f.type, f"{path}.{f.name}".lstrip("."))) for f in kind]
    required = column.required

    def plain(value: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for name, part in parts:
            inner = value[name]
            if inner is not None:
                made[name] = part(inner)
            elif name in required:
                made[name] = None
        return made

    return plain


def _leaf_encoder(column: LeafColumn, kind: pa.DataType) -> Plain | None:
    """What writes values of a type into a leaf of the schema; None where none of them can mean the same."""
    if pa.types.is_null(kind):
        return _same
    if column.convert is json_text:
        return _any(kind)
    wanted = column.kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    known: list[tuple[bool, bool, Plain]] = [
        (pa.types.is_integer(wanted), is_number, whole_number),
        (pa.types.is_floating(wanted), is_number, _double),
        (pa.types.is_boolean(wanted), pa.types.is_boolean(kind), _same),
        (pa.types.is_null(wanted), not pa.types.is_nested(kind), _nothing),
        (pa.types.is_date(wanted), pa.types.is_date(kind), _time),
        (pa.types.is_date(wanted), is_text(kind), _checked(column)),
        (pa.types.is_timestamp(wanted), pa.types.is_timestamp(kind) and kind.tz is not None, _time),
        (pa.types.is_timestamp(wanted), is_text(kind), _checked(column)),
        (pa.types.is_string(wanted), is_text(kind), _same),
        (pa.types.is_string(wanted), pa.types.is_date(kind) or pa.types.is_timestamp(kind), _time),
    ]
    return next((plain for is_wanted, is_kind, plain in known if is_wanted and is_kind), None)


def _any(kind: pa.DataType) -> Plain | None:
    """What writes values where any JSON may stand: texts are JSON."""
    if is_text(kind):
        return _json
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return exact
    if pa.types.is_boolean(kind):
        return _same
    return _time if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else None


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _nothing(value: Any) -> Any:  # noqa: ANN401
    raise ValueError(f"{value!r} stands where the schema takes nothing but null")


def _double(value: Any) -> Any:  # noqa: ANN401
    """A number that readers take for a double."""
    nearest(value)
    return exact(value)


def _checked(column: LeafColumn) -> Plain:
    """A text that readers take for a time."""
    convert = column.convert or _same

    def checked(value: str) -> str:
        convert(value)
        return value

    return checked


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """What a text of JSON says; its numbers keep their digits."""
    return _undecimal(parsed(text, strict=True))


def _undecimal(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {name: _undecimal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_undecimal(inner) for inner in value]
    return _float(value) if isinstance(value, Decimal) else value


def _float(value: Decimal) -> float:
    exact(value)
    return nearest(value)


def _time(value: date | datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")
