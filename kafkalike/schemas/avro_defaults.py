"""Defaults of Avro's fields: JSON values, and whether they are of the field's type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkalike.schemas.avro_schema import AvroType

_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}


def default_fits(wanted: AvroType, value: Any) -> bool:  # noqa: ANN401, PLR0911 - any JSON value; a return for each kind
    """Whether a JSON value can be the default of a field.

    Args:
        wanted: the field's type; of a union any branch may fit, as in Avro 1.12.
        value: the JSON value.
    """
    kind = wanted.kind
    if kind == "union":
        return any(default_fits(branch, value) for branch in wanted.branches)
    if kind in _RANGES:
        return type(value) is int and -_RANGES[kind] <= value < _RANGES[kind]
    if kind in {"float", "double"}:
        return type(value) in {int, float} or (isinstance(value, str) and _is_number_word(value))
    if kind == "fixed":
        return isinstance(value, str) and len(value) == wanted.size and _is_bytes(value)
    if kind == "bytes":
        return isinstance(value, str) and _is_bytes(value)
    if kind == "array":
        return isinstance(value, list) and all(default_fits(_items(wanted), item) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(default_fits(_items(wanted), item) for item in value.values())
    if kind == "record":
        return isinstance(value, dict) and all(
            default_fits(field.type, value[field.name]) if field.name in value else field.has_default
            for field in wanted.fields
        )
    simple: dict[str, bool] = {
        "null": value is None,
        "boolean": type(value) is bool,
        "string": isinstance(value, str),
        "enum": isinstance(value, str) and value in wanted.symbols,
    }
    return simple[kind]


def _items(wanted: AvroType) -> AvroType:
    assert wanted.items is not None
    return wanted.items


def _is_bytes(value: str) -> bool:
    return all(ord(character) < 256 for character in value)  # noqa: PLR2004 - a byte's values


def _is_number_word(value: str) -> bool:
    """NaN and the infinities, which JSON can only say as words."""
    return value in {"NaN", "Infinity", "-Infinity"} and not math.isfinite(float(value))
