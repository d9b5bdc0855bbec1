"""Context: where a key or a value belongs, as Confluent's serializers are told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, Literal

from kafkalike.model.record_batch import Headers

Field = Literal["key", "value"]


class MessageField:
    """Names of a record's parts, as in `confluent_kafka.serialization`."""

    NONE: Final = "none"
    KEY: Final = "key"
    VALUE: Final = "value"


@dataclass(slots=True)
class SerializationContext:
    """Where a key or a value belongs; the attributes of `confluent_kafka.serialization.SerializationContext`."""

    topic: str
    field: str
    """`key` or `value`."""
    headers: Headers = dataclasses.field(default_factory=list)
    """The record's; what a serializer adds is stored."""
