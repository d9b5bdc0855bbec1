"""SQL: a statement that only reads, run in the console's Spark session; its first rows, or why it was not run."""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError
from kafkalike.ui.background_jobs import BackgroundJob
from kafkalike.ui.page_request import form, moved, page, query_parameter, site

_log = logging.getLogger(__name__)

WITHOUT: Final = "this console has no Spark session: begin it with --spark, or from a notebook that has one"


def sql(request: Request) -> Response:
    """The form, and the statement that the address names."""
    desk = site(request).desk
    job = desk.running.get(query_parameter(request, "id")) if query_parameter(request, "id") else None
    seconds = None if desk.queries is None else desk.queries.seconds
    return page(request, "sql.html", job=job, seconds=seconds, text="" if job is None else job.what, without=WITHOUT)


def statement(request: Request) -> Response:
    """One statement, as far as it is; the page asks again until it has ended."""
    return page(request, "statement.html", job=_known(request, request.path_params["id"]))


def run(request: Request) -> Response:
    """Begin a statement."""
    from kafkalike.spark.sql.queries import SqlQuery

    desk = site(request).desk
    text = form(request).get("sql", "").strip().removesuffix(";").strip()
    queries = desk.queries
    if queries is None:
        raise IllegalArgumentError(WITHOUT)
    if not text:
        raise IllegalArgumentError("sql: a statement is needed")
    query = SqlQuery(text)
    job = desk.running.start(text, lambda _: queries.run(query), query.cancel)
    _log.info("a statement was begun: %s", text[:500])
    return moved("/sql", "", id=job.id)


def cancel(request: Request) -> Response:
    """End a statement."""
    job = _known(request, form(request).get("id", ""))
    if job.cancel is not None:
        job.cancel()
    return moved("/sql", "", id=job.id)


def _known(request: Request, id: str) -> BackgroundJob:  # noqa: A002
    job = site(request).desk.running.get(id)
    if job is None:
        raise IllegalArgumentError("this statement is not known (any more)")
    return job
