"""Send checks: arguments of `send`, serialisers and the partitioner in; one plain form or a named error out."""

from __future__ import annotations

import math
import operator
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError, InvalidTimestampError, KafkaConfigurationError
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS
from kafkalike.model.partitioner import DefaultPartitioner, Partitioner, as_partitioner
from kafkalike.model.record_batch import Headers
from kafkalike.schemas.serialization import SerializeFunction, as_serializer


def check_headers(headers: object) -> list[tuple[str, bytes | None]]:
    """A copy of a record's headers.

    Raises:
        TypeError: anything but a list of `(str, bytes or None)`.
    """
    if not isinstance(headers, list):
        raise TypeError(f"headers must be a list of (str, bytes), not {type(headers).__name__}")
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2):  # noqa: PLR2004 - a pair
            raise TypeError(f"headers must be (str, bytes) tuples, not {item!r}")
        if not isinstance(item[0], str) or not isinstance(item[1], bytes | None):
            kinds = f"({type(item[0]).__name__}, {type(item[1]).__name__})"
            raise TypeError(f"headers must be (str, bytes) tuples; header {item[0]!r} is {kinds}")
    return list(headers)


def headers_size(headers: list[tuple[str, bytes | None]]) -> int:
    """Bytes of a record's headers.

    Raises:
        ValueError: a header's name has no form in UTF-8.
    """
    return sum(len(name.encode()) + len(content or b"") for name, content in headers)


def check_timestamp(timestamp_ms: Any) -> int:  # noqa: ANN401 - what is not an int is refused
    """A record's time in ms; NumPy's integers are taken.

    Raises:
        TypeError: not an integer; bool and float are none.
        InvalidTimestampError: negative, or after the year 9999.
    """
    if isinstance(timestamp_ms, bool) or not hasattr(timestamp_ms, "__index__"):
        raise TypeError(f"timestamp_ms must be an int of ms since the epoch, not {timestamp_ms!r}")
    number = operator.index(timestamp_ms)
    if not 0 <= number <= MAX_TIMESTAMP_MS:
        raise InvalidTimestampError(f"timestamp_ms must be in [0, {MAX_TIMESTAMP_MS}], not {number}")
    return number


def check_partition(partition: Any) -> int:  # noqa: ANN401 - what is not an int is refused
    """A partition number; NumPy's integers are taken.

    Raises:
        TypeError: not an integer; bool is none.
        IllegalArgumentError: negative (a ValueError).
    """
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise TypeError(f"partition must be an int, not {partition!r}")
    number = operator.index(partition)
    if number < 0:
        raise IllegalArgumentError(f"partition must not be negative, but is {number}")
    return number


def check_timeout(timeout: Any) -> float | None:  # noqa: ANN401 - what is not a number is refused
    """Seconds to wait; None and infinity are without end.

    Raises:
        IllegalArgumentError: negative, NaN or no number (a ValueError).
    """
    if timeout is None or timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise IllegalArgumentError(f"timeout must be seconds, 0 or more, not {timeout!r}")
    return timeout


_any_bytes: Final = as_serializer(None)


def check_serializer(obj: object, setting: str) -> SerializeFunction:
    """A serialiser as one form of function; without one only bytes are taken.

    Raises:
        KafkaConfigurationError: it is none.
    """
    if obj is None:
        return _bytes
    try:
        return as_serializer(obj, "key" if setting.startswith("key") else "value")
    except IllegalArgumentError as cause:
        raise KafkaConfigurationError(f"invalid value for setting {setting!r}: {cause}") from cause


def _bytes(topic: str, headers: Headers, data: object) -> bytes | None:
    """`as_serializer(None)`, faster for bytes."""
    if data is None or type(data) is bytes:
        return data
    return _any_bytes(topic, headers, data)


def check_partitioner(obj: object) -> Partitioner:
    """A partitioner; the default one when nothing was given.

    Raises:
        KafkaConfigurationError: it is none.
    """
    if obj is None:
        return DefaultPartitioner()
    if isinstance(obj, str | bytes):  # they have a method `partition` too
        raise KafkaConfigurationError(f"invalid value for setting 'partitioner': an object is needed, not {obj!r}")
    try:
        return as_partitioner(obj)
    except IllegalArgumentError as cause:
        raise KafkaConfigurationError(f"invalid value for setting 'partitioner': {cause}") from cause
