"""Normal form: a schema in, the same for all that differ only in what no reader sees, out.

Avro and JSON Schema: the order of keys; in Avro also types in braces that say nothing more than their name. Protobuf:
comments, white space, the order of imports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kafkalike.model.schemas.identity import json_text, parsed_json
from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.extras import needed

_AVRO_ORDER: Final = (
    "type", "name", "namespace", "doc", "aliases", "items", "values", "size", "symbols", "fields", "default", "order",
)  # fmt: skip
"""Keys of Avro's own; others come behind them, by name."""


def normalized(schema: Schema) -> Schema:
    """The normal form of a schema; the references in the order of their names.

    Raises:
        ValueError, RecursionError: it cannot be read.
        KafkaConfigurationError: a package is missing.
    """
    if schema.type == "AVRO":
        text = json_text(_avro(parsed_json(schema.text)))
    elif schema.type == "JSON":
        text = json_text(parsed_json(schema.text), sort_keys=True)
    else:
        text = _protobuf(schema.text)
    return replace(schema, text=text, references=tuple(sorted(schema.references, key=lambda r: r.name)))


def _avro(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_avro(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"type"}:
        return _avro(value["type"])
    keys = sorted(value, key=lambda key: (_AVRO_ORDER.index(key) if key in _AVRO_ORDER else len(_AVRO_ORDER), key))
    return {key: _avro_part(key, value[key]) for key in keys}


def _avro_part(key: str, part: Any) -> Any:  # noqa: ANN401 - any JSON
    if key in {"type", "items", "values"}:
        return _avro(part)
    if key == "fields" and isinstance(part, list):
        # A field is no type: `{"type": …}` alone would be one without a name, which is an error to be found.
        return [_field(item) for item in part]
    return part


def _field(value: Any) -> Any:  # noqa: ANN401 - any JSON
    return {**_avro({**value, "name": value.get("name")})} if isinstance(value, dict) else value


def _protobuf(text: str) -> str:
    files = needed("kafkalike.schemas.proto.files", "Protobuf schemas")
    printer = needed("kafkalike.schemas.proto.printer", "Protobuf schemas")
    file = files.load_proto(text)
    ordered = sorted(file.dependency)
    for places in (file.public_dependency, file.weak_dependency):
        moved = sorted(ordered.index(file.dependency[place]) for place in places)
        del places[:]
        places.extend(moved)
    del file.dependency[:]
    file.dependency.extend(ordered)
    return str(printer.print_proto(file)).strip()
