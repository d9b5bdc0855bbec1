"""Murmur2 on bytes: Java's vectors, an independent slow reference, and numpy against the scalar."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.murmur2 import murmur2, partition_for_key, partitions_for_keys, partitions_of_slices

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "kafka_murmur2_vectors.json").read_text())


def slow_murmur2(data: bytes) -> int:
    """The definition of MurmurHash2, a byte and a step at a time, in unbounded integers reduced modulo 2^32."""
    modulus, m = 2**32, 0x5BD1E995
    h = int(VECTORS["seed"], 16) ^ len(data)
    position = 0
    while len(data) - position >= 4:
        k = sum(data[position + i] * 256**i for i in range(4))
        k = (k * m) % modulus
        k ^= k // 2**24
        k = (k * m) % modulus
        h = (h * m) % modulus
        h ^= k
        position += 4
    if position < len(data):
        for i, octet in enumerate(data[position:]):
            h ^= octet * 256**i
        h = (h * m) % modulus
    h ^= h // 2**13
    h = (h * m) % modulus
    h ^= h // 2**15
    return h if h < 2**31 else h - modulus


@pytest.mark.parametrize(("key", "expected"), VECTORS["hash"].items())
def test_the_hash_is_that_of_kafkas_java_client(key: str, expected: int) -> None:
    """Hashes published with Kafka's own tests are met."""
    assert murmur2(key.encode()) == expected


@pytest.mark.parametrize(("key", "expected"), VECTORS["partition_of_1000"].items())
def test_the_partition_is_that_of_kafkas_java_client(key: str, expected: int) -> None:
    """Partitions out of 1000, as the Java client gives them, are met."""
    assert partition_for_key(key.encode(), 1000) == expected


@given(st.binary(max_size=300))
def test_any_bytes_hash_as_the_definition_says(data: bytes) -> None:
    """The fast loop and the definition agree on bytes of any length."""
    assert murmur2(data) == slow_murmur2(data)


@pytest.mark.parametrize("length", [*range(9), *range(127, 141), 1000, 4099])
def test_every_length_hashes_as_the_definition_says(length: int) -> None:
    """Rests of 0 to 3 bytes and keys too long for the ready readers are right too."""
    data = bytes(255 - i % 256 for i in range(length))

    assert murmur2(data) == slow_murmur2(data)


@given(st.binary(max_size=40))
def test_views_of_bytes_hash_as_bytes(data: bytes) -> None:
    """A bytearray and a memoryview have the hash of their bytes."""
    assert murmur2(bytearray(data)) == murmur2(memoryview(data)) == murmur2(data)


@given(st.binary(max_size=40), st.integers(1, 10_000))
def test_a_partition_is_one_of_the_topic(data: bytes, num_partitions: int) -> None:
    """Negative hashes too give a partition from 0 to n - 1."""
    partition = partition_for_key(data, num_partitions)

    assert partition == (slow_murmur2(data) & 0x7FFFFFFF) % num_partitions
    assert 0 <= partition < num_partitions


@given(st.lists(st.none() | st.binary(max_size=12), max_size=300), st.integers(1, 50))
def test_many_keys_at_once_go_where_each_would_go(keys: list[bytes | None], num_partitions: int) -> None:
    """Mixed lengths, missing keys and empty keys keep their places."""
    expected = [None if key is None else partition_for_key(key, num_partitions) for key in keys]

    assert partitions_for_keys(keys, num_partitions) == expected


@pytest.mark.parametrize("length", range(20))
def test_numpy_hashes_keys_of_one_length_as_the_scalar_does(length: int) -> None:
    """A group that is large enough for numpy gives plain ints, equal to the scalar's."""
    keys = [bytes((i * 31 + j * 7) % 256 for j in range(length)) for i in range(100)]

    partitions = partitions_for_keys(keys, 7)

    assert partitions == [partition_for_key(key, 7) for key in keys]
    assert {type(partition) for partition in partitions} == {int}


def test_numpy_and_scalar_groups_meet_in_one_answer() -> None:
    """A large group, a small one and missing keys in one call are put back in order."""
    keys = [None if i % 10 == 0 else b"long-key-%d" % i if i % 50 == 7 else b"%04d" % i for i in range(500)]

    expected = [None if key is None else partition_for_key(key, 12) for key in keys]

    assert partitions_for_keys(keys, 12) == expected


def test_bytearrays_and_views_are_keys_of_a_batch_too() -> None:
    """Numpy reads any bytes-like key."""
    keys = [bytearray(b"%06d" % i) if i % 2 else memoryview(b"%06d" % i) for i in range(100)]

    assert partitions_for_keys(keys, 9) == [partition_for_key(key, 9) for key in keys]


@pytest.mark.parametrize("num_partitions", [0, -1])
def test_a_topic_without_partitions_is_refused(num_partitions: int) -> None:
    """Both ways name the number that is not allowed."""
    with pytest.raises(IllegalArgumentError, match=f"not {num_partitions}"):
        partition_for_key(b"key", num_partitions)
    with pytest.raises(IllegalArgumentError, match=f"not {num_partitions}"):
        partitions_for_keys([b"key"], num_partitions)


@given(st.lists(st.one_of(st.binary(max_size=9), st.binary(min_size=5, max_size=5)), max_size=150), st.integers(1, 99))
def test_keys_in_one_buffer_go_where_each_goes_alone(keys: list[bytes], partitions: int) -> None:
    """Of equal and of different lengths, few and many."""
    ends = np.cumsum([3] + [len(key) for key in keys], dtype=np.int64)
    data = np.frombuffer(b"xyz" + b"".join(keys), np.uint8)

    found = partitions_of_slices(data, ends[:-1], ends[1:], partitions)

    assert found.tolist() == [partition_for_key(key, partitions) for key in keys]
