"""JSON encode: Arrow arrays in, the JSON of each value out, checked by its schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.arrow.json_columns import JsonColumns, json_text
from kafkalike.schemas.arrow.reading import UnmatchedError
from kafkalike.schemas.arrow.values import Column, Leaf, Lists, Maps, Structs
from kafkalike.schemas.codec import codec_for
from kafkalike.schemas.source import SchemaSource

Plain = Callable[[Any], Any]
"""A value of an array → what `json.dumps` takes."""


def encoder(
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
        whole = _plain(top, kind, "")
        plain = whole if is_record else lambda value: whole(value).get("value")
    encode = codec_for(schema, source).encoder(b"")

    def write(values: pa.Array) -> pa.BinaryArray:
        return pa.array([encode(plain(value)) for value in values.to_pylist()], pa.binary())

    return write


def _plain(column: Column, kind: pa.DataType, path: str) -> Plain:
    if isinstance(column, Structs):
        return _object(column, kind, path)
    if isinstance(column, Lists) and pa.types.is_list(kind):
        item = _plain(column.item, kind.value_type, f"{path}[]")
        return lambda values: [None if value is None else item(value) for value in values]
    if isinstance(column, Maps) and pa.types.is_map(kind):
        inner = _plain(column.item, kind.item_type, f"{path}{{}}")
        return lambda entries: {key: None if value is None else inner(value) for key, value in entries}
    if isinstance(column, Leaf) and not pa.types.is_nested(kind):
        return json.loads if column.convert is json_text and _is_text(kind) else _scalar
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


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _scalar(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
