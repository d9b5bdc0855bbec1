"""ASGI application of the console: routes, access checks, forms and error pages."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from kafkalike import errors
from kafkalike.ui.access_control import CHANGES, HEADERS, AccessControl
from kafkalike.ui.background_jobs import TooManyJobsError
from kafkalike.ui.cluster_view import ConsoleView
from kafkalike.ui.page_request import Site, cluster_path, page, site, templates
from kafkalike.ui.pages import (
    cluster_pages,
    group_pages,
    overview_pages,
    produce_pages,
    record_pages,
    schema_pages,
    settings_pages,
    topic_pages,
)

_log = logging.getLogger(__name__)

MOST_BODY: Final = 16 * 1024 * 1024
"""Maximum bytes of a form."""

MOST_FIELDS: Final = 20_000

FORM_SECONDS: Final = 60.0
"""Timeout for receiving a form."""

CLOSED: Final = {"connection": "close"}
"""Header after a timeout: the rest of the form is not received."""

NOT_THERE: Final = (
    errors.UnknownTopicOrPartitionError,
    errors.GroupIdNotFoundError,
    errors.OffsetOutOfRangeError,
    errors.TopicDeletedError,
)

Handler = Callable[[Request], Response]


def console(view: ConsoleView, access: AccessControl) -> Gate:
    """Make the application of a console of one cluster.

    Args:
        view: the cluster.
        access: rules for requests.
    """
    app = _pages(Site(view=view, access=access, templates=templates()), threading.Event(), [_STATIC])
    return Gate(app, access)


def consoles(views: Mapping[str, ConsoleView], access: AccessControl, read_only: Collection[str] = ()) -> Gate:
    """Make the application of a console of several clusters, each with pages, jobs and connections of its own.

    Args:
        views: the clusters by name; the first one is shown first.
        access: rules for requests of all clusters.
        read_only: names of clusters whose changes are refused.
    """
    rules = {name: replace(access, read_only=access.read_only or name in read_only) for name in views}
    addresses = {name: cluster_path(name) for name in views}
    stopping, made = threading.Event(), templates()
    apps = {
        name: _pages(Site(view=view, access=rules[name], templates=made, name=name, clusters=addresses), stopping, ())
        for name, view in views.items()
    }
    first = f"{next(iter(addresses.values()))}/"

    async def start(request: Request) -> Response:
        del request
        return RedirectResponse(first, 303)

    app = Starlette(
        routes=[
            Route("/", start, methods=["GET"]),
            *(Mount(addresses[name], apps[name]) for name in views),
            _STATIC,
        ]
    )
    app.state.stopping = stopping
    return Gate(app, access, {f"{addresses[name]}/": rules[name] for name in views})


_STATIC: Final = Mount("/static", StaticFiles(directory=Path(__file__).with_name("static")))


def _pages(here: Site, stopping: threading.Event, further: Sequence[BaseRoute]) -> Starlette:
    """Make the pages of a cluster."""
    app = Starlette(
        routes=[
            *(Route(path, _endpoint(handler), methods=["GET"]) for path, handler in READ.items()),
            *(Route(path, _endpoint(handler), methods=["POST"]) for path, handler in CHANGE.items()),
            Route("/topics/{name}/tail/events", record_pages.tail_events, methods=["GET"]),
            *further,
        ],
        exception_handlers=dict(PROBLEMS),
    )
    app.state.site = here
    app.state.tails = 0
    app.state.stopping = stopping
    return app


READ: Final[Mapping[str, Handler]] = {
    "/": overview_pages.overview,
    "/overview/letters": overview_pages.letters,
    "/topics": topic_pages.topics,
    "/topics/{name}": topic_pages.topic,
    "/topics/{name}/writes": topic_pages.writes,
    "/topics/{name}/segments": topic_pages.segments,
    "/topics/{name}/settings": settings_pages.topic_settings,
    "/topics/{name}/history": topic_pages.history,
    "/topics/{name}/groups": topic_pages.groups,
    "/topics/{name}/records": record_pages.records,
    "/topics/{name}/records/{partition:int}/{offset:int}": record_pages.record,
    "/topics/{name}/records/{partition:int}/{offset:int}/{part}": record_pages.download,
    "/topics/{name}/produce": produce_pages.produce_form,
    "/topics/{name}/tail": record_pages.tail,
    "/groups": group_pages.groups,
    "/group": group_pages.group,
    "/group/lag": group_pages.lag_chart,
    "/group/reset": group_pages.preview,
    "/share-groups": group_pages.share_groups,
    "/transactions": cluster_pages.transactions,
    "/schemas": schema_pages.schemas,
    "/schema": schema_pages.schema,
    "/dead-letters": cluster_pages.dead_letters,
    "/dead-letters/all": cluster_pages.dead_letter_rows,
    "/letters": cluster_pages.letters,
    "/sql": cluster_pages.sql,
    "/sql/{id}": cluster_pages.statement,
    "/checks": cluster_pages.checks,
    "/checks/{id}": cluster_pages.check,
    "/cluster": cluster_pages.cluster,
    "/cluster/settings": settings_pages.cluster_settings,
    "/replicas": cluster_pages.replicas,
    "/metrics": cluster_pages.metrics,
}
"""Pages without changes, by path."""

CHANGE: Final[Mapping[str, Handler]] = {
    "/topics": topic_pages.create,
    "/topics/{name}/settings": settings_pages.change_topic_setting,
    "/topics/{name}": topic_pages.change,
    "/topics/{name}/produce": produce_pages.produce,
    "/group": group_pages.delete,
    "/group/reset": group_pages.reset,
    "/transactions/abort": cluster_pages.abort,
    "/schema": schema_pages.check_schema,
    "/cluster/settings": settings_pages.change_cluster_setting,
    "/letters": cluster_pages.replay,
    "/checks": cluster_pages.start_check,
    "/sql": cluster_pages.run,
    "/sql/cancel": cluster_pages.cancel,
}
"""Changes by path; refused by a read-only console."""


def _endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    def looked(request: Request) -> Response:
        # Cached state of a removed root must not be shown. `/metrics` reports it as a metric.
        if handler is not cluster_pages.metrics:
            site(request).view.check_there()
        answer = handler(request)
        here = site(request)
        if request.method in CHANGES:
            here.view.sampler.expire()
        if here.base and answer.headers.get("location", "").startswith("/"):
            answer.headers["location"] = here.base + answer.headers["location"]
        return answer

    async def answer(request: Request) -> Response:
        return await run_in_threadpool(looked, request)

    return answer


class Gate:
    """Checks access, parses forms, and adds headers, in front of the pages.

    Args:
        app: the pages.
        access: rules for requests.
        own: rules for the paths of a cluster, by their prefix.
    """

    def __init__(self, app: Starlette, access: AccessControl, own: Mapping[str, AccessControl] | None = None) -> None:
        self.app = app
        self._access = access
        self._own = own or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                held = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    held[name] = value
            await send(message)

        try:
            answer = await self._before(request)
        except ClientDisconnect:
            return
        await (self.app if answer is None else answer)(scope, receive, told)

    async def _before(self, request: Request) -> Response | None:
        """Return the response of a refused request or a login; None if a page answers."""
        path, headers = request.url.path, dict(request.headers)
        access = next((rules for prefix, rules in self._own.items() if path.startswith(prefix)), self._access)
        given = request.query_params.get("token")
        if given is not None and request.method == "GET" and access.named_well(headers.get("host", "")):
            return self._welcomed(request, given)
        change_key = headers.get("x-change-key", "")
        # Check all rules except for the secret first, so that no form of a refused request is read.
        refused = access.refusal(request.method, headers, access.change_key())
        if request.method in CHANGES and refused is None:
            form = await _form(request)
            if isinstance(form, Response):
                return form
            request.scope["kafkalike.form"] = form
            change_key = change_key or form.get("change_key", "")
        refusal = refused or access.refusal(request.method, headers, change_key)
        if refusal is None:
            return None
        answer = PlainTextResponse(refusal.message, refusal.status)
        if refusal.status == 401:  # noqa: PLR2004 - unauthorized
            answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _welcomed(self, request: Request, token: str) -> Response:
        """Exchange the token of the address for a cookie, and redirect to the address without it."""
        if not self._access.right(token):
            return PlainTextResponse("The token is wrong. Open the printed address.", 401)
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = "/" + request.url.path.lstrip("/")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        access = self._access
        answer.set_cookie(
            access.cookie, access.pass_of(), httponly=True, samesite="strict", secure=access.secure, path="/"
        )
        return answer


async def _form(request: Request) -> dict[str, str] | Response:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return PlainTextResponse("A form is needed: application/x-www-form-urlencoded.", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY:
                    return PlainTextResponse(f"The form has more than {MOST_BODY} bytes.", 413)
    except TimeoutError:
        return PlainTextResponse(f"The form did not arrive within {FORM_SECONDS:.0f} seconds.", 408, CLOSED)
    try:
        return await run_in_threadpool(_fields, body)
    except ValueError:
        return PlainTextResponse("The form cannot be read.", 400)


def _fields(body: bytearray) -> dict[str, str]:
    return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"))


async def _refused(request: Request, error: Exception) -> Response:
    """Return the page of an error in the request or the cluster."""
    status = (
        400
        if isinstance(error, (errors.IllegalArgumentError, errors.BrokerResponseError, errors.SchemaRegistryError))
        else 502
    )
    status = 404 if isinstance(error, NOT_THERE) else status
    return await run_in_threadpool(page, request, "error.html", status, name=type(error).__name__, message=str(error))


async def _missing(request: Request, error: HTTPException) -> Response:
    return await run_in_threadpool(page, request, "error.html", error.status_code, name="", message=error.detail)


async def _not_now(request: Request, error: Exception) -> Response:
    return await run_in_threadpool(page, request, "error.html", 409, name=type(error).__name__, message=str(error))


async def _not_understood(request: Request, error: Exception) -> Response:
    return await run_in_threadpool(page, request, "error.html", 400, name=type(error).__name__, message=str(error))


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("the page could not be rendered", exc_info=error)
    return await run_in_threadpool(
        page, request, "error.html", 500, name=type(error).__name__, message="The log of the console has the traceback."
    )


PROBLEMS: Final[Mapping[type[Exception], Any]] = {
    Exception: _failed,
    errors.KafkaError: _refused,
    HTTPException: _missing,
    # Not `_failed`, because Starlette raises errors of the handler of `Exception` again, for the server's log.
    TooManyJobsError: _not_now,
    TypeError: _not_understood,
    ValueError: _not_understood,
}
"""Handler by type of error."""
