"""Registration: plan the rows that give a schema an id and a version of a subject, or reject it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas import refusals
from kafkalike.model.schemas import schema as schemas
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema_rows import LIVE, SCHEMA, SOFT, Named, SchemaRow, schema_value

MAX_TEXT: Final = 1_000_000
"""Bytes of a schema's text; it fits a record of Kafka's default size, in which Confluent's registry keeps it."""

MAX_REFERENCES: Final = 1_000
MAX_SUBJECT: Final = 1_024
"""Most characters of a subject's name."""

DEFAULT_CONTEXT: Final = ":.:"

Plan = tuple[Sequence[SchemaRow], schemas.Registered]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRequest:
    """A schema to register as a version of a subject."""

    subject: str
    schema: schemas.Schema
    """The schema as returned by `prepared`."""
    normalize: bool = False
    id: int | None = None
    """The required id; only allowed in mode IMPORT."""
    version: int | None = None
    """The required number of the version."""
    guid: str | None = None
    """GUID in the registry that the schema comes from."""
    deleted: bool = False
    """Soft-delete the version at once; only with an id."""


def check_subject(subject: object) -> str:
    """Return a subject's name without the name of the default context.

    Raises:
        SchemaRegistryError: it is not a valid name; 42208.
    """
    if not isinstance(subject, str) or not subject:
        raise refusals.invalid_subject(f"it must be a text that is not empty, not {str(subject)[:40]!r}")
    name = subject.removeprefix(DEFAULT_CONTEXT)
    if name.startswith(":.") or name == ":*:" or not name:
        raise refusals.invalid_subject(f"{name[:80]!r} is in a context, and there is only the default one here")
    if len(name) > MAX_SUBJECT:
        raise refusals.invalid_subject(f"it has {len(name)} characters, at most {MAX_SUBJECT} are allowed")
    if not name.isprintable():
        raise refusals.invalid_subject(f"{name[:80]!r} has characters that cannot be printed")
    return name


def check_number(given: object) -> int:
    """Return the number of a version.

    Raises:
        SchemaRegistryError: it is not a valid number; 42202.
    """
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= refusals.MAX_ID:
        raise refusals.invalid_version(given)
    return given


def prepared(schema: schemas.Schema, *, ordered: bool = True) -> schemas.Schema:
    """Return a schema with its text in the form in which it is kept; see `compact`.

    Raises:
        SchemaRegistryError: it cannot be a schema; 42201.
    """
    if schema.type not in schemas.SCHEMA_TYPES:
        raise refusals.unknown_type(schema.type)
    if not schema.text.strip():
        raise refusals.invalid_schema("it is empty")
    if len(schema.text) > MAX_TEXT:
        raise refusals.invalid_schema(f"it has {len(schema.text)} characters, at most {MAX_TEXT} are allowed")
    if len(schema.references) > MAX_REFERENCES:
        raise refusals.invalid_schema(f"{len(schema.references)} references, at most {MAX_REFERENCES} are allowed")
    names: set[str] = set()
    for reference in schema.references:
        if not reference.name.isprintable() or not reference.name:
            raise refusals.invalid_schema(f"a reference has the name {reference.name[:40]!r}")
        if reference.name in names:
            raise refusals.invalid_schema(f"two references have the name {reference.name[:80]!r}")
        names.add(reference.name)
    used = tuple(
        schemas.Reference(r.name, check_subject(r.subject), check_number(r.version)) for r in schema.references
    )
    try:
        held = schemas.compact(replace(schema, references=used), ordered=ordered)
    except (ValueError, RecursionError) as cause:
        raise refusals.invalid_schema(_said(cause)) from cause
    if len(held.text.encode()) > MAX_TEXT:
        raise refusals.invalid_schema(f"it has {len(held.text.encode())} bytes, at most {MAX_TEXT} are allowed")
    return held


def register(state: RegistryState, wanted: RegistrationRequest, checks: schemas.Checks, now_ms: int) -> Plan:
    """Plan to register a schema as a version of a subject.

    Args:
        state: the current registry.
        wanted: the schema.
        checks: checks of its type.
        now_ms: time of the rows.

    Returns:
        The rows (none if the subject already has the schema) and the version.

    Raises:
        SchemaRegistryError: the request is rejected.
    """
    subject, schema = wanted.subject, _normalized(state, wanted, checks)
    known = find_registered(state, subject, schema)
    if known is not None and wanted.version in {None, known.version} and wanted.id in {None, known.id}:
        return [], known
    check_mode(state, subject, importing=wanted.id is not None)
    _check_schema(state, schema, checks)
    _check_type(state, subject, schema)
    if wanted.id is None:
        problems = incompatibilities(state, subject, schema, checks)
        if problems:
            raise refusals.incompatible(subject, problems)
    return _rows(state, replace(wanted, schema=schema), now_ms)


def take_over(state: RegistryState, wanted: RegistrationRequest, checks: schemas.Checks, now_ms: int) -> Plan:
    """Plan to register a schema with its id and version from another registry.

    Args:
        state: the current registry.
        wanted: the schema, with its id and version.
        checks: checks of its type. Rules that readers do not depend on are not checked.
        now_ms: time of the rows.

    Raises:
        SchemaRegistryError: the request is rejected.
    """
    _check_references(state, wanted.schema)
    _check_type(state, wanted.subject, wanted.schema)
    try:
        checks.problems(wanted.schema, wanted.schema, state.referenced)
    except (ValueError, RecursionError) as cause:
        raise refusals.invalid_schema(_said(cause)) from cause
    return _rows(state, wanted, now_ms)


def find_registered(
    state: RegistryState, subject: str, schema: schemas.Schema, *, deleted: bool = False
) -> schemas.Registered | None:
    """Return the newest version of a subject that has a schema.

    Args:
        state: the current registry.
        subject: its name.
        schema: the schema as returned by `prepared`.
        deleted: include soft-deleted versions.
    """
    of_subject = state.subject(subject)
    versions = (of_subject.kept if deleted else of_subject.live)[::-1]
    known = state.schemas.get(state.ids.get(schemas.fingerprint(schema), 0))
    for version in versions:
        if known is not None and (subject, version) in known.uses:
            return state.registered(subject, version, deleted=deleted)
    for version in versions if schema.type == "AVRO" else ():
        held = state.registered(subject, version, deleted=deleted)
        if held is not None and _kept_otherwise(held.schema, schema):
            return held
    return None


def _kept_otherwise(held: schemas.Schema, schema: schemas.Schema) -> bool:
    """Return whether another registry or an older release kept the same Avro schema in another form."""
    try:
        return schemas.compact(held) == schema
    except (ValueError, RecursionError):
        return False


def look_up(
    state: RegistryState, wanted: RegistrationRequest, checks: schemas.Checks, *, deleted: bool = False
) -> schemas.Registered:
    """Return the version of a subject that has a schema.

    Raises:
        SchemaRegistryError: the subject does not exist, 40401, or does not have the schema, 40403.
    """
    known = state.subject(wanted.subject)
    if not (known.kept if deleted else known.live):
        raise refusals.no_subject(wanted.subject)
    held = find_registered(state, wanted.subject, wanted.schema, deleted=deleted)
    if held is None:
        held = find_registered(state, wanted.subject, _normalized(state, wanted, checks), deleted=deleted)
    if held is None:
        raise refusals.no_schema()
    return held


def check_mode(state: RegistryState, subject: str, *, importing: bool = False) -> None:
    """Reject a change that the mode of a subject forbids.

    Args:
        state: the current registry.
        subject: the subject.
        importing: True if the request contains the schema's id.

    Raises:
        SchemaRegistryError: 42205.
    """
    mode = state.mode(subject)
    if mode in schemas.READ_ONLY_MODES:
        raise refusals.not_permitted(f"Subject {subject} is in read-only mode")
    if importing and mode != schemas.IMPORT:
        raise refusals.not_permitted(f"Subject {subject} is not in import mode")
    if not importing and mode != schemas.READWRITE:
        raise refusals.not_permitted(f"Subject {subject} is not in read-write mode")


def incompatibilities(
    state: RegistryState,
    subject: str,
    schema: schemas.Schema,
    checks: schemas.Checks,
    against: Sequence[schemas.Registered] | None = None,
) -> list[str]:
    """Return the incompatibilities of a schema under the subject's level; empty if it may be the next version.

    Args:
        state: the current registry.
        subject: the subject.
        schema: the schema as returned by `prepared`.
        checks: checks of its type.
        against: versions to compare with; by default the versions that the level requires.
    """
    demands = schemas.LEVELS[state.level(subject)]
    if not (demands.backward or demands.forward):
        return []
    if against is None:
        live = state.subject(subject).live
        versions = live[::-1] if demands.transitive else live[-1:]
        against = [known for known in (state.registered(subject, v) for v in versions) if known is not None]
    found_out: list[str] = []
    for old in against:
        if old.schema.type != schema.type:
            found_out.append(f"version {old.version} is {old.schema.type}, not {schema.type}")
            continue
        if demands.backward:
            problems = checks.problems(schema, old.schema, state.referenced)
            found_out += [f"the new schema cannot read what version {old.version} wrote: {p}" for p in problems]
        if demands.forward:
            problems = checks.problems(old.schema, schema, state.referenced)
            found_out += [f"version {old.version} cannot read what the new schema writes: {p}" for p in problems]
        if found_out:
            break
    return found_out


def examined(
    state: RegistryState, wanted: RegistrationRequest, checks: schemas.Checks, version: int | str | None
) -> list[str]:
    """Return the incompatibilities of a schema as the next version of a subject; see `incompatibilities`.

    Args:
        state: the current registry.
        wanted: the schema.
        checks: checks of its type.
        version: the version to compare with, or `latest`; None for all that the level requires.

    Raises:
        SchemaRegistryError: the schema is invalid, or the version does not exist.
    """
    schema = _normalized(state, wanted, checks)
    _check_schema(state, schema, checks)
    if version is None:
        return incompatibilities(state, wanted.subject, schema, checks)
    if version == "latest":
        latest = state.latest(wanted.subject)
        return incompatibilities(state, wanted.subject, schema, checks, [] if latest is None else [latest])
    if not state.subject(wanted.subject).live:
        raise refusals.no_subject(wanted.subject)
    old = state.registered(wanted.subject, check_number(version))
    if old is None:
        raise refusals.no_version(version)
    return incompatibilities(state, wanted.subject, schema, checks, [old])


def _normalized(state: RegistryState, wanted: RegistrationRequest, checks: schemas.Checks) -> schemas.Schema:
    if not wanted.normalize and not state.normalizes(wanted.subject):
        return wanted.schema
    try:
        return checks.normalized(wanted.schema)
    except (ValueError, RecursionError) as cause:
        raise refusals.invalid_schema(_said(cause)) from cause


def _check_schema(state: RegistryState, schema: schemas.Schema, checks: schemas.Checks) -> None:
    _check_references(state, schema)
    try:
        checks.check(schema, state.referenced)
    except (ValueError, RecursionError) as cause:
        raise refusals.invalid_schema(_said(cause)) from cause


def _check_references(state: RegistryState, schema: schemas.Schema) -> None:
    for reference in schema.references:
        if state.registered(reference.subject, reference.version, deleted=True) is None:
            raise refusals.invalid_schema(
                f"it refers to version {reference.version} of subject '{reference.subject}', which is not there"
            )


def _check_type(state: RegistryState, subject: str, schema: schemas.Schema) -> None:
    kept = state.subject(subject).kept
    last = state.registered(subject, kept[-1], deleted=True) if kept else None
    if last is not None and last.schema.type != schema.type:
        raise refusals.another_type(subject, last.schema.type, schema.type)


def _rows(state: RegistryState, wanted: RegistrationRequest, now_ms: int) -> Plan:
    subject, schema, mark = wanted.subject, wanted.schema, schemas.fingerprint(wanted.schema)
    known = state.subject(subject)
    owned, seq = state.ids.get(mark), state.seq + 1
    # Row numbers are never reused, even if a damaged table has lost its last ids.
    schema_id = wanted.id or owned or max(state.last_id + 1, seq)
    version = wanted.version or known.last + 1
    if max(schema_id, version) > refusals.MAX_ID:
        raise refusals.not_permitted(f"ids and versions above {refusals.MAX_ID} do not exist")
    if owned not in {None, schema_id}:
        raise refusals.not_permitted(f"the schema has id {owned} permanently, and cannot have id {schema_id} too")
    if owned is None and schema_id in state.schemas:
        raise refusals.not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
    before = known.versions.get(version)
    if before is not None and before.id != schema_id:
        raise refusals.not_permitted(f"version {version} of subject {subject} has id {before.id} permanently")
    if wanted.id is None and version != known.last + 1:
        raise refusals.invalid_schema(f"version {version} is not the next version, which is {known.last + 1}")
    standing = SOFT if wanted.deleted else LIVE
    result = schemas.Registered(subject, version, schema_id, schema, deleted=wanted.deleted)
    if before is not None and before.standing == standing:
        return [], result
    guid = (wanted.guid or schemas.guid_of(mark)) if owned is None else state.schemas[schema_id].named.guid
    if state.guids.get(guid, schema_id) != schema_id:
        raise refusals.not_permitted(f"GUID {guid} belongs to another schema")
    value = schema_value(Named(schema_id, mark, guid, schema), standing, state.last_id)
    row = SchemaRow(
        seq=seq, kind=SCHEMA, subject=subject, version=version, schema_id=schema_id, value=value, time_ms=now_ms
    )
    return [row], result


def _said(cause: Exception) -> str:
    if isinstance(cause, RecursionError):
        return "it is nested too deeply"
    said = cause.error_message if isinstance(cause, SchemaRegistryError) else str(cause)
    return " ".join(said.split())[:1000] or type(cause).__name__
