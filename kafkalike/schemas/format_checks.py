"""Format checks: what Avro, Protobuf and JSON Schema say to the rules of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafkalike.model.schemas.checks import Checks, Resolve
from kafkalike.model.schemas.values import Schema, SchemaType
from kafkalike.schemas.extras import needed
from kafkalike.schemas.normal import normalized

_HOMES: Final[dict[SchemaType, str]] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}


def _problems(new: Schema, old: Schema, resolve: Resolve) -> Sequence[str]:
    module: Any = needed(f"kafkalike.schemas.compatibility.{_HOMES[new.type]}", f"{new.type} schemas")
    found: Sequence[str] = module.problems(new, old, resolve)
    return found


def _check(schema: Schema, resolve: Resolve) -> None:
    # A schema that can be compared with itself can be read.
    _problems(schema, schema, resolve)


CHECKS: Final = Checks(check=_check, normalized=normalized, problems=_problems)
"""For all clusters: modules are loaded when a schema of their type comes."""
