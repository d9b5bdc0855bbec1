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
    parser = needed("proto_schema_parser.parser", "Protobuf schemas")
    generator = needed("proto_schema_parser.generator", "Protobuf schemas")
    ast = needed("proto_schema_parser.ast", "Protobuf schemas")
    try:
        file = parser.Parser().parse(text)
    except Exception as cause:  # the parser's own errors have no common class
        raise ValueError(f"it cannot be read: {cause}") from cause
    elements = _without_comments(file.file_elements, ast.Comment)
    imports = sorted((e for e in elements if isinstance(e, ast.Import)), key=lambda e: e.name)
    file.file_elements = [
        *(e for e in elements if isinstance(e, ast.Package)),
        *imports,
        *(e for e in elements if not isinstance(e, (ast.Package, ast.Import))),
    ]
    return str(generator.Generator().generate(file)).strip()


def _without_comments(elements: list[Any], comment: type) -> list[Any]:
    kept = [element for element in elements if not isinstance(element, comment)]
    for element in kept:
        for name in ("elements", "file_elements"):
            if hasattr(element, name):
                setattr(element, name, _without_comments(getattr(element, name), comment))
    return kept
