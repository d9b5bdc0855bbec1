"""ConsumerConfig: keyword arguments of a `KafkaConsumer` in, checked settings with kafka-python's names out."""

from __future__ import annotations

import logging
import math
import operator
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from kafkalike.errors import InvalidGroupIdError, KafkaConfigurationError
from kafkalike.model.config.client_config import build, choice, flag, number, optional, text
from kafkalike.model.config.dead_letter_config import CHECKS as DEAD_LETTER_CHECKS
from kafkalike.model.config.dead_letter_config import DeadLetterSettings, check_dead_letters
from kafkalike.model.config.storage_options import Address, StorageOptions, check_options
from kafkalike.model.names import check_group_id

log = logging.getLogger(__name__)

WITHOUT_EFFECT: Final = frozenset(
    {
        "api_version",
        "api_version_auto_timeout_ms",
        "bootstrap_timeout_ms",
        "check_crcs",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "enable_incremental_fetch_sessions",
        "max_in_flight_requests_per_connection",
        "metric_group_prefix",
        "metrics_num_samples",
        "metrics_sample_window_ms",
        "net",
        "receive_buffer_bytes",
        "receive_message_max_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "send_buffer_bytes",
        "socket_connection_setup_timeout_max_ms",
        "socket_connection_setup_timeout_ms",
    }
)
"""Settings that ported code passes and that change nothing here, as there is no network.
A value that is plainly wrong is refused; each is named once in the log."""

_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_INSTANCE_ID: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(DeadLetterSettings):
    """Settings of a consumer; kafka-python 3.x's names and defaults.

    Times are ms, sizes bytes. Settings in `WITHOUT_EFFECT` are taken for the sake of ported code only.
    """

    bootstrap_servers: Address | None = None
    """The cluster: a path or URI, a list with one of them, or an opened `Cluster`. None takes the environment
    variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else `./kafkalike-data`."""
    storage_options: StorageOptions | None = None
    """Of a root in an object store: a dict by obstore's names, such as `access_key_id` or
    `AWS_ACCESS_KEY_ID`. Environment variables say what it does not. Never shown."""
    client_id: str = "kafkalike"
    """Name of this client; shown beside the offsets it commits."""
    group_id: str | None = None
    """Consumer group, under which offsets are committed. None: no commits, and `subscribe` takes all partitions."""
    group_instance_id: str | None = None
    """Name that a member keeps over restarts: a static member. It does not leave its group when it is closed, and one
    that comes back under the same name within `session_timeout_ms` goes on with its partitions, without a rebalance.
    Another process that takes the name while this one lives fences it (`FencedInstanceIdError`). Needs `group_id`."""
    key_deserializer: Any = None
    """`Deserializer`, or a callable of the bytes; None leaves bytes."""
    value_deserializer: Any = None
    """`Deserializer`, or a callable of the bytes; None leaves bytes."""
    auto_offset_reset: str = "latest"
    """Where to begin without a committed offset, or when the position is out of range: `earliest`, `latest`, or
    `none`, which raises `NoOffsetForPartitionError` or `OffsetOutOfRangeError`."""
    enable_auto_commit: bool = True
    """Whether positions are committed by `poll` and `close`. Has no effect without `group_id`."""
    auto_commit_interval_ms: float = 5000
    """ms between two automatic commits."""
    default_offset_commit_callback: Callable[[Any, Any], Any] | None = None
    """Called as `callback(offsets, error_or_None)` after automatic commits and after `commit_async` without a
    callback. None logs a warning when the commit failed."""
    max_poll_records: int = 500
    """Most records that one `poll` returns."""
    fetch_min_bytes: int = 1
    """`poll` holds records back until so many bytes are there, but no longer than `fetch_max_wait_ms`."""
    fetch_max_wait_ms: float = 500
    """ms that `poll` may hold records back for the sake of `fetch_min_bytes`; below `request_timeout_ms`."""
    fetch_max_bytes: int = 52_428_800
    """Bytes after which one `poll` stops reading; the first read is made whatever its size."""
    max_partition_fetch_bytes: int = 1_048_576
    """Bytes near which one read of one partition stops; a larger record is still read, alone."""
    consumer_timeout_ms: float = math.inf
    """ms without a record after which iteration ends. Infinity or -1: never."""
    metadata_max_age_ms: float = 300_000
    """ms after which topics are looked up again. They also are whenever the log is looked at, since that is cheap;
    this bounds it for a consumer that lives on its buffer."""
    exclude_internal_topics: bool = True
    """Whether a pattern passes over names that begin with `__`. kafkalike's own tables are no topics in any case."""
    allow_auto_create_topics: bool = True
    """A consumer never creates a topic. True: a topic that is missing when it is subscribed or assigned by name is
    treated as if it were created then, so that it is read from its beginning once it appears, whatever
    `auto_offset_reset` says. That is what Kafka's automatic creation comes to. False: `auto_offset_reset` holds."""
    request_timeout_ms: float = 30_000
    """ms for the commit that `close` makes. As in kafka-python it must be above `fetch_max_wait_ms` and below
    `connections_max_idle_ms`."""
    default_api_timeout_ms: float = 60_000
    """ms that `commit` may take when no timeout is given; and for which polls return nothing, instead of raising, while
    an object store gives no answer."""
    retry_backoff_ms: float = 100
    """ms until an automatic commit that failed for a passing reason is tried again."""
    isolation_level: str = "read_uncommitted"
    """`read_uncommitted` or `read_committed`. Both read the same: records of an open or aborted transaction are in no
    topic, and of a committed one a topic gets all records at once. So nobody waits for an open transaction."""
    metrics_enabled: bool = True
    """Whether `metrics()` answers."""
    metric_reporters: Any = ()
    """Must be empty: read `metrics()`."""
    session_timeout_ms: float = 45_000
    """ms without a heartbeat after which the group takes a member for dead and shares out its partitions. It has no
    lower bound; in an object store, where a heartbeat is a request, some seconds are wise."""
    heartbeat_interval_ms: float = 3000
    """ms between two heartbeats, given by a thread of its own; below `session_timeout_ms`, a third of it at most
    as a rule. The others are looked after at the same interval, and their changes are seen by each `poll`. In an object
    store, where each is a request that costs money, the default is 10,000, or a third of a shorter session, but no
    less than here."""
    max_poll_interval_ms: float = 300_000
    """ms between two calls of `poll` after which the consumer leaves its group by itself: its application hangs."""
    partition_assignment_strategy: Any = None
    """How a group's partitions are shared out: a list of `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or
    of `PartitionAssignor` classes, the one liked best first. None: `range`, `roundrobin`. The group takes one that
    all members have."""
    check_crcs: bool = True
    """Without effect: the checksums of Parquet pages are always checked."""
    client_rack: str = ""
    """Rack where this client is, as brokers have it in `broker.rack`: of a cluster of several roots, data files are
    read at a replica there that is in sync, else at the leader. Without effect on a cluster of one root."""
    stripe_reads: bool = False
    """Whether the replicas in sync of a cluster of several roots take turns to give data files, file by file: those of
    `client_rack` if it has any, else all. Many consumers then read as fast as all roots together give. kafkalike's own:
    Kafka has no such setting. Without effect on a cluster of one root."""
    enable_incremental_fetch_sessions: bool = True
    """Without effect: there is no network."""
    max_in_flight_requests_per_connection: int = 5
    """Without effect: there is no network."""
    metric_group_prefix: str = "consumer"
    """Without effect: the groups of `metrics()` have Kafka's names."""

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ConsumerConfig:
        """Check keyword arguments.

        Args:
            configs: what the user gave to `KafkaConsumer`.

        Raises:
            KafkaConfigurationError: an unknown setting, one without meaning here, a value that is not allowed, or
                timeouts that contradict each other.
        """
        config = build(cls, configs, _CHECKS)
        if config.group_instance_id is not None and config.group_id is None:
            raise KafkaConfigurationError("setting 'group_instance_id' needs 'group_id'")
        check_dead_letters(config, config.group_id)
        if config.heartbeat_interval_ms >= config.session_timeout_ms:
            raise KafkaConfigurationError(
                f"setting 'heartbeat_interval_ms' ({config.heartbeat_interval_ms:g}) must be below "
                f"'session_timeout_ms' ({config.session_timeout_ms:g})"
            )
        if not config.fetch_max_wait_ms < config.request_timeout_ms < config.connections_max_idle_ms:
            raise KafkaConfigurationError(
                f"setting 'request_timeout_ms' ({config.request_timeout_ms:g}) must be above 'fetch_max_wait_ms' "
                f"({config.fetch_max_wait_ms:g}) and below 'connections_max_idle_ms' "
                f"({config.connections_max_idle_ms:g})"
            )
        if config.group_id is not None and config.heartbeat_interval_ms > config.session_timeout_ms / 3:
            log.warning(
                "consumer %s: heartbeat_interval_ms=%g is more than a third of session_timeout_ms=%g: one late "
                "heartbeat may end the session",
                config.client_id,
                config.heartbeat_interval_ms,
                config.session_timeout_ms,
            )
        idle = sorted(WITHOUT_EFFECT & configs.keys())
        if idle:
            log.warning("consumer %s: settings without effect here: %s", config.client_id, ", ".join(idle))
        return config

    def at(self, heartbeat_ms: float, given: Container[str]) -> Self:
        """The settings at a cluster that has a default of its own for heartbeats.

        Args:
            heartbeat_ms: that default, `Cluster.heartbeat_ms`. It gives way to a session that is shorter than three of
                them, down to Kafka's default.
            given: names of settings that the user gave; these stay as they are.
        """
        if "heartbeat_interval_ms" in given:
            return self
        least = self.heartbeat_interval_ms
        return replace(self, heartbeat_interval_ms=max(least, min(heartbeat_ms, self.session_timeout_ms / 3)))


def _count(low: int) -> Callable[[Any], int]:
    """Check of a whole number of bytes or records; NumPy's integers are taken."""
    bounded = number(low)

    def check(value: Any) -> int:  # noqa: ANN401
        if isinstance(value, bool):
            raise TypeError(f"a whole number is needed, not {value!r}")
        return int(bounded(operator.index(value)))

    return check


def _timeout(value: Any) -> float:  # noqa: ANN401
    """Check of `consumer_timeout_ms`: kafka-python takes -1 for never."""
    if type(value) is int and value == -1:
        return math.inf
    return number(0, infinite=True)(value)


def _reset(value: Any) -> str:  # noqa: ANN401
    """Check of `auto_offset_reset`."""
    new = _OLD_RESETS.get(value) if isinstance(value, str) else None
    if new is not None:
        log.warning("auto_offset_reset=%r is an old name of %r", value, new)
        return new
    chosen: str = choice("earliest", "latest", "none")(value)
    return chosen


def _group(value: Any) -> str:  # noqa: ANN401
    try:
        return check_group_id(value)
    except InvalidGroupIdError as cause:
        raise ValueError(str(cause)) from cause


def _instance(value: Any) -> str:  # noqa: ANN401
    """Check of a static member's name; Kafka's rule is that of topic names."""
    if not isinstance(value, str) or not _INSTANCE_ID.fullmatch(value) or value in {".", ".."}:
        raise ValueError(f"1 to 249 letters, digits, '.', '_' or '-' are needed, not {value!r}")
    return value


def _rack(value: Any) -> str:  # noqa: ANN401
    """Check of `client_rack`; empty for none."""
    return value if value == "" else text(value)


def _callback(value: Any) -> Callable[[Any, Any], Any]:  # noqa: ANN401
    if not callable(value):
        raise TypeError(f"a callable is needed, not {value!r}")
    called: Callable[[Any, Any], Any] = value
    return called


def _no_reporters(value: Any) -> tuple[()]:  # noqa: ANN401
    if value:
        raise ValueError("there is nothing to report to; read metrics()")
    return ()


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    **DEAD_LETTER_CHECKS,
    **{f.name: number(0) for f in fields(ConsumerConfig) if f.name.endswith("_ms")},
    **dict.fromkeys(("heartbeat_interval_ms", "max_poll_interval_ms", "session_timeout_ms"), number(1)),
    **dict.fromkeys(
        (
            "allow_auto_create_topics",
            "check_crcs",
            "enable_auto_commit",
            "enable_incremental_fetch_sessions",
            "exclude_internal_topics",
            "metrics_enabled",
            "stripe_reads",
        ),
        flag,
    ),
    "client_id": text,
    "client_rack": _rack,
    "storage_options": check_options,
    "group_id": optional(_group),
    "group_instance_id": optional(_instance),
    "auto_offset_reset": _reset,
    "default_offset_commit_callback": optional(_callback),
    "max_poll_records": _count(1),
    "fetch_min_bytes": _count(0),
    "fetch_max_bytes": _count(0),
    "max_partition_fetch_bytes": _count(0),
    "consumer_timeout_ms": _timeout,
    "isolation_level": choice("read_uncommitted", "read_committed"),
    "metric_reporters": _no_reporters,
    "max_in_flight_requests_per_connection": _count(1),
}
