"""Murmur2: keys in, Kafka's 32-bit hash and partition out; the reference for `column`."""

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
"""A serialised key; a memoryview must be of single bytes."""

SEED: Final = 0x9747B28C
"""The seed of Kafka's Java client (`org.apache.kafka.common.utils.Utils.murmur2`)."""
MULTIPLIER: Final = 0x5BD1E995
"""Murmur2's constant m."""
MASK: Final = 0xFFFFFFFF
"""The low 32 bits."""
POSITIVE: Final = 0x7FFFFFFF
"""Kafka's `toPositive`: drops the sign bit, which is not the absolute value."""

_WORDS: Final[tuple[Callable[[Key], tuple[int, ...]], ...]] = tuple(
    struct.Struct(f"<{words}I").unpack_from for words in range(33)
)
"""Ready readers of n little-endian words: for keys up to 135 bytes no format string is parsed."""

_VECTOR_MIN: Final = 32
"""Keys of one length from which numpy is twice as fast; the two are level at 16 keys of 6 to 64 bytes."""


def murmur2(data: Key) -> int:
    """Hash of a serialised key, as Kafka's Java client computes it.

    The 32-bit variant of Austin Appleby's MurmurHash2, with Kafka's seed. It is the hottest line of a
    producer, so the constants stand in it as literals and a mask is left out wherever a later one covers it.

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
    """Refuse a number of partitions that no topic can have.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    if num_partitions < 1:
        raise IllegalArgumentError(f"a topic has at least 1 partition, not {num_partitions}")


def partition_for_key(key: Key, num_partitions: int) -> int:
    """Partition of a serialised key: `(murmur2(key) & 0x7fffffff) % num_partitions`, Kafka's default rule.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    check_partitions(num_partitions)
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions


def partitions_for_keys(keys: Sequence[Key | None], num_partitions: int) -> list[int | None]:
    """Partitions of many serialised keys: `partition_for_key` of each, and None for None.

    Keys of equal length are hashed together with numpy, a word of all of them at a time.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    check_partitions(num_partitions)
    if len(keys) >= _VECTOR_MIN and None not in keys and len(set(map(len, keys))) == 1:  # type: ignore[arg-type]
        # One length, as most topics have: no list of places is needed.
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
    """Partitions of many serialised keys that lie in one buffer: `partition_for_key` of each.

    Args:
        data: the bytes.
        starts: where each key begins in them.
        ends: where it ends.
        num_partitions: how many partitions the topic has.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    import numpy as np

    check_partitions(num_partitions)
    lengths = ends - starts
    if len(starts) >= _VECTOR_MIN and (lengths == lengths[0]).all() and (starts[1:] == ends[:-1]).all():
        # Keys of one length, one behind the other, are a matrix as they lie.
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
    """Unsigned hashes of keys of `length` bytes each."""
    import numpy as np  # 0.1 s of CPU, which a program that only imports a client is spared

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
