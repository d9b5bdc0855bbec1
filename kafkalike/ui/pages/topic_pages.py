"""Pages of topics: list, partitions, segments, settings, history and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.lag import PartitionIndex
from kafkalike.model.structs import ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from kafkalike.ui.page_request import (
    LinePlot,
    form,
    line,
    moved,
    number,
    optional,
    page,
    paged,
    query_parameter,
    site,
    thinned,
    whole,
)

PER_PAGE: Final = 50

SEGMENTS_PER_PAGE: Final = 100


def topics(request: Request) -> Response:
    """List topics; the page loads the figures by another request."""
    found = _some(request)
    return page(request, "topics.html", figures=None, said=query_parameter(request, "said"), **found)


def topic_rows(request: Request) -> Response:
    """Return the rows of the list with figures."""
    found = _some(request)
    figures = site(request).view.figures([info.name for info in found["topics"]])
    return page(request, "topic_rows.html", figures=figures, **found)


def _some(request: Request) -> dict[str, Any]:
    wanted = query_parameter(request, "q").lower()
    known = sorted(site(request).view.topics().values(), key=lambda info: info.name)
    matching = [info for info in known if wanted in info.name.lower()]
    some, at, pages = paged(request, matching, PER_PAGE)
    return {
        "topics": some,
        "q": query_parameter(request, "q"),
        "count": len(matching),
        "known": len(known),
        "at": at,
        "pages": pages,
    }


def create(request: Request) -> Response:
    """Create the topic of the form."""
    given = form(request)
    name = given.get("name", "").strip()
    partitions = whole("partitions", given.get("partitions", "").strip(), -1)
    configs = dict(_setting(line) for line in given.get("configs", "").splitlines() if line.strip())
    site(request).view.admin.create_topics([NewTopic(name, partitions, -1, topic_configs=configs)])
    return moved(f"/topics/{name}", f"Created topic {name}.")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise IllegalArgumentError(f"settings must be lines NAME=VALUE, not {text[:80]!r}")
    return name.strip(), value.strip()


def topic(request: Request) -> Response:
    """Show the partitions and the growth of a topic."""
    name = request.path_params["name"]
    view = site(request).view
    partitions = view.partitions(name)
    return page(
        request,
        "topic.html",
        info=view.cluster.topic(name),
        partitions=partitions,
        growth=_growth(partitions),
        said=query_parameter(request, "said"),
        size=sum(segment.size_bytes for index in partitions.values() for segment in index.segments),
        records=sum(index.records_from(index.log_start) for index in partitions.values()),
        name=name,
    )


def _growth(partitions: Mapping[int, PartitionIndex]) -> LinePlot | None:
    """Plot the records of the live segments by time."""
    ends = sorted(
        (segment.max_timestamp, segment.num_records) for index in partitions.values() for segment in index.segments
    )
    total, points = 0, []
    for time, records in ends:
        total += records
        points.append((time, float(total)))
    return line(thinned(points))


def segments(request: Request) -> Response:
    """List the data files of a partition."""
    name, partition = request.path_params["name"], number(request, "partition", 0)
    found = site(request).view.partitions(name)
    if partition not in found:
        raise IllegalArgumentError(f"{name} has no partition {partition}; it has {len(found)} partitions")
    whole_run = found[partition].segments
    # The last page has the newest segments.
    some, at, pages = paged(request, whole_run, SEGMENTS_PER_PAGE, len(whole_run))
    return page(
        request,
        "segments.html",
        name=name,
        partition=partition,
        partitions=list(found),
        segments=some,
        count=len(whole_run),
        at=at,
        pages=pages,
    )


def settings(request: Request) -> Response:
    """Show the settings of a topic with their sources."""
    name = request.path_params["name"]
    return page(
        request,
        "settings.html",
        name=name,
        settings=list(_settings(request, name)),
        said=query_parameter(request, "said"),
    )


def _settings(request: Request, name: str) -> Iterable[dict[str, Any]]:
    view = site(request).view
    view.cluster.topic(name)
    told = view.admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name)], include_synonyms=True, config_filter="all"
    )
    for setting, said in sorted(told["topic"][name].items()):
        yield {"name": setting, **said}


def change_setting(request: Request) -> Response:
    """Set a setting of a topic, or reset it to its default."""
    name, given = request.path_params["name"], form(request)
    setting = given.get("setting", "").strip()
    admin = site(request).view.admin
    if given.get("action") == "reset":
        admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, [setting])], raise_errors=True)
        return moved(f"/topics/{name}/settings", f"Reset {setting} to its default.")
    value = given.get("value", "").strip()
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {setting: value})], raise_errors=True)
    return moved(f"/topics/{name}/settings", f"Set {setting} to {value}.")


def add_partitions(request: Request) -> Response:
    """Raise the number of partitions of a topic."""
    name = request.path_params["name"]
    total = whole("partitions", form(request).get("partitions", "").strip(), 0)
    site(request).view.admin.create_partitions({name: total})
    return moved(f"/topics/{name}", f"Raised the partitions of {name} to {total}.")


def delete(request: Request) -> Response:
    """Delete a topic; the form must repeat its name."""
    name = request.path_params["name"]
    if form(request).get("confirm", "").strip() != name:
        raise IllegalArgumentError("To delete a topic, type its name into the field.")
    site(request).view.admin.delete_topics([name])
    return moved("/topics", f"Deleted topic {name}.")


def delete_records(request: Request) -> Response:
    """Delete the records of a partition below an offset."""
    name, given = request.path_params["name"], form(request)
    partition = whole("partition", given.get("partition", "").strip(), 0)
    before = whole("offset", given.get("offset", "").strip(), 0)
    site(request).view.admin.delete_records({TopicPartition(name, partition): before})
    return moved(f"/topics/{name}", f"Deleted the records of partition {partition} below offset {before}.")


def history(request: Request) -> Response:
    """Show the events of a topic."""
    from kafkalike.maintenance.verify.topic_history import topic_history

    name = request.path_params["name"]
    events = topic_history(site(request).view.cluster, name)
    offset, partition = optional(request, "offset"), optional(request, "partition")
    return page(
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
    view = site(request).view
    view.cluster.topic(name)
    return page(request, "topic_groups.html", name=name, groups=view.groups_of(name))
