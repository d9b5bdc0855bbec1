"""A request as a client sent it, checked; schemas as clients send them and as the registry keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.registration_rules import (
    DEFAULT_CONTEXT,
    RegistrationRequest,
    check_number,
    check_subject,
    prepared,
)
from kafkalike.model.schemas.schema import SCHEMA_TYPES, Reference, Resolve, Schema
from kafkalike.model.schemas.schema_rows import EVERYWHERE
from kafkalike.schemas.optional_imports import require_module

T = TypeVar("T")

NO_NUMBER = (None, -1, 0)
"""What clients send in the place of an id or a version that they do not have."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose path was understood."""

    names: Mapping[str, str]
    """Parts of the path, by the names that the route gives them."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None

    @property
    def subject(self) -> str:
        """The subject that the path names; empty where it names none."""
        given = self.names.get("subject")
        return EVERYWHERE if given is None else check_subject(given)

    @property
    def version(self) -> int | str:
        """The version that the path names: a number, or `latest`.

        Raises:
            SchemaRegistryError: 42202.
        """
        given = self.names["version"]
        if given in {"latest", "-1"}:
            return "latest"
        if not given.isascii() or not given.isdigit() or len(given) > 10:  # noqa: PLR2004 - digits of 2^31
            raise refusals.invalid_version(given)
        return check_number(int(given))

    @property
    def id(self) -> int:
        """The schema's id that the path names.

        Raises:
            SchemaRegistryError: 404, as it can be none.
        """
        given = self.names["id"]
        if not given.isascii() or not given.isdigit() or len(given) > 10:  # noqa: PLR2004 - digits of 2^31
            raise refusals.no_schema(given[:40])
        return int(given)

    def flag(self, name: str) -> bool:
        """Whether a query says `true`, in any case."""
        return self.query.get(name, "").lower() == "true"

    def page(self, found: list[T]) -> list[T]:
        """The part of a list that `offset` and `limit` ask for; a limit below 0 is none."""
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
            raise SchemaRegistryError(422, 422, f"{name} must be a whole number, not {given[:40]!r}") from None

    @property
    def prefix(self) -> str:
        """What the names of subjects must begin with."""
        given = self.query.get("subjectPrefix", "")
        return given.removeprefix(":*:").removeprefix(DEFAULT_CONTEXT)

    def object(self) -> Mapping[str, Any]:
        """The body, which must be a JSON object.

        Raises:
            SchemaRegistryError: it is not.
        """
        if not isinstance(self.body, dict):
            raise SchemaRegistryError(422, 422, "the body must be a JSON object")
        return self.body

    def wanted(self) -> RegistrationRequest:
        """The schema of the body, for the subject of the path.

        Raises:
            SchemaRegistryError: 42201 and others.
        """
        body = self.object()
        return RegistrationRequest(
            subject=self.subject,
            schema=prepared(readable(prepared(schema_in(body)))),
            normalize=self.flag("normalize"),
            id=number_in(body, "id"),
            version=number_in(body, "version"),
        )


def schema_in(body: Mapping[str, Any]) -> Schema:
    """The schema of a body.

    Raises:
        SchemaRegistryError: there is none, or it asks for what is not kept here.
    """
    kind, text, references = (body.get(name) for name in ("schemaType", "schema", "references"))
    kind = "AVRO" if kind is None else kind
    references = [] if references is None else references
    if not isinstance(text, str):
        raise refusals.invalid_schema("there is no text under 'schema'")
    if kind not in SCHEMA_TYPES:
        raise refusals.unknown_type(kind)
    for name in ("metadata", "ruleSet"):
        # Rules encrypt and check what is written; who drops them quietly writes what must not be written.
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
    return Reference(name, subject, check_number(version))


def number_in(body: Mapping[str, Any], name: str) -> int | None:
    """An id or a version of a body; None where it has none.

    Raises:
        SchemaRegistryError: it is not a whole number of a record's size.
    """
    given = body.get(name)
    if type(given) in {int, type(None)} and given in NO_NUMBER:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= refusals.MAX_ID:
        raise refusals.invalid_schema(f"{name!r} is not a whole number from 1 to {refusals.MAX_ID}: {str(given)[:40]}")
    return given


SERIALIZED: Final = "serialized"
"""A Protobuf schema as its `FileDescriptorProto` in Base64, which Confluent's Python client sends and wants back."""


def readable(schema: Schema) -> Schema:
    """A schema as people read it: a Protobuf schema in Base64 as the text of its `.proto` file; others as they are.

    Raises:
        SchemaRegistryError: it is neither; 42201.
        KafkaConfigurationError: a package is missing.
    """
    if schema.type != "PROTOBUF":
        return schema
    text = require_module("kafkalike.schemas.proto.proto_files", "Protobuf schemas").as_text(schema.text)
    return schema if text == schema.text else replace(schema, text=text)


def formatted(schema: Schema, wanted: str | None, resolve: Resolve) -> Schema:
    """The schema in a format; as it is in one that has no meaning for its type.

    Args:
        schema: a registered one.
        wanted: `serialized`, or None.
        resolve: gives what it uses.

    Raises:
        SchemaRegistryError: it cannot be brought into that format.
        KafkaConfigurationError: a package is missing.
    """
    if wanted != SERIALIZED or schema.type != "PROTOBUF":
        return schema
    files = require_module("kafkalike.schemas.proto.proto_files", "Protobuf schemas")
    return replace(schema, text=files.serialized(schema, resolve(schema)))
