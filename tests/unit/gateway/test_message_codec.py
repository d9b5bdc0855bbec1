"""The reader and the writer of Kafka's messages agree with kio, and bad bytes give one named error."""

from __future__ import annotations

import datetime as dt
import io
import random
import tracemalloc
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafkalike.gateway.api_versions import VERSIONS
from kafkalike.gateway.message_codec import MalformedRequestError, reader_of, writer_of
from tests.tools.effort import examples
from tests.tools.wire_messages import damaged, some_message

MESSAGES = [
    pytest.param(load, key, id=f"{kind}-{key}")
    for kind, load in (("request", load_request_schema), ("answer", load_response_schema))
    for key in VERSIONS
]


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


@pytest.mark.slow
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


DEEP = b"\0\0\0\x32" + (b"\0\0" + b"\0\1\x86\xa0" + bytes(12 * 100_000)) * 50
"""50 topics with 100,000 partitions each, as ListOffsets names them."""


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(3, 9, b"\xff\xff\xff\xff\x0f", id="compact-array-of-4-billion-topics"),
        pytest.param(19, 7, b"\xff\xff\xff\xff\x0f", id="compact-array-of-4-billion-new-topics"),
        pytest.param(3, 1, b"\x7f\xff\xff\xff", id="array-of-2-billion-topics"),
        pytest.param(2, 1, b"\0" * 4 + DEEP, id="arrays-of-5-million-items-together"),
        pytest.param(12, 4, b"\xff\xff\xff\xff\xff\xff", id="varint-without-end"),
        pytest.param(12, 0, b"\x00\x02\xff\xfe\x00\x00\x00\x01\x00\x00", id="text-that-is-not-utf-8"),
        pytest.param(12, 0, b"\xff\xff\x00\x00\x00\x01\x00\x00", id="null-without-permission"),
    ],
)
def test_hostile_message_is_refused_without_allocating(key: int, version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        reader_of(load_request_schema(key, version))(memoryview(body), 0)
