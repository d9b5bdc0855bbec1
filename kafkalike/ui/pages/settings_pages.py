"""Pages of settings of a topic and of the cluster, with meaning, default, origin, changes, and a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.brokers import Defaults
from kafkalike.model.cluster_state import TopicChange, parse_row
from kafkalike.model.config.properties import LONG_MAX
from kafkalike.model.structs import ConfigResource, ConfigResourceType
from kafkalike.ui.page_request import (
    REFUSED,
    InvalidFieldError,
    field_error,
    form,
    moved,
    page,
    query_parameter,
    site,
)

MOST_CHANGES: Final = 100
"""Maximum number of changes on a page, newest first."""

TIMES: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))
SIZES: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

UNITS: Final[Mapping[str, Mapping[str, int]]] = {
    "ms": {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    | {f"{name}{end}": span for name, span in TIMES for end in ("", "s")},
    "bytes": {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
    | {name.lower(): span for name, span in SIZES},
}
"""Units that the form takes, by the last word of a setting's name."""

SOURCES: Final = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "the cluster",
    "STATIC_BROKER_CONFIG": "server.properties",
    "DEFAULT_CONFIG": "default",
}
"""Words for the origin of a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A change of a setting."""

    time_ms: int
    name: str
    before: str | None
    """Value before; None if the default applied."""
    after: str | None
    """Value after; None if the default applies again."""


def friendly(name: str, value: str) -> str:
    """Return a value in a unit for people; empty for other values.

    Args:
        name: name of the setting, whose last word is its unit.
        value: the value as text.
    """
    unit = name.rpartition(".")[2]
    if unit not in UNITS or not re.fullmatch(r"-?\d{1,19}", value):
        return ""
    number = int(value)
    if number in {-1, LONG_MAX}:
        return "no limit"
    for word, span in TIMES if unit == "ms" else SIZES:
        if number >= span:
            count = number / span
            exact = number % span == 0
            said = f"{number // span}" if exact else f"about {count:.3g}"
            return f"{said} {word}{'s' if unit == 'ms' and said != '1' else ''}"
    return ""


def parsed_value(name: str, text: str) -> str:
    """Return the value of a form: a number with a unit, such as `7 days` or `64 MiB`, becomes ms or bytes.

    Args:
        name: name of the setting.
        text: the input.

    Raises:
        IllegalArgumentError: the setting does not have this unit.
    """
    unit = name.rpartition(".")[2]
    found = re.fullmatch(r"(\d{1,15})\s*([A-Za-z]+)", text)
    if unit not in UNITS or found is None:
        return text
    span = UNITS[unit].get(found[2].lower())
    if span is None:
        raise IllegalArgumentError(f"{found[2]!r} is not a unit; {name} takes {', '.join(UNITS[unit])}")
    return str(int(found[1]) * span)


def topic_settings(request: Request) -> Response:
    """Show the settings of a topic."""
    name = request.path_params["name"]
    site(request).view.cluster.topic(name)
    return _settings(request, ConfigResource(ConfigResourceType.TOPIC, name), query_parameter(request, "edit"))


def cluster_settings(request: Request) -> Response:
    """Show the settings of the cluster, which are defaults of topics and of maintenance."""
    return _settings(request, ConfigResource(ConfigResourceType.BROKER, ""), query_parameter(request, "edit"))


def _settings(
    request: Request,
    resource: ConfigResource,
    edited: str,
    typed: str | None = None,
    problem: InvalidFieldError | None = None,
) -> Response:
    view = site(request).view
    told = view.admin.describe_configs([resource], include_synonyms=True, config_filter="all")
    (settings,) = (by_name[str(resource.name)] for by_name in told.values())
    changes = _changes(view.cluster, str(resource.name))
    if edited and edited not in settings:
        raise IllegalArgumentError(f"unknown setting {edited[:80]!r}")
    return page(
        request,
        "settings.html",
        400 if problem else 200,
        name=str(resource.name),
        rows=[_row(name, told) for name, told in sorted(settings.items())],
        changes=changes[::-1][:MOST_CHANGES],
        edited=_row(edited, settings[edited]) if edited else None,
        typed=typed,
        problem=problem,
        changed_ms={change.name: change.time_ms for change in changes},
        friendly=friendly,
        said=query_parameter(request, "said"),
    )


def _row(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    origins = [
        {"source": SOURCES.get(str(one["source"]), str(one["source"])), "value": str(one["value"])}
        for one in told["synonyms"]
    ]
    return {
        "name": name,
        "value": str(told["value"]),
        "origin": origins[0]["source"] if origins else "default",
        "default": origins[-1]["value"] if origins else str(told["value"]),
        "others": origins[1:-1],
        "is_own": not told["is_default"] and bool(origins) and origins[0]["source"] != "default",
        "read_only": bool(told["read_only"]),
        "doc": str(told["documentation"] or "").replace("`", ""),
    }


def _changes(cluster: Cluster, topic: str) -> list[SettingChange]:
    """Return the changes of settings of a topic, or of the cluster (an empty name), oldest first.

    They are as old as the rows of the cluster's metadata, whose cleaning keeps only the newest state.
    """
    found: list[SettingChange] = []
    before: Mapping[str, str] = {}
    topic_id = str(cluster.topic(topic).topic_id) if topic else ""
    cluster.metadata.refresh()
    for row in cluster.metadata.rows:
        said = parse_row(row) if (row.topic, row.topic_id) == (topic, topic_id) else None
        if isinstance(said, TopicChange):
            after = said.info.configs
        elif isinstance(said, Defaults):
            after = said.settings
        else:
            continue
        found += [
            SettingChange(time_ms=row.time_ms, name=name, before=before.get(name), after=after.get(name))
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        ]
        before = after
    return found


def change_topic_setting(request: Request) -> Response:
    """Set a setting of a topic, or reset it to its default."""
    name = request.path_params["name"]
    return _change(request, ConfigResourceType.TOPIC, name, f"/topics/{name}/settings")


def change_cluster_setting(request: Request) -> Response:
    """Set a setting of the cluster, or reset it to its default."""
    return _change(request, ConfigResourceType.BROKER, "", "/cluster/settings")


def _change(request: Request, kind: ConfigResourceType, name: str, path: str) -> Response:
    given = form(request)
    setting = given.get("setting", "").strip()
    typed, admin = given.get("value", "").strip(), site(request).view.admin
    try:
        if given.get("action") == "reset":
            admin.reset_configs([ConfigResource(kind, name, [setting])], raise_errors=True)
            return moved(path, f"Reset {setting} to its default.")
        value = parsed_value(setting, typed)
        admin.alter_configs([ConfigResource(kind, name, {setting: value})], raise_errors=True)
    except REFUSED as error:
        return _settings(request, ConfigResource(kind, name), setting, typed, field_error(error, "value"))
    unit = friendly(setting, value)
    return moved(path, f"Set {setting} to {value}{f', which is {unit}' if unit else ''}.")
