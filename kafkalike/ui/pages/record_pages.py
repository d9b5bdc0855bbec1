"""Pages of records: find, show, download and tail them."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from kafkalike.admin.record_lookup import find_records
from kafkalike.errors import IllegalArgumentError, KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkalike.model.concurrency import OnError
from kafkalike.ui import page_request
from kafkalike.ui.record_query import PAGE_BYTES, Page, Question, StoredRecord, at_time, browse, record_at

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.ui.cluster_view import ConsoleView


FEW: Final = 20
"""Maximum number of partitions whose positions are in the address uncompressed."""

PACKED: Final = "z"
"""Prefix of compressed positions."""

MOST_PLACES: Final = 1_000_000
"""Maximum bytes of decompressed positions."""


def records(request: Request) -> Response:
    """List records of a topic by offset, time, key, header or content; or show the form with the error in a field."""
    name = request.path_params["name"]
    view = page_request.site(request).view

    def find(log: TopicLog) -> Any:  # noqa: ANN401
        try:
            question = _question(request, log)
        except page_request.InvalidFieldError as error:
            return log.info, None, error
        return log.info, _by_key(view, name, question) if question.by_key else browse(log, question, view.clock), None

    info, found, problem = view.with_log(name, find)
    return page_request.page(
        request,
        "records.html",
        400 if problem else 200,
        name=name,
        info=info,
        found=found,
        problem=problem,
        decode=view.decode(),
        asked={
            field: page_request.query_parameter(request, field)
            for field in ("partition", "offset", "time", "key", "header", "text", "limit")
        }
        | {"from": _begin(request)},
        following=places_text(found.following) if found else "",
        said=page_request.query_parameter(request, "said"),
    )


def _begin(request: Request) -> str:
    """Return where to begin; an offset or time that was typed counts, even if nothing was chosen."""
    chosen = page_request.query_parameter(request, "from", "newest")
    given = [field for field in ("offset", "time") if page_request.query_parameter(request, field)]
    return given[0] if given and chosen in {"newest", "oldest"} else chosen


def _question(request: Request, log: TopicLog) -> Question:
    begin = _begin(request)
    partition = page_request.optional(request, "partition")
    partitions = list(log.info.partitions) if partition is None else [partition]
    start: Mapping[int, int] | None = None
    if begin == "offset":
        start = dict.fromkeys(partitions, page_request.number(request, "offset", 0))
    elif begin == "time":
        if partition is not None and partition not in log.info.partitions:
            raise UnknownTopicOrPartitionError(f"{log.info.name}-{partition} does not exist")
        start = at_time(log, partitions, page_request.moment("time", page_request.query_parameter(request, "time")))
    elif begin not in {"newest", "oldest"}:
        raise IllegalArgumentError(f"from must be newest, oldest, offset or time, not {begin[:40]!r}")
    if page_request.query_parameter(request, "start"):
        start = _places(page_request.query_parameter(request, "start"))
    name, colon, content = request.query_params.get("header", "").partition(":")
    return Question(
        partition=partition,
        newest_first=begin == "newest",
        start=start,
        key=_of(request, "key"),
        contains=_of(request, "text"),
        header=(name.strip(), content.strip().encode() if colon else None) if name.strip() else None,
        limit=max(1, page_request.number(request, "limit", 50, page_request.MOST)),
    )


def _by_key(view: ConsoleView, topic: str, question: Question) -> Page:
    """Find the newest records with a key by the Bloom filters of the files."""
    found = find_records(
        topic,
        view.cluster,
        key=question.key or b"",
        limit=question.limit,
        partitions=None if question.partition is None else [question.partition],
        below=question.start,
        max_bytes=PAGE_BYTES,
        timeout_ms=int(question.most_seconds * 1000),
        clock=view.clock,
    )
    return Page(
        records=[
            StoredRecord(
                partition=one.partition,
                offset=one.offset,
                timestamp_ms=one.timestamp,
                timestamp_type=one.timestamp_type,
                key=one.key,
                value=one.value,
                headers=one.headers,
            )
            for one in found.records
        ],
        looked_at=len(found.records),
        following={} if found.complete else found.following,
        files=found.files,
        skipped=found.skipped,
        late=found.late,
    )


def places_text(places: Mapping[int, int]) -> str:
    """Encode the start of the next page for its address; compressed for many partitions.

    Args:
        places: offsets by partition.
    """
    if len(places) <= FEW or sorted(places) != list(range(len(places))):
        return json.dumps({str(p): offset for p, offset in places.items()})
    offsets = json.dumps([places[p] for p in range(len(places))], separators=(",", ":"))
    return PACKED + base64.urlsafe_b64encode(zlib.compress(offsets.encode(), 9)).decode()


def _places(text: str) -> dict[int, int]:
    try:
        if text.startswith(PACKED):
            packed = base64.urlsafe_b64decode(text.removeprefix(PACKED))
            # Limits the output, because a few bytes can decompress to many.
            offsets = json.loads(zlib.decompressobj().decompress(packed, MOST_PLACES))
            return {partition: int(offset) for partition, offset in enumerate(offsets)}
        return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError, zlib.error):
        raise IllegalArgumentError("start is malformed: open the first page again") from None


def _of(request: Request, name: str) -> bytes | None:
    """Return the bytes of a query parameter: text, or hexadecimal digits after `hex:`."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if text.startswith("hex:"):
        try:
            return bytes.fromhex(text[4:])
        except ValueError:
            raise page_request.InvalidFieldError(name, f"{text[:40]!r} is not hexadecimal") from None
    return text.encode()


def _one(request: Request) -> StoredRecord:
    name = request.path_params["name"]
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    found: StoredRecord | None = page_request.site(request).view.with_log(
        name, lambda log: record_at(log, partition, offset)
    )
    if found is None:
        raise OffsetOutOfRangeError(f"{name}-{partition} has no record at offset {offset}")
    return found


def record(request: Request) -> Response:
    """Show a record with all of its parts."""
    return page_request.page(
        request,
        "record.html",
        name=request.path_params["name"],
        record=_one(request),
        decode=page_request.site(request).view.decode(),
        said=page_request.query_parameter(request, "said"),
    )


def download(request: Request) -> Response:
    """Download the bytes of a key, a value or a header."""
    found, part = _one(request), request.path_params["part"]
    if part in {"key", "value"}:
        content = found.key if part == "key" else found.value
    elif part in {str(at) for at in range(len(found.headers))}:
        content = found.headers[int(part)][1]
    else:
        raise IllegalArgumentError(f"unknown part {part[:40]!r}: use key, value, or the number of a header")
    file = f"{request.path_params['name']}-{found.partition}-{found.offset}-{part}.bin"
    return Response(
        content or b"",
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{file}"', "cache-control": "no-store"},
    )


MOST_TAILS: Final = 32
"""Maximum number of open tails."""

TAIL_RECORDS: Final = 100
"""Maximum number of records per update."""

TAIL_SECONDS: Final = 0.15
"""Interval between two polls of a tail."""

QUIET_SECONDS: Final = 15.0
"""Interval of keep-alive messages without records."""


def tail(request: Request) -> Response:
    """Show the page of new records."""
    name = request.path_params["name"]
    page_request.site(request).view.cluster.topic(name)
    return page_request.page(request, "tail.html", name=name)


async def tail_events(request: Request) -> Response:
    """Stream new records as server-sent events, each with rows of a table."""
    state = request.app.state
    if request.method != "GET":
        return Response(media_type="text/event-stream")
    if state.tails >= MOST_TAILS:
        return Response("Too many open tails: close another page.", 503)
    # Count before the first await, so that parallel requests cannot exceed the limit.
    state.tails += 1
    with OnError(partial(_leave, state)):
        log = await run_in_threadpool(page_request.site(request).view.cluster.log, request.path_params["name"])
        return _Tail(_events(request, log), state)


def _leave(state: State) -> None:
    state.tails -= 1


class _Tail(StreamingResponse):
    """Response that releases its place at any end; a generator that never started would not.

    Args:
        events: stream of events.
        state: state of the application with the count.
    """

    def __init__(self, events: AsyncIterator[str], state: Any) -> None:  # noqa: ANN401 - Starlette's
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, then release the place."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            _leave(self._state)


async def _events(request: Request, log: TopicLog) -> AsyncIterator[str]:
    state, here = request.app.state, page_request.site(request)
    try:
        places = await run_in_threadpool(_ends, log)
        yield "event: ready\ndata: 1\n\n"
        quiet = 0.0
        wait = max(TAIL_SECONDS, here.view.cluster.tail_interval)
        while not (state.stopping.is_set() or await request.is_disconnected()):
            found, skipped = await run_in_threadpool(_new, here.view, log, places)
            if found:
                # In a thread, because decoding may wait for the registry.
                rows = await run_in_threadpool(_rows, here, log.info.name, found, skipped)
                yield "event: rows\n" + "".join(f"data: {line}\n" for line in rows.splitlines()) + "\n"
                quiet = 0.0
            elif (quiet := quiet + wait) > QUIET_SECONDS:
                yield ": still here\n\n"
                quiet = 0.0
            await asyncio.sleep(wait)
    except KafkaError as error:
        yield f"event: failed\ndata: {' '.join(str(error).split())}\n\n"


def _rows(here: page_request.Site, name: str, found: Sequence[StoredRecord], skipped: int) -> str:
    template = here.templates.get_template("tail_rows.html")
    return template.render(base=here.base, name=name, records=found, skipped=skipped, decode=here.view.decode())


def _ends(log: TopicLog) -> dict[int, int]:
    log.refresh()
    return {p: log.log_end(p) for p in log.info.partitions}


def _new(view: ConsoleView, log: TopicLog, places: dict[int, int]) -> tuple[Sequence[StoredRecord], int]:
    """Return records since the last poll, newest first, and the number of skipped ones; advance the positions."""
    view.check_there()
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
