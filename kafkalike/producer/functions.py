"""Functions: serialisers and a partitioner as the user gave them in, one form of each out."""

from __future__ import annotations

from typing import Final

from kafkalike.errors import IllegalArgumentError, KafkaConfigurationError
from kafkalike.model.partitioner import DefaultPartitioner, Partitioner, as_partitioner
from kafkalike.model.record_batch import Headers
from kafkalike.schemas.serialization import SerializeFunction, as_serializer

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
