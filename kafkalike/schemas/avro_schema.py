"""Avro schemas: types with resolved names, parsed from JSON and checked by the rules of Avro's specification."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.limits import load_json

__all__ = ["AvroField", "AvroType", "load_avro", "parse_avro", "to_json"]

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def parse_avro(schema: Schema, referenced: Mapping[str, Schema], *, strict: bool = True) -> AvroType:
    """Return the type that an Avro schema describes.

    Args:
        schema: an Avro schema.
        referenced: the schemas that it references, each after the schemas that it references itself
            (`SchemaSource.referenced`).
        strict: also check defaults, as for a new schema. A schema registered elsewhere must be readable despite wrong
            defaults.

    Raises:
        InvalidSchemaError: the schema breaks a rule of Avro's specification.
    """
    if schema.type != "AVRO":
        raise InvalidSchemaError(f"the schema is of type {schema.type}, not AVRO")
    parser = _Parser(strict=strict)
    for name, used in referenced.items():
        if used.type != "AVRO":
            raise InvalidSchemaError(f"the reference {name!r} is to a schema of type {used.type}")
        parser.type(load_avro(used.text), "")
    return parser.type(load_avro(schema.text), "")


def load_avro(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse the text of an Avro schema; the bare name of a primitive is allowed, as in Confluent's clients."""
    bare = text.strip()
    return bare if bare in PRIMITIVES else load_json(text)


def to_json(described: AvroType, defined: set[str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return a type as self-contained JSON: each named type is defined at its first use.

    Args:
        described: the type.
        defined: names already defined; names of this type are added.
    """
    if described.kind == "union":
        return [to_json(branch, defined) for branch in described.branches]
    if described.items is not None:
        part = "items" if described.kind == "array" else "values"
        return {**described.attributes, part: to_json(described.items, defined)}
    if not described.name:
        return {**described.attributes, "type": described.kind} if described.attributes else described.kind
    if described.name in defined:
        return described.name
    defined.add(described.name)
    made = {**described.attributes, "type": described.kind, "name": described.name}
    made.pop("namespace", None)
    if described.kind == "record":
        made["fields"] = [{**field.attributes, "type": to_json(field.type, defined)} for field in described.fields]
    return made


class _Parser:
    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._named: dict[str, AvroType] = {}

    def type(self, value: Any, namespace: str) -> AvroType:  # noqa: ANN401, C901, PLR0911 - a return for each kind
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace)
        if not isinstance(value, dict):
            raise InvalidSchemaError(f"a type is a name, a list or an object, not {value!r}")
        kind = value.get("type")
        if kind == "error":
            kind = "record"
        if isinstance(kind, dict | list):
            return self.type(kind, namespace)
        if kind in PRIMITIVES:
            return AvroType(kind, logical=_logical(value), attributes=value)
        if kind == "array":
            return AvroType("array", items=self._part(value, "items", namespace), attributes=value)
        if kind == "map":
            return AvroType("map", items=self._part(value, "values", namespace), attributes=value)
        if kind in NAMED:
            return self._define(kind, value, namespace)
        if isinstance(kind, str):
            return self._by_name(kind, namespace)
        raise InvalidSchemaError(f"a type has no 'type': {_short(value)}")

    def _part(self, value: dict[str, Any], key: str, namespace: str) -> AvroType:
        if key not in value:
            raise InvalidSchemaError(f"a type {value['type']!r} has no {key!r}")
        return self.type(value[key], namespace)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        for full in (_full(name, namespace), name):
            found = self._named.get(full)
            if found is not None:
                return found
        raise InvalidSchemaError(f"the type {_full(name, namespace)!r} is not defined")

    def _union(self, values: list[Any], namespace: str) -> AvroType:
        branches = [self.type(value, namespace) for value in values]
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchemaError("a union directly holds a union")
            label = branch.name or branch.kind
            if label in seen:
                raise InvalidSchemaError(f"a union has {label!r} twice")
            seen.add(label)
        return AvroType("union", branches=branches)

    def _define(self, kind: str, value: dict[str, Any], namespace: str) -> AvroType:
        name = value.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSchemaError(f"a type {kind!r} has no name: {_short(value)}")
        given = value.get("namespace")
        inner = name.rpartition(".")[0] if "." in name else given if isinstance(given, str) else namespace
        full = _full(name, inner)
        for part in full.split("."):
            _check_name(part, "type")
        if full in self._named or full in PRIMITIVES:
            raise InvalidSchemaError(f"the type {full!r} is defined twice")
        aliases = frozenset(_full(alias, inner) for alias in _strings(value, "aliases"))
        made = AvroType(kind, full, aliases, logical=_logical(value), attributes=value)
        self._named[full] = made
        if kind == "record":
            made.fields = self._fields(value, full, inner)
        elif kind == "enum":
            self._enum(made, value)
        else:
            size = value.get("size")
            if type(size) is not int or size < 0:
                raise InvalidSchemaError(f"the fixed {full!r} has no size")
            made.size = size
        return made

    def _fields(self, value: dict[str, Any], record: str, namespace: str) -> list[AvroField]:
        declared = value.get("fields")
        if not isinstance(declared, list):
            raise InvalidSchemaError(f"the record {record!r} has no list of fields")
        made: dict[str, AvroField] = {}
        for item in declared:
            if not isinstance(item, dict) or not isinstance(item.get("name"), str) or "type" not in item:
                raise InvalidSchemaError(f"a field of {record!r} has no name or no type: {_short(item)}")
            name = item["name"]
            _check_name(name, "field")
            if name in made:
                raise InvalidSchemaError(f"the record {record!r} has the field {name!r} twice")
            found = self.type(item["type"], namespace)
            has_default = "default" in item
            if has_default and self._strict and not default_fits(found, item["default"]):
                raise InvalidSchemaError(
                    f"the default of {record}.{name} is not a valid {found.label}: {_short(item['default'])}"
                )
            made[name] = AvroField(
                name, found, tuple(_strings(item, "aliases")), has_default, item.get("default"), item
            )
        return list(made.values())

    def _enum(self, made: AvroType, value: dict[str, Any]) -> None:
        symbols = value.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise InvalidSchemaError(f"the enum {made.name!r} has no list of symbols")
        for symbol in symbols:
            _check_name(symbol, "symbol")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchemaError(f"the enum {made.name!r} has a symbol twice")
        made.symbols = tuple(symbols)
        default = value.get("default")
        if default is not None:
            if default not in made.symbols:
                raise InvalidSchemaError(f"the default of the enum {made.name!r} is none of its symbols: {default!r}")
            made.default = default


def _logical(value: dict[str, Any]) -> str | None:
    logical = value.get("logicalType")
    return logical if isinstance(logical, str) else None


def _strings(value: dict[str, Any], key: str) -> list[str]:
    found = value.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise InvalidSchemaError(f"{key!r} is not a list of names: {_short(found)}")
    return found


def _full(name: str, namespace: str) -> str:
    return name.lstrip(".") if "." in name or not namespace else f"{namespace}.{name}"


def _check_name(name: str, what: str) -> None:
    if not _NAME.match(name):
        raise InvalidSchemaError(f"{name!r} cannot be the name of a {what}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - a line's length


_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None
    """The default as JSON, meaningful only if `has_default` is set."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object that defines the field."""


@dataclass(slots=True, eq=False)
class AvroType:
    """An Avro type. A recursive record is a single object that is reachable from itself."""

    kind: str
    """Name of a primitive, or `array`, `map`, `union`, `record`, `enum` or `fixed`; an `error` is a `record`."""
    name: str = ""
    """Full name of a named type, including its namespace."""
    aliases: frozenset[str] = frozenset()
    """Full names of the aliases."""
    fields: list[AvroField] = field(default_factory=list)
    items: AvroType | None = None
    """Type of the items of an array or the values of a map."""
    branches: list[AvroType] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """Symbol that an enum reads in place of an unknown symbol."""
    size: int = 0
    """Size of a fixed, in bytes."""
    logical: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The JSON object that defines the type, with precision, scale and other attributes."""

    @property
    def label(self) -> str:
        """Kind and name of the type, for messages."""
        return f"{self.kind} {self.name}" if self.name else self.kind


def default_fits(wanted: AvroType, value: Any) -> bool:  # noqa: ANN401, PLR0911 - any JSON value; a return for each kind
    """Return True if a JSON value can be the default of a field.

    Args:
        wanted: the field's type. For a union, the default may fit any branch, as in Avro 1.12.
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
    """Return True for NaN and the infinities, which JSON can only express as strings."""
    return value in {"NaN", "Infinity", "-Infinity"} and not math.isfinite(float(value))
