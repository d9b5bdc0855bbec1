"""Schemas: records with an Avro, Protobuf or JSON Schema, and the registry that knows these.

Names are loaded when they are first used: what a program does not use needs no extra package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.model.public_names import lazy_names

if TYPE_CHECKING:
    from kafkalike.errors import SchemaRegistryError as SchemaRegistryError
    from kafkalike.schemas.opening import open_registry as open_registry
    from kafkalike.schemas.registry import Registry as Registry
    from kafkalike.schemas.remote import RemoteRegistry as RemoteRegistry
    from kafkalike.schemas.shapes import RegisteredSchema as RegisteredSchema
    from kafkalike.schemas.shapes import Schema as Schema
    from kafkalike.schemas.shapes import SchemaReference as SchemaReference
    from kafkalike.schemas.shapes import SchemaVersion as SchemaVersion
    from kafkalike.schemas.shapes import ServerConfig as ServerConfig

_HOME = {
    "Registry": "kafkalike.schemas.registry",
    "RemoteRegistry": "kafkalike.schemas.remote",
    "SchemaRegistryError": "kafkalike.errors",
    "open_registry": "kafkalike.schemas.opening",
    **dict.fromkeys(("AvroDeserializer", "AvroSerializer"), "kafkalike.schemas.serde.avro"),
    **dict.fromkeys(("JSONDeserializer", "JSONSerializer"), "kafkalike.schemas.serde.json_schema"),
    **dict.fromkeys(("ProtobufDeserializer", "ProtobufSerializer"), "kafkalike.schemas.serde.protobuf"),
    **dict.fromkeys(
        (
            "dual_schema_id_deserializer",
            "header_schema_id_serializer",
            "prefix_schema_id_deserializer",
            "prefix_schema_id_serializer",
        ),
        "kafkalike.schemas.serde.settings",
    ),
    **dict.fromkeys(("MessageField", "SerializationContext"), "kafkalike.schemas.serialization"),
    **dict.fromkeys(
        ("RegisteredSchema", "Schema", "SchemaReference", "SchemaVersion", "ServerConfig"), "kafkalike.schemas.shapes"
    ),
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    *sorted(_HOME),
]

__getattr__, __dir__ = lazy_names(__name__, _HOME, extra="schemas")
