"""A gateway keeps a row for each file that it appends, and nothing of requests and of connections that have ended."""

from __future__ import annotations

import gc
import random
import socket
import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.client_connection import ClientConnection
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.wire_client import WireClient

ROUNDS = 60

MOST_BYTES = 1000
"""Bytes that each round may leave: 160 for the rows of a file in the logs for appends and for reads, and room for other
work of the process. A request with its answer takes more."""


@pytest.mark.slow
def test_gateway_keeps_little_of_appends_and_reads(served: tuple[Cluster, str], topic: Callable[[int], str]) -> None:
    name, chance, kept = topic(1), random.Random(1), 0
    with WireClient(served[1]) as client:

        def exchange(offset: int) -> None:
            """Append a record of an idempotent producer, and read it."""
            builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 0, offset, 1 << 20)
            builder.append(0, 1_700_000_000_000 + offset, b"k", chance.randbytes(1000), [])
            part = {"index": 0, "records": bytes(builder.build())}
            client.send(keys.PRODUCE, 8, {"acks": -1, "topic_data": [{"name": name, "partition_data": [part]}]})
            answer = client.receive(keys.PRODUCE, 8).responses[0].partition_responses[0]
            assert (answer.error_code.value, answer.base_offset) == (0, offset)
            wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            limits = {"max_wait": 20_000, "min_bytes": 1, "max_bytes": 1 << 20}
            client.send(keys.FETCH, 4, {**limits, "topics": [{"topic": name, "partitions": [wanted]}]})
            assert client.receive(keys.FETCH, 4).responses[0].partitions[0].high_watermark == offset + 1

        for offset in range(3 * ROUNDS):
            if offset == ROUNDS:
                tracemalloc.start()
            if offset in {2 * ROUNDS - 1, 3 * ROUNDS - 1}:
                gc.collect()
                kept = tracemalloc.get_traced_memory()[0] - kept
            exchange(offset)
        tracemalloc.stop()

    assert kept < MOST_BYTES * ROUNDS


@pytest.mark.parametrize(
    ("content", "reset"),
    [
        pytest.param(b"", False, id="silent"),
        pytest.param(b"", True, id="reset"),
        pytest.param(struct.pack(">i", 100) + bytes(20), False, id="half_of_a_request"),
        pytest.param(struct.pack(">i", 100) + bytes(20), True, id="reset_in_a_request"),
        pytest.param(struct.pack(">ihhi", 8, keys.FETCH, 99, 1), False, id="unknown_version"),
        pytest.param(struct.pack(">ihhih", 10, keys.FETCH, 4, 1, -1), False, id="malformed"),
        pytest.param(struct.pack(">i", -1), False, id="negative_length"),
    ],
)
def test_connection_that_has_ended_is_freed_without_a_garbage_collection(
    served: tuple[Cluster, str], content: bytes, *, reset: bool
) -> None:
    """Full collections are rare in a large process: a flood of such connections would fill its memory."""

    def count() -> int:
        return sum(isinstance(one, ClientConnection) for one in gc.get_objects())

    def last() -> None:
        """Have the gateway accept all connections up to one more, which it still names afterwards."""
        with WireClient(served[1]) as client:
            client.ask(keys.API_VERSIONS, 0, {})

    last()
    gc.collect()
    gc.disable()
    try:
        before = count()
        for _ in range(5):
            with WireClient(served[1]) as client:
                client.socket.sendall(content)
                if reset:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        last()
        while count() > before + 1:  # the time limit of tests ends it
            time.sleep(0.02)
    finally:
        gc.enable()
