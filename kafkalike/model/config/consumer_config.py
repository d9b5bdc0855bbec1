"""ConsumerConfig: check the keyword arguments of a `KafkaConsumer`; settings have kafka-python's names."""

from __future__ import annotations

import logging
import math
import operator
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from kafkalike.errors import InvalidGroupIdError, InvalidTopicError, KafkaConfigurationError
from kafkalike.model.config.client_config import IdleSettings, build, choice, flag, number, optional, text
from kafkalike.model.config.dead_letter_config import CHECKS as DEAD_LETTER_CHECKS
from kafkalike.model.config.dead_letter_config import DeadLetterSettings, check_dead_letters
from kafkalike.model.config.storage_options import Address, StorageOptions, check_options
from kafkalike.model.names import check_group_id, check_topic_name

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
"""Settings that ported code passes and that have no effect, because kafkalike does not use a network. Values of
a wrong type are rejected. The log names each of them once."""

_OLD_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_INSTANCE_ID: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(DeadLetterSettings):
    """Settings of a consumer, with kafka-python 3.x's names and defaults.

    Times are ms, sizes bytes. Settings in `WITHOUT_EFFECT` are accepted only for ported code.
    """

    bootstrap_servers: Address | None = None
    """The cluster: a path or URI, a list of roots, or an opened `Cluster`. None for the environment variable
    `KAFKALIKE_BOOTSTRAP_SERVERS`, or `./kafkalike-data` without it."""
    storage_options: StorageOptions | None = None
    """Options of a root in an object store: a dict by obstore's names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`.
    Environment variables are used for missing options. Values are never shown."""
    client_id: str = "kafkalike"
    """Name of this client, stored with the offsets that it commits."""
    group_id: str | None = None
    """Consumer group whose offsets are committed. None: no commits, and `subscribe` assigns all partitions."""
    group_instance_id: str | None = None
    """Name of a static member, which it keeps over restarts. A static member does not leave its group when it is
    closed; if it comes back under the same name within `session_timeout_ms`, it keeps its partitions without a
    rebalance. If another process takes the name meanwhile, this member is fenced (`FencedInstanceIdError`). Needs
    `group_id`."""
    key_deserializer: Any = None
    """`Deserializer`, or a callable of the bytes; None returns bytes."""
    value_deserializer: Any = None
    """`Deserializer`, or a callable of the bytes; None returns bytes."""
    auto_offset_reset: str = "latest"
    """Start position without a committed offset, or if the position is out of range: `earliest`, `latest`, or `none`,
    which raises `NoOffsetForPartitionError` or `OffsetOutOfRangeError`."""
    enable_auto_commit: bool = True
    """True to commit positions in `poll` and `close`. Has no effect without `group_id`."""
    auto_commit_interval_ms: float = 5000
    """ms between two automatic commits."""
    default_offset_commit_callback: Callable[[Any, Any], Any] | None = None
    """Called as `callback(offsets, error_or_None)` after automatic commits, and after `commit_async` without a
    callback. With None, failed commits are logged as warnings."""
    max_poll_records: int = 500
    """Most records that one `poll` returns."""
    fetch_min_bytes: int = 1
    """Bytes for which `poll` waits before it returns records, at most for `fetch_max_wait_ms`."""
    fetch_max_wait_ms: float = 500
    """ms that `poll` waits at most for `fetch_min_bytes`; must be below `request_timeout_ms`."""
    fetch_max_bytes: int = 52_428_800
    """Bytes after which one `poll` stops reading; the first read is made regardless of its size."""
    max_partition_fetch_bytes: int = 1_048_576
    """Bytes near which one read of one partition stops; a larger record is read alone."""
    consumer_timeout_ms: float = math.inf
    """ms without a record after which iteration ends. Infinity or -1: never."""
    metadata_max_age_ms: float = 300_000
    """ms after which topics are looked up again. Every look at the log also refreshes them; this setting limits the age
    for a consumer that returns buffered records only."""
    exclude_internal_topics: bool = True
    """True if a pattern does not match names with the prefix `__`. kafkalike's own tables never match."""
    allow_auto_create_topics: bool = True
    """A consumer never creates a topic. True: a topic that is missing when it is subscribed or assigned by name is read
    from its beginning once it exists, regardless of `auto_offset_reset`, as if it had been created at that time by
    Kafka's automatic creation. False: `auto_offset_reset` applies."""
    request_timeout_ms: float = 30_000
    """ms for the commit in `close`. As in kafka-python it must be above `fetch_max_wait_ms` and below
    `connections_max_idle_ms`."""
    default_api_timeout_ms: float = 60_000
    """ms that `commit` may take without an explicit timeout; also how long polls return nothing, instead of raising,
    while an object store does not answer."""
    retry_backoff_ms: float = 100
    """ms until a failed automatic commit is retried after a transient error."""
    isolation_level: str = "read_uncommitted"
    """`read_uncommitted` or `read_committed`. Both return the same records: records of an open or aborted transaction
    are not in any topic, and a topic gets all records of a committed one at once. Consumers never wait for an open
    transaction."""
    metrics_enabled: bool = True
    """True if `metrics()` returns values."""
    metric_reporters: Any = ()
    """Must be empty: read `metrics()`."""
    session_timeout_ms: float = 45_000
    """ms without a heartbeat after which the group expires a member and reassigns its partitions. Any value is allowed;
    use several seconds in an object store, where each heartbeat is a request."""
    heartbeat_interval_ms: float = 3000
    """ms between two heartbeats, sent by a separate thread; below `session_timeout_ms`, usually at most a third of it.
    Other members are checked at the same interval, and each `poll` sees their changes. In an object store, where each
    heartbeat is a paid request, the default is 10,000, or a third of a shorter session, but at least this default."""
    max_poll_interval_ms: float = 300_000
    """ms between two calls of `poll` after which the consumer leaves its group, because its application hangs."""
    partition_assignment_strategy: Any = None
    """Assignors of the group's partitions: a list of `range`, `roundrobin`, `sticky`, `cooperative-sticky`, or of
    `PartitionAssignor` classes, the preferred one first. None: `range`, `roundrobin`. The group uses an assignor that
    all members have."""
    check_crcs: bool = True
    """Without effect: the checksums of Parquet pages are always checked."""
    client_rack: str = ""
    """Rack of this client, as in `broker.rack`: in a cluster of several roots, data files are read from a replica in
    sync in this rack, otherwise from the leader. Without effect in a cluster of one root."""
    stripe_reads: bool = False
    """True to spread reads of data files over the replicas in sync of a cluster of several roots: over the replicas in
    `client_rack` if there are any, otherwise over all. Many consumers then read at the speed of all roots together. A
    setting of kafkalike only. Without effect in a cluster of one root."""
    enable_incremental_fetch_sessions: bool = True
    """Without effect: kafkalike does not use a network."""
    max_in_flight_requests_per_connection: int = 5
    """Without effect: kafkalike does not use a network."""
    metric_group_prefix: str = "consumer"
    """Without effect: the groups of `metrics()` have Kafka's names."""

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ConsumerConfig:
        """Check keyword arguments.

        Args:
            configs: the arguments of `KafkaConsumer`.

        Raises:
            KafkaConfigurationError: an unknown setting, a setting without a meaning here, a bad value, or contradictory
                timeouts.
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
        """Return the settings for a cluster with its own default of `heartbeat_interval_ms`.

        Args:
            heartbeat_ms: that default, `Cluster.heartbeat_ms`. For sessions shorter than three of these intervals it is
                reduced, down to Kafka's default.
            given: names of settings that the user has set, which stay.
        """
        if "heartbeat_interval_ms" in given:
            return self
        least = self.heartbeat_interval_ms
        return replace(self, heartbeat_interval_ms=max(least, min(heartbeat_ms, self.session_timeout_ms / 3)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(IdleSettings):
    """Settings of a share consumer. Names and defaults come from Kafka's clients and groups, with `_` for `.`."""

    bootstrap_servers: Address | None = None
    """The cluster, as for a `KafkaConsumer`."""
    storage_options: StorageOptions | None = None
    """Options of a root in an object store, as for a `KafkaConsumer`."""
    client_id: str = "kafkalike"
    """Name of this client, the beginning of its member id."""
    group_id: str | None = None
    """The share group; required."""
    key_deserializer: Any = None
    """`Deserializer`, or a callable of the bytes; None returns bytes."""
    value_deserializer: Any = None
    """`Deserializer`, or a callable of the bytes; None returns bytes."""
    max_poll_records: int = 500
    """Most records that one `poll` acquires and returns."""
    fetch_max_bytes: int = 52_428_800
    """Bytes after which one `poll` stops reading. Records that it has acquired and not read are given back."""
    max_partition_fetch_bytes: int = 1_048_576
    """Bytes near which one read of a file stops."""
    session_timeout_ms: float | None = None
    """ms without a heartbeat after which the group expires a member; None takes the group's
    `share.session.timeout.ms`, else 45,000. Its locks end by their own time."""
    heartbeat_interval_ms: float | None = None
    """ms between two heartbeats, sent by a separate thread; None takes the group's `share.heartbeat.interval.ms`, else
    5,000, and at most a third of the session."""
    max_poll_interval_ms: float = 300_000
    """ms between two calls of `poll` after which the consumer leaves its group."""
    default_api_timeout_ms: float = 60_000
    """ms that a commit of acknowledgements may wait for concurrent writers."""
    request_timeout_ms: float = 30_000
    """ms for the commit in `close`."""
    isolation_level: str = "read_uncommitted"
    """As with a `KafkaConsumer`, both values return the same records, because uncommitted ones are not in a topic."""
    errors_deadletterqueue_topic_name: str | None = None
    """Topic of the dead letters of records that were rejected, or delivered too often. A letter and the end of its
    record are one transaction. None: such records are only archived, as in Kafka."""
    share_acknowledgement_mode: str = "implicit"
    """`implicit`: `poll` and the commits accept all delivered records that were not acknowledged. `explicit`: the
    application acknowledges each record before the next `poll`. In both modes `close` releases the others."""
    share_acquire_mode: str = "batch_optimized"
    """`batch_optimized`: while the application is faster than the storage, one acquisition takes the records of several
    polls, which the next polls hand out; its acknowledgements are committed after 0.25 s at the latest, if it polls.
    `record_limit`: each poll acquires at most `max_poll_records`, so no record waits in a consumer that works on
    another one."""
    share_auto_offset_reset: str | None = None
    """Start of a partition that the group has never read: `latest`, `earliest`, or `by_duration:` with an ISO 8601
    duration such as `by_duration:PT12H`, counted back from now. None takes the group's setting, else `latest`."""
    share_record_lock_duration_ms: int | None = None
    """ms for which acquired records are locked; None takes the group's `share.record.lock.duration.ms`, else the
    server's `group.share.record.lock.duration.ms`."""
    share_delivery_count_limit: int | None = None
    """Most deliveries of a record; None takes the group's or the server's setting."""
    share_partition_max_record_locks: int | None = None
    """Most records of a partition in flight; None takes the group's or the server's setting."""

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ShareConsumerConfig:
        """Check keyword arguments.

        Raises:
            KafkaConfigurationError: an unknown setting, a bad value, or no `group_id`.
        """
        config = build(cls, configs, _SHARE_CHECKS)
        if config.group_id is None:
            raise KafkaConfigurationError("a share consumer needs the setting 'group_id', the name of its share group")
        beat, session = config.heartbeat_interval_ms or 5_000, config.session_timeout_ms or 45_000
        if beat >= session:
            raise KafkaConfigurationError(
                f"setting 'heartbeat_interval_ms' ({beat:g}) must be below 'session_timeout_ms' ({session:g})"
            )
        return config


def reset_ms(reset: str) -> int | None:
    """Return the duration of `by_duration` ms; None for the other values of `share.auto.offset.reset`."""
    kind, _, duration = reset.partition(":")
    return duration_ms(duration) if kind == "by_duration" else None


_DURATION: Final = re.compile(r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?", re.ASCII)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def duration_ms(text: str) -> int:
    """Return an ISO 8601 duration of days, hours, minutes and seconds in ms.

    Raises:
        ValueError: it is not one.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"an ISO 8601 duration such as PT12H is needed, not {text!r}")
    return sum(int(float(part or 0) * unit) for part, unit in zip(found.groups(), _UNITS_MS, strict=True))


def _letters(value: Any) -> str:  # noqa: ANN401
    """Check the name of a dead-letter topic."""
    try:
        return check_topic_name(value)
    except InvalidTopicError as cause:
        raise ValueError(str(cause)) from cause


def share_reset(value: Any) -> str:  # noqa: ANN401
    """Check where a share group begins.

    Raises:
        ValueError: it is not `earliest`, `latest` or `by_duration:` with a duration.
    """
    if isinstance(value, str) and value.startswith("by_duration:"):
        duration_ms(value.partition(":")[2])
        return value
    chosen: str = choice("earliest", "latest")(value)
    return chosen


def _count(low: int) -> Callable[[Any], int]:
    """Return a check of a whole number of bytes or records; NumPy's integers are allowed."""
    bounded = number(low)

    def check(value: Any) -> int:  # noqa: ANN401
        if isinstance(value, bool):
            raise TypeError(f"a whole number is needed, not {value!r}")
        return int(bounded(operator.index(value)))

    return check


def _timeout(value: Any) -> float:  # noqa: ANN401
    """Check `consumer_timeout_ms`; -1 means never, as in kafka-python."""
    if type(value) is int and value == -1:
        return math.inf
    return number(0, infinite=True)(value)


def _reset(value: Any) -> str:  # noqa: ANN401
    """Check `auto_offset_reset`, including its old names."""
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
    """Check a static member's name, by Kafka's rule of topic names."""
    if not isinstance(value, str) or not _INSTANCE_ID.fullmatch(value) or value in {".", ".."}:
        raise ValueError(f"1 to 249 letters, digits, '.', '_' or '-' are needed, not {value!r}")
    return value


def _rack(value: Any) -> str:  # noqa: ANN401
    """Check `client_rack`; empty for none."""
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

_SHARE_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    **{f.name: number(0) for f in fields(ShareConsumerConfig) if f.name.endswith("_ms")},
    **dict.fromkeys(("heartbeat_interval_ms", "session_timeout_ms"), optional(number(1))),
    "max_poll_interval_ms": number(1),
    **dict.fromkeys(("fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records"), _count(1)),
    **dict.fromkeys(
        ("share_delivery_count_limit", "share_partition_max_record_locks", "share_record_lock_duration_ms"),
        optional(_count(1)),
    ),
    **{name: _CHECKS[name] for name in ("client_id", "group_id", "isolation_level", "storage_options")},
    "errors_deadletterqueue_topic_name": optional(_letters),
    "share_acquire_mode": choice("batch_optimized", "record_limit"),
    "share_acknowledgement_mode": choice("implicit", "explicit"),
    "share_auto_offset_reset": optional(share_reset),
}
