"""Derive: the type of columns in, the text of a schema that has just them out."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.derive_protobuf import derived_protobuf
from kafkalike.schemas.arrow.exact import is_text

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


def derived(kind: pa.DataType, name: str, schema_type: SchemaType) -> Schema:
    """A schema for values of a type: every field may be null, and has null for its default.

    Args:
        kind: the type.
        name: of the record; what cannot stand in a name becomes `_`.
        schema_type: the type of the schema. Of Protobuf only for a subject that has none yet; see `derived_protobuf`.

    Raises:
        IllegalArgumentError: such a schema has no words for the type, or for a field's name.
    """
    if schema_type == "AVRO":
        return Schema("AVRO", json.dumps(_Avro().of(kind, avro_name(name), ())))
    if schema_type == "JSON":
        return Schema("JSON", json.dumps({"title": name, **_json(kind, ())}))
    return derived_protobuf(kind, avro_name(name))


def avro_name(name: str) -> str:
    """A name of Avro's that is like another name."""
    made = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in name)
    return made if made and not made[0].isdigit() else f"_{made}"


Path = tuple[str, ...]
"""Names of the columns and fields that lead to a type, with `items` and `values` for what lists and maps hold."""


def refusal(schema_type: str, kind: pa.DataType, path: Path) -> IllegalArgumentError:
    """The error for a column whose type a schema has no words for."""
    where = f"column {'.'.join(path)}: " if path else ""
    return IllegalArgumentError(f"{where}there is no type of {schema_type}'s for {kind}")


class _Avro:
    """Makes the types of one schema, whose records need different names."""

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
        """A record; one whose name another one has is told apart by a namespace of its own, made of its path.

        The last part of a record's name counts when schemas are compared, so namespaces may come and go.
        """
        own = {"namespace": ".".join(path)} if name in self._names else {}
        self._names.add(name)
        doubled = [field for field, count in Counter(field.name for field in kind).items() if count > 1]
        if doubled:
            raise IllegalArgumentError(f"column {'.'.join((*path, doubled[0]))} is there twice")
        return {"type": "record", "name": name, **own, "fields": [self._field(field, name, path) for field in kind]}

    def _field(self, field: pa.Field, name: str, path: Path) -> dict[str, Any]:
        inside = (*path, field.name)
        if avro_name(field.name) != field.name:
            raise IllegalArgumentError(f"column {'.'.join(inside)}: this cannot be the name of a field in Avro")
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
