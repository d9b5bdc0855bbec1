"""Request handlers of the registry for subjects, versions, schemas, compatibility and settings; their repository."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.clock import Clock
from kafkalike.model.schemas import refusals, registration_rules
from kafkalike.model.schemas import subject_changes as registry_settings
from kafkalike.model.schemas import subject_changes as subject_deletion
from kafkalike.model.schemas.registry_state import RegistryState, SchemaEntry, Subject
from kafkalike.model.schemas.schema import (
    BACKWARD,
    READWRITE,
    SCHEMA_TYPES,
    Checks,
    Registered,
    parsed_json,
    remembered,
)
from kafkalike.model.schemas.schema_rows import EVERYWHERE, LIVE, Config, SchemaRow
from kafkalike.schemas.confluent_types import written
from kafkalike.schemas.service.registry_request import Request, formatted

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import SchemasLog


def list_subjects(repository: RegistryRepository, request: Request) -> list[str]:
    """Handle `GET /subjects`, with prefix and paging."""
    prefix = request.prefix
    found = [
        name
        for name, subject in repository.now.subjects.items()
        if name.startswith(prefix) and _versions(subject, request)
    ]
    return request.page(sorted(found))


def list_versions(repository: RegistryRepository, request: Request) -> list[int]:
    """Handle `GET /subjects/{subject}/versions`."""
    subject = request.subject
    found = _versions(repository.now.subject(subject), request)
    if not found:
        raise refusals.no_subject(subject)
    return request.page(list(found))


def _versions(subject: Subject, request: Request) -> tuple[int, ...]:
    if request.flag("deletedOnly") or request.flag("deleted_only"):
        return subject.soft
    return subject.kept if request.flag("deleted") else subject.live


def register(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `POST /subjects/{subject}/versions`."""
    # The checks are cached: a plan is made once before the table's lock is taken, and again while other writers wait.
    wanted, checks = request.wanted(), remembered(repository.checks)
    made = repository.change(lambda state, now: registration_rules.register(state, wanted, checks, now))
    return version_answer(repository.known, made, request)


def look_up(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `POST /subjects/{subject}`."""
    state = repository.now
    found = registration_rules.look_up(state, request.wanted(), repository.checks, deleted=request.flag("deleted"))
    return version_answer(state, found, request)


def get_version(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `GET /subjects/{subject}/versions/{version}`."""
    state = repository.now
    return version_answer(state, _version(state, request), request)


def get_version_text(repository: RegistryRepository, request: Request) -> Any:  # noqa: ANN401 - any JSON
    """Handle `GET /subjects/{subject}/versions/{version}/schema`: return only the schema."""
    return raw(get_version(repository, request))


def get_with_metadata(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `GET /subjects/{subject}/metadata`.

    Schemas have no metadata here, so only a request without metadata finds a version.
    """
    if request.query.get("key"):
        raise refusals.no_schema()
    state = repository.now
    found = state.latest(request.subject, deleted=request.flag("deleted"))
    if found is None:
        raise refusals.no_subject(request.subject)
    return version_answer(state, found, request)


def referenced_by(repository: RegistryRepository, request: Request) -> list[int]:
    """Handle `GET /subjects/{subject}/versions/{version}/referencedby`."""
    state = repository.now
    found = _version(state, request, deleted=True)
    return request.page(
        subject_deletion.referrers(state, found.subject, found.version, deleted=request.flag("deleted"))
    )


def delete_subject(repository: RegistryRepository, request: Request) -> list[int]:
    """Handle `DELETE /subjects/{subject}`."""
    subject, permanent = request.subject, request.flag("permanent")
    return repository.change(
        lambda state, now: subject_deletion.delete_subject(state, subject, now, permanent=permanent)
    )


def delete_version(repository: RegistryRepository, request: Request) -> int:
    """Handle `DELETE /subjects/{subject}/versions/{version}`."""
    subject, version, permanent = request.subject, request.version, request.flag("permanent")
    return repository.change(
        lambda state, now: subject_deletion.delete_version(state, subject, version, now, permanent=permanent)
    )


def _version(state: RegistryState, request: Request, *, deleted: bool = False) -> Registered:
    subject, version, deleted = request.subject, request.version, deleted or request.flag("deleted")
    known = state.subject(subject)
    if not (known.kept if deleted else known.live):
        raise refusals.no_subject(subject)
    if version == "latest":
        found = state.latest(subject, deleted=deleted)
    else:
        found = state.registered(subject, int(version), deleted=deleted)
    if found is None:
        raise refusals.no_version(version)
    return found


def version_answer(state: RegistryState, found: Registered, request: Request) -> dict[str, Any]:
    """Return a version as JSON."""
    schema = formatted(found.schema, request.query.get("format"), state.referenced)
    named = state.schemas[found.id].named
    answer = {"subject": found.subject, "version": found.version, "id": found.id, "guid": named.guid}
    answer |= written(schema)
    if found.deleted:
        answer["deleted"] = True
    return answer


def raw(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Return the schema of an answer as JSON, or as text for Protobuf."""
    return answer["schema"] if answer.get("schemaType") == "PROTOBUF" else parsed_json(answer["schema"])


def list_types(repository: RegistryRepository, request: Request) -> list[str]:
    """Handle `GET /schemas/types`."""
    del repository, request
    return sorted(SCHEMA_TYPES)


def list_schemas(repository: RegistryRepository, request: Request) -> list[dict[str, Any]]:
    """Handle `GET /schemas`, with prefix and paging."""
    state, deleted, latest_only = repository.now, request.flag("deleted"), request.flag("latestOnly")
    found = []
    for name in sorted(state.subjects):
        subject = state.subject(name)
        versions = subject.kept if deleted else subject.live
        if name.startswith(request.prefix):
            found += [(name, version) for version in (versions[-1:] if latest_only else versions)]
    answers = []
    for name, version in request.page(found):
        registered = state.registered(name, version, deleted=True)
        assert registered is not None
        answers.append(version_answer(state, registered, request))
    return answers


def get_schema(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `GET /schemas/ids/{id}`."""
    state, known = _known(repository, request.id)
    assert known.named.schema is not None
    answer = written(formatted(known.named.schema, request.query.get("format"), state.referenced))
    answer["guid"] = known.named.guid
    subject = request.query.get("subject", "")
    versions = [version for name, version in known.uses if name == subject]
    if versions:
        answer |= {"id": known.named.id, "subject": subject, "version": max(versions)}
    if request.flag("fetchMaxId"):
        answer["maxId"] = state.last_id
    return answer


def get_schema_text(repository: RegistryRepository, request: Request) -> Any:  # noqa: ANN401 - any JSON
    """Handle `GET /schemas/ids/{id}/schema`: return only the schema."""
    return raw(get_schema(repository, request))


def get_by_guid(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `GET /schemas/guids/{guid}`."""
    guid = request.names["guid"].lower()
    schema_id = repository.known.guids.get(guid) or repository.now.guids.get(guid)
    if schema_id is None:
        raise refusals.no_schema(guid[:40])
    state, known = _known(repository, schema_id)
    assert known.named.schema is not None
    answer = written(formatted(known.named.schema, request.query.get("format"), state.referenced))
    return {**answer, "guid": guid, "id": schema_id}


def ids_of_guid(repository: RegistryRepository, request: Request) -> list[dict[str, Any]]:
    """Handle `GET /schemas/guids/{guid}/ids`."""
    return [{"context": ".", "id": get_by_guid(repository, request)["id"]}]


def subjects_of_id(repository: RegistryRepository, request: Request) -> list[str]:
    """Handle `GET /schemas/ids/{id}/subjects`."""
    return request.page(sorted({name for name, _ in _uses(repository, request)}))


def versions_of_id(repository: RegistryRepository, request: Request) -> list[dict[str, Any]]:
    """Handle `GET /schemas/ids/{id}/versions`."""
    return request.page([{"subject": name, "version": version} for name, version in _uses(repository, request)])


def _uses(repository: RegistryRepository, request: Request) -> list[tuple[str, int]]:
    known = repository.now.schemas.get(request.id)
    if known is None or not known.uses:
        raise refusals.no_schema(request.id)
    wanted, deleted = request.query.get("subject"), request.flag("deleted")
    return sorted(
        where
        for where, standing in known.uses.items()
        if (deleted or standing == LIVE) and (wanted is None or where[0] == wanted)
    )


def _known(repository: RegistryRepository, schema_id: int) -> tuple[RegistryState, SchemaEntry]:
    """Return a registered schema. The schema of an id never changes, so a cached one is not refreshed."""
    for state in (repository.known, repository.now):
        known = state.schemas.get(schema_id)
        if known is not None and known.named.schema is not None:
            return state, known
    raise refusals.no_schema(schema_id)


def check_compatibility(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `POST /compatibility/subjects/{subject}/versions` and `…/versions/{version}`."""
    version = request.version if "version" in request.names else None
    problems = registration_rules.examined(repository.now, request.wanted(), repository.checks, version)
    answer: dict[str, Any] = {"is_compatible": not problems}
    return {**answer, "messages": problems} if request.flag("verbose") else answer


def get_config(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `GET /config` and `GET /config/{subject}`."""
    state, subject = repository.now, request.subject
    own = state.configs.get(subject)
    if subject != EVERYWHERE and own is None:
        if not request.flag("defaultToGlobal"):
            raise refusals.no_level(subject)
        own = state.configs.get(EVERYWHERE)
    return _config_answer(own or registry_settings.NOTHING_SET, state.level(subject))


def put_config(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `PUT /config` and `PUT /config/{subject}`."""
    subject, body = request.subject, request.object()
    refused = [name for name in registry_settings.NOT_KEPT if body.get(name)]
    if refused:
        raise SchemaRegistryError(422, 42203, f"{', '.join(refused)} is not supported here")
    level, normalize = body.get("compatibility") or body.get("compatibilityLevel"), body.get("normalize")
    if normalize is not None and not isinstance(normalize, bool):
        raise SchemaRegistryError(422, 422, f"'normalize' must be true or false, not {str(normalize)[:40]}")
    if level is None and normalize is None:
        raise refusals.invalid_level(None)
    wanted = Config(None if level is None else registry_settings.check_level(level), normalize)
    after = repository.change(lambda state, now: registry_settings.set_config(state, subject, wanted, now))
    answer: dict[str, Any] = {} if after.level is None else {"compatibility": after.level}
    return answer if after.normalize is None else {**answer, "normalize": after.normalize}


def delete_config(repository: RegistryRepository, request: Request) -> dict[str, Any]:
    """Handle `DELETE /config` and `DELETE /config/{subject}`: return the removed settings."""
    subject = request.subject
    before = repository.change(lambda state, now: registry_settings.delete_config(state, subject, now))
    return _config_answer(before, BACKWARD)


def _config_answer(config: Config, level: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"compatibilityLevel": config.level or level}
    return answer if config.normalize is None else {**answer, "normalize": config.normalize}


def get_mode(repository: RegistryRepository, request: Request) -> dict[str, str]:
    """Handle `GET /mode` and `GET /mode/{subject}`."""
    state, subject = repository.now, request.subject
    if subject != EVERYWHERE and subject not in state.modes and not request.flag("defaultToGlobal"):
        raise refusals.no_mode(subject)
    return {"mode": state.mode(subject) if request.flag("defaultToGlobal") else state.modes.get(subject, READWRITE)}


def put_mode(repository: RegistryRepository, request: Request) -> dict[str, str]:
    """Handle `PUT /mode` and `PUT /mode/{subject}`."""
    subject, force = request.subject, request.flag("force")
    mode = registry_settings.check_mode_name(request.object().get("mode"))
    return {
        "mode": repository.change(lambda state, now: registry_settings.set_mode(state, subject, mode, now, force=force))
    }


def delete_mode(repository: RegistryRepository, request: Request) -> dict[str, str]:
    """Handle `DELETE /mode` and `DELETE /mode/{subject}`: return the removed mode."""
    subject = request.subject
    return {"mode": repository.change(lambda state, now: registry_settings.delete_mode(state, subject, now))}


T = TypeVar("T")


class RegistryRepository:
    """The schemas of a cluster. Thread-safe.

    Args:
        schemas: the control log of schemas.
        checks: validity, compatibility and normal form of schemas.
        clock: source of the rows' timestamps.
        timeout_ms: how long a change is retried after conflicts with other writers; None for no limit.
    """

    def __init__(
        self,
        schemas: SchemasLog,
        checks: Checks,
        clock: Clock,
        timeout_ms: float | None = 60_000,
    ) -> None:
        self.checks = checks
        self._schemas = schemas
        self._clock = clock
        self._timeout_ms = timeout_ms

    @property
    def known(self) -> RegistryState:
        """The state as of the last refresh."""
        return self._schemas.state

    @property
    def now(self) -> RegistryState:
        """The state after a refresh."""
        return self._schemas.refresh()

    def change(self, plan: Callable[[RegistryState, int], tuple[Sequence[SchemaRow], T]]) -> T:
        """Write the rows of a plan, if any, and return its result.

        Args:
            plan: maps a state and the time in ms to rows and a result. After a conflict it is called again, so rows and
                result always belong to the state that the rows follow.

        Raises:
            SchemaRegistryError: raised by the plan; nothing was written.
            KafkaTimeoutError: conflicts with other writers lasted until the timeout; nothing was written.
            UnknownOutcomeError: the rows may have been written.
        """
        rows, result = plan(self.now, self._clock.now_ms())
        if not rows:
            return result
        made: list[T] = []

        def planned(state: RegistryState) -> Sequence[SchemaRow]:
            rows, result = plan(state, self._clock.now_ms())
            made[:] = [result]
            return rows

        self._schemas.transact(planned, self._timeout_ms)
        return made[0]
