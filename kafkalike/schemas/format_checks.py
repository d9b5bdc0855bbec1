"""Format checks: what Avro, Protobuf and JSON Schema say to the rules of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.schema import Checks, Resolve, Schema, SchemaType
from kafkalike.model.schemas.schema_identity import parsed_json
from kafkalike.schemas.extras import needed
from kafkalike.schemas.normal import normalized

_COMPARISONS: Final[dict[SchemaType, tuple[str, str]]] = {
    "AVRO": ("avro", "Avro schemas"),
    "PROTOBUF": ("protobuf", "Protobuf schemas"),
    "JSON": ("json_schema", "JSON schemas"),
}


def _problems(new: Schema, old: Schema, resolve: Resolve) -> Sequence[str]:
    module, use = _COMPARISONS[new.type]
    found: Sequence[str] = needed(f"kafkalike.schemas.compatibility.{module}", use).problems(new, old, resolve)
    return found


def _check(schema: Schema, resolve: Resolve) -> None:
    if schema.type == "AVRO":
        needed("kafkalike.schemas.avro_schema", "Avro schemas").parse_avro(schema, resolve(schema))
    elif schema.type == "PROTOBUF":
        needed("kafkalike.schemas.proto.files", "Protobuf schemas").build_file(schema, resolve(schema))
    else:
        _check_json(parsed_json(schema.text))
    # What a JSON Schema refers to is looked for when it is compared, and what is nested too deeply to be compared
    # could have no other version after it.
    _problems(schema, schema, resolve)


def _check_json(value: Any) -> None:  # noqa: ANN401 - any JSON
    if not isinstance(value, (dict, bool)):
        raise refusals.invalid_schema("a JSON Schema is an object, true or false")
    validators = needed("jsonschema.validators", "JSON schemas")
    try:
        validators.validator_for(value, default=validators.Draft7Validator).check_schema(value)
    except needed("jsonschema.exceptions", "JSON schemas").SchemaError as cause:
        raise refusals.invalid_schema(f"{cause.json_path}: {cause.message[:500]}") from cause
    except Exception as cause:
        # The library takes texts for granted that are none, such as a `$schema` that is a number.
        raise refusals.invalid_schema(f"it is no JSON Schema: {type(cause).__name__}: {cause}") from cause


CHECKS: Final = Checks(check=_check, normalized=normalized, problems=_problems)
"""For all clusters: modules are loaded when a schema of their type comes."""
