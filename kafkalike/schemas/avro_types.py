"""Avro's types, and which JSON values can be defaults of a field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None
    """The JSON value, where there is one."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object of the field."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. A recursive record is one object that is found again below itself."""

    kind: str
    """A primitive's name, `array`, `map`, `union`, `record`, `enum` or `fixed`; an `error` is a record."""
    name: str = ""
    """Full name of a named type, with its namespace."""
    aliases: frozenset[str] = frozenset()
    """Full names."""
    fields: list[AvroField] = field(default_factory=list)
    items: AvroType | None = None
    """What an array or a map holds."""
    branches: list[AvroType] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """What an enum reads for a symbol that it does not have."""
    size: int = 0
    """Bytes of a fixed."""
    logical: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object, for precision and scale and what else stands there."""

    @property
    def label(self) -> str:
        """The type in words."""
        return f"{self.kind} {self.name}" if self.name else self.kind


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
