"""Group settings, with Kafka's names: a member's own setting precedes its group's, which precedes the server's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kafkalike.model.config.consumer_config import share_reset
from kafkalike.model.config.properties import INT_MAX, Property, PropertySet, one_of, whole
from kafkalike.model.config.server_config import SERVER_PROPERTIES
from kafkalike.model.group_rows import CONFIG, VERSIONS, GroupRow
from kafkalike.model.row_value import VERSION

SESSION: Final = "share.session.timeout.ms"
HEARTBEAT: Final = "share.heartbeat.interval.ms"
RESET: Final = "share.auto.offset.reset"

SERVER_DEFAULTS: Final = {
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
}
"""Settings of the server that hold for groups without their own setting."""


def _as_server(name: str, doc: str) -> Property:
    """Return a setting with the values and the default of the server's."""
    server = SERVER_PROPERTIES.properties[SERVER_DEFAULTS[name]]
    return Property(name=name, parse=server.parse, default=server.default, doc=doc)


GROUP_PROPERTIES: Final = PropertySet(
    "group",
    [
        Property(
            name=RESET,
            parse=share_reset,
            default="latest",
            doc="Where a share group begins in a partition: `latest`, `earliest` or `by_duration:` with an ISO 8601 "
            "duration.",
        ),
        _as_server("share.delivery.count.limit", "Most deliveries of a record; after them it is archived."),
        Property(
            name=HEARTBEAT,
            parse=whole(1, INT_MAX),
            default="5000",
            doc="Time (ms) between two heartbeats of a member that joins from now on.",
        ),
        Property(
            name="share.isolation.level",
            parse=one_of("read_uncommitted", "read_committed"),
            default="read_uncommitted",
            doc="Both values deliver the same records, because uncommitted ones are not in a topic.",
        ),
        _as_server("share.partition.max.record.locks", "Most records of a partition in flight."),
        _as_server("share.record.lock.duration.ms", "How long (ms) a member locks the records that it has acquired."),
        Property(
            name=SESSION,
            parse=whole(1, INT_MAX),
            default="45000",
            doc="Time (ms) without a heartbeat after which a member that joins from now on is removed.",
        ),
    ],
    meaningless={
        **dict.fromkeys(
            ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"),
            "each consumer sets heartbeat_interval_ms and session_timeout_ms itself",
        ),
        **dict.fromkeys(
            ("streams.heartbeat.interval.ms", "streams.num.standby.replicas", "streams.session.timeout.ms"),
            "there are no streams groups",
        ),
        "share.renew.acknowledge.enable": "members may always renew their locks",
    },
)


def group_setting(configs: Mapping[str, str], name: str) -> int:
    """Return a number that is set for a group, or its default."""
    return int(configs.get(name, GROUP_PROPERTIES.properties[name].default))


def config_row(seq: int, group_id: str, configs: Mapping[str, str], now_ms: int) -> GroupRow:
    """Return the row with the settings of a group; none deletes them."""
    value = json.dumps({VERSION: VERSIONS[CONFIG], "configs": dict(configs)}, separators=(",", ":"))
    return GroupRow(seq=seq, kind=CONFIG, group_id=group_id, value=value, time_ms=now_ms)
