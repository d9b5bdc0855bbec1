"""Records of Confluent's `_schemas` topic: plan the import of an exported registry, and export a registry.

A line is a record's key and value, both JSON, with a tab between, as `kafka-console-consumer --property print.key=true`
prints them. A value `null` deletes earlier records of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.row_value import as_text, as_whole
from kafkalike.model.schemas import refusals, registration_rules, schema
from kafkalike.model.schemas import subject_changes as settings
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema_rows import EVERYWHERE, Config, SchemaRow
from kafkalike.model.schemas.subject_changes import NOT_KEPT, check_level, check_mode_name

_UNREADABLE: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError, SchemaRegistryError)


@dataclass(slots=True)
class Contents:
    """The state that the records of a `_schemas` topic describe."""

    schemas: dict[tuple[str, int], registration_rules.RegistrationRequest] = field(default_factory=dict)
    """By subject and version."""
    configs: dict[str, Config] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)


def read_records(lines: Iterable[str]) -> Contents:
    """Return the state that the lines of a `_schemas` topic describe.

    Args:
        lines: the topic from its start, in order; empty lines are ignored.

    Raises:
        SchemaRegistryError: a line cannot be read, or requires an unsupported feature; the message names the line.
    """
    contents = Contents()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            key_text, tab, value_text = line.strip().partition("\t")
            if not tab:
                raise ValueError("a tab between key and value is missing")
            _take(contents, schema.parsed_json(key_text), schema.parsed_json(value_text))
        except _UNREADABLE as cause:
            said = cause.error_message if isinstance(cause, SchemaRegistryError) else str(cause)
            raise SchemaRegistryError(422, 42201, f"line {number}: {said}: {line.strip()[:80]}") from cause
    return contents


def _take(contents: Contents, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
    kind = as_text(key["keytype"], "keytype")
    if kind == "NOOP":
        return
    named = key.get("subject")
    subject = EVERYWHERE if named is None and kind in {"CONFIG", "MODE"} else registration_rules.check_subject(named)
    if kind == "SCHEMA":
        where = (subject, registration_rules.check_number(key["version"]))
        contents.schemas.pop(where, None)
        if value is not None:
            contents.schemas[where] = _wanted(*where, value)
    elif kind == "CONFIG":
        contents.configs.pop(subject, None)
        if value is not None:
            contents.configs[subject] = _config(value)
    elif kind == "MODE":
        contents.modes.pop(subject, None)
        if value is not None:
            contents.modes[subject] = check_mode_name(value["mode"])
    elif kind in {"DELETE_SUBJECT", "CLEAR_SUBJECT"}:
        if value is not None:
            _delete(contents, subject, as_whole(value.get("version", 0), "version"), softly=kind == "DELETE_SUBJECT")
    else:
        raise ValueError(f"records of keytype {kind[:40]!r} are not supported")


def _delete(contents: Contents, subject: str, up_to: int, *, softly: bool) -> None:
    for where, wanted in list(contents.schemas.items()):
        if where[0] == subject and (where[1] <= up_to or not softly):
            if softly:
                contents.schemas[where] = replace(wanted, deleted=True)
            else:
                del contents.schemas[where]
    contents.configs.pop(subject, None)
    contents.modes.pop(subject, None)


def _wanted(subject: str, version: int, value: Mapping[str, Any]) -> registration_rules.RegistrationRequest:
    kind = value.get("schemaType") or "AVRO"
    if kind not in schema.SCHEMA_TYPES:
        raise refusals.unknown_type(kind)
    for name in ("metadata", "ruleSet"):
        if value.get(name):
            raise refusals.invalid_schema(f"{name} is not supported here")
    references = tuple(
        schema.Reference(
            as_text(r["name"], "name"), as_text(r["subject"], "subject"), registration_rules.check_number(r["version"])
        )
        for r in value.get("references") or ()
    )
    guid = value.get("guid")
    return registration_rules.RegistrationRequest(
        subject=subject,
        version=version,
        id=as_whole(value["id"], "id", at_least=1),
        schema=registration_rules.prepared(
            schema.Schema(kind, as_text(value["schema"], "schema"), references), ordered=False
        ),
        deleted=bool(value.get("deleted")),
        guid=None if guid is None else as_text(guid, "guid"),
    )


def _config(value: Mapping[str, Any]) -> Config:
    refused = [name for name in NOT_KEPT if value.get(name)]
    if refused:
        raise refusals.invalid_schema(f"{', '.join(refused)} is not supported here")
    level, normalize = value.get("compatibilityLevel"), value.get("normalize")
    return Config(None if level is None else check_level(level), None if normalize is None else bool(normalize))


def written_records(state: RegistryState, prefix: str = "") -> Iterator[str]:
    """Yield the registry as lines of a `_schemas` topic: settings, then schemas by id.

    Args:
        state: the current registry.
        prefix: only subjects with this prefix and the schemas that they refer to; empty for everything.
    """
    for subject, config in sorted(state.configs.items()):
        if subject.startswith(prefix):
            named = subject or None
            held: dict[str, Any] = {"subject": named, "compatibilityLevel": config.level}
            if config.normalize is not None:
                held["normalize"] = config.normalize
            yield _line({"keytype": "CONFIG", "subject": named, "magic": 0}, held)
    for subject, mode in sorted(state.modes.items()):
        if subject.startswith(prefix):
            named = subject or None
            yield _line({"keytype": "MODE", "subject": named, "magic": 0}, {"subject": named, "mode": mode})
    for where in _needed(state, prefix):
        yield _schema_line(state, *where)


def _needed(state: RegistryState, prefix: str) -> list[tuple[str, int]]:
    waiting = [
        (name, version)
        for name, subject in state.subjects.items()
        if name.startswith(prefix)
        for version in subject.kept
    ]
    found: dict[tuple[str, int], int] = {}
    while waiting:
        where = waiting.pop()
        known = state.registered(*where, deleted=True)
        if known is not None and where not in found:
            found[where] = known.id
            waiting += [(r.subject, r.version) for r in known.schema.references]
    return sorted(found, key=lambda where: (found[where], where))


def _schema_line(state: RegistryState, subject: str, version: int) -> str:
    known = state.registered(subject, version, deleted=True)
    assert known is not None
    held: dict[str, Any] = {"subject": subject, "version": version, "id": known.id}
    if known.schema.type != "AVRO":
        held["schemaType"] = known.schema.type
    if known.schema.references:
        held["references"] = [
            {"name": r.name, "subject": r.subject, "version": r.version} for r in known.schema.references
        ]
    held |= {"schema": known.schema.text, "deleted": known.deleted}
    named = state.schemas[known.id].named
    if named.guid != schema.guid_of(named.mark):
        held["guid"] = named.guid
    return _line({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}, held)


def _line(key: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    return f"{schema.json_text(key)}\t{schema.json_text(value)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The effect of an import."""

    versions: int
    """Versions that are new here, or change their state."""
    known: int
    """Versions that exist here already."""
    settings: int
    """Levels and modes that change."""


def import_all(
    state: RegistryState, contents: Contents, checks: schema.Checks, now_ms: int
) -> tuple[Sequence[SchemaRow], Imported]:
    """Plan to import schemas with their ids and versions, and levels and modes.

    Compatibility is not checked, because the other registry has checked it.

    Args:
        state: the current registry.
        contents: contents of the other registry.
        checks: checks of schema types.
        now_ms: time of the rows.

    Raises:
        SchemaRegistryError: an id or a version belongs to another schema here, a referenced schema is missing, or a
            mode forbids the change; 42205, 42201, 409.
    """
    rows: list[SchemaRow] = []
    known = 0
    waiting = sorted(
        contents.schemas.values(), key=lambda wanted: (wanted.id or 0, wanted.subject, wanted.version or 0)
    )
    for wanted in _in_order(waiting):
        made, _ = registration_rules.take_over(state, wanted, checks, now_ms)
        if made and state.mode(wanted.subject) in schema.READ_ONLY_MODES:
            raise refusals.not_permitted(f"Subject {wanted.subject} is in read-only mode")
        rows += made
        known += not made
        state = state.applied(made)
    versions = len(rows)
    for subject, config in contents.configs.items():
        made, _ = settings.set_config(state, subject, config, now_ms)
        rows, state = [*rows, *made], state.applied(made)
    for subject, mode in contents.modes.items():
        made, _ = settings.set_mode(state, subject, mode, now_ms, force=True)
        rows, state = [*rows, *made], state.applied(made)
    return rows, Imported(versions=versions, known=known, settings=len(rows) - versions)


def _in_order(
    waiting: Sequence[registration_rules.RegistrationRequest],
) -> list[registration_rules.RegistrationRequest]:
    """Return the requests in the order of their references."""
    there = {(w.subject, w.version) for w in waiting}
    done: set[tuple[str, int | None]] = set()
    order: list[registration_rules.RegistrationRequest] = []
    while waiting:
        later = []
        for wanted in waiting:
            needed = {(r.subject, r.version) for r in wanted.schema.references} & there
            if needed <= done:
                order.append(wanted)
                done.add((wanted.subject, wanted.version))
            else:
                later.append(wanted)
        if len(later) == len(waiting):
            names = ", ".join(f"version {w.version} of subject {w.subject}" for w in later[:3])
            raise refusals.invalid_schema(f"schemas refer to each other in a circle: {names}")
        waiting = later
    return order
