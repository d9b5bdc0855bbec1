"""ProducerConfig: keyword arguments of a `KafkaProducer` in, checked settings with kafka-python's names out."""

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
"""Settings that ported code passes and that change nothing here: there is no network, and a topic has one append
under way at a time. A value that is plainly wrong is refused; each is named once in the log."""

MAX_IN_FLIGHT: Final = 5
"""Most requests in flight that Kafka's idempotence allows; more switches it off or is refused, as in kafka-python."""

_names = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(IdleSettings):
    """Settings of a producer; kafka-python 3.x's names and defaults.

    Times are ms, sizes bytes. Settings in `WITHOUT_EFFECT` are taken for the sake of ported code only.
    """

    bootstrap_servers: Address | None = None
    """The cluster: a path or URI, a list with one of them, or an opened `Cluster`. None takes the environment
    variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else `./kafkalike-data`."""
    storage_options: StorageOptions | None = None
    """Of a root in an object store: a dict by obstore's names, such as `access_key_id` or
    `AWS_ACCESS_KEY_ID`. Environment variables say what it does not. Never shown."""
    client_id: str | None = None
    """Name of this client, in log lines. None becomes `kafkalike-producer-N`."""
    key_serializer: Any = None
    """`Serializer`, or a callable of the key; None takes bytes only."""
    value_serializer: Any = None
    """`Serializer`, or a callable of the value; None takes bytes only."""
    acks: int | str = -1
    """When a record counts as sent. -1, `all` and 1: when its table commit is made, with several roots at all replicas
    in sync, as 1 is served as `all`. 0: at once; its future has offset -1, and an error is only logged. `of` turns
    `all` into -1.
    """
    enable_idempotence: bool = True
    """Retries never double a record, on or off: a write has an id by which its outcome is found, and only what is known
    not to be written is written again. Kept for Kafka's rule: with acks 0 or 1, retries=0 or more than 5 requests in
    flight it is turned off with a warning, or refused when it was asked for by name or by `transactional_id`."""
    retries: float = math.inf
    """How often a batch is tried again after an error that may pass, within `delivery_timeout_ms`. 0: never."""
    retry_backoff_ms: float = 100
    """ms until a batch is tried again. Other topics are served meanwhile."""
    delivery_timeout_ms: float = 120_000
    """ms from `send` after which a record that is not written fails with `KafkaTimeoutError`; the records of a batch
    count from its first one. At least `linger_ms` + `request_timeout_ms`, as in Kafka: less is refused, and the default
    is raised to it."""
    request_timeout_ms: float = 30_000
    """ms that one append may wait for other writers of the topic, before other topics get their turn and it is tried
    again; counts as one of `retries`."""
    batch_size: int = 16_384
    """Bytes per partition, on average over a topic's partitions, at which `linger_ms` is not waited for. No upper
    limit: one append takes everything that is queued for its topic."""
    linger_ms: float = 0
    """ms that a topic's first queued record waits for more. 0: sent at once; what comes while an append runs goes
    with the next one, so batches grow with the load anyway."""
    buffer_memory: int = 33_554_432
    """Bytes of records (keys, values, headers, and 70 bytes for each record) that may wait or be under way. When they
    are reached, `send` blocks."""
    max_block_ms: float = 60_000
    """ms that `send` may block while the buffer is full; then `KafkaTimeoutError`."""
    max_request_size: int = 1_048_576
    """Largest record in bytes, counted as `buffer_memory` counts; `send` refuses a larger one."""
    compression_type: str | None = None
    """Codec of the data files in a topic whose own `compression.type` is `producer`: gzip, snappy, lz4, zstd, or None
    (`none`) for no compression."""
    partitioner: Any = None
    """Chooses partitions: a `Partitioner`, or a 2.x callable `(key, all, available)`. None: `DefaultPartitioner()`,
    murmur2 of the serialised key, at random without key."""
    allow_auto_create_topics: bool = True
    """Whether `send` and `partitions_for` create a missing topic, where the server's `auto.create.topics.enable`
    allows it too. Otherwise they raise `UnknownTopicOrPartitionError`."""
    metadata_max_age_ms: float = 300_000
    """ms after which a partitioner of the user's must hear of new partitions. Every append looks anyway; this bounds
    it for a producer that was idle."""
    transactional_id: str | None = None
    """Name under which a producer has transactions, over restarts: a newer producer of the name fences the older one.
    Idempotence then is on, and what excludes it is refused. None: no transactions."""
    transaction_timeout_ms: float = 60_000
    """ms after the first record of a transaction from which it cannot be committed any more, and maintenance may abort
    it; at most the server's `transaction.max.timeout.ms`. Nobody waits for an open transaction meanwhile."""
    metrics_enabled: bool = True
    """Whether `metrics()` answers."""
    metric_reporters: Any = ()
    """Must be empty: read `metrics()`."""
    max_in_flight_requests_per_connection: int = 5
    """Without effect, apart from the rule of `enable_idempotence`: a topic has one append under way at a time, so
    order is kept over retries."""
    default_api_timeout_ms: float = 60_000
    """Without effect: no call of a producer uses it."""
    metric_group_prefix: str = "producer"
    """Without effect: the groups of `metrics()` have Kafka's names."""

    @classmethod
    def of(cls, configs: Mapping[str, Any]) -> ProducerConfig:
        """Check keyword arguments.

        Args:
            configs: what the user gave to `KafkaProducer`.

        Returns:
            The settings, with a `client_id`, and with `enable_idempotence` off where others exclude it.

        Raises:
            KafkaConfigurationError: an unknown setting, one without meaning here, a value that is not allowed, or
                values that exclude each other.
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
    """Kafka's rule: the time to deliver a record holds its lingering and at least one request.

    Raises:
        KafkaConfigurationError: a `delivery_timeout_ms` that was asked for is too short; the default is raised.
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
    """Kafka's rule (KIP-679): transactions need idempotence, and some settings exclude it.

    Raises:
        KafkaConfigurationError: values that were asked for by name exclude each other; a default gives way.
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
    """The given settings that exclude idempotence in Kafka; empty when there are none."""
    flight = config.max_in_flight_requests_per_connection
    found = [
        ("acks", config.acks, config.acks != -1),
        ("retries", config.retries, config.retries == 0),
        ("max_in_flight_requests_per_connection", flight, flight > MAX_IN_FLIGHT),
    ]
    return ", ".join(f"{name}={value!r}" for name, value, conflicts in found if conflicts and name in given)


def _count(low: int, high: int = 2**63 - 1) -> Callable[[Any], int]:
    """Check of a whole number of bytes or requests; NumPy's integers are taken."""
    bounded = number(low, high)

    def check(value: Any) -> int:  # noqa: ANN401
        if isinstance(value, bool):
            raise TypeError(f"a whole number is needed, not {value!r}")
        return int(bounded(operator.index(value)))

    return check


def _retries(value: Any) -> float:  # noqa: ANN401
    """Check of `retries`: a whole number, or infinity."""
    if isinstance(value, float) and value == math.inf:
        return value
    return _count(0)(value)


def _acks(value: Any) -> int:  # noqa: ANN401
    """Check of `acks`."""
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
