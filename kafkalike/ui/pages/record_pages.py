"""Pages of records: find, show, download, produce and tail them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from kafkalike.ui.page_request import (
    MOST,
    Site,
    form,
    moment,
    moved,
    number,
    optional,
    page,
    query_parameter,
    site,
    whole,
)
from kafkalike.ui.record_query import PAGE_BYTES, Page, Question, StoredRecord, at_time, browse, record_at

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.ui.cluster_view import ConsoleView


MOST_FILLED: Final = 4 * 1024 * 1024
"""Bytes of a record that may be sent again; a form holds up to three bytes for each, and has an end."""

FEW: Final = 20
"""Partitions whose places stand in an address as they are."""

PACKED: Final = "z"
"""In front of packed places."""

MOST_PLACES: Final = 1_000_000
"""Bytes that packed places may have."""

HEX: Final = "hex:"
"""In front of bytes of a header that are no text, or would not stay the same."""

NULL: Final = "null:"
"""In place of the content of a header that has none."""


def records(request: Request) -> Response:
    """Records of a topic, by place, time, key, header or content."""
    name = request.path_params["name"]
    view = site(request).view

    def find(log: TopicLog) -> Any:  # noqa: ANN401
        question = _question(request, log)
        return log.info, _by_key(view, name, question) if question.by_key else browse(log, question, view.clock)

    info, found = view.with_log(name, find)
    return page(
        request,
        "records.html",
        name=name,
        info=info,
        found=found,
        decode=view.decode(),
        asked={
            field: query_parameter(request, field)
            for field in ("from", "partition", "offset", "time", "key", "header", "text", "limit")
        },
        following=places_text(found.following),
        said=query_parameter(request, "said"),
    )


def _question(request: Request, log: TopicLog) -> Question:
    begin = query_parameter(request, "from", "newest")
    partition = optional(request, "partition")
    partitions = list(log.info.partitions) if partition is None else [partition]
    start: Mapping[int, int] | None = None
    if begin == "offset":
        start = dict.fromkeys(partitions, number(request, "offset", 0))
    elif begin == "time":
        if partition is not None and partition not in log.info.partitions:
            raise UnknownTopicOrPartitionError(f"{log.info.name}-{partition} does not exist")
        start = at_time(log, partitions, moment("time", query_parameter(request, "time")))
    elif begin not in {"newest", "oldest"}:
        raise IllegalArgumentError(f"from: newest, oldest, offset or time is needed, not {begin[:40]!r}")
    if query_parameter(request, "start"):
        start = _places(query_parameter(request, "start"))
    name, colon, content = request.query_params.get("header", "").partition(":")
    return Question(
        partition=partition,
        newest_first=begin == "newest",
        start=start,
        key=_of(request, "key"),
        contains=_of(request, "text"),
        header=(name.strip(), content.strip().encode() if colon else None) if name.strip() else None,
        limit=max(1, number(request, "limit", 50, MOST)),
    )


def _by_key(view: ConsoleView, topic: str, question: Question) -> Page:
    """The newest records with a key, by the files' Bloom filters and not by a scan."""
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
    """Where the next page begins, for its address; packed where there are many partitions, as a head has an end.

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
            # No more of it than may be: few bytes can hold many.
            offsets = json.loads(zlib.decompressobj().decompress(packed, MOST_PLACES))
            return {partition: int(offset) for partition, offset in enumerate(offsets)}
        return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError, zlib.error):
        raise IllegalArgumentError("start: the address of the next page is damaged") from None


def _of(request: Request, name: str) -> bytes | None:
    """A field as bytes: as text, or what stands behind `hex:`."""
    text = request.query_params.get(name, "")
    if not text:
        return None
    if text.startswith("hex:"):
        try:
            return bytes.fromhex(text[4:])
        except ValueError:
            raise IllegalArgumentError(f"{name}: {text[:40]!r} is not hexadecimal") from None
    return text.encode()


def _one(request: Request) -> StoredRecord:
    name = request.path_params["name"]
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    found: StoredRecord | None = site(request).view.with_log(name, lambda log: record_at(log, partition, offset))
    if found is None:
        raise OffsetOutOfRangeError(f"{name}-{partition} has no record at offset {offset}")
    return found


def record(request: Request) -> Response:
    """One record, whole."""
    return page(
        request,
        "record.html",
        name=request.path_params["name"],
        record=_one(request),
        decode=site(request).view.decode(),
        said=query_parameter(request, "said"),
    )


def download(request: Request) -> Response:
    """The bytes of a record's key or value, or of one of its headers, as a file."""
    found, part = _one(request), request.path_params["part"]
    if part in {"key", "value"}:
        content = found.key if part == "key" else found.value
    elif part in {str(at) for at in range(len(found.headers))}:
        content = found.headers[int(part)][1]
    else:
        raise IllegalArgumentError(f"there is no part {part[:40]!r}; there are key, value, and the numbers of headers")
    file = f"{request.path_params['name']}-{found.partition}-{found.offset}-{part}.bin"
    return Response(
        content or b"",
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{file}"', "cache-control": "no-store"},
    )


def produce_form(request: Request) -> Response:
    """A form for a record; filled with one that is there, when the address names it."""
    name = request.path_params["name"]
    partition, offset = optional(request, "partition"), optional(request, "offset")
    filled: StoredRecord | None = None
    if partition is not None and offset is not None:
        filled = site(request).view.with_log(name, lambda log: record_at(log, partition, offset))
        if filled is not None and filled.size > MOST_FILLED:
            raise IllegalArgumentError(f"a record of {filled.size} bytes is too large for the form")
    info = site(request).view.cluster.topic(name)
    return page(
        request, "produce.html", name=name, info=info, filled=_fields(filled), said=query_parameter(request, "said")
    )


def _fields(found: StoredRecord | None) -> dict[str, str]:
    if found is None:
        return {"key": "", "key_as": "text", "value": "", "value_as": "text", "headers": ""}
    filled: dict[str, str] = {}
    for part, data in (("key", found.key), ("value", found.value)):
        filled[part], filled[f"{part}_as"] = _written(data)
    filled["headers"] = "\n".join(_header_line(name, value) for name, value in found.headers)
    return filled


def _written(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", "null"
    text = _kept(data)
    return (base64.b64encode(data).decode(), "base64") if text is None else (text, "text")


def _kept(data: bytes) -> str | None:
    """The text that bytes are, if a form gives it back as it is: browsers make all ends of lines the same."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in "\n\t" for sign in text) else None


def _header_line(name: str, value: bytes | None) -> str:
    """A header as a line that `_header` reads as the same header."""
    text = NULL if value is None else _kept(value)
    if value is not None and (text is None or "\n" in text or text != text.strip() or text.startswith((NULL, HEX))):
        text = f"{HEX}{value.hex()}"
    line = f"{name}: {text}"
    if not name.isprintable() or _header(line) != (name, value):
        raise IllegalArgumentError(
            f"the header {name[:80]!r} cannot be written in the form; send the record by a program"
        )
    return line


def produce(request: Request) -> Response:
    """Send a record."""
    name, given = request.path_params["name"], form(request)
    view = site(request).view
    view.cluster.topic(name)
    partition = given.get("partition", "").strip()
    sent = view.producer.send(
        name,
        key=_read(given, "key"),
        value=_read(given, "value"),
        headers=[_header(line) for line in _lines(given.get("headers", ""))],
        partition=whole("partition", partition, 0) if partition else None,
    ).get(timeout=60)
    return moved(
        f"/topics/{name}/records/{sent.partition}/{sent.offset}",
        f"The record was written to partition {sent.partition} at offset {sent.offset}.",
    )


def _lines(text: str) -> list[str]:
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _read(given: Mapping[str, str], part: str) -> bytes | None:
    kind, text = given.get(f"{part}_as", "text"), given.get(part, "")
    # Browsers send the ends of lines as CR LF.
    text = text.replace("\r\n", "\n")
    try:
        reading: dict[str, Callable[[], bytes | None]] = {
            "null": lambda: None,
            "text": text.encode,
            "hex": lambda: bytes.fromhex(text),
            "base64": lambda: base64.b64decode(text, validate=True),
        }
        return reading[kind]()
    except KeyError:
        raise IllegalArgumentError(f"{part}: text, hex, base64 or null is needed, not {kind[:40]!r}") from None
    except (ValueError, binascii.Error) as cause:
        raise IllegalArgumentError(f"{part}: the bytes cannot be read as {kind}: {cause}") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, colon, content = text.partition(":")
    if not colon or not name.strip():
        raise IllegalArgumentError(f"headers: a line NAME: VALUE is needed, not {text[:80]!r}")
    content = content.strip()
    if content == NULL:
        return name.strip(), None
    try:
        return name.strip(), bytes.fromhex(content[len(HEX) :]) if content.startswith(HEX) else content.encode()
    except ValueError:
        raise IllegalArgumentError(f"headers: {content[:80]!r} is not hexadecimal") from None


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
    site(request).view.cluster.topic(name)
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
        log = await run_in_threadpool(site(request).view.cluster.log, request.path_params["name"])
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
        wait = max(TAIL_SECONDS, here.view.cluster.tail_interval)
        while not (state.stopping.is_set() or await request.is_disconnected()):
            found, skipped = await run_in_threadpool(_new, here.view, log, places)
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
    return template.render(name=name, records=found, skipped=skipped, decode=here.view.decode())


def _ends(log: TopicLog) -> dict[int, int]:
    log.refresh()
    return {p: log.log_end(p) for p in log.info.partitions}


def _new(view: ConsoleView, log: TopicLog, places: dict[int, int]) -> tuple[Sequence[StoredRecord], int]:
    """Records since the last look, the newest first, and how many others there were; moves the places on."""
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
