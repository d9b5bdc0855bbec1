"""Tail: records of a topic as they come, watched by pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kafkalike.errors import KafkaError
from kafkalike.model.concurrency import OnError
from kafkalike.ui.page_request import Site, page, site
from kafkalike.ui.record_query import Question, StoredRecord, browse

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.ui.cluster_view import ConsoleView

MOST_TAILS: Final = 32
"""Pages that may watch at once."""

TAIL_RECORDS: Final = 100
"""Records that a tail shows at once."""

TAIL_SECONDS: Final = 0.15
"""Between two looks of a tail."""

QUIET_SECONDS: Final = 15.0
"""After so long without a record a tail says that it is there still."""


def tail(request: Request) -> Response:
    """The page that shows records as they come."""
    name = request.path_params["name"]
    site(request).desk.cluster.topic(name)
    return page(request, "tail.html", name=name)


async def tail_events(request: Request) -> Response:
    """Records as they come, as server-sent events: each is rows of a table."""
    state = request.app.state
    if request.method != "GET":
        return Response(media_type="text/event-stream")
    if state.tails >= MOST_TAILS:
        return Response("Too many pages watch topics already.", 503)
    # Before anything is waited for, so that a crowd does not come in at once.
    state.tails += 1
    with OnError(partial(_leave, state)):
        log = await run_in_threadpool(site(request).desk.cluster.log, request.path_params["name"])
        return _Tail(_events(request, log), state)


def _leave(state: State) -> None:
    state.tails -= 1


class _Tail(StreamingResponse):
    """An answer that gives its place back whatever ends it; a generator that was not begun would not.

    Args:
        events: what is told.
        state: of the application; holds the count.
    """

    def __init__(self, events: AsyncIterator[str], state: Any) -> None:  # noqa: ANN401 - Starlette's
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; see ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            _leave(self._state)


async def _events(request: Request, log: TopicLog) -> AsyncIterator[str]:
    state, here = request.app.state, site(request)
    try:
        places = await run_in_threadpool(_ends, log)
        yield "event: ready\ndata: 1\n\n"
        quiet = 0.0
        wait = max(TAIL_SECONDS, here.desk.cluster.tail_interval)
        while not (state.stopping.is_set() or await request.is_disconnected()):
            found, skipped = await run_in_threadpool(_new, here.desk, log, places)
            if found:
                # Not here: all other answers would wait for the registry and the values.
                rows = await run_in_threadpool(_rows, here, log.info.name, found, skipped)
                yield "event: rows\n" + "".join(f"data: {line}\n" for line in rows.splitlines()) + "\n"
                quiet = 0.0
            elif (quiet := quiet + wait) > QUIET_SECONDS:
                yield ": still here\n\n"
                quiet = 0.0
            await asyncio.sleep(wait)
    except KafkaError as error:
        yield f"event: failed\ndata: {' '.join(str(error).split())}\n\n"


def _rows(here: Site, name: str, found: Sequence[StoredRecord], skipped: int) -> str:
    template = here.templates.get_template("tail_rows.html")
    return template.render(name=name, records=found, skipped=skipped, decode=here.desk.decode())


def _ends(log: TopicLog) -> dict[int, int]:
    log.refresh()
    return {p: log.log_end(p) for p in log.info.partitions}


def _new(desk: ConsoleView, log: TopicLog, places: dict[int, int]) -> tuple[Sequence[StoredRecord], int]:
    """Records since the last look, the newest first, and how many others there were; moves the places on."""
    desk.check_there()
    version = log.version
    log.refresh(waiting=True)
    if log.version == version and places:
        return (), 0
    found: list[StoredRecord] = []
    skipped = 0
    for partition in log.info.partitions:
        end, at = log.log_end(partition), places.get(partition, 0)
        if end <= at:
            continue
        start = max(at, log.log_start(partition), end - TAIL_RECORDS)
        skipped += start - at
        question = Question(partition=partition, newest_first=False, start={partition: start}, limit=TAIL_RECORDS)
        new = browse(log, question)
        found += new.records
        skipped += end - new.following.get(partition, end)
        found.sort(key=lambda record: record.timestamp_ms, reverse=True)
        skipped += max(0, len(found) - TAIL_RECORDS)
        found = found[:TAIL_RECORDS]
        places[partition] = end
    return found, skipped
