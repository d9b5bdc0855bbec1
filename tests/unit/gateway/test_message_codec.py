"""The reader and the writer of Kafka's messages agree with kio, and bad bytes give one named error."""

from __future__ import annotations

import datetime as dt
import io
import random
import tracemalloc
import uuid
from dataclasses import fields
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from kafkalike.gateway.api_versions import VERSIONS
from kafkalike.gateway.message_codec import MalformedRequestError, reader_of, writer_of
from tests.tools.effort import examples

RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "error_code": (-1, 100),
    "timedelta_i32": (0, 2**31 - 1),
    "timedelta_i64": (0, 2**40),
    "datetime_i64": (0, 2**41),
}

MESSAGES = [
    pytest.param(load, key, id=f"{kind}-{key}")
    for kind, load in (("request", load_request_schema), ("answer", load_response_schema))
    for key in VERSIONS
]


def some_value(chance: random.Random, kind: str) -> Any:
    if kind in RANGES:
        return chance.choice([*RANGES[kind], chance.randint(*RANGES[kind])])
    if kind == "string":
        return "".join(chance.choice("aé中-") for _ in range(chance.choice([0, 3, 200])))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uuid":
        return uuid.UUID(int=chance.getrandbits(128) | 1)
    return chance.randbytes(chance.choice([0, 1, 300]))


def some_message(chance: random.Random, schema: Any) -> dict[str, Any]:
    """Return values for all fields of a class of kio."""
    values: dict[str, Any] = {}
    for field in fields(schema):
        if get_field_tag(field) is not None and chance.random() < 0.5:
            continue
        kind = classify_field(field)
        tagged = get_field_tag(field) is not None  # kio reads no null there
        if is_optional(field) and not tagged and chance.random() < 0.3:
            values[field.name] = -1 if field.metadata.get("kafka_type") == "datetime_i64" else None
        elif isinstance(kind, EntityField):
            values[field.name] = some_message(chance, kind.type_)
        elif isinstance(kind, EntityTupleField):
            values[field.name] = [some_message(chance, kind.type_) for _ in range(chance.choice([0, 1, 3]))]
        else:
            name = get_schema_field_type(field)
            values[field.name] = (
                some_value(chance, name)
                if isinstance(kind, PrimitiveField)
                else [some_value(chance, name) for _ in range(chance.choice([0, 1, 3]))]
            )
    return values


def plain(value: Any) -> Any:
    """Return a parsed value as the writer takes it."""
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value


def differences(entity: Any, values: dict[str, Any]) -> list[str]:
    found = []
    for name, wanted in values.items():
        got = getattr(entity, name)
        if isinstance(wanted, dict):
            found += differences(got, wanted)
        elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
            pairs = zip(got, wanted, strict=True)
            found += [one for item, value in pairs for one in differences(item, value)]
        elif plain(got) != wanted and not (wanted == -1 and got is None):
            found.append(f"{name}: {got!r} is not {wanted!r}")
    return found


@pytest.mark.parametrize(("load", "key"), MESSAGES)
def test_random_message_is_written_and_read_as_by_kio(load: Any, key: int) -> None:
    chance = random.Random(key)
    low, high = VERSIONS[key]
    for version in [v for v in range(low, high + 1) for _ in range(examples(20, 2))]:
        schema = load(key, version)
        values = some_message(chance, schema)
        out = bytearray()
        writer_of(schema)(out, values)
        known, _ = entity_reader(schema)(bytes(out), 0)
        assert differences(known, values) == []
        if load is load_response_schema:
            continue  # the gateway reads no answers
        mine, end = reader_of(schema)(memoryview(out), 0)
        assert (mine, end) == (known, len(out))
        again = io.BytesIO()
        entity_writer(schema)(again, mine)
        assert entity_reader(schema)(again.getvalue(), 0)[0] == known


def damaged(chance: random.Random, good: bytes) -> bytes:
    """Return random bytes, or a message with some bytes replaced, cut off or added."""
    if chance.random() < 0.3:
        return chance.randbytes(chance.choice([1, 5, 40]))
    body = bytearray(good)
    for _ in range(chance.choice([1, 2, 8])):
        at = chance.randrange(len(body) + 1)
        how = chance.random()
        if how < 0.5 and at < len(body):
            body[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        elif how < 0.75:
            del body[at:]
        else:
            body[at:at] = chance.randbytes(3)
    return bytes(body)


def test_damaged_messages_give_only_the_named_error_and_little_memory() -> None:
    chance = random.Random(7)
    requests = [(key, v) for key, (low, high) in VERSIONS.items() for v in range(low, high + 1)]
    refused = 0
    tracemalloc.start()
    for _ in range(examples(50_000, 1000)):
        schema = load_request_schema(*chance.choice(requests))
        good = bytearray()
        if chance.random() < 0.2:
            writer_of(schema)(good, some_message(chance, schema))
        try:
            reader_of(schema)(memoryview(damaged(chance, bytes(good))), 0)
        except MalformedRequestError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > 0
    assert peak < 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(3, 9, b"\xff\xff\xff\xff\x0f", id="compact-array-of-4-billion-topics"),
        pytest.param(19, 7, b"\xff\xff\xff\xff\x0f", id="compact-array-of-4-billion-new-topics"),
        pytest.param(3, 1, b"\x7f\xff\xff\xff", id="array-of-2-billion-topics"),
        pytest.param(12, 4, b"\xff\xff\xff\xff\xff\xff", id="varint-without-end"),
        pytest.param(12, 0, b"\x00\x02\xff\xfe\x00\x00\x00\x01\x00\x00", id="text-that-is-not-utf-8"),
        pytest.param(12, 0, b"\xff\xff\x00\x00\x00\x01\x00\x00", id="null-without-permission"),
    ],
)
def test_hostile_message_is_refused_without_allocating(key: int, version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        reader_of(load_request_schema(key, version))(memoryview(body), 0)
