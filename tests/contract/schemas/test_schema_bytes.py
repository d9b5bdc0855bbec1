"""Our serializers against Confluent's, on the same registry: the same bytes, and each reads what the other wrote."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer as TheirJSONDeserializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as TheirJSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings

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
from tests.tools import avro_pairs, json_pairs, proto_pairs
from tests.tools.effort import examples

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
FEW = settings(max_examples=examples(100, 30), deadline=None, suppress_health_check=CHECKS)
MANY = settings(max_examples=10_000, deadline=None, suppress_health_check=CHECKS)
_numbers = itertools.count()


class Registries:
    """A registry for some hundred subjects; then a new one, since each version of its table is one schema."""

    def __init__(self) -> None:
        self._uses = 0
        self._registry = Registry(MemoryCluster())

    def __call__(self) -> Registry:
        self._uses += 1
        if self._uses % 300 == 0:
            self._registry = Registry(MemoryCluster())
        return self._registry


registries = Registries()


def context() -> SerializationContext:
    return SerializationContext(f"t{next(_numbers)}", "value")


def same(pair: tuple[Any, Any], ours: Any, theirs: Any, reader: Any, their_reader: Any) -> None:
    """Both write the same, and each reads it as the other does."""
    place, (_, value) = context(), pair
    written = ours(value, place)

    assert written == theirs(value, place)
    if len(written) > 5:  # theirs refuse a record without a payload
        assert repr(reader(written, place)) == repr(their_reader(written, place))
    # What was read can be written again, to the same bytes.
    assert ours(reader(written, place), place) == written


def avro(pair: tuple[Any, Any]) -> None:
    registry, text = registries(), json.dumps(pair[0])
    if isinstance(pair[0], dict) and pair[0]["type"] == "bytes":
        return  # a schema that is only a decimal: theirs write and read the bytes themselves, and so do ours
    same(
        pair,
        AvroSerializer(registry, text),
        TheirAvroSerializer(registry, text),
        AvroDeserializer(registry),
        TheirAvroDeserializer(registry),
    )


def protobuf(pair: tuple[type[Message], Message]) -> None:
    registry, (made, message) = registries(), pair
    if not message.IsInitialized():
        return
    place = context()
    written = ProtobufSerializer(made, registry)(message, place)
    theirs = TheirProtobufSerializer(made, registry)(message, place)
    read = ProtobufDeserializer(made, {}, registry)(theirs, place)
    by_schema = ProtobufDeserializer(None, {}, registry)(theirs, place)

    # Entries of maps have no order on the wire.
    assert written is not None
    assert theirs is not None
    assert (len(written), sorted(written)) == (len(theirs), sorted(theirs))
    assert read == message == TheirProtobufDeserializer(made, {}, registry)(written, place)
    # A class that the schema's text was turned into; the text of both is the same but for NaN.
    assert str(by_schema) == str(message)
    assert by_schema.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


def json_schema(pair: tuple[Any, Any]) -> None:
    registry, text = registries(), json.dumps(pair[0])
    if pair[1] is None:
        return
    same(
        pair,
        JSONSerializer(text, registry),
        TheirJSONSerializer(text, registry),
        JSONDeserializer(None, None, registry),
        TheirJSONDeserializer(None, None, registry),
    )


@pytest.mark.slow
@given(avro_pairs.schemas_with_values().filter(lambda pair: pair[1] is not None))
@FEW
def test_avro_is_the_same(pair: tuple[Any, Any]) -> None:
    avro(pair)


@pytest.mark.slow
@given(proto_pairs.classes_with_messages())
@FEW
def test_protobuf_is_the_same(pair: tuple[type[Message], Message]) -> None:
    protobuf(pair)


@pytest.mark.slow
@given(json_pairs.schemas_with_values())
@FEW
def test_json_is_the_same(pair: tuple[Any, Any]) -> None:
    json_schema(pair)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@given(avro_pairs.schemas_with_values().filter(lambda pair: pair[1] is not None))
@MANY
def test_avro_is_the_same_ten_thousand_times(pair: tuple[Any, Any]) -> None:
    avro(pair)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@given(proto_pairs.classes_with_messages())
@MANY
def test_protobuf_is_the_same_ten_thousand_times(pair: tuple[type[Message], Message]) -> None:
    protobuf(pair)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@given(json_pairs.schemas_with_values())
@MANY
def test_json_is_the_same_ten_thousand_times(pair: tuple[Any, Any]) -> None:
    json_schema(pair)
