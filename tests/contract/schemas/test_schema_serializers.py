"""Serializers of schemas as producers and consumers use them: registering, frames, headers, errors."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import confluent_kafka.schema_registry as theirs
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import (
    IllegalArgumentError,
    KafkaConfigurationError,
    RecordDeserializationError,
    SchemaRegistryError,
    SerializationError,
)
from kafkalike.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Registry,
    Schema,
    SchemaReference,
    SerializationContext,
    header_schema_id_serializer,
    prefix_schema_id_deserializer,
)
from kafkalike.schemas.proto.parser import parse_proto
from tests.tools.proto_pairs import pool_of

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)
WIDER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "mail", "type": "string", "default": "-"},
        ],
    }
)
ANN = {"id": 1, "name": "Ann"}
PERSON = '{"type":"object","title":"shop.Person","properties":{"id":{"type":"integer"}},"required":["id"]}'


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def registry(cluster: MemoryCluster) -> Registry:
    return Registry(cluster)


def value(topic: str = "t") -> SerializationContext:
    return SerializationContext(topic, "value")


def sent_and_read(cluster: MemoryCluster, serializer: Any, deserializer: Any, sent: Any) -> Any:
    """A record with the same key and value, sent and read again."""
    with KafkaProducer(bootstrap_servers=cluster, key_serializer=serializer, value_serializer=serializer) as producer:
        producer.send("t", sent, key=sent).get()
    with KafkaConsumer(
        "t",
        bootstrap_servers=cluster,
        key_deserializer=deserializer,
        value_deserializer=deserializer,
        auto_offset_reset="earliest",
    ) as consumer:
        return next(consumer)


def test_records_go_through_producer_and_consumer(cluster: MemoryCluster, registry: Registry) -> None:
    record = sent_and_read(cluster, AvroSerializer(registry, USER), AvroDeserializer(registry), ANN)

    assert record.key == record.value == ANN
    assert record.headers == []
    assert record.serialized_value_size == 5 + 5
    assert registry.get_subjects() == ["t-key", "t-value"]
    assert registry.get_latest_version("t-value").schema_id == registry.get_latest_version("t-key").schema_id


def test_a_tombstone_stays_one(cluster: MemoryCluster, registry: Registry) -> None:
    with KafkaProducer(bootstrap_servers=cluster, value_serializer=AvroSerializer(registry, USER)) as producer:
        producer.send("t", None, key=b"k").get()
    with KafkaConsumer(
        "t", bootstrap_servers=cluster, value_deserializer=AvroDeserializer(registry), auto_offset_reset="earliest"
    ) as consumer:
        assert next(consumer).value is None


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "theirs"])
def test_a_guid_goes_into_a_header(cluster: MemoryCluster, registry: Registry, *, ours: bool) -> None:
    conf = {"schema.id.serializer": header_schema_id_serializer if ours else theirs.header_schema_id_serializer}
    made: Any = AvroSerializer if ours else TheirAvroSerializer
    record = sent_and_read(cluster, made(registry, USER, conf=conf), AvroDeserializer(registry), ANN)
    guid = b"\x01" + uuid.UUID(registry.get_latest_version("t-value").guid).bytes

    assert record.value == record.key == ANN
    assert record.headers == [("__key_schema_id", guid), ("__value_schema_id", guid)]
    assert record.serialized_value_size == 5


def test_a_guid_of_protobuf_is_followed_by_the_message(cluster: MemoryCluster, registry: Registry) -> None:
    conf = {"schema.id.serializer": header_schema_id_serializer}
    their_conf = {"schema.id.serializer": theirs.header_schema_id_serializer}
    file = parse_proto('syntax = "proto3"; message A { } message B { message C { int32 n = 1; } }', "h.proto")
    made = GetMessageClass(pool_of(file).FindMessageTypeByName("B.C"))
    ours = ProtobufSerializer(made, registry, conf)
    context, other = value(), value()

    assert ours(made(n=2), context) == TheirProtobufSerializer(made, registry, their_conf)(made(n=2), other)
    assert context.headers == other.headers
    assert TheirProtobufDeserializer(made, {}, registry)(b"\x08\x02", context) == made(n=2)
    assert ProtobufDeserializer(None, {}, registry)(b"\x08\x02", other).n == 2
    record = sent_and_read(cluster, ours, ProtobufDeserializer(made, {}, registry), made(n=2))
    assert record.value == record.key == made(n=2)


def test_a_header_is_not_looked_at_when_nobody_asks(registry: Registry) -> None:
    context = value()
    AvroSerializer(registry, USER, conf={"schema.id.serializer": header_schema_id_serializer})(ANN, context)
    plain = AvroSerializer(registry, USER)(ANN, value())
    only_prefix = AvroDeserializer(registry, conf={"schema.id.deserializer": prefix_schema_id_deserializer})

    assert only_prefix(plain, context) == ANN
    with pytest.raises(SerializationError):
        AvroDeserializer(registry)(plain, SerializationContext("t", "value", [("__value_schema_id", b"\x07")]))


@pytest.mark.parametrize("made", [TheirAvroSerializer, AvroSerializer], ids=["theirs", "ours"])
@pytest.mark.parametrize("read", [TheirAvroDeserializer, AvroDeserializer], ids=["theirs", "ours"])
def test_confluents_serializers_run_in_our_clients(
    cluster: MemoryCluster, registry: Registry, made: Any, read: Any
) -> None:
    record = sent_and_read(cluster, made(registry, USER), read(registry), ANN)

    assert record.value == record.key == ANN


def test_objects_are_turned_into_dicts_and_back(cluster: MemoryCluster, registry: Registry) -> None:
    seen = []

    def to_dict(number: int, ctx: Any) -> dict[str, Any]:
        seen.append((ctx.topic, ctx.field))
        return {"id": number, "name": "n"}

    record = sent_and_read(
        cluster,
        AvroSerializer(registry, USER, to_dict),
        AvroDeserializer(registry, from_dict=lambda found, ctx: (ctx.field, found["id"])),
        7,
    )

    assert (record.key, record.value) == (("key", 7), ("value", 7))
    assert seen == [("t", "key"), ("t", "value")]


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ({}, "t-value"),
        ({"subject.name.strategy": theirs.record_subject_name_strategy}, "shop.User"),
        ({"subject.name.strategy": theirs.topic_record_subject_name_strategy}, "t-shop.User"),
        ({"subject.name.strategy.type": "RECORD"}, "shop.User"),
        ({"subject.name.strategy.type": "topic_record"}, "t-shop.User"),
        ({"subject.name.strategy": lambda ctx, name: f"{name}/{ctx.field}"}, "shop.User/value"),
        ({"subject.name.strategy": lambda _ctx, _name: "mine", "subject.name.strategy.type": "RECORD"}, "mine"),
    ],
    ids=range(7),
)
def test_a_strategy_names_the_subject(registry: Registry, strategy: dict[str, Any], subject: str) -> None:
    AvroSerializer(registry, USER, conf=strategy)(ANN, value())

    assert registry.get_subjects() == [subject]


def test_nothing_is_registered_when_nobody_wants_it(registry: Registry) -> None:
    serializer = AvroSerializer(registry, USER, conf={"auto.register.schemas": False})
    with pytest.raises(SchemaRegistryError) as refused:
        serializer(ANN, value())
    assert refused.value.error_code == 40401

    registry.register_schema("t-value", Schema(USER))
    assert serializer(ANN, value()) == TheirAvroSerializer(registry, USER)(ANN, value())


def test_the_latest_version_is_written_and_read(registry: Registry) -> None:
    old = AvroSerializer(registry, USER)(ANN, value())
    registry.register_schema("t-value", Schema(WIDER))
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    new = AvroSerializer(registry, conf=latest)({**ANN, "mail": "a@b"}, value())

    assert new == AvroSerializer(registry, WIDER)({**ANN, "mail": "a@b"}, value())
    assert new == TheirAvroSerializer(registry, None, conf=latest)({**ANN, "mail": "a@b"}, value())
    reader = AvroDeserializer(registry, conf={"use.latest.version": True})
    assert reader(old, value()) == {**ANN, "mail": "-"}
    assert AvroDeserializer(registry, WIDER)(old, value()) == {**ANN, "mail": "-"}
    assert AvroDeserializer(registry)(old, value()) == ANN


def test_a_schema_is_chosen_by_its_id(registry: Registry) -> None:
    first = registry.register_schema("t-value", Schema(USER))
    registry.register_schema("t-value", Schema(WIDER))

    assert AvroSerializer(registry, conf={"use.schema.id": first})(ANN, value()) == AvroSerializer(registry, USER)(
        ANN, value()
    )


def test_normalized_schemas_are_the_same(registry: Registry) -> None:
    other = json.dumps(dict(reversed(json.loads(USER).items())))
    conf = {"normalize.schemas": True}

    first, second = (AvroSerializer(registry, text, conf=conf)(ANN, value()) for text in (USER, other))
    assert first == second
    assert len(registry.get_versions("t-value")) == 1


def test_strict_records_have_exactly_the_fields(registry: Registry) -> None:
    strict = AvroSerializer(registry, WIDER, conf={"validate.strict": True})
    defaults = AvroSerializer(registry, WIDER, conf={"validate.strict.allow.default": True})

    assert defaults(ANN, value())
    for serializer, wrong in ((strict, ANN), (strict, {**ANN, "mail": "", "x": 1}), (defaults, {**ANN, "x": 1})):
        with pytest.raises(SerializationError):
            serializer(wrong, value())


@pytest.mark.parametrize(
    "conf",
    [
        {"unknown": 1},
        {"auto.register.schemas": "yes"},
        {"use.latest.version": True},
        {"use.schema.id": "1"},
        {"use.latest.with.metadata": "x"},
        {"subject.name.strategy": 5},
        {"subject.name.strategy.type": "ASSOCIATED"},
        {"schema.id.serializer": lambda *_: b""},
        {"validation.rules.execution": "BEFORE_DOMAIN_RULES"},
        {"validate": False},
        {"skip.known.types": True},
        {"schema.id.deserializer": prefix_schema_id_deserializer},
    ],
    ids=range(12),
)
def test_a_setting_that_is_unknown_or_wrong_is_refused(registry: Registry, conf: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError):
        AvroSerializer(registry, USER, conf=conf)


def test_what_no_serializer_can_work_with_is_refused(registry: Registry) -> None:
    with pytest.raises(IllegalArgumentError, match="to_dict"):
        AvroSerializer(registry, USER, to_dict={})
    with pytest.raises(IllegalArgumentError, match="from_dict"):
        AvroDeserializer(registry, from_dict=5)
    with pytest.raises(IllegalArgumentError, match="type JSON, not AVRO"):
        AvroSerializer(registry, Schema("{}", "JSON"))
    with pytest.raises(IllegalArgumentError, match="schema_registry_client is needed"):
        JSONDeserializer(None)
    with pytest.raises(IllegalArgumentError, match="SerializationContext"):
        AvroSerializer(registry, USER)(ANN)
    with pytest.raises(SerializationError, match="no schema"):
        AvroSerializer(registry)(ANN, value())


# --- Protobuf ------------------------------------------------------------------------------------


def test_messages_of_imported_files_are_registered_with_them(registry: Registry) -> None:
    inner = parse_proto('syntax = "proto3"; package i; message I { int32 v = 1; }', "i.proto")
    outer = parse_proto(
        'syntax = "proto3"; package o; import "i.proto"; import "google/protobuf/timestamp.proto";'
        "message Outer { message O { i.I i = 1; google.protobuf.Timestamp t = 2; } }",
        "o.proto",
    )
    pool = pool_of(inner)
    pool.Add(outer)
    made = GetMessageClass(pool.FindMessageTypeByName("o.Outer.O"))
    sent = made(i={"v": 4}, t={"seconds": 5})

    ours = ProtobufSerializer(made, registry)(sent, value())
    assert ours == TheirProtobufSerializer(made, registry)(sent, value())
    assert ours is not None
    assert ours[5:8] == b"\x04\x00\x00"
    assert registry.get_subjects() == ["i.proto", "t-value"]
    assert TheirProtobufDeserializer(made, {}, registry)(ours, value()) == sent
    assert ProtobufDeserializer(made, {}, registry)(ours, value()) == sent
    assert ProtobufDeserializer(made)(ours, value()) == sent
    assert ProtobufDeserializer(None, {}, registry)(ours, value()).i.v == 4


def test_a_schema_of_javas_clients_is_read(registry: Registry) -> None:
    """They register the text of the file; a message's place is counted in it."""
    text = (
        'syntax = "proto3";\npackage shop;\n\nmessage Order {\n  string id = 1;\n}\nmessage Item {\n  int32 n = 1;\n}\n'
    )
    number = registry.register_schema("t-value", Schema(text, "PROTOBUF"))
    record = b"\x00" + number.to_bytes(4, "big") + b"\x02\x02" + b"\x08\x05"

    assert ProtobufDeserializer(None, {}, registry)(record, value()).n == 5


def test_the_latest_message_of_the_same_name_is_read(registry: Registry) -> None:
    old = 'syntax = "proto3"; message A { int32 v = 1; } message B { int32 v = 1; }'
    number = registry.register_schema("t-value", Schema(old, "PROTOBUF"))
    registry.register_schema(
        "t-value", Schema('syntax = "proto3"; message B { int32 w = 1; } message A { int32 u = 1; }', "PROTOBUF")
    )
    reader = ProtobufDeserializer(None, {"use.latest.version": True}, registry)

    assert reader(b"\x00" + number.to_bytes(4, "big") + b"\x00" + b"\x08\x05", value()).u == 5
    assert reader(b"\x00" + number.to_bytes(4, "big") + b"\x02\x02" + b"\x08\x05", value()).w == 5


def test_another_message_is_refused(registry: Registry) -> None:
    with pytest.raises(SerializationError, match=r"google.protobuf.Timestamp is needed, not Struct"):
        ProtobufSerializer(timestamp_pb2.Timestamp, registry)(struct_pb2.Struct(), value())


# --- JSON Schema ---------------------------------------------------------------------------------


def test_json_is_checked_unless_it_is_not_wanted(registry: Registry) -> None:
    with pytest.raises(SerializationError, match="'id' is a required property"):
        JSONSerializer(PERSON, registry)({}, value())
    unchecked = JSONSerializer(PERSON, registry, conf={"validate": False})({}, value())
    assert unchecked is not None
    with pytest.raises(SerializationError, match="required"):
        JSONDeserializer(None, None, registry)(unchecked, value())
    assert JSONDeserializer(None, None, registry, {"validate": False})(unchecked, value()) == {}
    assert JSONDeserializer('{"type": "object"}')(unchecked) == {}


def test_references_of_json_and_avro_are_used(registry: Registry) -> None:
    registry.register_schema("address", Schema('{"type":"string","maxLength":3}', "JSON"))
    registry.register_schema("zip", Schema('{"type":"enum","name":"shop.Zip","symbols":["Z1","Z2"]}'))
    person = Schema('{"properties":{"a":{"$ref":"a.json"}}}', "JSON", [SchemaReference("a.json", "address", 1)])
    home = Schema(
        '{"type":"record","name":"shop.Home","fields":[{"name":"zip","type":"Zip"}]}',
        "AVRO",
        [SchemaReference("shop.Zip", "zip", 1)],
    )
    their_home = theirs.Schema(home.schema_str, "AVRO", [theirs.SchemaReference("shop.Zip", "zip", 1)])

    with pytest.raises(SerializationError, match="too long"):
        JSONSerializer(person, registry)({"a": "long"}, value("j"))
    written = AvroSerializer(registry, their_home)({"zip": "Z2"}, value())
    assert written == TheirAvroSerializer(registry, their_home)({"zip": "Z2"}, value())
    assert AvroDeserializer(registry, home)(written, value()) == {"zip": "Z2"}


def test_a_coder_of_ones_own_is_used(registry: Registry) -> None:
    written = JSONSerializer("{}", registry, json_encode=lambda v: json.dumps(v).encode())({"a": [1, 2]}, value())

    assert written is not None
    assert written.endswith(b'{"a": [1, 2]}')
    assert JSONDeserializer(None, None, registry, json_decode=len)(written, value()) == 13


# --- errors --------------------------------------------------------------------------------------


def test_an_error_says_topic_and_schema(registry: Registry) -> None:
    number = registry.register_schema("t-value", Schema(USER))
    broken = b"\x00" + number.to_bytes(4, "big") + b"\x02\x10x"
    with pytest.raises(SerializationError, match=rf"topic 't', schema {number}: the record is not of its") as caught:
        AvroDeserializer(registry)(broken, value())
    assert (caught.value.topic, caught.value.schema_id) == ("t", number)

    with pytest.raises(SerializationError, match="topic 't': the value is not of the Avro schema") as refused:
        AvroSerializer(registry, USER)({}, value())
    assert refused.value.topic == "t"


def test_a_consumer_says_partition_and_offset_too(cluster: MemoryCluster, registry: Registry) -> None:
    serializer = AvroSerializer(registry, USER)
    good = serializer(ANN, value())
    assert good is not None
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", good, partition=0).get()
        producer.send("t", good[:-1], partition=0).get()
    with KafkaConsumer(
        "t", bootstrap_servers=cluster, value_deserializer=AvroDeserializer(registry), auto_offset_reset="earliest"
    ) as consumer:
        assert next(consumer).value == ANN
        with pytest.raises(RecordDeserializationError) as caught:
            next(consumer)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.schema_id) == ("t", 0, 1, 1)


def test_an_unknown_id_is_an_error_of_the_record(registry: Registry) -> None:
    with pytest.raises(SerializationError, match="the schema 77 cannot be used") as caught:
        AvroDeserializer(registry)(b"\x00\x00\x00\x00\x4dx", value())
    assert caught.value.schema_id == 77


def test_a_schema_of_another_type_is_an_error_of_the_record(registry: Registry) -> None:
    written = JSONSerializer("{}", registry)({}, value())

    for reader in (AvroDeserializer(registry), ProtobufDeserializer(None, {}, registry)):
        with pytest.raises(SerializationError, match="type JSON"):
            reader(written, value())


def test_a_schema_that_cannot_be_registered_is_asked_for_again(registry: Registry) -> None:
    registry.register_schema("t-value", Schema(USER))
    serializer = AvroSerializer(registry, '{"type":"record","name":"User","fields":[{"name":"other","type":"int"}]}')
    with pytest.raises(SchemaRegistryError) as refused:
        serializer({"other": 1}, value())
    assert refused.value.http_status_code == 409

    registry.set_compatibility("t-value", "NONE")
    assert serializer({"other": 1}, value())


def test_threads_share_a_serializer(registry: Registry) -> None:
    serializer, reader = AvroSerializer(registry, USER), AvroDeserializer(registry)
    start, failed = threading.Barrier(8), []

    def work(number: int) -> None:
        start.wait()
        for step in range(50):
            sent = {"id": number * 100 + step, "name": str(step)}
            if reader(serializer(sent, value(f"t{step % 4}")), value(f"t{step % 4}")) != sent:
                failed.append(sent)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert registry.get_subjects() == [f"t{number}-value" for number in range(4)]
