"""Awkward records: what a topic may hold that a session's settings could change; written and read without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalike import KafkaConsumer, TopicPartition
from tests.tools.records import append_records

Record = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Partition, offset, key, value, headers, time in ms."""

PARTITIONS: Final = 2

SPRING_MS: Final = 1_772_953_200_000
"""2026-03-08T07:00Z, when clocks in New York skip an hour."""

AUTUMN_MS: Final = 1_762_061_400_000
"""2025-11-02T05:30Z, half past one in New York for the first time; an hour later it is so again."""

RECORDS: Final[tuple[Record, ...]] = (
    (0, 0, b"a", b"1", (("h", b"x"), ("h", None), ("H", b"\xff")), 0),
    (0, 1, None, b"", (), SPRING_MS - 1),
    (0, 2, b"\xff\x00", None, (("", b""),), SPRING_MS),
    (1, 0, b"", b'{"A": null, "a": [1]}', (), AUTUMN_MS),
    (1, 1, b"A", b'it\'s `\\n` "${spark.app.name}"', (("k\u00e9", b"1"),), AUTUMN_MS + 3_600_000),
    (1, 2, b"a", "\u00fc\U0001f600".encode(), (), 1),
)

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""Columns of a topic, as Spark's Kafka source has them."""


def fill(root: str, topic: str) -> None:
    """A new topic of these records, in one append."""
    rows = [(p, key, value, at_ms, list(headers)) for p, _, key, value, headers, at_ms in RECORDS]
    append_records(root, topic, rows, partitions=PARTITIONS)


def stored(root: str, topic: str) -> tuple[Record, ...]:
    """The records of a topic, as a consumer without Spark sees them."""
    found = []
    with KafkaConsumer(bootstrap_servers=root) as consumer:
        wanted = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(wanted)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(wanted)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for records in consumer.poll(100).values():
                found += [(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
    return tuple(sorted(found, key=lambda record: record[:2]))


def frame(spark: SparkSession, topic: str | None = None) -> DataFrame:
    """The records as columns to write; with `topic` there is a column of that name."""
    names = ("partition", "key", "value", "headers", "timestamp")
    rows: list[tuple[Any, ...]] = [
        (p, key, value, list(headers) or None, datetime.fromtimestamp(at_ms / 1000, UTC))
        for p, _, key, value, headers, at_ms in RECORDS
    ]
    # One Spark partition: the order of records is that of the rows.
    made = spark.createDataFrame(rows, StructType([StructField(name, COLUMNS[name]) for name in names])).coalesce(1)
    return made if topic is None else made.withColumn("topic", F.lit(topic))


def shown(rows: DataFrame) -> tuple[Record, ...]:
    """The records that a frame with a topic's columns holds; its columns must have the types of a topic's."""
    assert {field.name: field.dataType for field in rows.schema} == COLUMNS
    named = rows.select("partition", "offset", "key", "value", "headers", F.unix_millis("timestamp").alias("ms"))
    found = [
        (
            row["partition"],
            row["offset"],
            _bytes(row["key"]),
            _bytes(row["value"]),
            tuple((header["key"], _bytes(header["value"])) for header in row["headers"] or ()),
            row["ms"],
        )
        for row in named.collect()
    ]
    return tuple(sorted(found, key=lambda record: record[:2]))


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
