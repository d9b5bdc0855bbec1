"""Fuzzed records and schemas in a process of little memory: each is read or refused by name, and nothing kills it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LEAST = 32 << 20
"""Bytes of memory that records of a megabyte may take."""


def fuzz(first: int, count: int) -> dict[str, int]:
    """Let a child try seeds."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.tools.schema_fuzz", str(first), str(count)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_fuzzed_records_and_schemas_are_read_or_refused() -> None:
    found = fuzz(0, 300)

    assert found["refused"] > 50
    assert found["read"] > 10
    assert found["no schema"] > 50


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_many_fuzzed_records_and_schemas_are_read_or_refused() -> None:
    found = fuzz(1_000_000, 100_000)

    assert found["MiB at most"] < 300


HOSTILE = """
import json, resource
from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.serde.codec import codec_for
from tests.tools.schemas import SchemasInMemory

source = SchemasInMemory()
node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
empty = {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}
nested = 'syntax = "proto3"; message R { R r = 1; repeated string s = 2; }'
def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128); n >>= 7
    return bytes([*out, n])
deep = b""
for _ in range(5000):
    deep = b"\\x0a" + varint(len(deep)) + deep
codecs = [codec_for(Schema(*of), source) for of in (
    ("AVRO", json.dumps(node)), ("AVRO", json.dumps(empty)), ("AVRO", '"string"'), ("JSON", "{}"),
    ("PROTOBUF", nested))]
records = [
    (0, b"\\x02" * 1_000_000), (1, varint(1 << 61)), (2, varint(1 << 61)), (3, b"[" * 1_000_000), (4, b"\\x00" + deep),
    (4, b"\\x00\\x12" + varint(1 << 31)), (3, b'{"a":' * 200_000), (2, varint(2_000_000 * 2) + b"x" * 1_000_000),
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = 0
for which, record in records:
    try:
        codecs[which].decode(record)
    except SerializationError:
        refused += 1
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"refused": refused, "of": len(records), "KiB": grown}))
"""


def test_records_that_announce_more_than_they_hold_take_no_memory() -> None:
    """The largest is a megabyte long; a process may grow by some copies of it."""
    done = subprocess.run([sys.executable, "-c", HOSTILE], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout)

    assert found["refused"] == found["of"]
    assert found["KiB"] < LEAST >> 10
