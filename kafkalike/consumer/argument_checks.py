"""Argument checks: timeouts, counts and deserialisers of users in, one plain form or a named error out."""

from __future__ import annotations

import math
import operator

from kafkalike.errors import IllegalArgumentError, KafkaConfigurationError
from kafkalike.schemas.serialization import DeserializeFunction, as_deserializer


def check_timeout(timeout_ms: object) -> float:
    """A time in ms from 0 to infinity.

    Raises:
        TypeError: it is no number.
        IllegalArgumentError: it is negative or NaN (a ValueError).
    """
    if isinstance(timeout_ms, bool) or not (hasattr(timeout_ms, "__float__") or hasattr(timeout_ms, "__index__")):
        raise TypeError(f"timeout_ms must be a number, not {timeout_ms!r}")
    number = float(timeout_ms)  # type: ignore[arg-type]
    if math.isnan(number) or number < 0:
        raise IllegalArgumentError(f"timeout_ms must not be negative: {timeout_ms!r}")
    return number


def check_no_effect(timeout_ms: float | None) -> None:
    """Check a timeout that nothing here waits for."""
    if timeout_ms is not None:
        check_timeout(timeout_ms)


def check_max(max_records: object) -> int:
    """A number of records of at least 1.

    Raises:
        TypeError: it is no int.
        IllegalArgumentError: it is below 1 (a ValueError).
    """
    if isinstance(max_records, bool) or not hasattr(max_records, "__index__"):
        raise TypeError(f"max_records must be an int, not {max_records!r}")
    number = operator.index(max_records)
    if number < 1:
        raise IllegalArgumentError(f"max_records must be positive, not {number}")
    return number


def check_deserializer(obj: object, setting: str) -> DeserializeFunction | None:
    """A deserialiser as one form of function; None when there is nothing to do.

    Raises:
        KafkaConfigurationError: it is none.
    """
    if obj is None:
        return None
    try:
        return as_deserializer(obj, "key" if setting.startswith("key") else "value")
    except IllegalArgumentError as cause:
        raise KafkaConfigurationError(f"invalid value for setting {setting!r}: {cause}") from cause
