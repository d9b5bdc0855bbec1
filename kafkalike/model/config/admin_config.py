"""AdminConfig: the settings of an admin client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.client_config import build, number, optional, text
from kafkalike.model.config.storage_options import Address, StorageOptions, check_options


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """Settings of an admin client, with kafka-python's names.

    The settings in `NO_EFFECT` tune network connections. They are accepted, so that code written for brokers runs, and
    have no effect; the client logs their names once if any is set.
    """

    bootstrap_servers: Address | None = None
    """Storage root; see `kafkalike.connect.connect`."""
    storage_options: StorageOptions | None = None
    """Options of a root in an object store: a dict by obstore's names, such as `access_key_id` or `AWS_ACCESS_KEY_ID`.
    Environment variables are used for missing options. Values are never shown."""
    client_id: str = "kafkalike-admin"
    """Name of this client in messages."""
    api_version: Any = None
    """No effect: kafkalike does not use a wire protocol."""
    api_version_auto_timeout_ms: float = 2000
    """No effect (ms): kafkalike does not use a network."""
    bootstrap_timeout_ms: float | None = 30_000
    """No effect (ms): opening a root does not wait for brokers."""
    client_dns_lookup: str = "use_all_dns_ips"
    """No effect: kafkalike does not use a network."""
    connections_max_idle_ms: float = 540_000
    """No effect (ms): kafkalike does not use a network."""
    default_api_timeout_ms: float = 60_000
    """No effect (ms): calls do not use it. Must not be below `request_timeout_ms` if both are set."""
    max_in_flight_requests_per_connection: int = 5
    """No effect: kafkalike does not use a network."""
    metadata_max_age_ms: float = 300_000
    """No effect (ms): metadata is read fresh for every call."""
    metric_reporters: Sequence[Any] = ()
    """Must be empty: an admin client has no metrics."""
    metrics_num_samples: int = 2
    """No effect: an admin client does not keep metrics."""
    metrics_sample_window_ms: float = 30_000
    """No effect (ms): an admin client does not keep metrics."""
    receive_buffer_bytes: int | None = None
    """No effect (bytes): kafkalike does not use a network."""
    receive_message_max_bytes: int = 100_000_000
    """No effect (bytes): kafkalike does not use a network."""
    reconnect_backoff_max_ms: float = 30_000
    """No effect (ms): kafkalike does not use a network."""
    reconnect_backoff_ms: float = 50
    """No effect (ms): kafkalike does not use a network."""
    request_timeout_ms: float = 30_000
    """No effect (ms): a change of metadata waits at most 60 s for concurrent writers."""
    retry_backoff_ms: float = 100
    """No effect (ms): calls do not use it."""
    send_buffer_bytes: int | None = None
    """No effect (bytes): kafkalike does not use a network."""

    @classmethod
    def from_configs(cls, configs: Mapping[str, Any]) -> AdminConfig:
        """Check keyword arguments.

        Raises:
            KafkaConfigurationError: an unknown setting, a setting without a meaning here, or a bad value.
        """
        config = build(cls, configs, _CHECKS)
        both = configs.keys() >= {"default_api_timeout_ms", "request_timeout_ms"}
        if both and config.default_api_timeout_ms < config.request_timeout_ms:
            raise KafkaConfigurationError(
                f"default_api_timeout_ms={config.default_api_timeout_ms:g} must not be below "
                f"request_timeout_ms={config.request_timeout_ms:g}: a call is made of requests"
            )
        return config


NO_EFFECT: Final = frozenset(AdminConfig.__dataclass_fields__) - {
    "bootstrap_servers",
    "client_id",
    "metric_reporters",
    "storage_options",
}
"""Settings that are accepted and have no effect."""


def _no_reporters(value: Any) -> Sequence[Any]:  # noqa: ANN401 - what a user may give
    if value:
        raise ValueError("an admin client has no metrics to report")
    return ()


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "client_id": text,
    "storage_options": check_options,
    "metric_reporters": _no_reporters,
    "client_dns_lookup": text,
    **{name: optional(number(0)) for name in NO_EFFECT if name.endswith(("_ms", "_bytes", "_samples", "_connection"))},
}
