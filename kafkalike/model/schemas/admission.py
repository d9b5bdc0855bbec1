"""Admission: decide which schema ids the records of a topic may have, by its settings and the registry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from kafkalike.model.names import RECORD_NAME, TOPIC_NAME, Part
from kafkalike.model.schemas.registry_state import RegistryState, SchemaEntry
from kafkalike.model.schemas.schema import Schema
from kafkalike.model.schemas.schema_rows import LIVE

HEAD: Final = 5
"""Bytes before a schema's payload: the magic byte 0 and the big-endian id."""

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def admits(state: RegistryState, topic: str, part: Part, strategy: str, schema_id: int) -> bool:
    """Return whether a record of a topic may have a schema: the strategy's subject must have it, undeleted.

    Args:
        state: the registry.
        topic: the topic's name.
        part: part of the record.
        strategy: name from `STRATEGIES`.
        schema_id: schema id of the record.
    """
    known = state.schemas.get(schema_id)
    if known is None:
        return False
    subjects = {subject for (subject, _), standing in known.uses.items() if standing == LIVE}
    if strategy == TOPIC_NAME:
        return f"{topic}-{part}" in subjects
    prefix = "" if strategy == RECORD_NAME else f"{topic}-"
    name = _name(known)
    if name is None:
        # A Protobuf schema has many messages, and only the record tells which one it is.
        return any(subject.startswith(prefix) for subject in subjects)
    return prefix + name in subjects


def admitted(state: RegistryState, topic: str, part: Part, strategy: str) -> frozenset[int]:
    """Return all ids that `admits` accepts, for callers that cannot check each record."""
    if strategy == TOPIC_NAME:
        subject = state.subject(f"{topic}-{part}")
        return frozenset(subject.versions[version].id for version in subject.live)
    return frozenset(known for known in state.schemas if admits(state, topic, part, strategy, known))


def topics_with_subjects(state: RegistryState, part: Part, strategy: str) -> set[str]:
    """Return the names of topics, existing or not, that may have their own subjects; others all have the same ids.

    Args:
        state: the registry.
        part: part of the record.
        strategy: name from `STRATEGIES`.
    """
    if strategy == TOPIC_NAME:
        end = f"-{part}"
        return {subject.removesuffix(end) for subject in state.subjects if subject.endswith(end)}
    if strategy == RECORD_NAME:
        return set()
    return {subject[:at] for subject in state.subjects for at, letter in enumerate(subject) if letter == "-"}


def heads_of(column: Iterable[bytes | None]) -> set[bytes]:
    """Return the distinct first bytes of keys or values; nulls are ignored."""
    return {content[:HEAD] for content in column if content is not None}


def id_of(head: bytes) -> int | None:
    """Return the schema id in these first bytes; None if they do not contain one."""
    return int.from_bytes(head[1:HEAD], "big") if len(head) >= HEAD and head[0] == 0 else None


def refusal(state: RegistryState, topic: str, part: Part, strategy: str, head: bytes) -> str:
    """Return the reason why a key or value with these first bytes is rejected."""
    setting = f"kafkalike.{part}.schema.validation=true"
    schema_id = id_of(head)
    if schema_id is None:
        return f"its {part} does not begin with the magic byte 0 and a schema's id, which {setting} asks for"
    if state.schema(schema_id) is None:
        return f"its {part} has schema {schema_id}, which the registry does not have; {setting}"
    of = f" {topic + '-' + part!r}" if strategy == TOPIC_NAME else ""
    return f"its {part} has schema {schema_id}, which is not of the topic's subject{of} ({strategy}); {setting}"


def _name(known: SchemaEntry) -> str | None:
    """Return a record's full name by Confluent's strategies; None for Protobuf, and for a schema without a name."""
    schema = known.named.schema
    return None if schema is None or schema.type == "PROTOBUF" else _record_name(schema)


def _record_name(schema: Schema) -> str | None:
    try:
        found = json.loads(schema.text)
    except (ValueError, RecursionError):
        return None
    if schema.type == "JSON":
        return _text(found.get("title")) if isinstance(found, dict) else None
    return _avro_name(found) if isinstance(found, dict) else _text(found)


def _avro_name(found: Mapping[str, object]) -> str | None:
    name, space, kind = _text(found.get("name")), _text(found.get("namespace")), _text(found.get("type"))
    if name is None or kind in _PRIMITIVE:
        return kind
    return name if "." in name or not space else f"{space}.{name}"


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None
