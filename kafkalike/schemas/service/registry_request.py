"""A validated request of a registry client, and the formats of schemas in requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kafkalike.errors import SchemaRegistryError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.schemas import refusals, registration_rules
from kafkalike.model.schemas.schema import SCHEMA_TYPES, Reference, Resolve, Schema
from kafkalike.model.schemas.schema_rows import EVERYWHERE

T = TypeVar("T")

NO_NUMBER = (None, -1, 0)
"""Values that clients send if they do not have an id or a version."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request with a known route."""

    names: Mapping[str, str]
    """Named parts of the path."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None

    @property
    def subject(self) -> str:
        """The subject in the path; empty without one."""
        given = self.names.get("subject")
        return EVERYWHERE if given is None else registration_rules.check_subject(given)

    @property
    def version(self) -> int | str:
        """The version in the path: a number, or `latest`.

        Raises:
            SchemaRegistryError: the version is invalid; `error_code` is 42202.
        """
        given = self.names["version"]
        if given in {"latest", "-1"}:
            return "latest"
        if not given.isascii() or not given.isdigit() or len(given) > 10:  # noqa: PLR2004 - digits of 2^31
            raise refusals.invalid_version(given)
        return registration_rules.check_number(int(given))

    @property
    def id(self) -> int:
        """The schema id in the path.

        Raises:
            SchemaRegistryError: the id is invalid; the status is 404.
        """
        given = self.names["id"]
        if not given.isascii() or not given.isdigit() or len(given) > 10:  # noqa: PLR2004 - digits of 2^31
            raise refusals.no_schema(given[:40])
        return int(given)

    def flag(self, name: str) -> bool:
        """Return True if a query parameter is `true`, in any case."""
        return self.query.get(name, "").lower() == "true"

    def page(self, found: list[T]) -> list[T]:
        """Return the part of a list selected by `offset` and `limit`; a negative limit selects the rest."""
        offset, limit = self._whole("offset", 0), self._whole("limit", -1)
        offset = max(0, offset)
        return found[offset : offset + limit if limit >= 0 else None]

    def _whole(self, name: str, default: int) -> int:
        given = self.query.get(name)
        if given is None:
            return default
        try:
            return int(given[:20])
        except ValueError:
            raise SchemaRegistryError(422, 422, f"{name} must be an integer, not {given[:40]!r}") from None

    @property
    def prefix(self) -> str:
        """Prefix of the requested subjects, without the default context."""
        given = self.query.get("subjectPrefix", "")
        return given.removeprefix(":*:").removeprefix(registration_rules.DEFAULT_CONTEXT)

    def object(self) -> Mapping[str, Any]:
        """Return the body as a JSON object.

        Raises:
            SchemaRegistryError: the body is something else.
        """
        if not isinstance(self.body, dict):
            raise SchemaRegistryError(422, 422, "the body must be a JSON object")
        return self.body

    def wanted(self) -> registration_rules.RegistrationRequest:
        """Return the schema in the body, for the subject in the path.

        Raises:
            SchemaRegistryError: the body is invalid; usually with `error_code` 42201.
        """
        body = self.object()
        return registration_rules.RegistrationRequest(
            subject=self.subject,
            schema=registration_rules.prepared(readable(registration_rules.prepared(schema_in(body)))),
            normalize=self.flag("normalize"),
            id=number_in(body, "id"),
            version=number_in(body, "version"),
        )


def schema_in(body: Mapping[str, Any]) -> Schema:
    """Return the schema of a body.

    Raises:
        SchemaRegistryError: the schema is missing, or has unsupported properties.
    """
    kind, text, references = (body.get(name) for name in ("schemaType", "schema", "references"))
    kind = "AVRO" if kind is None else kind
    references = [] if references is None else references
    if not isinstance(text, str):
        raise refusals.invalid_schema("'schema' must be a string")
    if kind not in SCHEMA_TYPES:
        raise refusals.unknown_type(kind)
    for name in ("metadata", "ruleSet"):
        # Rules encrypt and validate records, so ignoring them could store data that must not be stored.
        if body.get(name):
            raise refusals.invalid_schema(f"{name} is not supported here")
    if not isinstance(references, list):
        raise refusals.invalid_schema("'references' is not a list")
    return Schema(kind, text, tuple(map(_reference, references)))


def _reference(given: object) -> Reference:
    known: dict[str, Any] = given if isinstance(given, dict) else {}
    name, subject, version = (known.get(key) for key in ("name", "subject", "version"))
    if not isinstance(name, str) or not isinstance(subject, str):
        raise refusals.invalid_schema(f"a reference needs a name, a subject and a version, not {str(given)[:80]}")
    return Reference(name, subject, registration_rules.check_number(version))


def number_in(body: Mapping[str, Any], name: str) -> int | None:
    """Return an id or a version of a body, or None.

    Raises:
        SchemaRegistryError: the value is not an integer from 1 to `MAX_ID`.
    """
    given = body.get(name)
    if type(given) in {int, type(None)} and given in NO_NUMBER:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= refusals.MAX_ID:
        raise refusals.invalid_schema(f"{name!r} must be an integer from 1 to {refusals.MAX_ID}: {str(given)[:40]}")
    return given


SERIALIZED: Final = "serialized"
"""Format of a Protobuf schema as a Base64 `FileDescriptorProto`, which Confluent's Python client sends and requests."""


def readable(schema: Schema) -> Schema:
    """Return a schema in readable form: a Base64 Protobuf descriptor as the text of its `.proto` file.

    Raises:
        SchemaRegistryError: the text is not Protobuf; `error_code` is 42201.
        KafkaConfigurationError: a package is missing.
    """
    if schema.type != "PROTOBUF":
        return schema
    text = require_module("kafkalike.schemas.proto.proto_files", "Protobuf schemas").as_text(schema.text)
    return schema if text == schema.text else replace(schema, text=text)


def formatted(schema: Schema, wanted: str | None, resolve: Resolve) -> Schema:
    """Return a schema in a format; unchanged if the format does not apply to its type.

    Args:
        schema: a registered schema.
        wanted: `serialized`, or None.
        resolve: looks up the referenced schemas.

    Raises:
        SchemaRegistryError: the schema cannot be converted.
        KafkaConfigurationError: a package is missing.
    """
    if wanted != SERIALIZED or schema.type != "PROTOBUF":
        return schema
    files = require_module("kafkalike.schemas.proto.proto_files", "Protobuf schemas")
    return replace(schema, text=files.serialized(schema, resolve(schema)))
