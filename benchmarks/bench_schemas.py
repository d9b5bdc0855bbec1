"""Schemas: records with a schema in, the time to encode and decode each out, against fastavro and confluent-kafka.

`KAFKALIKE_BENCH_RECORDS` makes it smaller; 20,000 by default.
Ratios are the rival's time divided by ours: above 1 we are faster; the aim is 0.9.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import fastavro
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from benchmarks.harness import Report, ratio, rounds
from kafkalike.admin.testing import MemoryCluster
from kafkalike.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Registry,
    SerializationContext,
)
from kafkalike.schemas.proto.parser import parse_proto

RECORDS = int(os.environ.get("KAFKALIKE_BENCH_RECORDS", "20000"))
RUNS = 7
AIM = 0.9

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "mail", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    ],
}
VALUE = {
    "id": 123456,
    "customer": "Ann Smith",
    "mail": "ann@example.com",
    "price": 9.5,
    "tags": ["a", "b"],
    "state": "NEW",
}
FLAT = {
    "type": "object",
    "title": "Order",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id"],
}
JSON_VALUE = {key: VALUE[key] for key in FLAT["properties"]}
PROTO = """syntax = "proto3"; message Order {
  int64 id = 1; string customer = 2; optional string mail = 3; double price = 4; repeated string tags = 5; }"""


def _called(theirs: Callable[..., object], context: object, value: object) -> object:
    """One of Confluent's, called as they are."""
    return theirs(value, context)


def each(function: Callable[[Any], object], value: object) -> Callable[[], None]:
    """A round: the function for each record."""

    def run() -> None:
        for _ in range(RECORDS):
            function(value)

    return run


class Bench:
    """One registry, one report."""

    def __init__(self) -> None:
        self.registry = Registry(MemoryCluster())
        self.report = Report("schemas")

    def compare(self, what: str, rivals: dict[str, Callable[[], None]]) -> None:
        """Time ours, which is first, against the others."""
        figures = rounds(rivals, runs=RUNS)
        self.report.keep(what, figures)
        ours, *others = figures.values()
        for other in others:
            self.report.add(
                f"{what} against {other.name}",
                f"{ours.median / RECORDS * 1e6:.2f} µs",
                f"{other.median / RECORDS * 1e6:.2f} µs",
                f"{1 / ratio(ours, other):.2f} x",
                f"{AIM} x",
            )

    def avro(self) -> None:
        """Avro: as a producer and a consumer call it, and as Confluent's clients do."""
        text, topic = json.dumps(ORDER), "bench-avro"
        parsed = fastavro.parse_schema(ORDER)
        encode = AvroSerializer(self.registry, text).for_field("value")
        decode = AvroDeserializer(self.registry).for_field("value")
        data = encode(topic, [], VALUE)
        assert data is not None
        context = SerializationContext(topic, "value")
        theirs, their_reader = TheirAvroSerializer(self.registry, text), TheirAvroDeserializer(self.registry)

        def bare(value: object) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, value)
            return out.getvalue()

        payload = bare(VALUE)
        self.compare(
            "Avro encode",
            {
                "ours": each(lambda value: encode(topic, [], value), VALUE),
                "fastavro": each(bare, VALUE),
                "confluent-kafka": each(lambda value: theirs(value, context), VALUE),
            },
        )
        self.compare(
            "Avro decode",
            {
                "ours": each(lambda of: decode(topic, [], of), data),
                "fastavro": each(lambda of: fastavro.schemaless_reader(io.BytesIO(of), parsed, None), payload),
                "confluent-kafka": each(lambda of: their_reader(of, context), data),
            },
        )

    def protobuf(self) -> None:
        """Protobuf: as for Avro, and against Google's library alone."""
        pool, topic = DescriptorPool(), "bench-proto"
        pool.Add(parse_proto(PROTO, "order.proto"))
        made = GetMessageClass(pool.FindMessageTypeByName("Order"))
        message = made(**{key: value for key, value in VALUE.items() if key != "state"})
        context = SerializationContext(topic, "value")
        encode = ProtobufSerializer(made, self.registry).for_field("value")
        decode = ProtobufDeserializer(made, {}, self.registry).for_field("value")
        data = encode(topic, [], message)
        assert data is not None
        theirs = TheirProtobufSerializer(made, self.registry)
        their_reader = TheirProtobufDeserializer(made, {}, self.registry)
        self.compare(
            "Protobuf encode",
            {
                "ours": each(lambda value: encode(topic, [], value), message),
                "protobuf": each(lambda value: value.SerializeToString(), message),
                "confluent-kafka": each(lambda value: theirs(value, context), message),
            },
        )
        self.compare(
            "Protobuf decode",
            {
                "ours": each(lambda of: decode(topic, [], of), data),
                "protobuf": each(made.FromString, data[6:]),
                "confluent-kafka": each(lambda of: their_reader(of, context), data),
            },
        )

    def json(self) -> None:
        """JSON Schema: with the check of each value, and without."""
        text, topic = json.dumps(FLAT), "bench-json"
        context = SerializationContext(topic, "value")
        for validate, name in ((True, "JSON"), (False, "JSON unchecked")):
            conf = {"validate": validate}
            encode = JSONSerializer(text, self.registry, conf=conf).for_field("value")
            decode = JSONDeserializer(None, None, self.registry, conf).for_field("value")
            data = encode(topic, [], JSON_VALUE)
            theirs = TheirJSONSerializer(text, self.registry, conf=conf)
            their_reader = TheirJSONDeserializer(None, None, self.registry, conf)
            self.compare(
                f"{name} encode",
                {
                    "ours": each(partial(encode, topic, []), JSON_VALUE),
                    "confluent-kafka": each(partial(_called, theirs, context), JSON_VALUE),
                },
            )
            self.compare(
                f"{name} decode",
                {
                    "ours": each(partial(decode, topic, []), data),
                    "confluent-kafka": each(partial(_called, their_reader, context), data),
                },
            )


def main() -> None:
    """All of it."""
    bench = Bench()
    bench.avro()
    bench.protobuf()
    bench.json()
    bench.report.finish()


if __name__ == "__main__":
    main()
