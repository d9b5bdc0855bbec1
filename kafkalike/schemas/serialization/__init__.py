"""Serializers and deserializers: kafka-python's interfaces and Kafka's own formats."""

from __future__ import annotations

from kafkalike.schemas.serialization.formats import (
    BytesSerializer,
    DefaultSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntegerSerializer,
    JsonSerializer,
    LongSerializer,
    StringSerializer,
    deserializer_for,
    serializer_for,
)
from kafkalike.schemas.serialization.interfaces import (
    DeserializeFunction,
    Deserializer,
    Field,
    MessageField,
    SerializationContext,
    SerializeFunction,
    Serializer,
    as_deserializer,
    as_serializer,
)

__all__ = [
    "BytesSerializer",
    "DefaultSerializer",
    "DeserializeFunction",
    "Deserializer",
    "DoubleSerializer",
    "Field",
    "FloatSerializer",
    "IntegerSerializer",
    "JsonSerializer",
    "LongSerializer",
    "MessageField",
    "SerializationContext",
    "SerializeFunction",
    "Serializer",
    "StringSerializer",
    "as_deserializer",
    "as_serializer",
    "deserializer_for",
    "serializer_for",
]

for _name in set(__all__) - {"DeserializeFunction", "Field", "SerializeFunction"}:
    # A user sees one name, as in a pickle and in `repr`.
    globals()[_name].__module__ = "kafkalike.serialization"
