"""Ids: requests about schemas by their ids, wherever they are registered."""

from __future__ import annotations

from typing import Any

from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.registry_state import Known, RegistryState
from kafkalike.model.schemas.schema import SCHEMA_TYPES
from kafkalike.model.schemas.schema_rows import LIVE
from kafkalike.schemas.formats import formatted
from kafkalike.schemas.service.desk import Desk
from kafkalike.schemas.service.request import Request
from kafkalike.schemas.service.subjects import raw, version_answer
from kafkalike.schemas.shapes import written


def list_types(desk: Desk, request: Request) -> list[str]:
    """`GET /schemas/types`."""
    del desk, request
    return sorted(SCHEMA_TYPES)


def list_schemas(desk: Desk, request: Request) -> list[dict[str, Any]]:
    """`GET /schemas`."""
    state, deleted, latest_only = desk.now, request.flag("deleted"), request.flag("latestOnly")
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


def get_schema(desk: Desk, request: Request) -> dict[str, Any]:
    """`GET /schemas/ids/{id}`."""
    state, known = _known(desk, request.id)
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


def get_schema_text(desk: Desk, request: Request) -> Any:  # noqa: ANN401 - any JSON
    """`GET /schemas/ids/{id}/schema`: the schema alone."""
    return raw(get_schema(desk, request))


def get_by_guid(desk: Desk, request: Request) -> dict[str, Any]:
    """`GET /schemas/guids/{guid}`."""
    guid = request.names["guid"].lower()
    schema_id = desk.known.guids.get(guid) or desk.now.guids.get(guid)
    if schema_id is None:
        raise refusals.no_schema(guid[:40])
    state, known = _known(desk, schema_id)
    assert known.named.schema is not None
    answer = written(formatted(known.named.schema, request.query.get("format"), state.referenced))
    return {**answer, "guid": guid, "id": schema_id}


def ids_of_guid(desk: Desk, request: Request) -> list[dict[str, Any]]:
    """`GET /schemas/guids/{guid}/ids`."""
    return [{"context": ".", "id": get_by_guid(desk, request)["id"]}]


def subjects_of_id(desk: Desk, request: Request) -> list[str]:
    """`GET /schemas/ids/{id}/subjects`."""
    return request.page(sorted({name for name, _ in _uses(desk, request)}))


def versions_of_id(desk: Desk, request: Request) -> list[dict[str, Any]]:
    """`GET /schemas/ids/{id}/versions`."""
    return request.page([{"subject": name, "version": version} for name, version in _uses(desk, request)])


def _uses(desk: Desk, request: Request) -> list[tuple[str, int]]:
    known = desk.now.schemas.get(request.id)
    if known is None or not known.uses:
        raise refusals.no_schema(request.id)
    wanted, deleted = request.query.get("subject"), request.flag("deleted")
    return sorted(
        where
        for where, standing in known.uses.items()
        if (deleted or standing == LIVE) and (wanted is None or where[0] == wanted)
    )


def _known(desk: Desk, schema_id: int) -> tuple[RegistryState, Known]:
    """A schema that a version has; what an id is never changes, so what is known of it needs no look."""
    for state in (desk.known, desk.now):
        known = state.schemas.get(schema_id)
        if known is not None and known.named.schema is not None:
            return state, known
    raise refusals.no_schema(schema_id)
