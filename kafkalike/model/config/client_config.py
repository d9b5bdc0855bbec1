"""Client settings: check the keyword arguments of producers, consumers and admin clients."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NoReturn, TypeVar

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.config.properties import nearest
from kafkalike.model.names import is_storable

DEFAULT_ROOT: Final = "./kafkalike-data"
ROOT_VARIABLE: Final = "KAFKALIKE_BOOTSTRAP_SERVERS"

NO_MEANING: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "security_protocol",
            "ssl_context",
            "ssl_check_hostname",
            "ssl_cafile",
            "ssl_certfile",
            "ssl_keyfile",
            "ssl_password",
            "ssl_crlfile",
            "ssl_ciphers",
            "sasl_mechanism",
            "sasl_plain_username",
            "sasl_plain_password",
            "sasl_kerberos_name",
            "sasl_kerberos_service_name",
            "sasl_kerberos_domain_name",
            "sasl_oauth_token_provider",
        ),
        "kafkalike clients open no network connection; access is granted on the storage root",
    ),
    **dict.fromkeys(
        (
            "socks5_proxy",
            "proxy_url",
            "kafka_client",
            "selector",
            "sock_chunk_bytes",
            "sock_chunk_buffer_count",
            "socket_options",
        ),
        "kafkalike clients open no network connection",
    ),
}
"""kafka-python's arguments that are rejected, with the reason, unless their value requests nothing."""

NO_SECURITY: Final[Mapping[str, tuple[object, ...]]] = {
    "security_protocol": ("PLAINTEXT", "plaintext"),
    "ssl_check_hostname": (True, "true"),
    "sasl_kerberos_service_name": ("kafka",),
    "sock_chunk_bytes": (4096,),
    "sock_chunk_buffer_count": (1000,),
}
"""kafka-python's defaults of these arguments, which request nothing of a broker; None and an empty text do neither."""

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSettings:
    """kafka-python's arguments of producers and consumers that tune parts which do not exist here."""

    api_version: Any = None
    """Without effect: kafkalike does not use a wire protocol."""
    api_version_auto_timeout_ms: float = 2000
    """Without effect: kafkalike does not use a wire protocol."""
    bootstrap_timeout_ms: float = 30_000
    """Without effect: kafkalike does not use a network."""
    client_dns_lookup: str = "use_all_dns_ips"
    """Without effect: kafkalike does not use a network."""
    connections_max_idle_ms: float = 540_000
    """Without effect: kafkalike does not use a network."""
    metrics_num_samples: int = 2
    """Without effect: `metrics()` gives totals."""
    metrics_sample_window_ms: float = 30_000
    """Without effect: `metrics()` gives totals."""
    net: Any = None
    """Without effect: kafkalike does not use a network."""
    receive_buffer_bytes: int | None = None
    """Without effect: kafkalike does not use a network."""
    receive_message_max_bytes: int = 100_000_000
    """Without effect: kafkalike does not use a network."""
    reconnect_backoff_max_ms: float = 30_000
    """Without effect: kafkalike does not use a network."""
    reconnect_backoff_ms: float = 50
    """Without effect: kafkalike does not use a network."""
    send_buffer_bytes: int | None = None
    """Without effect: kafkalike does not use a network."""
    socket_connection_setup_timeout_max_ms: float = 30_000
    """Without effect: kafkalike does not use a network."""
    socket_connection_setup_timeout_ms: float = 10_000
    """Without effect: kafkalike does not use a network."""


def refuse_to_pickle(client: object) -> NoReturn:
    """Raise the error for pickling a client.

    Raises:
        TypeError: always.
    """
    kind = type(client).__name__
    raise TypeError(
        f"a {kind} cannot be pickled or copied: it has threads, locks and open files of this process. Create it where "
        f"it is used, such as in the function that runs in the other process: {kind}(bootstrap_servers=…)"
    )


def refuse_positional(client: str, given: Sequence[object]) -> None:
    """Reject positional arguments of a client; for a dict, as confluent-kafka's clients take it, show the keywords.

    Raises:
        TypeError: there is an argument. Values, which may be secret, are not in the message.
    """
    for settings in given:
        if isinstance(settings, Mapping):
            keywords = ", ".join(f"{str(name).replace('.', '_')}=…" for name in settings)
            raise TypeError(
                f"{client} takes settings as keyword arguments, as in kafka-python, not as confluent-kafka's dict: "
                f"{client}({keywords}). docs/coming-from.md translates confluent-kafka's names"
            )
        raise TypeError(f"{client} takes settings as keyword arguments, not {settings!r}")


def default_bootstrap_servers() -> str:
    """Return the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, or `./kafkalike-data` without it."""
    return os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT


def build(kind: type[C], configs: Mapping[str, Any], checks: Mapping[str, Callable[[Any], Any]]) -> C:
    """Build a settings dataclass from keyword arguments.

    Args:
        kind: a dataclass whose fields are the known settings.
        configs: the user's arguments.
        checks: by setting, a function that returns the value to keep, or raises `ValueError` with the expected value.

    Raises:
        KafkaConfigurationError: an unknown setting (the message names the nearest known one), a setting without a
            meaning here whose value is not kafka-python's default, or a bad value.
    """
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    kept: dict[str, Any] = {}
    for name, value in configs.items():
        if name in NO_MEANING:
            if _asks_for_nothing(name, value):
                continue
            raise KafkaConfigurationError(f"setting {name!r} has no meaning here: {NO_MEANING[name]}")
        if name not in known:
            raise KafkaConfigurationError(f"unknown setting {name!r}{nearest(name, known)}")
        check = checks.get(name)
        if check is None:
            kept[name] = value
            continue
        try:
            kept[name] = check(value)
        except (ValueError, TypeError) as cause:
            raise KafkaConfigurationError(f"invalid value for setting {name!r}: {cause}") from cause
    return kind(**kept)


def _asks_for_nothing(name: str, value: object) -> bool:
    return value is None or any(type(value) is type(one) and value == one for one in ("", *NO_SECURITY.get(name, ())))


def number(low: float, high: float = 2**63 - 1, *, infinite: bool = False) -> Callable[[Any], int | float]:
    """Return a check of a number of ms, bytes or records: int or float, not bool, not NaN, from `low` to `high`.

    With `infinite`, infinity is also allowed, for no limit.
    """

    def check(value: Any) -> int | float:  # noqa: ANN401
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise ValueError(f"a number is needed, not {value!r}")
        if math.isinf(value):
            if infinite and value > 0:
                return value
            raise ValueError(f"a finite number is needed, not {value!r}")
        if not low <= value <= high:
            raise ValueError(f"a number from {low} to {high} is needed, not {value!r}")
        return value

    return check


def flag(value: Any) -> bool:  # noqa: ANN401
    """Return `value` if it is a bool; otherwise raise ValueError."""
    if not isinstance(value, bool):
        message = f"True or False is needed, not {value!r}"
        raise ValueError(message)  # noqa: TRY004 - callers turn ValueError into a configuration error
    return value


def text(value: Any) -> str:  # noqa: ANN401
    """Return `value` if it is a non-empty str that can be stored; otherwise raise ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"a non-empty str is needed, not {value!r}")
    if not is_storable(value):
        raise ValueError(f"{value!r} is not valid text: it has half of a surrogate pair")
    return value


def optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check that also allows None."""
    return lambda value: None if value is None else check(value)


def choice(*allowed: Any) -> Callable[[Any], Any]:  # noqa: ANN401
    """Return a check that allows only these values; `1` and `True` are different values."""

    def check(value: Any) -> Any:  # noqa: ANN401
        for candidate in allowed:
            if type(value) is type(candidate) and value == candidate:
                return value
        raise ValueError(f"one of {', '.join(map(repr, allowed))} is needed, not {value!r}")

    return check
