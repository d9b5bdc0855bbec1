"""Derive: the type of columns in, the text of a schema that has just them out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.values import Schema, SchemaType
from kafkalike.schemas.arrow.derive_protobuf import derived_protobuf

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
        return Schema("AVRO", json.dumps(_avro(kind, avro_name(name))))
    if schema_type == "JSON":
        return Schema("JSON", json.dumps({"title": name, **_json(kind)}))
    return derived_protobuf(kind, avro_name(name))


def avro_name(name: str) -> str:
    """A name of Avro's that is like another name."""
    made = "".join(c if (c.isascii() and c.isalnum()) or c == "_" else "_" for c in name)
    return made if made and not made[0].isdigit() else f"_{made}"


def _avro(kind: pa.DataType, name: str) -> Any:  # noqa: ANN401, PLR0911 - JSON; one for each kind
    if pa.types.is_struct(kind):
        fields = [_avro_field(field, name) for field in kind]
        return {"type": "record", "name": name, "fields": fields}
    if pa.types.is_map(kind):
        return {"type": "map", "values": _avro_nullable(kind.item_type, f"{name}_value")}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _avro_nullable(kind.value_type, f"{name}_item")}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-micros"}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_time(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if kind in _AVRO:
        return _AVRO[kind]
    raise IllegalArgumentError(f"there is no type of Avro's for {kind}")


def _avro_field(field: pa.Field, name: str) -> dict[str, Any]:
    if avro_name(field.name) != field.name:
        raise IllegalArgumentError(f"{field.name!r} cannot be the name of a field in Avro")
    return {"name": field.name, "type": _avro_nullable(field.type, f"{name}_{field.name}"), "default": None}


def _avro_nullable(kind: pa.DataType, name: str) -> Any:  # noqa: ANN401 - JSON
    made = _avro(kind, name)
    return made if made == "null" else ["null", made]


def _json(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"type": "object", "properties": {field.name: _json_nullable(field.type) for field in kind}}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _json_nullable(kind.item_type)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _json_nullable(kind.value_type)}
    if pa.types.is_timestamp(kind):
        # A date-time of JSON Schema is an instant.
        return {"type": "string", "format": "date-time"} if kind.tz else {"type": "string"}
    if kind in _JSON:
        return dict(_JSON[kind])
    raise IllegalArgumentError(f"there is no type of JSON's for {kind}")


def _json_nullable(kind: pa.DataType) -> dict[str, Any]:
    made = _json(kind)
    return {**made, "type": [made["type"], "null"]} if made["type"] != "null" else made
