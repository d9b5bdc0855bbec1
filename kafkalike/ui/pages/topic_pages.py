"""Pages of topics: list, partitions, segments, settings, history and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError, InvalidConfigurationError, InvalidPartitionsError
from kafkalike.log.topic.write_history import NOTHING
from kafkalike.model.lag import PartitionIndex
from kafkalike.model.segments import Segment
from kafkalike.model.structs import NewTopic, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.ui import page_request
from kafkalike.ui.charts import starts_of, write_charts
from kafkalike.ui.cluster_overview import TopicFigures
from kafkalike.ui.cluster_view import ConsoleView

PER_PAGE: Final = 50

PARTITIONS_PER_PAGE: Final = 200

SEGMENTS_PER_PAGE: Final = 100


SPANS: Final = {"1h": 3_600_000, "3h": 3 * 3_600_000, "24h": 24 * 3_600_000, "7d": 7 * 24 * 3_600_000}
"""Lengths of charts, ms."""


def topics(request: Request) -> Response:
    """List topics with their figures, and the form of a new topic."""
    return _topics(request, {})


def _topics(
    request: Request, typed: Mapping[str, str], problem: page_request.InvalidFieldError | None = None
) -> Response:
    view, wanted = page_request.site(request).view, page_request.query_parameter(request, "q").lower()
    known, found = view.topics(), view.overview()
    rows = [
        (info, found.topics.get(info.name), found.damaged.get(info.name))
        for info in known.values()
        if wanted in info.name.lower()
    ]
    return page_request.page(
        request,
        "topics.html",
        400 if problem else 200,
        found=page_request.listing(request, rows, COLUMNS, PER_PAGE),
        left=found.left or not found.looked_ms,
        known=len(known),
        q=page_request.query_parameter(request, "q"),
        typed={field: typed.get(field, "") for field in ("name", "partitions", "configs")},
        problem=problem,
        said=page_request.query_parameter(request, "said"),
    )


Found = tuple[TopicInfo, TopicFigures | None, str | None]
"""A topic, its figures, and the error if it cannot be read."""


def _by(figure: Callable[[TopicFigures], float | None]) -> Callable[[Found], Any]:
    return lambda row: None if row[1] is None else figure(row[1])


COLUMNS: Final[Mapping[str, Callable[[Found], Any]]] = {
    "topic": lambda row: row[0].name,
    "partitions": lambda row: row[0].num_partitions,
    "records": _by(lambda figures: figures.records),
    "size": _by(lambda figures: figures.size_bytes),
    "segments": _by(lambda figures: figures.segments),
    "rate": _by(lambda figures: figures.records_per_second),
    "written": _by(lambda figures: figures.written_ms),
    "newest": _by(lambda figures: figures.newest_ms),
    "cleanup": lambda row: row[0].configs.get("cleanup.policy", "delete"),
}
"""Value to sort by, by column."""


def create(request: Request) -> Response:
    """Create the topic of the form; or show the form again with the error beside a field."""
    given = page_request.form(request)
    name = given.get("name", "").strip()
    try:
        partitions = page_request.whole("partitions", given.get("partitions", "").strip(), -1)
        configs = dict(_setting(line) for line in given.get("configs", "").splitlines() if line.strip())
        page_request.site(request).view.admin.create_topics([NewTopic(name, partitions, -1, topic_configs=configs)])
    except page_request.REFUSED as error:
        return _topics(request, given, page_request.field_error(error, FIELDS.get(type(error), "name")))
    return page_request.moved(f"/topics/{name}", f"Created topic {name}.")


FIELDS: Final[Mapping[type[Exception], str]] = {
    InvalidPartitionsError: "partitions",
    InvalidConfigurationError: "configs",
}
"""Field of a new topic's form by the error in it; others are about the name."""


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise page_request.InvalidFieldError("configs", f"a line NAME=VALUE is needed, not {text[:80]!r}")
    return name.strip(), value.strip()


def topic(request: Request) -> Response:
    """Show the partitions of a topic and the forms of its changes; the page loads its chart by another request."""
    return _topic(request, {})


def _topic(
    request: Request, typed: Mapping[str, str], problem: page_request.InvalidFieldError | None = None
) -> Response:
    name = request.path_params["name"]
    view = page_request.site(request).view
    partitions = view.partitions(name)
    return page_request.page(
        request,
        "topic.html",
        400 if problem else 200,
        info=view.cluster.topic(name),
        found=page_request.listing(request, partitions.items(), PARTITION_COLUMNS, PARTITIONS_PER_PAGE),
        said=page_request.query_parameter(request, "said"),
        size=sum(segment.size_bytes for index in partitions.values() for segment in index.segments),
        records=sum(index.records_from(index.log_start) for index in partitions.values()),
        name=name,
        typed={field: typed.get(field, "") for field in ("partitions", "partition", "offset", "confirm")},
        problem=problem,
    )


PARTITION_COLUMNS: Final[Mapping[str, Callable[[tuple[int, PartitionIndex]], Any]]] = {
    "partition": lambda row: row[0],
    "start": lambda row: row[1].log_start,
    "end": lambda row: row[1].log_end,
    "records": lambda row: row[1].records_from(row[1].log_start),
    "size": lambda row: sum(segment.size_bytes for segment in row[1].segments),
    "segments": lambda row: len(row[1].segments),
    "newest": lambda row: row[1].newest_ms,
}
"""Value to sort by, by column."""


def change(request: Request) -> Response:
    """Change the topic by a form of its page; or show the forms again with the error beside a field."""
    name, given = request.path_params["name"], page_request.form(request)
    action = given.get("action", "")
    if action not in CHANGES:
        raise IllegalArgumentError(f"action must be {', '.join(CHANGES)}, not {action[:40]!r}")
    field, apply = CHANGES[action]
    try:
        said = apply(page_request.site(request).view, name, {key: text.strip() for key, text in given.items()})
    except page_request.REFUSED as error:
        return _topic(request, given, page_request.field_error(error, field))
    return page_request.moved("/topics" if action == "delete" else f"/topics/{name}", said)


def _add_partitions(view: ConsoleView, name: str, given: Mapping[str, str]) -> str:
    total = page_request.whole("partitions", given.get("partitions", ""))
    view.admin.create_partitions({name: total})
    return f"Raised the partitions of {name} to {total}."


def _delete_records(view: ConsoleView, name: str, given: Mapping[str, str]) -> str:
    partition = page_request.whole("partition", given.get("partition", ""))
    before = page_request.whole("offset", given.get("offset", ""))
    if partition not in view.cluster.topic(name).partitions:
        raise page_request.InvalidFieldError("partition", f"{name} has no partition {partition}")
    view.admin.delete_records({TopicPartition(name, partition): before})
    return f"Deleted the records of partition {partition} below offset {before}."


def _delete(view: ConsoleView, name: str, given: Mapping[str, str]) -> str:
    if given.get("confirm") != name:
        raise page_request.InvalidFieldError("confirm", "to delete the topic, type its name")
    view.admin.delete_topics([name])
    return f"Deleted topic {name}."


CHANGES: Final[Mapping[str, tuple[str, Callable[[ConsoleView, str, Mapping[str, str]], str]]]] = {
    "add-partitions": ("partitions", _add_partitions),
    "delete-records": ("offset", _delete_records),
    "delete": ("confirm", _delete),
}
"""The forms of a topic's page: the field that an error is about if it names no other, and the change itself."""


def writes(request: Request) -> Response:
    """Chart the writes to a topic by the times of its commits."""
    name, span = request.path_params["name"], page_request.query_parameter(request, "span", "24h")
    if span not in SPANS:
        raise IllegalArgumentError(f"span must be {', '.join(SPANS)}, not {span[:40]!r}")
    view = page_request.site(request).view
    now_ms, span_ms = view.clock.now_ms(), SPANS[span]
    history, starts = view.writes(name, now_ms - span_ms), starts_of(now_ms, span_ms)
    sums = history.by_step(starts.step)
    rows = {name: [sums.get(at, NOTHING) for at in starts]}
    records, size = write_charts(rows, {name: history.since_ms}, starts, now_ms)
    return page_request.page(request, "writes.html", name=name, records=records, size=size, spans=SPANS, span=span)


def segments(request: Request) -> Response:
    """List the data files of a partition."""
    name, partition = request.path_params["name"], page_request.number(request, "partition", 0)
    found = page_request.site(request).view.partitions(name)
    if partition not in found:
        raise IllegalArgumentError(f"{name} has no partition {partition}; partitions: {len(found)}")
    return page_request.page(
        request,
        "segments.html",
        name=name,
        partition=partition,
        partitions=list(found),
        found=page_request.listing(
            request, found[partition].segments, SEGMENT_COLUMNS, SEGMENTS_PER_PAGE, descending=True
        ),
    )


SEGMENT_COLUMNS: Final[Mapping[str, Callable[[Segment], Any]]] = {
    "start": lambda one: one.start,
    "end": lambda one: one.stop,
    "records": lambda one: one.num_records,
    "size": lambda one: one.size_bytes,
    "oldest": lambda one: one.min_timestamp,
    "newest": lambda one: one.max_timestamp,
}
"""Value to sort by, by column."""


def history(request: Request) -> Response:
    """Show the events of a topic."""
    from kafkalike.maintenance.verify.topic_history import topic_history

    name = request.path_params["name"]
    events = topic_history(page_request.site(request).view.cluster, name)
    offset, partition = page_request.optional(request, "offset"), page_request.optional(request, "partition")
    return page_request.page(
        request,
        "history.html",
        name=name,
        events=events[::-1][: PER_PAGE * 4],
        count=len(events),
        offset=offset,
        partition=partition,
    )


def groups(request: Request) -> Response:
    """List the groups that read a topic."""
    name = request.path_params["name"]
    view = page_request.site(request).view
    view.cluster.topic(name)
    return page_request.page(request, "topic_groups.html", name=name, groups=view.groups_of(name))
