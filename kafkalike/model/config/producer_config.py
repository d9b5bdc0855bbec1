"""ProducerConfig: check the keyword arguments of a `KafkaProducer`; settings have kafka-python's names."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.client_config import IdleSettings, build, choice, flag, number, optional, text
from kafkalike.model.config.storage_options import Address, StorageOptions, check_options
from kafkalike.model.config.topic_config import CODECS

log = logging.getLogger(__name__)

WITHOUT_EFFECT: Final = frozenset(
    {
        "api_version",
        "api_version_auto_timeout_ms",
        "bootstrap_timeout_ms",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "default_api_timeout_ms",
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
"""Settings that ported code passes and that have no effect, because kafkalike does not use a network and a topic has
one append in flight at a time. Values of a wrong type are rejected. The log names each of them once."""

MAX_IN_FLIGHT: Final = 5
"""Most requests in flight with Kafka's idempotence; a higher value disables it or is rejected, as in kafka-python."""

_names = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(IdleSettings):
    """Settings of a producer, with kafka-python 3.x's names and defaults.

    Times are ms, sizes bytes. Settings in `WITHOUT_EFFECT` are accepted only for ported code.
    """

    bootstrap_servers: Address | None = None
    """The cluster: a path or URI, a list of roots, or an opened `Cluster`. None for the environment variable
    `KAFKALIKE_BOOTSTRAP_SERVERS`, or `./kafkalike-data` without it."""
    storage_options: StorageOptions | None = None
    """Options of a root in an object store: a dict by obstore's names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`.
    Environment variables are used for missing options. Values are never shown."""
    client_id: str | None = None
    """Name of this client in log lines. None for `kafkalike-producer-N`."""
    key_serializer: Any = None
    """`Serializer`, or a callable of the key; None accepts bytes only."""
    value_serializer: Any = None
    """`Serializer`, or a callable of the value; None accepts bytes only."""
    acks: int | str = -1
    """When a record counts as sent. -1, `all` and 1: after its table commit, with several roots at all replicas in
    sync, because 1 is treated as `all`. 0: at once; its future has offset -1, and errors are only logged. `of` converts
    `all` to -1."""
    enable_idempotence: bool = True
    """Retries never duplicate a record, with either value: each write has an id by which its outcome is found, and only
    writes that certainly did not happen are repeated. The setting follows Kafka's rule: acks 0 or 1, retries=0 or more
    than 5 requests in flight disable it with a warning, or are rejected if it was set explicitly or required by
    `transactional_id`."""
    retries: float = math.inf
    """Number of retries of a batch after transient errors, within `delivery_timeout_ms`. 0: never."""
    retry_backoff_ms: float = 100
    """ms until a batch is retried. Other topics are served meanwhile."""
    delivery_timeout_ms: float = 120_000
    """ms from `send` after which an unwritten record fails with `KafkaTimeoutError`; for the records of a batch it
    counts from the first one. At least `linger_ms` + `request_timeout_ms`, as in Kafka: a lower value is rejected, and
    the default is raised to it."""
    request_timeout_ms: float = 30_000
    """ms that one append may wait for other writers of the topic before other topics are served and it is retried,
    which counts toward `retries`."""
    batch_size: int = 16_384
    """Bytes per partition, averaged over a topic's partitions, at which a batch is sent without waiting for
    `linger_ms`. An append may be larger: one append takes all queued records of its topic."""
    linger_ms: float = 0
    """ms that a topic's first queued record waits for more. 0: sent at once; records that arrive during an append go
    with the next one, so batches grow with the load."""
    buffer_memory: int = 33_554_432
    """Bytes of records (keys, values, headers, and 70 bytes for each record) that may be queued or in flight. At this
    limit `send` blocks."""
    max_block_ms: float = 60_000
    """ms that `send` may block while the buffer is full; then it raises `KafkaTimeoutError`."""
    max_request_size: int = 1_048_576
    """Largest record in bytes, counted as for `buffer_memory`; `send` rejects a larger one."""
    compression_type: str | None = None
    """Codec of the data files in a topic whose own `compression.type` is `producer`: gzip, snappy, lz4, zstd, or None
    (`none`) for no compression."""
    partitioner: Any = None
    """Chooses partitions: a `Partitioner`, or a 2.x callable `(key, all, available)`. None: `DefaultPartitioner()`,
    which uses murmur2 of the serialized key, or a random partition without a key."""
    allow_auto_create_topics: bool = True
    """True if `send` and `partitions_for` create a missing topic, provided that the server's
    `auto.create.topics.enable` allows it. Otherwise they raise `UnknownTopicOrPartitionError`."""
    metadata_max_age_ms: float = 300_000
    """ms after which a user's partitioner must see new partitions. Every append refreshes them; this setting limits the
    age for an idle producer."""
    transactional_id: str | None = None
    """Name of the producer's transactions over restarts: a newer producer with the name fences the older one. It
    enables idempotence and rejects settings that exclude it. None: no transactions."""
    transaction_timeout_ms: float = 60_000
    """ms after the first record of a transaction from which it cannot be committed and maintenance may abort it; at
    most the server's `transaction.max.timeout.ms`. Consumers do not wait for an open transaction meanwhile."""
    metrics_enabled: bool = True
    """True if `metrics()` returns values."""
    metric_reporters: Any = ()
    """Must be empty: read `metrics()`."""
    max_in_flight_requests_per_connection: int = 5
    """Without effect, apart from the rule of `enable_idempotence`: a topic has one append in flight at a time, so
    retries keep the order."""
    default_api_timeout_ms: float = 60_000
    """Without effect: producers do not use it."""
    metric_group_prefix: str = "producer"
    """Without effect: the groups of `metrics()` have Kafka's names."""

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ProducerConfig:
        """Check keyword arguments.

        Args:
            configs: the arguments of `KafkaProducer`.

        Returns:
            The settings, with a `client_id`, and with `enable_idempotence` off if other settings exclude it.

        Raises:
            KafkaConfigurationError: an unknown setting, a setting without a meaning here, a bad value, or values that
                exclude each other.
        """
        config = build(cls, configs, _CHECKS)
        if config.client_id is None:
            config = replace(config, client_id=f"kafkalike-producer-{next(_names)}")
        config = _with_time_to_deliver(config, configs)
        config = _with_idempotence(config, configs)
        idle = sorted(WITHOUT_EFFECT & configs.keys())
        if idle:
            log.warning("producer %s: settings without effect here: %s", config.client_id, ", ".join(idle))
        return config

    @property
    def codec(self) -> str:
        """Codec for `TopicLog.append`."""
        return self.compression_type or "none"


def _with_time_to_deliver(config: ProducerConfig, given: Mapping[str, Any]) -> ProducerConfig:
    """Apply Kafka's rule: the delivery timeout includes the linger time and at least one request.

    Raises:
        KafkaConfigurationError: an explicit `delivery_timeout_ms` is too short; the default is raised instead.
    """
    needed = config.linger_ms + config.request_timeout_ms
    if config.delivery_timeout_ms >= needed:
        return config
    if "delivery_timeout_ms" not in given:
        return replace(config, delivery_timeout_ms=needed)
    raise KafkaConfigurationError(
        f"delivery_timeout_ms={config.delivery_timeout_ms:g} must be at least linger_ms + request_timeout_ms = "
        f"{config.linger_ms:g} + {config.request_timeout_ms:g} = {needed:g}"
    )


def _with_idempotence(config: ProducerConfig, given: Mapping[str, Any]) -> ProducerConfig:
    """Apply Kafka's rule (KIP-679): transactions need idempotence, and some settings exclude it.

    Raises:
        KafkaConfigurationError: explicit values exclude each other; a default gives way.
    """
    transactional = config.transactional_id is not None
    if transactional and not config.enable_idempotence:
        raise KafkaConfigurationError("transactional_id needs enable_idempotence=True")
    conflicts = _against_idempotence(config, given)
    if not config.enable_idempotence or not conflicts:
        return config
    if transactional or "enable_idempotence" in given:
        wish = "transactional_id" if transactional else "enable_idempotence=True"
        raise KafkaConfigurationError(f"{wish} does not go with {conflicts}")
    log.warning("producer %s: enable_idempotence is turned off by %s", config.client_id, conflicts)
    return replace(config, enable_idempotence=False)


def _against_idempotence(config: ProducerConfig, given: Mapping[str, Any]) -> str:
    """Return the explicit settings that exclude idempotence in Kafka; empty without any."""
    flight = config.max_in_flight_requests_per_connection
    found = [
        ("acks", config.acks, config.acks != -1),
        ("retries", config.retries, config.retries == 0),
        ("max_in_flight_requests_per_connection", flight, flight > MAX_IN_FLIGHT),
    ]
    return ", ".join(f"{name}={value!r}" for name, value, conflicts in found if conflicts and name in given)


def _count(low: int, high: int = 2**63 - 1) -> Callable[[Any], int]:
    """Return a check of a whole number of bytes or requests; NumPy's integers are allowed."""
    bounded = number(low, high)

    def check(value: Any) -> int:  # noqa: ANN401
        if isinstance(value, bool):
            raise TypeError(f"a whole number is needed, not {value!r}")
        return int(bounded(operator.index(value)))

    return check


def _retries(value: Any) -> float:  # noqa: ANN401
    """Check `retries`: a whole number, or infinity."""
    if isinstance(value, float) and value == math.inf:
        return value
    return _count(0)(value)


def _acks(value: Any) -> int:  # noqa: ANN401
    """Check `acks` and convert `all` to -1."""
    chosen = choice(0, 1, -1, "all")(value)
    return -1 if chosen == "all" else int(chosen)


def _no_reporters(value: Any) -> tuple[()]:  # noqa: ANN401
    if value:
        raise ValueError("there is nothing to report to; read metrics()")
    return ()


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    **{f.name: number(0) for f in fields(ProducerConfig) if f.name.endswith("_ms")},
    **dict.fromkeys(("allow_auto_create_topics", "enable_idempotence", "metrics_enabled"), flag),
    "acks": _acks,
    "batch_size": _count(0),
    "buffer_memory": _count(1),
    "client_id": optional(text),
    "storage_options": check_options,
    "compression_type": choice(None, *CODECS),
    "delivery_timeout_ms": number(1),
    "max_in_flight_requests_per_connection": _count(1),
    "max_request_size": _count(1),
    "metric_reporters": _no_reporters,
    "request_timeout_ms": number(1),
    "retries": _retries,
    "transaction_timeout_ms": number(1),
    "transactional_id": optional(text),
}
