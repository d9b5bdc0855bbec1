"""Schemas: records with an Avro, Protobuf or JSON Schema, and the registry that knows these.

Names are loaded when they are first used: what a program does not use needs no extra package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.model.public_names import lazy_names

if TYPE_CHECKING:
    from kafkalike.errors import SchemaRegistryError as SchemaRegistryError
    from kafkalike.schemas.cluster_registry import Registry as Registry
    from kafkalike.schemas.confluent_types import RegisteredSchema as RegisteredSchema
    from kafkalike.schemas.confluent_types import Schema as Schema
    from kafkalike.schemas.confluent_types import SchemaReference as SchemaReference
    from kafkalike.schemas.confluent_types import SchemaVersion as SchemaVersion
    from kafkalike.schemas.confluent_types import ServerConfig as ServerConfig
    from kafkalike.schemas.factory import open_registry as open_registry
    from kafkalike.schemas.remote_registry import RemoteRegistry as RemoteRegistry

_HOME = {
    "Registry": "kafkalike.schemas.cluster_registry",
    "RemoteRegistry": "kafkalike.schemas.remote_registry",
    "SchemaRegistryError": "kafkalike.errors",
    "open_registry": "kafkalike.schemas.factory",
    **dict.fromkeys(("AvroDeserializer", "AvroSerializer"), "kafkalike.schemas.serde.avro_serde"),
    **dict.fromkeys(("JSONDeserializer", "JSONSerializer"), "kafkalike.schemas.serde.json_serde"),
    **dict.fromkeys(("ProtobufDeserializer", "ProtobufSerializer"), "kafkalike.schemas.serde.protobuf_serde"),
    **dict.fromkeys(
        (
            "dual_schema_id_deserializer",
            "header_schema_id_serializer",
            "prefix_schema_id_deserializer",
            "prefix_schema_id_serializer",
        ),
        "kafkalike.schemas.serde.serde_settings",
    ),
    **dict.fromkeys(("MessageField", "SerializationContext"), "kafkalike.schemas.serialization"),
    **dict.fromkeys(
        ("RegisteredSchema", "Schema", "SchemaReference", "SchemaVersion", "ServerConfig"),
        "kafkalike.schemas.confluent_types",
    ),
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    *sorted(_HOME),
]

__getattr__, __dir__ = lazy_names(__name__, _HOME)
