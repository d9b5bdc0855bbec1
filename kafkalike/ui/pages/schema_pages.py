"""Pages of schemas: subjects, two versions side by side with their differences, checks and registration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import KafkaError, SchemaRegistryError
from kafkalike.schemas.cluster_registry import Registry
from kafkalike.schemas.confluent_types import RegisteredSchema, Schema
from kafkalike.ui.page_request import form, moved, number, optional, page, paged, query_parameter, site
from kafkalike.ui.value_tree import JsonObject, exact_json, json_text

SUBJECTS: Final = 100
"""Maximum number of subjects of a page."""

MOST_LINES: Final = 3_000
"""Maximum number of lines of a schema that are compared; longer ones are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffRow:
    """A line of two texts side by side; None where one has no line."""

    left: str | None
    right: str | None
    changed: bool
    """True if the line is added, removed or changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A field that two schemas do not share, or not with the same type."""

    path: str
    before: str | None
    """Definition in the first schema; None for an added field."""
    after: str | None
    """Definition in the second schema; None for a removed field."""


def schemas(request: Request) -> Response:
    """List the subjects of the registry."""
    registry = site(request).view.registry
    wanted = query_parameter(request, "q").lower()
    subjects = [name for name in registry.get_subjects() if wanted in name.lower()]
    some, at, pages = paged(request, subjects, SUBJECTS)
    rows = [
        (name, newest, registry.registered_ms(name).get(newest.version or 0), _level(registry, name))
        for name in some
        for newest in [registry.get_latest_version(name)]
    ]
    return page(
        request,
        "schemas.html",
        rows=rows,
        count=len(subjects),
        at=at,
        pages=pages,
        q=query_parameter(request, "q"),
        level=registry.get_compatibility(),
        said=query_parameter(request, "said"),
    )


def _level(registry: Registry, subject: str) -> str:
    """Return the compatibility level in effect for a subject."""
    with suppress(SchemaRegistryError):
        return registry.get_compatibility(subject)
    return registry.get_compatibility()


def schema(request: Request) -> Response:
    """Show a subject: its versions, and two of them side by side; by a schema's id, the subject that has it."""
    registry, subject = site(request).view.registry, query_parameter(request, "subject")
    used = optional(request, "id")
    if not subject and used is not None:
        places = registry.get_schema_versions(used)
        if not places:
            raise SchemaRegistryError(404, 40403, f"Schema {used} not found")
        place = places[-1]
        return moved("/schema", subject=place.subject, a=place.version, b=place.version)
    return _subject_page(request, subject)


def _subject_page(
    request: Request,
    subject: str,
    draft: Schema | None = None,
    problems: Sequence[str] | None = None,
    status: int = 200,
) -> Response:
    """Render the page of a subject.

    Args:
        request: its parameters `a` and `b` are the versions to compare; without them the newest two are.
        subject: a subject, which has no version if it is new.
        draft: the next version, which was checked.
        problems: why the draft cannot be the next version.
        status: HTTP status.
    """
    registry = site(request).view.registry
    known = draft is None or subject in registry.get_subjects()
    versions = [registry.get_version(subject, one) for one in registry.get_versions(subject)] if known else []
    numbers = [one.version or 0 for one in versions]
    newest = numbers[-1] if versions else 0
    first, second = (
        number(request, "a", numbers[-2] if len(versions) > 1 else newest or 0),
        number(request, "b", newest or 0),
    )
    for one in (first, second):
        if versions and one not in numbers:
            raise SchemaRegistryError(404, 40402, f"Version {one} of {subject} not found.")
    chosen = {one.version: one for one in versions}
    before, after = chosen.get(first), chosen.get(second)
    return page(
        request,
        "schema.html",
        status,
        subject=subject,
        versions=versions[::-1],
        times=registry.registered_ms(subject) if versions else {},
        level=_level(registry, subject),
        before=before,
        after=after,
        rows=list(side_by_side(pretty(before), pretty(after))) if before and after else [],
        fields=list(field_differences(before, after, registry)) if before and after else [],
        reads=_reads(before, after, registry) if before and after and before.version != after.version else [],
        draft=pretty(versions[-1]) if draft is None and versions else "" if draft is None else draft.schema_str,
        draft_type=None if draft is None else draft.schema_type,
        problems=problems,
        said=query_parameter(request, "said"),
    )


def check_schema(request: Request) -> Response:
    """Check or register the next version of a subject; or show the form again with the reasons against it."""
    registry, given = site(request).view.registry, form(request)
    subject, text = given.get("subject", "").strip(), given.get("schema", "")
    wanted = Schema(text, given.get("type", "AVRO"))
    registers = given.get("action") == "register"
    try:
        if registers:
            number_ = registry.register_schema(subject, wanted)
            return moved("/schema", f"Registered the schema with id {number_}.", subject=subject)
        problems = list(registry.problems(subject, wanted))
    except SchemaRegistryError as error:
        problems = [error.error_message]
    return _subject_page(request, subject, wanted, problems, 400 if registers else 200)


def pretty(registered: RegisteredSchema) -> str:
    """Return a schema on several lines: JSON indented, and Protobuf as the text of its file."""
    text = registered.schema.schema_str
    try:
        if registered.schema.schema_type != "PROTOBUF":
            return json_text(exact_json(text), "  ")
        from kafkalike.schemas.proto.proto_files import load_proto, print_proto

        return print_proto(load_proto(text)).rstrip()
    except (KafkaError, ImportError, ValueError, RecursionError):
        return text


def side_by_side(before: str, after: str) -> Iterator[DiffRow]:
    """Return the lines of two texts next to each other.

    Args:
        before: the left text.
        after: the right text.
    """
    left, right = before.splitlines()[:MOST_LINES], after.splitlines()[:MOST_LINES]
    for kind, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for at in range(max(b - a, d - c)):
            yield DiffRow(
                left=left[a + at] if a + at < b else None,
                right=right[c + at] if c + at < d else None,
                changed=kind != "equal",
            )


def field_differences(
    before: RegisteredSchema, after: RegisteredSchema, registry: Registry
) -> Iterator[FieldDifference]:
    """Return the fields that were added, removed or changed, by path."""
    old, new = _fields(before, registry), _fields(after, registry)
    for path in [*old, *(path for path in new if path not in old)]:
        if old.get(path) != new.get(path):
            yield FieldDifference(path=path, before=old.get(path), after=new.get(path))


def _fields(registered: RegisteredSchema, registry: Registry) -> Mapping[str, str]:
    """Return definitions of fields by path; empty if the schema cannot be read."""
    found: dict[str, str] = {}
    try:
        if registered.schema.schema_type == "PROTOBUF":
            _protobuf_fields(registered, registry, found)
        else:
            walk = _avro_fields if registered.schema.schema_type == "AVRO" else _json_fields
            walk(exact_json(registered.schema.schema_str), "", found)
    except (KafkaError, ImportError, LookupError, TypeError, ValueError, RecursionError):
        return {}
    return found


def _avro_fields(of: Any, path: str, found: dict[str, str]) -> None:  # noqa: ANN401 - any JSON
    if isinstance(of, list):
        for branch in of:
            _avro_fields(branch, path, found)
        return
    if not isinstance(of, JsonObject):
        return
    parts = dict(of)
    for name in ("items", "values", "type"):
        _avro_fields(parts.get(name), path, found)
    for field in parts.get("fields", []):
        attributes = dict(field)
        inner = f"{path}.{attributes['name']}" if path else str(attributes["name"])
        default = f", default {json_text(attributes['default'])}" if "default" in attributes else ""
        found[inner] = _avro_type(attributes.get("type")) + default
        _avro_fields(attributes.get("type"), inner, found)


def _avro_type(of: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a type in a few words."""
    if isinstance(of, list):
        return " or ".join(_avro_type(branch) for branch in of)
    if not isinstance(of, JsonObject):
        return str(of)
    parts = dict(of)
    kind, name = parts.get("type"), parts.get("name")
    if kind in {"array", "map"}:
        return f"{kind} of {_avro_type(parts.get('items' if kind == 'array' else 'values'))}"
    if kind == "enum":
        return f"enum {name}: {', '.join(map(str, parts.get('symbols', [])))}"
    details = [f"{key} {parts[key]}" for key in ("logicalType", "precision", "scale", "size") if key in parts]
    said = f"{_avro_type(kind)} {name}" if name else _avro_type(kind)
    return f"{said} ({', '.join(details)})" if details else said


def _json_fields(of: Any, path: str, found: dict[str, str]) -> None:  # noqa: ANN401 - any JSON
    if not isinstance(of, JsonObject):
        return
    parts = dict(of)
    required = parts.get("required", [])
    _json_fields(parts.get("items"), f"{path}[]", found)
    properties = parts.get("properties")
    for name, rule in properties if isinstance(properties, JsonObject) else ():
        inner = f"{path}.{name}" if path else name
        own = (
            [(key, value) for key, value in rule if key not in {"properties", "items"}]
            if isinstance(rule, JsonObject)
            else rule
        )
        said = json_text(JsonObject(own) if isinstance(own, list) else own)
        found[inner] = f"{said}, required" if name in required else said
        _json_fields(rule, inner, found)


def _protobuf_fields(registered: RegisteredSchema, registry: Registry, found: dict[str, str]) -> None:
    from kafkalike.schemas.proto.proto_files import build_file
    from kafkalike.schemas.schema_source import value_of

    own = value_of(registered.schema)

    def walk(message: Any) -> None:  # noqa: ANN401 - a descriptor
        for field in message.fields:
            of = field.message_type or field.enum_type
            kind = of.full_name if of is not None else _PROTOBUF_TYPES.get(field.type, str(field.type))
            found[f"{message.full_name}.{field.name}"] = (
                f"{'repeated ' if field.is_repeated else ''}{kind} = {field.number}"
            )
        for nested in message.nested_types:
            walk(nested)

    for message in build_file(own, registry.referenced(own)).message_types_by_name.values():
        walk(message)


_PROTOBUF_TYPES: Final = dict(
    enumerate(
        (
            *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group"),
            *("message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
        ),
        1,
    )
)
"""Names of Protobuf's types by their number in a descriptor."""


def _reads(before: RegisteredSchema, after: RegisteredSchema, registry: Registry) -> list[tuple[Any, Any, list[str]]]:
    """Return reader, writer and problems for both directions; empty if they have different types."""
    from kafkalike.schemas.format_checks import CHECKS
    from kafkalike.schemas.schema_source import value_of

    if before.schema.schema_type != after.schema.schema_type:
        return []
    return [
        (
            reader.version,
            writer.version,
            list(CHECKS.problems(value_of(reader.schema), value_of(writer.schema), registry.referenced)),
        )
        for reader, writer in ((after, before), (before, after))
    ]
