"""Settings: requests about compatibility, levels and modes."""

from __future__ import annotations

from typing import Any

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas import refusals, registration_rules, registry_settings
from kafkalike.model.schemas.schema import BACKWARD, READWRITE
from kafkalike.model.schemas.schema_rows import EVERYWHERE, Config
from kafkalike.schemas.service.desk import Desk
from kafkalike.schemas.service.request import Request


def check_compatibility(desk: Desk, request: Request) -> dict[str, Any]:
    """`POST /compatibility/subjects/{subject}/versions` and `…/versions/{version}`."""
    version = request.version if "version" in request.names else None
    problems = registration_rules.examined(desk.now, request.wanted(), desk.checks, version)
    answer: dict[str, Any] = {"is_compatible": not problems}
    return {**answer, "messages": problems} if request.flag("verbose") else answer


def get_config(desk: Desk, request: Request) -> dict[str, Any]:
    """`GET /config` and `GET /config/{subject}`."""
    state, subject = desk.now, request.subject
    own = state.configs.get(subject)
    if subject != EVERYWHERE and own is None:
        if not request.flag("defaultToGlobal"):
            raise refusals.no_level(subject)
        own = state.configs.get(EVERYWHERE)
    return _config_answer(own or registry_settings.NOTHING_SET, state.level(subject))


def put_config(desk: Desk, request: Request) -> dict[str, Any]:
    """`PUT /config` and `PUT /config/{subject}`."""
    subject, body = request.subject, request.object()
    refused = [name for name in registry_settings.NOT_KEPT if body.get(name)]
    if refused:
        raise SchemaRegistryError(422, 42203, f"{', '.join(refused)} is not supported here")
    level, normalize = body.get("compatibility") or body.get("compatibilityLevel"), body.get("normalize")
    if normalize is not None and not isinstance(normalize, bool):
        raise SchemaRegistryError(422, 422, f"'normalize' is true or false, not {str(normalize)[:40]}")
    if level is None and normalize is None:
        raise refusals.invalid_level(None)
    wanted = Config(None if level is None else registry_settings.check_level(level), normalize)
    after = desk.change(lambda state, now: registry_settings.set_config(state, subject, wanted, now))
    answer: dict[str, Any] = {} if after.level is None else {"compatibility": after.level}
    return answer if after.normalize is None else {**answer, "normalize": after.normalize}


def delete_config(desk: Desk, request: Request) -> dict[str, Any]:
    """`DELETE /config` and `DELETE /config/{subject}`: answers what was set."""
    subject = request.subject
    before = desk.change(lambda state, now: registry_settings.delete_config(state, subject, now))
    return _config_answer(before, BACKWARD)


def _config_answer(config: Config, level: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"compatibilityLevel": config.level or level}
    return answer if config.normalize is None else {**answer, "normalize": config.normalize}


def get_mode(desk: Desk, request: Request) -> dict[str, str]:
    """`GET /mode` and `GET /mode/{subject}`."""
    state, subject = desk.now, request.subject
    if subject != EVERYWHERE and subject not in state.modes and not request.flag("defaultToGlobal"):
        raise refusals.no_mode(subject)
    return {"mode": state.mode(subject) if request.flag("defaultToGlobal") else state.modes.get(subject, READWRITE)}


def put_mode(desk: Desk, request: Request) -> dict[str, str]:
    """`PUT /mode` and `PUT /mode/{subject}`."""
    subject, force = request.subject, request.flag("force")
    mode = registry_settings.check_mode_name(request.object().get("mode"))
    return {"mode": desk.change(lambda state, now: registry_settings.set_mode(state, subject, mode, now, force=force))}


def delete_mode(desk: Desk, request: Request) -> dict[str, str]:
    """`DELETE /mode` and `DELETE /mode/{subject}`: answers what was set."""
    subject = request.subject
    return {"mode": desk.change(lambda state, now: registry_settings.delete_mode(state, subject, now))}
