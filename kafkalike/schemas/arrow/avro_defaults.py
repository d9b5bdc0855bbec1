"""Avro defaults: the JSON of a field's default in, a value that Arrow takes for the field's type out."""

from __future__ import annotations

import decimal
import uuid
from typing import Any

import pyarrow as pa

from kafkalike.schemas.arrow.avro_types import ArrowTypes, Type, branches_of, leaf

_DURATION_BYTES = 12


def default_of(types: ArrowTypes, kind: Type, value: Any, around: tuple[str, ...]) -> Any:  # noqa: ANN401 - any default
    """A default as a Python value for `pa.array`.

    Args:
        types: the reader's.
        kind: the type of the field.
        value: its default, of JSON.
        around: names of the records that the field stands in.
    """
    kind = types.schema.resolved(kind)
    if isinstance(kind, list):
        return _of_union(types, kind, value, around)
    name = kind["type"]
    if name in {"record", "error"}:
        inside = (*around, kind["name"])
        fields = types.fields(kind, around)
        return {
            field["name"]: default_of(types, field["type"], value.get(field["name"], field.get("default")), inside)
            for field, _ in fields
        }
    if name == "array":
        return [default_of(types, kind["items"], item, around) for item in value]
    if name == "map":
        return [(key, default_of(types, kind["values"], item, around)) for key, item in value.items()]
    return _of_leaf(kind, value)


def _of_union(types: ArrowTypes, union: list[Type], value: Any, around: tuple[str, ...]) -> Any:  # noqa: ANN401
    if value is None:
        return None
    branches = branches_of(union)
    # The default is one of the first branch, whatever a newer Avro allows besides.
    first = types.schema.resolved(branches[0])
    if types.merged(branches) is not None:
        return value
    found = default_of(types, first, value, around)
    return found if len(branches) == 1 else {"member0": found}


def _of_leaf(kind: dict[str, Any], value: Any) -> Any:  # noqa: ANN401
    if kind["type"] not in {"bytes", "fixed"}:
        arrow = leaf(kind)
        in_millis = str(kind.get("logicalType", "")).endswith("-millis") and not pa.types.is_integer(arrow)
        return value * 1000 if in_millis else value
    plain = value.encode("latin-1") if isinstance(value, str) else bytes(value)
    arrow = leaf(kind)
    if pa.types.is_decimal(arrow):
        number = int.from_bytes(plain, "big", signed=True)
        return decimal.Decimal(number).scaleb(-arrow.scale, decimal.Context(prec=arrow.precision + 1))
    if pa.types.is_string(arrow):
        return str(uuid.UUID(bytes=plain))
    if pa.types.is_struct(arrow) and len(plain) == _DURATION_BYTES:
        parts = [int.from_bytes(plain[at : at + 4], "little") for at in (0, 4, 8)]
        return dict(zip(arrow.names, parts, strict=True))
    return plain
