"""Settings: a level or a mode and the state of a registry in; the row that sets it, or a refusal, out."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.registry_state import RegistryState
from kafkalike.model.schemas.schema import FORWARD, IMPORT, LEVELS, MODES, READ_ONLY_MODES
from kafkalike.model.schemas.schema_rows import CONFIG, EVERYWHERE, MODE, Config, SchemaRow, config_value, mode_value

NOTHING_SET = Config()

NOT_KEPT = (
    "alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
    "validateFields", "validateRules",
)  # fmt: skip
"""Settings of Confluent's that do nothing here, and are refused rather than forgotten."""


def check_level(given: object) -> str:
    """The name of a compatibility level, in any case.

    Raises:
        SchemaRegistryError: it is none; 42203.
    """
    name = given.upper() if isinstance(given, str) else ""
    if name not in LEVELS:
        raise refusals.invalid_level(given)
    return name


def check_mode_name(given: object) -> str:
    """The name of a mode that can be set, in any case.

    Raises:
        SchemaRegistryError: it is none, or FORWARD; 42204.
    """
    name = given.upper() if isinstance(given, str) else ""
    if name not in MODES:
        raise refusals.invalid_mode(given)
    if name == FORWARD:
        raise refusals.forwards_nothing()
    return name


def set_config(state: RegistryState, subject: str, config: Config, now_ms: int) -> tuple[Sequence[SchemaRow], Config]:
    """Plan to set what a configuration says; what it does not say stays.

    Args:
        state: of now.
        subject: empty for all that have nothing of their own.
        config: None in it stays as it is.
        now_ms: time of the row.

    Returns:
        The row, none when nothing changes, and what is set then.

    Raises:
        SchemaRegistryError: something changes, and the mode does not allow it; 42205.
    """
    before = state.configs.get(subject, NOTHING_SET)
    after = Config(
        before.level if config.level is None else config.level,
        before.normalize if config.normalize is None else config.normalize,
    )
    if after == before:
        return [], after
    _check_writable(state, subject)
    return [_row(state, CONFIG, subject, config_value(after), now_ms)], after


def delete_config(state: RegistryState, subject: str, now_ms: int) -> tuple[Sequence[SchemaRow], Config]:
    """Plan to forget what is set; returns the row, and what was set.

    Raises:
        SchemaRegistryError: a subject has nothing of its own, 40408; the mode does not allow it, 42205.
    """
    _check_writable(state, subject)
    before = state.configs.get(subject)
    if before is None:
        if subject != EVERYWHERE:
            raise refusals.no_level(subject)
        return [], NOTHING_SET
    return [_row(state, CONFIG, subject, "", now_ms)], before


def set_mode(
    state: RegistryState, subject: str, mode: str, now_ms: int, *, force: bool
) -> tuple[Sequence[SchemaRow], str]:
    """Plan to set a mode; see `set_config`.

    Args:
        state: of now.
        subject: empty for all that have none of their own.
        mode: its name.
        now_ms: time of the row.
        force: also begin to import where schemas are.

    Raises:
        SchemaRegistryError: schemas are there that could be in the way of those that come; 42205.
    """
    if mode == IMPORT and not force and state.modes.get(subject) != IMPORT and _has_schemas(state, subject):
        where = f"versions of subject {subject}" if subject else "subjects"
        raise refusals.not_permitted(f"Cannot import since found existing {where}; force=true imports all the same")
    if state.modes.get(subject) == mode:
        return [], mode
    return [_row(state, MODE, subject, mode_value(mode), now_ms)], mode


def delete_mode(state: RegistryState, subject: str, now_ms: int) -> tuple[Sequence[SchemaRow], str]:
    """Plan to forget a mode; returns the row, and the mode that was set.

    Raises:
        SchemaRegistryError: a subject has none of its own; 40409.
    """
    before = state.modes.get(subject)
    if before is None:
        if subject != EVERYWHERE:
            raise refusals.no_mode(subject)
        return [], state.mode(subject)
    return [_row(state, MODE, subject, "", now_ms)], before


def _has_schemas(state: RegistryState, subject: str) -> bool:
    if subject:
        return bool(state.subject(subject).kept)
    return any(known.kept for known in state.subjects.values())


def _check_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) in READ_ONLY_MODES:
        what = f"Subject {subject}" if subject else "The registry"
        raise refusals.not_permitted(f"{what} is in read-only mode")


def _row(state: RegistryState, kind: str, subject: str, value: str, now_ms: int) -> SchemaRow:
    return SchemaRow(seq=state.seq + 1, kind=kind, subject=subject, value=value, time_ms=now_ms)
