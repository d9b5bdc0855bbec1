"""Partitions as Columns: a BINARY key column in, Kafka's hash and partition out; the twin of `murmur2`.

Only expressions, no Python UDF: nothing leaves the JVM. Where the bytes are valid UTF-8 (nearly every key),
commons-codec's own MurmurHash2 does the work, reached by `java_method`, whose default seed is Kafka's.
`java_method` takes strings only and Java would replace invalid bytes, so other keys (raw UUIDs, integers)
take a slower way in LONG arithmetic. `CASE WHEN` evaluates that way only for the keys that need it.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.model.partitioner.murmur2 import MASK, MULTIPLIER, POSITIVE, SEED, check_partitions

_CODEC_CLASS = "org.apache.commons.codec.digest.MurmurHash2"


def murmur2_column(key: Column) -> Column:
    """Kafka's murmur2 of a serialised key.

    Args:
        key: a BINARY column; any bytes.

    Returns:
        INT, equal to `kafkalike.model.partitioner.murmur2.murmur2`; null for null. With ANSI mode on or off.
    """
    text = key.cast("string")
    by_codec = F.java_method(F.lit(_CODEC_CLASS), F.lit("hash32"), text).cast("int")
    return F.when(F.is_valid_utf8(text), by_codec).when(key.isNotNull(), _murmur2_by_words(key))


def partition_column(key: Column, num_partitions: int) -> Column:
    """Partition of a serialised key: `(murmur2(key) & 0x7fffffff) % num_partitions`, Kafka's default rule.

    Args:
        key: a BINARY column; any bytes.
        num_partitions: how many partitions the topic has.

    Returns:
        INT from 0 to `num_partitions` - 1; null for null.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    check_partitions(num_partitions)
    return murmur2_column(key).bitwiseAND(F.lit(POSITIVE)) % F.lit(num_partitions)


def _murmur2_by_words(key: Column) -> Column:
    """Murmur2 by higher-order functions, for any bytes, about 10 times slower than the codec's.

    LONGs hold unsigned 32-bit values: a product with the constant stays below 2^63, so nothing overflows.
    Each step is a `transform` or `aggregate` of its own, because a lambda's argument is evaluated once,
    whereas an expression that is used twice is evaluated twice.
    """
    length = F.length(key)
    full = F.shiftright(length, 2)
    numbers = F.slice(F.sequence(F.lit(0), full), 1, full)
    words = F.transform(numbers, lambda number: _big_endian(F.substring(key, number * 4 + 1, F.lit(4))))
    mixed = F.transform(words, lambda word: _times(_swapped(word)))
    blocks = F.transform(mixed, lambda k: _times(k.bitwiseXOR(F.shiftright(k, 24))))
    h = F.aggregate(
        blocks,
        F.lit(SEED).bitwiseXOR(length.cast("bigint")),
        lambda h, k: _times(h).bitwiseXOR(k),
    )
    rest = F.rpad(F.substring(key, full * 4 + 1, F.lit(4)), 4, F.unhex(F.lit("00")))
    tail = F.slice(F.array(_big_endian(rest)), 1, F.least(length % 4, F.lit(1)))
    h = F.aggregate(tail, h, lambda h, word: _times(h.bitwiseXOR(_swapped(word))))
    last = F.transform(F.array(h), lambda h: _times(h.bitwiseXOR(F.shiftright(h, 13))))
    last = F.transform(last, lambda h: h.bitwiseXOR(F.shiftright(h, 15)))
    return F.get(F.transform(last, _signed), F.lit(0))


def _big_endian(word: Column) -> Column:
    """Four bytes as an unsigned number; Spark casts no BINARY to a number but reads hex digits."""
    return F.conv(F.hex(word), 16, 10).cast("bigint")


def _swapped(word: Column) -> Column:
    """An unsigned 32-bit number with its four bytes in reverse order: murmur2 reads little-endian."""
    return (
        F.shiftleft(word.bitwiseAND(F.lit(0xFF)), 24)
        .bitwiseOR(F.shiftleft(word.bitwiseAND(F.lit(0xFF00)), 8))
        .bitwiseOR(F.shiftright(word, 8).bitwiseAND(F.lit(0xFF00)))
        .bitwiseOR(F.shiftright(word, 24))
    )


def _times(value: Column) -> Column:
    """The product with murmur2's constant, modulo 2^32."""
    return (value * F.lit(MULTIPLIER)).bitwiseAND(F.lit(MASK))


def _signed(value: Column) -> Column:
    """An unsigned 32-bit number as INT: two's complement, without a cast that would overflow in ANSI mode."""
    return F.when(value > POSITIVE, value - (MASK + 1)).otherwise(value).cast("int")
