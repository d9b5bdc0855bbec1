"""Subjects: requests about subjects and their versions."""

from __future__ import annotations

from typing import Any

from kafkalike.model.schemas import refusals, registration_rules, subject_deletion
from kafkalike.model.schemas.registry_state import RegistryState, Subject
from kafkalike.model.schemas.schema import Registered, remembered
from kafkalike.schemas.formats import formatted
from kafkalike.schemas.service.desk import Desk
from kafkalike.schemas.service.request import Request
from kafkalike.schemas.shapes import written


def list_subjects(desk: Desk, request: Request) -> list[str]:
    """`GET /subjects`."""
    prefix = request.prefix
    found = [
        name for name, subject in desk.now.subjects.items() if name.startswith(prefix) and _versions(subject, request)
    ]
    return request.page(sorted(found))


def list_versions(desk: Desk, request: Request) -> list[int]:
    """`GET /subjects/{subject}/versions`."""
    subject = request.subject
    found = _versions(desk.now.subject(subject), request)
    if not found:
        raise refusals.no_subject(subject)
    return request.page(list(found))


def _versions(subject: Subject, request: Request) -> tuple[int, ...]:
    if request.flag("deletedOnly") or request.flag("deleted_only"):
        return subject.soft
    return subject.kept if request.flag("deleted") else subject.live


def register(desk: Desk, request: Request) -> dict[str, Any]:
    """`POST /subjects/{subject}/versions`."""
    # Others wait while a plan is made under the table's lock, and it was made once before.
    wanted, checks = request.wanted(), remembered(desk.checks)
    made = desk.change(lambda state, now: registration_rules.register(state, wanted, checks, now))
    return version_answer(desk.known, made, request)


def look_up(desk: Desk, request: Request) -> dict[str, Any]:
    """`POST /subjects/{subject}`."""
    state = desk.now
    found = registration_rules.look_up(state, request.wanted(), desk.checks, deleted=request.flag("deleted"))
    return version_answer(state, found, request)


def get_version(desk: Desk, request: Request) -> dict[str, Any]:
    """`GET /subjects/{subject}/versions/{version}`."""
    state = desk.now
    return version_answer(state, _version(state, request), request)


def get_version_text(desk: Desk, request: Request) -> Any:  # noqa: ANN401 - any JSON
    """`GET /subjects/{subject}/versions/{version}/schema`: the schema alone."""
    return raw(get_version(desk, request))


def get_with_metadata(desk: Desk, request: Request) -> dict[str, Any]:
    """`GET /subjects/{subject}/metadata`: no schema has metadata here, so only who asks for none finds one."""
    if request.query.get("key"):
        raise refusals.no_schema()
    state = desk.now
    found = state.latest(request.subject, deleted=request.flag("deleted"))
    if found is None:
        raise refusals.no_subject(request.subject)
    return version_answer(state, found, request)


def referenced_by(desk: Desk, request: Request) -> list[int]:
    """`GET /subjects/{subject}/versions/{version}/referencedby`."""
    state = desk.now
    found = _version(state, request, deleted=True)
    return request.page(
        subject_deletion.referrers(state, found.subject, found.version, deleted=request.flag("deleted"))
    )


def delete_subject(desk: Desk, request: Request) -> list[int]:
    """`DELETE /subjects/{subject}`."""
    subject, permanent = request.subject, request.flag("permanent")
    return desk.change(lambda state, now: subject_deletion.delete_subject(state, subject, now, permanent=permanent))


def delete_version(desk: Desk, request: Request) -> int:
    """`DELETE /subjects/{subject}/versions/{version}`."""
    subject, version, permanent = request.subject, request.version, request.flag("permanent")
    return desk.change(
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
    """A version as JSON."""
    schema = formatted(found.schema, request.query.get("format"), state.referenced)
    named = state.schemas[found.id].named
    answer = {"subject": found.subject, "version": found.version, "id": found.id, "guid": named.guid}
    answer |= written(schema)
    if found.deleted:
        answer["deleted"] = True
    return answer


def raw(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """The schema of an answer as JSON of its own; the text of a Protobuf schema."""
    from kafkalike.model.schemas.schema_identity import parsed_json

    return answer["schema"] if answer.get("schemaType") == "PROTOBUF" else parsed_json(answer["schema"])
