"""Random requests, valid and damaged, are answered or end their connection, and are no defect of a handler."""

from __future__ import annotations

import logging
import random
import socket
import struct

import pytest
from confluent_kafka.admin import AdminClient
from kio.index import load_request_schema

from kafkalike.gateway.api_versions import VERSIONS
from kafkalike.gateway.message_codec import writer_of
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.effort import examples
from tests.tools.wire_messages import damaged, some_message

PRODUCE = 0
LIKELY = {
    "string": ("t", "g", "m", "consumer", "range", ""),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), (0, 1, -1, 2, 5)),
    **dict.fromkeys(("timedelta_i32", "timedelta_i64"), (0, 1, 20)),
}


def some_frame(chance: random.Random, number: int) -> tuple[int, bytes]:
    """Return the API key and the bytes of a request."""
    key = chance.choice(list(VERSIONS))
    version = chance.randint(*VERSIONS[key])
    schema = load_request_schema(key, version)
    out = bytearray(struct.pack(">hhih", key, version, number, 1) + b"f")
    if schema.__header_schema__.__flexible__:
        out.append(0)
    values = some_message(chance, schema, LIKELY)
    values |= {name: 10 for name in ("max_wait", "session_timeout", "rebalance_timeout") if name in values}
    writer_of(schema)(out, values)
    return key, damaged(chance, bytes(out)) if chance.random() < 0.2 else bytes(out)


@pytest.mark.slow
def test_random_requests_are_answered_or_end_their_connection(
    served: tuple[Cluster, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster, address = served
    host, _, port = address.rpartition(":")
    cluster.create_topic("t", 2, {})
    chance = random.Random(11)
    answered = ended = 0
    with caplog.at_level(logging.WARNING):
        for number in range(examples(10_000, 200)):
            key, frame = some_frame(chance, number)
            with socket.create_connection((host, int(port)), timeout=20) as client:
                client.sendall(struct.pack(">i", len(frame)) + frame)
                if key != PRODUCE:  # acks=0 has no answer
                    try:
                        answered += bool(client.recv(1))
                    except ConnectionResetError:
                        ended += 1

    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert answered > ended
    assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).brokers
