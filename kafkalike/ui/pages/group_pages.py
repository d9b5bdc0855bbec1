"""Pages of groups: list, members, lag, and reset of offsets with a preview."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike import errors
from kafkalike.admin.group_lag import GroupLag, Lags, lag_history
from kafkalike.model.lag import Moment
from kafkalike.model.offset_commit import shifted, storable
from kafkalike.model.structs import OffsetAndMetadata, OffsetSpec, OffsetTimestamp, TopicPartition
from kafkalike.ui import page_request
from kafkalike.ui.charts import levels
from kafkalike.ui.cluster_overview import GroupFigures
from kafkalike.ui.cluster_view import ConsoleView

SPAN_MS: Final = 3 * 3_600_000
"""Time range of the plots of lag."""

STEP_MS: Final = 2 * 60_000

PER_PAGE: Final = 50

LAGS_PER_PAGE: Final = 200

SCENARIOS: Final = ("earliest", "latest", "time", "offset", "shift")


def groups(request: Request) -> Response:
    """List groups with their lag."""
    wanted, view = page_request.query_parameter(request, "q").lower(), page_request.site(request).view
    level, found = page_request.query_parameter(request, "level"), view.overview()
    rows = [
        (group_id, known, "" if known is None else view.thresholds.of(known))
        for group_id, known in ((one, found.groups.get(one)) for one in view.group_ids())
        if wanted in group_id.lower()
    ]
    if level:
        rows = [row for row in rows if row[2] == level]
    return page_request.page(
        request,
        "groups.html",
        found=page_request.listing(request, rows, COLUMNS, PER_PAGE),
        q=page_request.query_parameter(request, "q"),
        level=level,
        thresholds=view.thresholds,
        said=page_request.query_parameter(request, "said"),
    )


Found = tuple[str, GroupFigures | None, str]
"""A group, its figures, and the level of its lag."""


def _by(figure: Callable[[GroupFigures], Any]) -> Callable[[Found], Any]:
    return lambda row: None if row[1] is None else figure(row[1])


COLUMNS: Final[Mapping[str, Callable[[Found], Any]]] = {
    "group": lambda row: row[0],
    "state": _by(lambda figures: figures.state),
    "members": _by(lambda figures: figures.members),
    "lag": _by(lambda figures: figures.lag.offsets),
    "records": _by(lambda figures: figures.lag.records),
    "waiting": _by(lambda figures: figures.waiting_ms),
}
"""Value to sort by, by column."""


def group(request: Request) -> Response:
    """Show the members of a group, their assignments, and the lag."""
    return _group(request)


def _group(request: Request, confirm: str = "", problem: page_request.InvalidFieldError | None = None) -> Response:
    group_id, view = page_request.group_id(request), page_request.site(request).view
    described = view.admin.describe_groups([group_id])[group_id]
    if described["group_state"] == "Dead":
        raise errors.GroupIdNotFoundError(f"group {group_id!r} does not exist")
    lags = view.lags_of(group_id)
    return page_request.page(
        request,
        "group.html",
        400 if problem else 200,
        id=group_id,
        group=described,
        found=page_request.listing(request, lags, LAG_COLUMNS, LAGS_PER_PAGE),
        topics=sorted({lag.partition.topic for lag in lags}),
        scenarios=SCENARIOS,
        level=view.thresholds.level,
        typed=dict.fromkeys(RESET_FIELDS, ""),
        confirm=confirm,
        problem=problem,
        now_ms=view.clock.now_ms(),
        said=page_request.query_parameter(request, "said"),
    )


LAG_COLUMNS: Final[Mapping[str, Callable[[GroupLag], Any]]] = {
    "partition": lambda one: one.partition,
    "waiting": lambda one: None if one.lag.oldest_ms is None else -one.lag.oldest_ms,
    "lag": lambda one: one.lag.offsets,
    "records": lambda one: one.lag.records,
    "committed": lambda one: one.committed.position.offset,
    "end": lambda one: one.index.log_end,
    "time": lambda one: one.committed.time_ms,
}
"""Value to sort by, by column."""


def share_groups(request: Request) -> Response:
    """List the share groups; with an id, show the members, partitions and locked records of one."""
    group_id, view = page_request.group_id(request), page_request.site(request).view
    described = view.admin.describe_share_groups(view.cluster.groups.refresh().share_groups)
    reports = view.admin.list_share_group_offsets(list(described))
    rows = [
        (
            group,
            sum(found.lag for found in reports[name].values()),
            sum(found.acquired for found in reports[name].values()),
            sum(found.scheduled for found in reports[name].values()),
            min((at for found in reports[name].values() if (at := found.oldest_lock_ms) is not None), default=None),
        )
        for name, group in described.items()
    ]
    if group_id and group_id not in described:
        raise errors.GroupIdNotFoundError(f"share group {group_id!r} does not exist")
    chosen = list(reports[group_id].values()) if group_id else []
    return page_request.page(
        request,
        "share_groups.html",
        id=group_id,
        rows=rows,
        members=described[group_id]["members"] if group_id else [],
        reports=chosen,
        runs=[(found.tp, run) for found in chosen for run in found.share.runs][:LAGS_PER_PAGE],
        now_ms=view.clock.now_ms(),
    )


def lag_chart(request: Request) -> Response:
    """Chart the lag of a group over time, by topic."""
    group_id, view = page_request.group_id(request), page_request.site(request).view
    now = view.clock.now_ms()

    def look(lags: Lags) -> dict[str, dict[int, float]]:
        moments = lag_history(lags, now, span_ms=SPAN_MS, step_ms=STEP_MS, wanted=lambda id_, _topic: id_ == group_id)
        by_topic: dict[str, dict[int, float]] = {}
        for _, tp, at in moments:
            _add(by_topic.setdefault(tp.topic, {}), at)
        return by_topic

    plot = levels(
        view.with_lags(look),
        step_ms=STEP_MS,
        title="Lag by topic",
        unit="offsets",
        nothing="The group committed no offsets in the last hours.",
    )
    return page_request.page(request, "lag_chart.html", plot=plot)


def _add(points: dict[int, float], at: Moment) -> None:
    points[at.time_ms] = points.get(at.time_ms, 0.0) + at.lag


RESET_FIELDS: Final = ("topic", "to", "value")
"""Fields of the form of a reset."""


def preview(request: Request) -> Response:
    """Show the form of a reset with the offsets that it would set, or with the error beside a field."""
    return _preview(request, page_request.group_id(request), request.query_params)


def _preview(
    request: Request, group_id: str, given: Mapping[str, str], problem: page_request.InvalidFieldError | None = None
) -> Response:
    view, rows = page_request.site(request).view, list[tuple[int, int | None, int]]()
    typed = {field: given.get(field, "").strip() for field in RESET_FIELDS}
    topic = typed["topic"]
    try:
        now, then = _plan(view, group_id, **typed)
        rows += [(tp.partition, now.get(tp), offset) for tp, offset in sorted(then.items())]
    except page_request.REFUSED as error:
        problem = page_request.field_error(error, "value")
    topics = sorted({lag.partition.topic for lag in view.lags_of(group_id)})
    return page_request.page(
        request,
        "reset.html",
        400 if problem else 200,
        id=group_id,
        topic=topic,
        topics=topics,
        scenarios=SCENARIOS,
        typed=typed,
        rows=rows,
        problem=problem,
    )


def reset(request: Request) -> Response:
    """Set the offsets of the preview; or show it again with the reason why they were not set."""
    given, view = page_request.form(request), page_request.site(request).view
    group_id, topic = given.get("id", ""), given.get("topic", "")
    prefix = "offset-"
    offsets = {
        TopicPartition(topic, page_request.whole("partition", name.removeprefix(prefix))): OffsetAndMetadata(
            page_request.whole("offset", text)
        )
        for name, text in given.items()
        if name.startswith(prefix)
    }
    if not offsets:
        raise errors.IllegalArgumentError("no offsets to set: the form has no partitions")
    try:
        outcome = view.admin.alter_group_offsets(group_id, offsets)
    except page_request.REFUSED as error:
        return _preview(request, group_id, given, page_request.field_error(error, "offsets"))
    failed = sorted((tp.partition, error.__name__) for tp, error in outcome.items() if error is not errors.NoError)
    if failed:
        reason = f"offset of partition {failed[0][0]} not set: {failed[0][1]}; stop the group's members first"
        return _preview(request, group_id, given, page_request.InvalidFieldError("offsets", reason))
    return page_request.moved("/group", f"Set the offsets of {topic}.", id=group_id)


def delete(request: Request) -> Response:
    """Delete a group if the form repeats its name; or show the form again with the error."""
    group_id = page_request.group_id(request)
    confirm = page_request.form(request).get("confirm", "").strip()
    if confirm != group_id.strip():
        return _group(request, confirm, page_request.InvalidFieldError("confirm", "to delete the group, type its name"))
    outcome = page_request.site(request).view.admin.delete_groups([group_id])[group_id]
    if outcome != "OK":
        problem = page_request.InvalidFieldError("confirm", f"the group was not deleted: {outcome}")
        return _group(request, confirm, problem)
    return page_request.moved("/groups", f"Deleted group {group_id}.")


def _partitions(view: ConsoleView, topic: str) -> Sequence[int]:
    try:
        return view.cluster.topic(topic).partitions
    except (errors.InvalidTopicError, errors.UnknownTopicOrPartitionError) as error:
        raise page_request.InvalidFieldError("topic", str(error)) from None


def _plan(
    view: ConsoleView, group_id: str, topic: str, to: str, value: str
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return the committed offsets, and the offsets of a scenario."""
    partitions = [TopicPartition(topic, p) for p in _partitions(view, topic)]
    committed = view.admin.list_group_offsets({group_id: None}).get(group_id, {})
    now = {tp: held.offset for tp, held in committed.items() if tp.topic == topic}
    wanted: dict[TopicPartition, Any]
    if to in {"earliest", "latest"}:
        wanted = dict.fromkeys(partitions, OffsetSpec.EARLIEST if to == "earliest" else OffsetSpec.LATEST)
    elif to == "time":
        wanted = dict.fromkeys(partitions, OffsetTimestamp(page_request.moment("value", value)))
    elif to == "offset":
        wanted = dict.fromkeys(partitions, page_request.whole("value", value))
    elif to == "shift":
        sign, digits = (-1, value[1:]) if value.startswith("-") else (1, value.removeprefix("+"))
        moved_to = shifted(now, partitions, sign * page_request.whole("value", digits))
        wanted = {tp: storable(offset) for tp, offset in moved_to.items()}
    else:
        raise page_request.InvalidFieldError("to", f"choose {', '.join(SCENARIOS)}; not {to[:40]!r}")
    return now, view.admin.resolve_offsets(wanted)
