"""Pages of the overview: rates of writes, groups by lag, problems, dead letters and storage of the whole cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.log.dead_letter_topic import StoredLetter
from kafkalike.log.topic.write_history import NOTHING
from kafkalike.model.dead_letter import original_headers, read_context
from kafkalike.ui.charts import Chart, starts_of, step_of, write_charts
from kafkalike.ui.cluster_overview import HORIZON_MS, SPANS, GroupFigures, Overview, TopicFigures
from kafkalike.ui.cluster_view import ConsoleView
from kafkalike.ui.page_request import page, query_parameter, site
from kafkalike.ui.record_query import Question, browse

ROWS: Final = 8
"""Rows of each short list."""

NEWEST_LETTERS: Final = 5

LOOKED_INTO: Final = 200
"""Maximum number of topics that one request searches for dead letters."""

LETTER_TOPICS: Final = 3
"""Dead-letter topics whose newest letters are read: those written last."""


def overview(request: Request) -> Response:
    """Show the state of the cluster."""
    span, view = query_parameter(request, "span", "3h"), site(request).view
    if span not in SPANS:
        raise IllegalArgumentError(f"span must be {', '.join(SPANS)}, not {span[:40]!r}")
    found, now_ms = view.overview(), view.clock.now_ms()
    groups = sorted(
        found.groups.values(), key=lambda one: (not one.beyond, -one.waiting_ms, -one.lag.records, one.group_id)
    )
    late: dict[str, list[GroupFigures]] = {"ok": [], "warn": [], "bad": []}
    for group in groups:
        late[view.thresholds.of(group)].append(group)
    topics = list(found.topics.values())
    records, size = charts(found, now_ms, SPANS[span])
    return page(
        request,
        "overview.html",
        found=found,
        count=len(view.topics()),
        span=span,
        spans=SPANS,
        records=records,
        size=size,
        groups=groups[:ROWS],
        thresholds=view.thresholds,
        late=late,
        busiest=sorted((one for one in topics if one.written_ms is not None), key=_rank)[:ROWS],
        largest=sorted(topics, key=lambda one: (-one.size_bytes, one.name))[:ROWS],
        total=sum(one.size_bytes for one in topics),
        expired=sum(one.expired_bytes for one in topics),
        stale=_stale(topics),
        letters=_letters(_letter_topics(view, found, look_into=0), now_ms),
    )


def _rank(one: TopicFigures) -> tuple[float, int, str]:
    return -one.records_per_second, -(one.written_ms or 0), one.name


def _stale(topics: Sequence[TopicFigures]) -> tuple[int, int] | None:
    known = [one.stale for one in topics if one.stale is not None]
    return (sum(count for count, _ in known), sum(size for _, size in known)) if known else None


def _letter_topics(view: ConsoleView, found: Overview, look_into: int) -> list[TopicFigures]:
    """Return the topics of dead letters, by name or first record, after reading the first record of some topics."""
    names, _ = view.letters.names(look_into)
    return [found.topics[name] for name in names if name in found.topics]


def _letters(own: Sequence[TopicFigures], now_ms: int) -> tuple[int, int]:
    """Return the number of dead letters, in all and of the last day."""
    step = step_of(HORIZON_MS)
    new = sum(
        written.records
        for one in own
        for at, written in one.history.by_step(step).items()
        if at > now_ms - HORIZON_MS - step
    )
    return sum(one.records for one in own), new


def charts(found: Overview, now_ms: int, span_ms: int) -> Sequence[Chart]:
    """Chart the records and the bytes that were written by topic.

    Args:
        found: the overview.
        now_ms: end of the charts.
        span_ms: their length.
    """
    starts = starts_of(now_ms, span_ms)
    by_topic = {name: one.history.by_step(starts.step) for name, one in found.topics.items()}
    rows = {name: [sums.get(at, NOTHING) for at in starts] for name, sums in by_topic.items() if sums}
    since = {name: one.history.since_ms for name, one in found.topics.items()}
    return write_charts(rows, since, starts, now_ms)


def letters(request: Request) -> Response:
    """Show the newest dead letters; another request than the overview's, because it reads records."""
    view = site(request).view
    own = [one for one in _letter_topics(view, view.overview(), LOOKED_INTO) if one.records]
    own.sort(key=lambda one: -(one.written_ms or 0))
    found = [letter for one in own[:LETTER_TOPICS] for letter in _newest(view, one.name)]
    found.sort(key=lambda letter: -letter.timestamp_ms)
    return page(request, "newest_letters.html", letters=found[:NEWEST_LETTERS])


def _newest(view: ConsoleView, topic: str) -> list[StoredLetter]:
    try:
        records = view.with_log(topic, lambda log: browse(log, Question(limit=NEWEST_LETTERS), view.clock)).records
    except KafkaError:
        # The list of problems names a topic that cannot be read.
        return []
    return [
        StoredLetter(
            topic=topic,
            partition=one.partition,
            offset=one.offset,
            timestamp_ms=one.timestamp_ms,
            key=one.key,
            value=one.value,
            headers=original_headers(one.headers),
            context=read_context(one.headers),
        )
        for one in records
    ]
