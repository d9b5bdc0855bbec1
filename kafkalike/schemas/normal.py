"""Normal form: a schema in, the same for all that differ only in what no reader sees, out.

Avro: the order of keys that are not Avro's own; the others have an order anyway. JSON Schema: the order of keys.
Protobuf: comments, white space, the order of imports.
"""

from __future__ import annotations

from dataclasses import replace

from kafkalike.model.schemas.schema import Schema
from kafkalike.model.schemas.schema_identity import canonical, json_text, parsed_json
from kafkalike.schemas.extras import needed


def normalized(schema: Schema) -> Schema:
    """The normal form of a schema; the references in the order of their names.

    Raises:
        ValueError, RecursionError: it cannot be read.
        KafkaConfigurationError: a package is missing.
    """
    if schema.type == "AVRO":
        text = json_text(canonical(parsed_json(schema.text), sort_added=True))
    elif schema.type == "JSON":
        text = json_text(parsed_json(schema.text), sort_keys=True)
    else:
        text = _protobuf(schema.text)
    return replace(schema, text=text, references=tuple(sorted(schema.references, key=lambda r: r.name)))


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
