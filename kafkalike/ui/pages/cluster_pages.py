"""Pages of transactions, dead letters, checks, SQL statements and the cluster itself.

SQL statements only read, run in the console's Spark session, and show their first rows or the reason for the refusal.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.log.dead_letter_topic import Filter
from kafkalike.model.topic_sql import SQL_RESERVED
from kafkalike.ui.background_jobs import BackgroundJob, TooManyJobsError
from kafkalike.ui.page_request import form, moved, page, paged, query_parameter, site
from kafkalike.ui.pages.overview_pages import LOOKED_INTO

LETTERS: Final = 100
"""Maximum number of dead letters of a page."""

FINDINGS: Final = 200
"""Maximum number of findings of a check on a page."""

TABLES: Final = 25
"""Tables of a page of replicas, and topics of a page of dead letters; few, because each one is read."""


def transactions(request: Request) -> Response:
    """List transactional ids with their last transaction."""
    admin = site(request).view.admin
    listed = [one for found in admin.list_transactions().values() for one in found]
    hanging = {str(one["transactional_id"]) for one in admin.find_hanging_transactions()}
    now = site(request).view.clock.now_ms()
    described = admin.describe_transactions([one.transactional_id for one in listed[:200]])
    return page(
        request,
        "transactions.html",
        transactions=listed[:200],
        described=described,
        count=len(listed),
        hanging=hanging,
        now=now,
        said=query_parameter(request, "said"),
    )


def abort(request: Request) -> Response:
    """Abort the transaction of a transactional id."""
    transactional_id = form(request).get("id", "")
    site(request).view.admin.abort_transaction(transactional_id)
    return moved("/transactions", f"Aborted the transaction of {transactional_id}.")


def dead_letters(request: Request) -> Response:
    """Show the page of dead-letter topics, which loads its rows by another request."""
    return page(request, "dead_letters.html", topics=None)


def dead_letter_rows(request: Request) -> Response:
    """List a page of the dead-letter topics that are known so far."""
    held = site(request).view.letters
    names, left = held.names(LOOKED_INTO)
    some, at, pages = paged(request, names, TABLES)
    return page(
        request,
        "dead_letters.html",
        topics=held.topics(some) if some else [],
        left=left,
        at=at,
        pages=pages,
    )


def letters(request: Request) -> Response:
    """List the letters of a topic with their causes."""
    topic, view = query_parameter(request, "topic"), site(request).view
    error_class = query_parameter(request, "error_class") or None
    found = list(islice(view.letters.read(topic, Filter(error_class=error_class)), LETTERS + 1))
    return page(
        request,
        "letters.html",
        topic=topic,
        error_class=error_class or "",
        letters=found[:LETTERS],
        more=len(found) > LETTERS,
        decode=view.decode(),
        said=query_parameter(request, "said"),
        plan=None,
    )


def replay(request: Request) -> Response:
    """Preview or run a replay of letters."""
    given, view = form(request), site(request).view
    topic, error_class = given.get("topic", ""), given.get("error_class") or None
    execute = given.get("action") == "execute"
    done = view.letters.replay(topic, Filter(error_class=error_class), dry_run=not execute)
    if execute:
        return moved("/letters", f"Letters replayed: {done.letters}.", topic=topic)
    return page(
        request,
        "letters.html",
        topic=topic,
        error_class=error_class or "",
        letters=[],
        more=False,
        decode=view.decode(),
        said="",
        plan=done,
    )


def checks(request: Request) -> Response:
    """List the checks of this console, with a form for new ones."""
    return page(request, "checks.html", jobs=site(request).view.jobs.all(), findings=FINDINGS)


def check(request: Request) -> Response:
    """Show the progress or the result of a check; the page polls until the check ends."""
    job = site(request).view.jobs.get(request.path_params["id"])
    if job is None:
        raise IllegalArgumentError("unknown check: the console has forgotten it or was restarted")
    return page(request, "check.html", job=job, findings=FINDINGS)


def start_check(request: Request) -> Response:
    """Start a check in the background."""
    view, given = site(request).view, form(request)
    topic = given.get("topic", "").strip()
    names: list[str] | None = [view.cluster.topic(topic).name] if topic else None
    work = {"verify": _verify, "maintain": _maintain}.get(given.get("what", ""))
    if work is None:
        raise IllegalArgumentError("what must be verify or maintain")
    job = view.jobs.start(given["what"], lambda job: work(request, job, names))
    return moved("/checks", "", id=job.id)


def _verify(request: Request, job: BackgroundJob, names: list[str] | None) -> Any:  # noqa: ANN401
    from kafkalike.maintenance.verify.verify import known_topics, total_bytes, verify

    cluster = site(request).view.cluster
    topics = known_topics(cluster) if names is None else names
    job.total = float(total_bytes(cluster, topics))

    def progress(count: int) -> None:
        job.done += count

    return verify(cluster, topics, progress, groups=names is None)


def _maintain(request: Request, job: BackgroundJob, names: list[str] | None) -> Any:  # noqa: ANN401
    from kafkalike.maintenance.maintenance_run import maintain

    view = site(request).view
    job.total = float(len(view.topics()) if names is None else len(names))

    def progress(topic: str, what: str) -> None:
        job.said = f"{topic}: {what}"
        job.done += what == "finished"

    return maintain(view.cluster, names, clock=view.clock, dry_run=True, progress=progress)


def cluster(request: Request) -> Response:
    """Show the root, the brokers, and the number of requests to the storage."""
    view = site(request).view
    try:
        told = view.admin.describe_cluster()
    except KafkaError as error:
        told = {"problem": str(error)}
    return page(
        request,
        "cluster.html",
        told=told,
        requests=dict(view.cluster.requests),
        topics=len(view.topics()),
        groups=len(view.cluster.groups.refresh().consumer_groups),
    )


def replicas(request: Request) -> Response:
    """List the replicas of tables by broker, with their state."""
    replication = site(request).view.cluster.replication
    wanted = query_parameter(request, "q").lower()
    some, at, pages = paged(request, [name for name in replication.tables() if wanted in name.lower()], TABLES)
    return page(
        request,
        "replicas.html",
        brokers=[(broker, replication.alive(broker.id)) for broker in replication.brokers()],
        tables=[replication.replicas(name, ends=True) for name in some],
        at=at,
        pages=pages,
        q=query_parameter(request, "q"),
    )


def metrics(request: Request) -> Response:
    """Serve metrics in the format of Prometheus."""
    give = site(request).view.metrics
    if give is None:
        return Response("This console serves no metrics.", 404)
    return Response(give(), media_type="text/plain; version=0.0.4; charset=utf-8")


_log = logging.getLogger(__name__)

WITHOUT: Final = "this console has no Spark session: start it with --spark, or from a notebook with a session"


def sql(request: Request) -> Response:
    """Show the form, and the statement of the address, if any."""
    view = site(request).view
    job = view.running.get(query_parameter(request, "id")) if query_parameter(request, "id") else None
    return _sql_page(request, "" if job is None else job.what, job)


def _sql_page(
    request: Request, text: str, job: BackgroundJob | None = None, problem: str = "", status: int = 200
) -> Response:
    queries = site(request).view.queries
    seconds = None if queries is None else queries.seconds
    return page(request, "sql.html", status, job=job, seconds=seconds, text=text, problem=problem, views=SQL_RESERVED)


def statement(request: Request) -> Response:
    """Show the state or the result of a statement; the page polls until it ends."""
    return page(request, "statement.html", job=_known(request, request.path_params["id"]))


def run(request: Request) -> Response:
    """Start a statement in the background; or show the form with the statement and the reason against it."""
    from kafkalike.spark.sql.queries import SqlQuery

    view = site(request).view
    text = form(request).get("sql", "").strip().removesuffix(";").strip()
    queries = view.queries
    if queries is None:
        raise IllegalArgumentError(WITHOUT)
    if not text:
        return _sql_page(request, text, problem="Type a statement.", status=400)
    query = SqlQuery(text)
    try:
        job = view.running.start(text, lambda _: queries.run(query), query.cancel)
    except TooManyJobsError:
        other = next((one for one in view.running.all() if one.ended_ms is None), None)
        return _sql_page(request, text, other, "Another statement is running: wait until it ends, or cancel it.", 409)
    _log.info("started the statement %s", text[:500])
    return moved("/sql", "", id=job.id)


def cancel(request: Request) -> Response:
    """Cancel a running statement."""
    job = _known(request, form(request).get("id", ""))
    if job.cancel is not None:
        job.cancel()
    return moved("/sql", "", id=job.id)


def _known(request: Request, id: str) -> BackgroundJob:  # noqa: A002
    job = site(request).view.running.get(id)
    if job is None:
        raise IllegalArgumentError("unknown statement: the console has forgotten it or was restarted")
    return job
