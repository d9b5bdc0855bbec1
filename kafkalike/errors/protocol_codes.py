"""Protocol codes: the error class of each code of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from kafkalike.errors import client_errors, cluster_errors, gateway_errors, kafka_error, never_raised
from kafkalike.errors.kafka_error import BrokerResponseError, UnknownError

_MODULES: Final = (kafka_error, client_errors, cluster_errors, gateway_errors, never_raised)


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a code of Kafka's protocol; for an unknown code, a new subclass of `UnknownError`."""
    known = _by_code().get(error_code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code, "__module__": "kafkalike.errors"})


def _classes() -> Iterator[type[BrokerResponseError]]:
    for module in _MODULES:
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, BrokerResponseError):
                yield found


@cache
def _by_code() -> dict[int, type[BrokerResponseError]]:
    """Map each code to its class nearest to the root. Built on first use, because few programs need it."""
    found: dict[int, type[BrokerResponseError]] = {UnknownError.errno: UnknownError}
    for one in sorted(_classes(), key=lambda one: len(one.__mro__)):
        found.setdefault(one.errno, one)
    return found
