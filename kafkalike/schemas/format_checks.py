"""The registry's checks of Avro, Protobuf and JSON Schema: validity, compatibility and normal form.

The normal form removes differences that no reader sees. Avro: the order of keys that Avro does not define; its own keys
have a fixed order already. JSON Schema: the order of keys. Protobuf: comments, white space and the order of imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kafkalike.errors import KafkaError
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.schema import Checks, Resolve, Schema, SchemaType, canonical, json_text, parsed_json


def normalized(schema: Schema) -> Schema:
    """Return the normal form of a schema, with references sorted by name.

    Raises:
        ValueError, RecursionError: the schema cannot be parsed.
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
    files = require_module("kafkalike.schemas.proto.proto_files", "Protobuf schemas")
    file = files.load_proto(text)
    ordered = sorted(file.dependency)
    for places in (file.public_dependency, file.weak_dependency):
        moved = sorted(ordered.index(file.dependency[place]) for place in places)
        del places[:]
        places.extend(moved)
    del file.dependency[:]
    file.dependency.extend(ordered)
    return str(files.print_proto(file)).strip()


_COMPARISONS: Final[dict[SchemaType, tuple[str, str]]] = {
    "AVRO": ("avro_compatibility", "Avro schemas"),
    "PROTOBUF": ("protobuf_compatibility", "Protobuf schemas"),
    "JSON": ("json_compatibility", "JSON schemas"),
}


def _problems(new: Schema, old: Schema, resolve: Resolve) -> Sequence[str]:
    module, use = _COMPARISONS[new.type]
    found: Sequence[str] = require_module(f"kafkalike.schemas.compatibility.{module}", use).problems(new, old, resolve)
    return found


def _check(schema: Schema, resolve: Resolve) -> None:
    if schema.type == "AVRO":
        require_module("kafkalike.schemas.avro_schema", "Avro schemas").parse_avro(schema, resolve(schema))
    elif schema.type == "PROTOBUF":
        require_module("kafkalike.schemas.proto.proto_files", "Protobuf schemas").build_file(schema, resolve(schema))
    else:
        _check_json(parsed_json(schema.text))
    # Only a comparison resolves the references of a JSON Schema. A schema nested too deeply to be compared could never
    # have a next version.
    _problems(schema, schema, resolve)


def _check_json(value: Any) -> None:  # noqa: ANN401 - any JSON
    if not isinstance(value, (dict, bool)):
        raise refusals.invalid_schema("a JSON Schema is an object, true or false")
    validators = require_module("jsonschema.validators", "JSON schemas")
    # The library assumes the right types, so a `$schema` that is a number makes it raise errors of any class.
    with foreign_errors(_not_json_schema):
        try:
            validators.validator_for(value, default=validators.Draft7Validator).check_schema(value)
        except require_module("jsonschema.exceptions", "JSON schemas").SchemaError as cause:
            raise refusals.invalid_schema(f"{cause.json_path}: {cause.message[:500]}") from cause


def _not_json_schema(cause: Exception) -> KafkaError:
    return refusals.invalid_schema(f"it is not a JSON Schema: {type(cause).__name__}: {cause}")


CHECKS: Final = Checks(check=_check, normalized=normalized, problems=_problems)
"""Checks of all clusters. Modules are imported when a schema of their type is first checked."""
