"""Subject changes: plan the rows that delete a subject or a version, or set its level or mode; or reject the request.

A soft deletion hides the version, but records with its id can still be read. A permanent one removes the schema's text
with its last version. Neither its id nor the number of the version is given to another schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalike.model.schemas import refusals, schema_rows
from kafkalike.model.schemas.registration_rules import check_number
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import FORWARD, IMPORT, LEVELS, MODES, READ_ONLY_MODES


def delete_subject(
    state: RegistryState, subject: str, now_ms: int, *, permanent: bool
) -> tuple[Sequence[schema_rows.SchemaRow], list[int]]:
    """Plan to delete all versions of a subject, and by a soft deletion also its level and mode.

    Args:
        state: the current registry.
        subject: its name.
        now_ms: time of the rows.
        permanent: delete permanently; the subject must have been soft-deleted before.

    Returns:
        The rows, and the numbers of the versions.

    Raises:
        SchemaRegistryError: the request is rejected: 40401, 40404, 40405, 42205, 42206.
    """
    _check_writable(state, subject)
    known = state.subject(subject)
    if not known.kept:
        raise refusals.no_subject(subject)
    if permanent and known.live:
        raise refusals.subject_not_soft_deleted(subject)
    if not permanent and not known.live:
        raise refusals.subject_soft_deleted(subject)
    versions = known.kept if permanent else known.live
    for version in versions:
        _check_unused(state, subject, version, permanent=permanent)
    return _rows(state, subject, versions, now_ms, permanent=permanent), list(versions)


def delete_version(
    state: RegistryState, subject: str, version: int | str, now_ms: int, *, permanent: bool
) -> tuple[Sequence[schema_rows.SchemaRow], int]:
    """Plan to delete one version; the soft deletion of the last one also deletes the subject's level and mode.

    Args:
        state: the current registry.
        subject: its name.
        version: a number, or `latest`.
        now_ms: time of the row.
        permanent: delete permanently; the version must have been soft-deleted before.

    Returns:
        The rows, and the number of the version.

    Raises:
        SchemaRegistryError: the request is rejected: 40401, 40402, 40406, 40407, 42205, 42206.
    """
    _check_writable(state, subject)
    known = state.subject(subject)
    if not known.kept:
        raise refusals.no_subject(subject)
    candidates = known.kept if permanent else known.live
    if version == "latest":
        if not candidates:
            raise refusals.no_version("latest")
        number = candidates[-1]
    else:
        number = check_number(version)
    found = state.registered(subject, number, deleted=True)
    if found is None:
        raise refusals.no_version(number)
    if permanent and not found.deleted:
        raise refusals.version_not_soft_deleted(subject, number)
    if not permanent and found.deleted:
        raise refusals.version_soft_deleted(subject, number)
    _check_unused(state, subject, number, permanent=permanent)
    return _rows(state, subject, [number], now_ms, permanent=permanent), number


def referrers(state: RegistryState, subject: str, version: int, *, deleted: bool = False) -> list[int]:
    """Return the ids of the schemas that refer to a version.

    Args:
        state: the current registry.
        subject: subject of the version.
        version: its number.
        deleted: include schemas with only soft-deleted versions.
    """
    ids = state.referrers.get((subject, version))
    return sorted(i for i in ids or () if deleted or schema_rows.LIVE in state.schemas[i].uses.values())


def _check_unused(state: RegistryState, subject: str, version: int, *, permanent: bool) -> None:
    # Records of a soft-deleted schema can still be read, so the schemas that it refers to must stay.
    if referrers(state, subject, version, deleted=permanent):
        raise refusals.referenced(subject, version)


def _rows(
    state: RegistryState, subject: str, versions: Sequence[int], now_ms: int, *, permanent: bool
) -> list[schema_rows.SchemaRow]:
    """Return the rows that delete versions, and the subject's level and mode if no live version remains."""
    rows = _standing_rows(state, subject, versions, schema_rows.GONE if permanent else schema_rows.SOFT, now_ms)
    if not permanent and set(state.subject(subject).live) <= set(versions):
        for kind, settings in ((schema_rows.CONFIG, state.configs), (schema_rows.MODE, state.modes)):
            if subject in settings:
                rows.append(
                    schema_rows.SchemaRow(seq=state.seq + 1 + len(rows), kind=kind, subject=subject, time_ms=now_ms)
                )
    return rows


def _standing_rows(
    state: RegistryState, subject: str, versions: Iterable[int], standing: str, now_ms: int
) -> list[schema_rows.SchemaRow]:
    known = state.subject(subject)
    named = [(version, state.schemas[known.versions[version].id].named) for version in versions]
    return [
        schema_rows.SchemaRow(
            seq=state.seq + nth,
            kind=schema_rows.SCHEMA,
            subject=subject,
            version=version,
            schema_id=schema.id,
            value=schema_rows.schema_value(schema, standing, state.last_id),
            time_ms=now_ms,
        )
        for nth, (version, schema) in enumerate(named, start=1)
    ]


NOTHING_SET = schema_rows.Config()

NOT_KEPT = (
    "alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
    "validateFields", "validateRules",
)  # fmt: skip
"""Confluent's settings that have no effect here; they are rejected instead of ignored."""


def check_level(given: object) -> str:
    """Return the name of a compatibility level, given in any case.

    Raises:
        SchemaRegistryError: it is not a level; 42203.
    """
    name = given.upper() if isinstance(given, str) else ""
    if name not in LEVELS:
        raise refusals.invalid_level(given)
    return name


def check_mode_name(given: object) -> str:
    """Return the name of a settable mode, given in any case.

    Raises:
        SchemaRegistryError: it is not a mode, or it is FORWARD; 42204.
    """
    name = given.upper() if isinstance(given, str) else ""
    if name not in MODES:
        raise refusals.invalid_mode(given)
    if name == FORWARD:
        raise refusals.forwards_nothing()
    return name


def set_config(
    state: RegistryState, subject: str, config: schema_rows.Config, now_ms: int
) -> tuple[Sequence[schema_rows.SchemaRow], schema_rows.Config]:
    """Plan to change the settings of a subject.

    Args:
        state: the current registry.
        subject: empty for all subjects without their own settings.
        config: new settings; None in it keeps the current value.
        now_ms: time of the row.

    Returns:
        The row (none if nothing changes) and the resulting settings.

    Raises:
        SchemaRegistryError: the settings change, and the mode does not allow it; 42205.
    """
    before = state.configs.get(subject, NOTHING_SET)
    after = schema_rows.Config(
        before.level if config.level is None else config.level,
        before.normalize if config.normalize is None else config.normalize,
    )
    if after == before:
        return [], after
    _check_writable(state, subject)
    return [_row(state, schema_rows.CONFIG, subject, schema_rows.config_value(after), now_ms)], after


def delete_config(
    state: RegistryState, subject: str, now_ms: int
) -> tuple[Sequence[schema_rows.SchemaRow], schema_rows.Config]:
    """Plan to delete the settings of a subject. Return the row and the deleted settings.

    Raises:
        SchemaRegistryError: the subject does not have its own settings, 40408; the mode does not allow it, 42205.
    """
    _check_writable(state, subject)
    before = state.configs.get(subject)
    if before is None:
        if subject != schema_rows.EVERYWHERE:
            raise refusals.no_level(subject)
        return [], NOTHING_SET
    return [_row(state, schema_rows.CONFIG, subject, "", now_ms)], before


def set_mode(
    state: RegistryState, subject: str, mode: str, now_ms: int, *, force: bool
) -> tuple[Sequence[schema_rows.SchemaRow], str]:
    """Plan to set a mode; see `set_config`.

    Args:
        state: the current registry.
        subject: empty for all subjects without their own mode.
        mode: its name.
        now_ms: time of the row.
        force: allow mode IMPORT although there are schemas.

    Raises:
        SchemaRegistryError: existing schemas could collide with imported ones; 42205.
    """
    if mode == IMPORT and not force and state.modes.get(subject) != IMPORT and _has_schemas(state, subject):
        where = f"versions of subject {subject}" if subject else "subjects"
        raise refusals.not_permitted(f"Cannot import since found existing {where}; force=true allows it")
    if state.modes.get(subject) == mode:
        return [], mode
    return [_row(state, schema_rows.MODE, subject, schema_rows.mode_value(mode), now_ms)], mode


def delete_mode(state: RegistryState, subject: str, now_ms: int) -> tuple[Sequence[schema_rows.SchemaRow], str]:
    """Plan to delete a mode. Return the row and the deleted mode.

    Raises:
        SchemaRegistryError: the subject does not have its own mode; 40409.
    """
    before = state.modes.get(subject)
    if before is None:
        if subject != schema_rows.EVERYWHERE:
            raise refusals.no_mode(subject)
        return [], state.mode(subject)
    return [_row(state, schema_rows.MODE, subject, "", now_ms)], before


def _has_schemas(state: RegistryState, subject: str) -> bool:
    if subject:
        return bool(state.subject(subject).kept)
    return any(known.kept for known in state.subjects.values())


def _check_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) in READ_ONLY_MODES:
        what = f"Subject {subject}" if subject else "The registry"
        raise refusals.not_permitted(f"{what} is in read-only mode")


def _row(state: RegistryState, kind: str, subject: str, value: str, now_ms: int) -> schema_rows.SchemaRow:
    return schema_rows.SchemaRow(seq=state.seq + 1, kind=kind, subject=subject, value=value, time_ms=now_ms)
