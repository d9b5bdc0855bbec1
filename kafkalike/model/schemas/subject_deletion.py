"""Deleting: a subject or a version and the state of a registry in; the rows that delete it, or a refusal, out.

First softly: nobody finds the version any more, but records with its id can still be read. Then for good: the schema's
text goes with its last version. Its id and the version's number are never given to anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.registration_rules import check_number
from kafkalike.model.schemas.registry_settings import _check_writable
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema_rows import CONFIG, GONE, LIVE, MODE, SCHEMA, SOFT, SchemaRow, schema_value


def delete_subject(
    state: RegistryState, subject: str, now_ms: int, *, permanent: bool
) -> tuple[Sequence[SchemaRow], list[int]]:
    """Plan to delete all versions of a subject, and softly its level and mode.

    Args:
        state: of now.
        subject: its name.
        now_ms: time of the rows.
        permanent: for good; the subject must have been deleted softly before.

    Returns:
        The rows, and the numbers of the versions.

    Raises:
        SchemaRegistryError: it is refused: 40401, 40404, 40405, 42205, 42206.
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
) -> tuple[Sequence[SchemaRow], int]:
    """Plan to delete one version, and with the last one softly the subject's level and mode.

    Args:
        state: of now.
        subject: its name.
        version: a number, or `latest`.
        now_ms: time of the row.
        permanent: for good; the version must have been deleted softly before.

    Returns:
        The rows, and the number of the version.

    Raises:
        SchemaRegistryError: it is refused: 40401, 40402, 40406, 40407, 42205, 42206.
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
    """Ids of the schemas that refer to a version.

    Args:
        state: of now.
        subject: of the version.
        version: its number.
        deleted: also those that only have versions that are deleted softly.
    """
    ids = state.referrers.get((subject, version))
    return sorted(i for i in ids or () if deleted or LIVE in state.schemas[i].uses.values())


def _check_unused(state: RegistryState, subject: str, version: int, *, permanent: bool) -> None:
    # Records of a schema that is deleted softly can still be read, so what it refers to must stay.
    if referrers(state, subject, version, deleted=permanent):
        raise refusals.referenced(subject, version)


def _rows(
    state: RegistryState, subject: str, versions: Sequence[int], now_ms: int, *, permanent: bool
) -> list[SchemaRow]:
    """Versions go, and the subject's level and mode where no live version is left."""
    rows = _standing_rows(state, subject, versions, GONE if permanent else SOFT, now_ms)
    if not permanent and set(state.subject(subject).live) <= set(versions):
        for kind, settings in ((CONFIG, state.configs), (MODE, state.modes)):
            if subject in settings:
                rows.append(SchemaRow(seq=state.seq + 1 + len(rows), kind=kind, subject=subject, time_ms=now_ms))
    return rows


def _standing_rows(
    state: RegistryState, subject: str, versions: Iterable[int], standing: str, now_ms: int
) -> list[SchemaRow]:
    known = state.subject(subject)
    named = [(version, state.schemas[known.versions[version].id].named) for version in versions]
    return [
        SchemaRow(
            seq=state.seq + nth,
            kind=SCHEMA,
            subject=subject,
            version=version,
            schema_id=schema.id,
            value=schema_value(schema, standing, state.last_id),
            time_ms=now_ms,
        )
        for nth, (version, schema) in enumerate(named, start=1)
    ]
