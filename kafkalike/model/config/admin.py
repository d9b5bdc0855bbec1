"""Admin settings: keyword arguments of `KafkaAdminClient` in, a checked `AdminConfig` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.client import build, number, optional, text
from kafkalike.model.config.storage import StorageOptions, check_options


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """Settings of an admin client, under kafka-python's names.

    Those of `NO_EFFECT` tune network connections. They are accepted, so that code written for brokers runs, and
    change nothing; the client says so once, by name, when one is given.
    """

    bootstrap_servers: Any = None
    """Storage root; see `kafkalike.connect.connect`."""
    storage_options: StorageOptions | None = None
    """Of a root in an object store: a dict by obstore's names, such as `access_key_id` or
    `AWS_ACCESS_KEY_ID`. Environment variables say what it does not. Never shown."""
    client_id: str = "kafkalike-admin"
    """Name of this client in messages."""
    api_version: Any = None
    """No effect: there is no wire protocol."""
    api_version_auto_timeout_ms: float = 2000
    """No effect (ms)."""
    bootstrap_timeout_ms: float | None = 30_000
    """No effect (ms): a root is there or not."""
    client_dns_lookup: str = "use_all_dns_ips"
    """No effect."""
    connections_max_idle_ms: float = 540_000
    """No effect (ms)."""
    default_api_timeout_ms: float = 60_000
    """No effect (ms): no call takes its limit from it. Not below `request_timeout_ms` where both are given."""
    max_in_flight_requests_per_connection: int = 5
    """No effect."""
    metadata_max_age_ms: float = 300_000
    """No effect (ms): metadata is read fresh for every call."""
    metric_reporters: Sequence[Any] = ()
    """Must be empty: an admin client has no metrics."""
    metrics_num_samples: int = 2
    """No effect."""
    metrics_sample_window_ms: float = 30_000
    """No effect (ms)."""
    receive_buffer_bytes: int | None = None
    """No effect (bytes)."""
    receive_message_max_bytes: int = 100_000_000
    """No effect (bytes)."""
    reconnect_backoff_max_ms: float = 30_000
    """No effect (ms)."""
    reconnect_backoff_ms: float = 50
    """No effect (ms)."""
    request_timeout_ms: float = 30_000
    """No effect (ms): a change of metadata waits 60 s for concurrent writers at most."""
    retry_backoff_ms: float = 100
    """No effect (ms)."""
    send_buffer_bytes: int | None = None
    """No effect (bytes)."""

    @classmethod
    def from_configs(cls, configs: Mapping[str, Any]) -> AdminConfig:
        """Check keyword arguments.

        Raises:
            KafkaConfigurationError: for an unknown setting, one that has no meaning here, or a bad value.
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
"""Settings that are accepted and change nothing."""


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
