"""Derive an Avro schema, a JSON Schema or a `.proto` file from the types of columns.

Protobuf readers identify fields by number. A derived `.proto` file is therefore only suitable as the first schema of a
subject: a second one, derived from other columns, would assign the numbers to other fields.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.exact_cast import is_text

_AVRO: dict[Any, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.null(): "null",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
_JSON: dict[Any, dict[str, Any]] = {
    pa.bool_(): {"type": "boolean"},
    **{kind: {"type": "integer"} for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: {"type": "number"} for kind in (pa.float32(), pa.float64())},
    **{kind: {"type": "string"} for kind in (pa.string(), pa.large_string())},
    pa.null(): {"type": "null"},
    pa.date32(): {"type": "string", "format": "date"},
}


def derive_schema(kind: pa.DataType, name: str, schema_type: SchemaType) -> Schema:
    """Derive a schema for values of a type; every field is nullable and has null as its default.

    Args:
        kind: the type.
        name: of the record; characters that a name cannot contain become `_`.
        schema_type: the type of the schema. Use Protobuf only for a subject without a schema; see `derived_protobuf`.

    Raises:
        IllegalArgumentError: the schema language cannot express the type, or the name of a field.
    """
    if schema_type == "AVRO":
        return Schema("AVRO", json.dumps(_Avro().of(kind, avro_name(name), ())))
    if schema_type == "JSON":
        return Schema("JSON", json.dumps({"title": name, **_json(kind, ())}))
    return derived_protobuf(kind, avro_name(name))


def avro_name(name: str) -> str:
    """Return a valid Avro name that resembles a name."""
    made = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in name)
    return made if made and not made[0].isdigit() else f"_{made}"


Path = tuple[str, ...]
"""Names of the columns and fields that lead to a type, with `items` and `values` for the elements of lists and maps."""


def refusal(schema_type: str, kind: pa.DataType, path: Path) -> IllegalArgumentError:
    """Return the error for a column whose type a schema language cannot express."""
    where = f"column {'.'.join(path)}: " if path else ""
    return IllegalArgumentError(f"{where}{schema_type} has no type for {kind}")


class _Avro:
    """Builds the types of one schema, whose records need unique names."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def of(self, kind: pa.DataType, name: str, path: Path) -> Any:  # noqa: ANN401, PLR0911 - JSON; one for each kind
        if pa.types.is_struct(kind):
            return self._record(kind, name, path)
        if pa.types.is_map(kind):
            if not is_text(kind.key_type):
                raise refusal("Avro", kind, path)
            return {"type": "map", "values": self._nullable(kind.item_type, f"{name}_value", (*path, "values"))}
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return {"type": "array", "items": self._nullable(kind.value_type, f"{name}_item", (*path, "items"))}
        if pa.types.is_timestamp(kind):
            return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-micros"}
        if pa.types.is_decimal(kind):
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        if pa.types.is_time(kind):
            return {"type": "long", "logicalType": "time-micros"}
        if kind in _AVRO:
            return _AVRO[kind]
        raise refusal("Avro", kind, path)

    def _record(self, kind: pa.StructType, name: str, path: Path) -> dict[str, Any]:
        """Return a record. If its name is taken, a namespace made of its path distinguishes it.

        Schema comparison uses only the last part of a record's name, so namespaces may change.
        """
        own = {"namespace": ".".join(path)} if name in self._names else {}
        self._names.add(name)
        doubled = [field for field, count in Counter(field.name for field in kind).items() if count > 1]
        if doubled:
            raise IllegalArgumentError(f"column {'.'.join((*path, doubled[0]))} is duplicated")
        return {"type": "record", "name": name, **own, "fields": [self._field(field, name, path) for field in kind]}

    def _field(self, field: pa.Field, name: str, path: Path) -> dict[str, Any]:
        inside = (*path, field.name)
        if avro_name(field.name) != field.name:
            raise IllegalArgumentError(f"column {'.'.join(inside)}: the name is not valid for an Avro field")
        return {
            "name": field.name,
            "type": self._nullable(field.type, f"{name}_{field.name}", inside),
            "default": None,
        }

    def _nullable(self, kind: pa.DataType, name: str, path: Path) -> Any:  # noqa: ANN401 - JSON
        made = self.of(kind, name, path)
        return made if made == "null" else ["null", made]


def _json(kind: pa.DataType, path: Path) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        properties = {field.name: _json_nullable(field.type, (*path, field.name)) for field in kind}
        return {"type": "object", "properties": properties}
    if pa.types.is_map(kind) and is_text(kind.key_type):
        return {"type": "object", "additionalProperties": _json_nullable(kind.item_type, (*path, "values"))}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _json_nullable(kind.value_type, (*path, "items"))}
    if pa.types.is_timestamp(kind):
        # A date-time of JSON Schema is an instant.
        return {"type": "string", "format": "date-time"} if kind.tz else {"type": "string"}
    if kind in _JSON:
        return dict(_JSON[kind])
    raise refusal("JSON Schema", kind, path)


def _json_nullable(kind: pa.DataType, path: Path) -> dict[str, Any]:
    made = _json(kind, path)
    return {**made, "type": [made["type"], "null"]} if made["type"] != "null" else made


_SCALARS: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
}
_KEYS: Final = frozenset({"bool", "int32", "int64", "string"})
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


def derived_protobuf(kind: pa.DataType, message: str) -> Schema:
    """Derive a `.proto` file for values of a type, with optional fields numbered in the order of their names.

    A list or map that is null is read as an empty one.

    Args:
        kind: a struct.
        message: the name of its message.

    Raises:
        IllegalArgumentError: Protobuf cannot express the type, or the name of a field.
    """
    if not pa.types.is_struct(kind):
        raise IllegalArgumentError(f"a Protobuf value is a message, so a struct of columns is needed, not {kind}")
    body = _message(kind, message, "")
    imports = [f'import "google/protobuf/{name.rpartition(".")[2].lower()}.proto";' for name in _used(body)]
    return Schema("PROTOBUF", "\n".join(['syntax = "proto3";', *imports, *body, ""]))


def _used(body: list[str]) -> list[str]:
    return [name for name in (_DURATION, _TIMESTAMP) if any(name in line for line in body)]


def _message(kind: pa.StructType, name: str, indent: str, path: str = "") -> list[str]:
    """Return the lines of a message; `path` leads to it."""
    taken = {field.name for field in kind}
    lines: list[str] = []
    for number, field in enumerate(sorted(kind, key=lambda field: field.name), start=1):
        if not _NAME.fullmatch(field.name):
            raise IllegalArgumentError(f"column {path}{field.name}: the name is not valid for a Protobuf field")
        # A nested message must not have the name of a field.
        inner = f"{field.name}_message"
        while inner in taken:
            inner += "_"
        taken.add(inner)
        try:
            found = _field(field.type, inner)
        except IllegalArgumentError as cause:
            raise IllegalArgumentError(f"column {path}{field.name}: {cause}") from None
        struct = _struct_of(field.type)
        if struct is not None:
            lines += _message(struct, inner, f"{indent}  ", f"{path}{field.name}.")
        lines.append(f"{indent}  {found} {field.name} = {number};")
    return [f"{indent}message {name} {{", *lines, f"{indent}}}"]


def _struct_of(kind: pa.DataType) -> pa.StructType | None:
    """Return the struct of a field's value, or of the elements of its list or map; None without one."""
    if pa.types.is_map(kind):
        kind = kind.item_type
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return kind if pa.types.is_struct(kind) else None


def _field(kind: pa.DataType, inner: str) -> str:
    """Return the type of a field as written in a `.proto` file."""
    if pa.types.is_map(kind):
        key = _one(kind.key_type, inner)
        if key not in _KEYS:
            raise IllegalArgumentError(f"Protobuf has no maps with keys of type {kind.key_type}")
        return f"map<{key}, {_one(kind.item_type, inner)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"repeated {_one(kind.value_type, inner)}"
    found = _one(kind, inner)
    return f"optional {found}" if kind in _SCALARS else found


def _one(kind: pa.DataType, inner: str) -> str:
    """Return the name of the type of a single value."""
    if pa.types.is_struct(kind):
        return inner
    if pa.types.is_timestamp(kind) and kind.tz:
        return _TIMESTAMP
    if pa.types.is_duration(kind):
        return _DURATION
    if kind not in _SCALARS:
        raise IllegalArgumentError(f"Protobuf has no type for {kind}")
    return _SCALARS[kind]
