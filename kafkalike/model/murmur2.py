"""Murmur2: Kafka's 32-bit hash of keys and the partition of a key; the reference for `murmur2_column`."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkalike.errors import IllegalArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

Key: TypeAlias = bytes | bytearray | memoryview
"""A serialized key; a memoryview must have single bytes as items."""

SEED: Final = 0x9747B28C
"""The seed of Kafka's Java client (`org.apache.kafka.common.utils.Utils.murmur2`)."""
MULTIPLIER: Final = 0x5BD1E995
"""Murmur2's constant m."""
MASK: Final = 0xFFFFFFFF
"""The low 32 bits."""
POSITIVE: Final = 0x7FFFFFFF
"""Kafka's `toPositive`: drops the sign bit, which differs from the absolute value."""

_WORDS: Final[tuple[Callable[[Key], tuple[int, ...]], ...]] = tuple(
    struct.Struct(f"<{words}I").unpack_from for words in range(33)
)
"""Compiled readers of n little-endian words: no format string is parsed for keys up to 135 bytes."""

_VECTOR_MIN: Final = 32
"""Number of keys of equal length from which numpy is twice as fast; at 16 keys of 6 to 64 bytes both are level."""


def murmur2(data: Key) -> int:
    """Return the hash of a serialized key, as Kafka's Java client computes it.

    The 32-bit variant of Austin Appleby's MurmurHash2, with Kafka's seed. Constants are literals and masks are omitted
    if a later one covers them, because this is the hottest code of a producer.

    Returns:
        A signed 32-bit integer.
    """
    length = len(data)
    words = length >> 2
    h = 0x9747B28C ^ length
    for k in _WORDS[words](data) if words < len(_WORDS) else struct.unpack_from(f"<{words}I", data):
        k = k * 0x5BD1E995 & 0xFFFFFFFF  # noqa: PLW2901 - a second name costs a store per word
        h = (h * 0x5BD1E995 ^ (k ^ k >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    h ^= h >> 15
    return h if h < 0x80000000 else h - 0x100000000  # noqa: PLR2004 - two's complement


def check_partitions(num_partitions: int) -> None:
    """Reject a number of partitions below 1.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    if num_partitions < 1:
        raise IllegalArgumentError(f"a topic has at least 1 partition, not {num_partitions}")


def partition_for_key(key: Key, num_partitions: int) -> int:
    """Return the partition of a serialized key: `(murmur2(key) & 0x7fffffff) % num_partitions`, Kafka's default rule.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    check_partitions(num_partitions)
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions


def partitions_for_keys(keys: Sequence[Key | None], num_partitions: int) -> list[int | None]:
    """Return the partition of each serialized key, by `partition_for_key`; None for None.

    Keys of equal length are hashed together with numpy, one word of all keys at a time.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    check_partitions(num_partitions)
    if len(keys) >= _VECTOR_MIN and None not in keys and len(set(map(len, keys))) == 1:  # type: ignore[arg-type]
        # Most topics have keys of one length, for which no list of places is needed.
        hashes = _murmur2_of_equal_length(keys, len(keys[0]))  # type: ignore[arg-type]
        return ((hashes & POSITIVE) % num_partitions).tolist()  # type: ignore[no-any-return]
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        if key is not None:
            places[len(key)].append(place)
    partitions: list[int | None] = [None] * len(keys)
    for length, group in places.items():
        same = [key for place in group if (key := keys[place]) is not None]
        if len(same) < _VECTOR_MIN:
            found = [(murmur2(key) & POSITIVE) % num_partitions for key in same]
        else:
            found = ((_murmur2_of_equal_length(same, length) & POSITIVE) % num_partitions).tolist()
        if len(group) == len(keys):
            return list(found)
        for place, partition in zip(group, found, strict=True):
            partitions[place] = partition
    return partitions


def partitions_of_slices(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], num_partitions: int
) -> npt.NDArray[np.int32]:
    """Return the partition of each serialized key in one buffer, by `partition_for_key`.

    Args:
        data: the bytes of all keys.
        starts: start of each key in the buffer.
        ends: end of each key in the buffer.
        num_partitions: number of partitions of the topic.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    import numpy as np

    check_partitions(num_partitions)
    lengths = ends - starts
    if len(starts) >= _VECTOR_MIN and (lengths == lengths[0]).all() and (starts[1:] == ends[:-1]).all():
        # Adjacent keys of one length form a matrix without a copy.
        hashes = _murmur2_of_rows(data[starts[0] : ends[-1]].reshape(len(starts), int(lengths[0])))
        return ((hashes & np.uint32(POSITIVE)) % np.uint32(num_partitions)).astype(np.int32)
    hashes = np.empty(len(starts), np.uint32)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        if len(rows) < _VECTOR_MIN:
            hashes[rows] = [murmur2(data[starts[row] : ends[row]].tobytes()) & MASK for row in rows]
        else:
            octets = data[starts[rows][:, None] + np.arange(length)]
            hashes[rows] = _murmur2_of_rows(octets)
    return ((hashes & np.uint32(POSITIVE)) % np.uint32(num_partitions)).astype(np.int32)


def _murmur2_of_equal_length(keys: Sequence[Key], length: int) -> npt.NDArray[np.uint32]:
    """Return the unsigned hashes of keys of `length` bytes each."""
    import numpy as np  # importing numpy takes 0.1 s of CPU, which a program that only imports a client is spared

    return _murmur2_of_rows(np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), length))


def _murmur2_of_rows(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Unsigned hashes of keys, one in each row; arithmetic wraps at 32 bits, as the formula wants."""
    import numpy as np

    m = np.uint32(MULTIPLIER)
    rows, length = octets.shape
    full = length & ~3
    h = np.full(rows, SEED ^ length, dtype=np.uint32)
    for k in np.ascontiguousarray(octets[:, :full]).view("<u4").T:
        mixed = k * m
        mixed ^= mixed >> 24
        mixed *= m
        h *= m
        h ^= mixed
    if length & 3:
        for shift, octet in enumerate(octets[:, full:].T):
            h ^= octet.astype(np.uint32) << np.uint32(8 * shift)
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h
