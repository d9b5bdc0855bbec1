"""Partitions as Columns: equal to the hash on bytes for every byte string."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.murmur2 import murmur2, partition_for_key
from kafkalike.spark import partition_column
from kafkalike.spark.record_columns import murmur2_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

BAD_UTF8 = [
    b"\x80",  # a continuation byte alone
    b"\xc3",  # a sequence cut short
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"ok\xffok",
    b"\xc0\x80",  # overlong forms: NUL in 2 bytes, slash in 2, 3 and 4
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xed\xa0\x80",  # surrogates: high, low, and a pair (CESU-8)
    b"\xed\xbf\xbf",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xf4\x90\x80\x80",  # above U+10FFFF
    b"\xf8\x88\x80\x80\x80",
    b"\xff\xfe\xfd\xfc",
]
GOOD_UTF8 = [
    text.encode()
    for text in ("", "\0", "a", "\x7f\x80", "Grüße", "漢字", "\ud7ff\ue000", "\ufeffbom", "\uffff", "😀\U0010ffff")
]


def random_keys() -> Iterator[bytes]:
    """Of each length from 0 to 64: random bytes, high bytes only, ASCII, and text of 1 to 4 bytes a character."""
    rng = Random(20)
    for length in range(65):
        yield rng.randbytes(length)
        yield bytes(rng.randrange(128, 256) for _ in range(length))
        yield bytes(rng.randrange(128) for _ in range(length))
        yield "".join(rng.choice("aé漢😀\0") for _ in range(length)).encode()
        yield b"\xff" * length


KEYS: list[bytes | None] = [None, *BAD_UTF8, *GOOD_UTF8, *random_keys()]


@pytest.fixture
def keys(spark: SparkSession) -> DataFrame:
    rows = [(None if key is None else bytearray(key),) for key in KEYS]
    return spark.createDataFrame(rows, "key BINARY").coalesce(1)


@pytest.fixture(params=["true", "false"], ids=["ANSI mode", "not ANSI mode"])
def ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled", "true")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.set("spark.sql.ansi.enabled", str(before))


def test_a_column_hashes_any_bytes_as_the_bytes_do(keys: DataFrame, ansi: None) -> None:
    """Valid and invalid UTF-8, all lengths from 0 to 64 and null: hash and partition are those on bytes."""
    rows = keys.select(
        "key", murmur2_column(F.col("key")).alias("hash"), partition_column(F.col("key"), 7).alias("partition")
    ).collect()

    expected = [(None, None) if key is None else (murmur2(key), partition_for_key(key, 7)) for key in KEYS]
    assert [(row.hash, row.partition) for row in rows] == expected


def test_hash_and_partition_are_int_columns(keys: DataFrame) -> None:
    """The types are those that `repartitionById` and the topic's schema want."""
    frame = keys.select(murmur2_column(F.col("key")), partition_column(F.col("key"), 7))

    assert [kind for _, kind in frame.dtypes] == ["int", "int"]


def test_constant_keys_are_hashed_too(spark: SparkSession) -> None:
    """An expression that Spark can fold gives the same as rows."""
    row = spark.range(1).select(
        partition_column(F.lit(b"abc"), 1000).alias("valid"),
        partition_column(F.lit(b"\xff\xfe"), 1000).alias("invalid"),
        partition_column(F.lit(None).cast("binary"), 1000).alias("null"),
    )

    assert row.first() == (107, partition_for_key(b"\xff\xfe", 1000), None)


def test_a_partition_column_routes_rows_to_spark_partitions(keys: DataFrame) -> None:
    """`repartitionById` takes the column, so Kafka's partition p meets Spark's partition p."""
    frame = keys.where("key is not null").select(partition_column(F.col("key"), 5).alias("p"))

    rows = frame.repartitionById(5, F.col("p")).select("p", F.spark_partition_id().alias("spark_p")).collect()

    assert len(rows) == len(KEYS) - 1
    assert all(row.p == row.spark_p for row in rows)


@pytest.mark.parametrize("num_partitions", [0, -1])
def test_a_topic_without_partitions_is_refused(spark: SparkSession, num_partitions: int) -> None:
    """Before any row is read."""
    with pytest.raises(IllegalArgumentError):
        partition_column(F.lit(b"key"), num_partitions)
