"""The columns of records (as in Spark's Kafka sink, plus `timestamp`), checked and typed, or made of any DataFrame.

Column names and error messages are taken from Spark's Kafka sink.

A record's partition is computed like Kafka's murmur2 by expressions without a Python UDF, so nothing leaves the JVM. If
the bytes are valid UTF-8 (nearly every key), `java_method` calls commons-codec's own MurmurHash2, whose default seed is
Kafka's. `java_method` takes only strings, and Java would replace invalid bytes. So other keys (raw UUIDs, integers)
take a slower path in LONG arithmetic. `CASE WHEN` evaluates that path only for the keys that need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark_types

from kafkalike.model.murmur2 import MASK, MULTIPLIER, POSITIVE, SEED, check_partitions

_HEADER: Final = spark_types.StructType(
    [
        spark_types.StructField("key", spark_types.StringType()),
        spark_types.StructField("value", spark_types.BinaryType()),
    ]
)
HEADERS: Final = spark_types.ArrayType(_HEADER)

ALLOWED: Final[Mapping[str, tuple[spark_types.DataType, ...]]] = {
    "topic": (spark_types.StringType(),),
    "partition": (spark_types.IntegerType(),),
    "key": (spark_types.StringType(), spark_types.BinaryType()),
    "value": (spark_types.StringType(), spark_types.BinaryType()),
    "headers": (HEADERS,),
    "timestamp": (spark_types.TimestampType(), spark_types.StringType()),
}
"""Types that each column may have."""

_OPTIONAL: Final[Mapping[str, spark_types.DataType]] = {
    "partition": spark_types.IntegerType(),
    "timestamp": spark_types.TimestampType(),
    "key": spark_types.BinaryType(),
    "headers": HEADERS,
}
"""Types of these columns after the check. Never as text, because a session's settings decide the meaning of TIMESTAMP
there."""

_SHOWN: Final = {
    "topic": "string",
    "partition": "int",
    "key": "string or binary",
    "value": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp or string",
}


def sink_columns(frame: DataFrame, *, needs_topic: bool) -> DataFrame:
    """Select and check the columns of a record.

    Args:
        frame: `value` STRING or BINARY is required; `key` (STRING or BINARY), `headers`, `topic`, `partition` INT and
            `timestamp` (TIMESTAMP, or STRING such as `2026-01-02T09:30:00Z`) are optional. Other columns are left out,
            as in Spark's Kafka sink.
        needs_topic: whether the topic comes from the column.

    Returns:
        Columns `topic` (only when needed), `value` BINARY, and `partition` INT, `timestamp` TIMESTAMP, `key` BINARY
        and `headers` if the DataFrame has them.

    Raises:
        AnalysisException: a required column is missing or a column has another type.
    """
    types = check_columns(frame.schema, needs_topic=needs_topic)
    columns = [
        (
            _time_of_text()
            if name == "timestamp" and isinstance(types[name], spark_types.StringType)
            else F.col(name).cast(kind)
        ).alias(name)
        for name, kind in _OPTIONAL.items()
        if name in types
    ]
    columns.append(F.col("value").cast(spark_types.BinaryType()).alias("value"))
    return frame.select(*([F.col("topic")] if needs_topic else []), *columns)


def _time_of_text() -> Column:
    """Parse texts such as `2026-01-02T09:30:00Z`; an invalid text fails the job, with ANSI mode on or off."""
    text, time = F.col("timestamp"), F.col("timestamp").try_cast(spark_types.TimestampType())
    problem = F.raise_error(F.concat(F.lit("timestamp is no time: "), text)).cast(spark_types.TimestampType())
    return F.when(text.isNotNull() & time.isNull(), problem).otherwise(time)


def no_headers() -> Column:
    """Build an empty array of headers. In a session with the rules of Spark 2, `array()` is an array of strings."""
    return F.array_repeat(F.lit(None).cast(_HEADER), 0)


def arrow_columns(frame: DataFrame) -> DataFrame:
    """Select the columns that go to Spark's Python workers, with `topic` if the DataFrame has it.

    Null headers become empty arrays, and the column `has_headers` marks which they were. Spark takes 6 µs to hand over
    a null array, thirty times as long as for an empty one. So headers are left out if the DataFrame has none, and
    otherwise sent as empty arrays with a flag.
    """
    columns = [name for name in ("topic", "partition", "timestamp", "key", "value") if name in frame.columns]
    if "headers" not in frame.columns:
        return frame.select(*columns)
    headers = F.coalesce(F.col("headers"), no_headers()).alias("headers")
    return frame.select(*columns, headers, F.col("headers").isNotNull().alias("has_headers"))


def check_columns(schema: spark_types.StructType, *, needs_topic: bool) -> Mapping[str, spark_types.DataType]:
    """Check that the columns of a user's DataFrame make up records; see `sink_columns`.

    Returns:
        The type of each column.

    Raises:
        AnalysisException: a required column is missing or a column has another type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if needs_topic and "topic" not in types:
        raise AnalysisException(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise AnalysisException(
            f"required attribute 'value' not found; the DataFrame has {', '.join(types) or 'no columns'}. "
            'Make it of your columns: selectExpr("… AS key", "to_json(struct(*)) AS value")'
        )
    for name, allowed in ALLOWED.items():
        if name in types and not any(_same(types[name], kind) for kind in allowed):
            raise AnalysisException(f"{name} must be a(n) {_SHOWN[name]}, not {types[name].simpleString()}")
    return types


def _same(given: spark_types.DataType, allowed: spark_types.DataType) -> bool:
    return given.simpleString() == allowed.simpleString()


_JSON: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark's own formats, with microseconds, as its timestamps have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The columns of a DataFrame that become parts of a record. Names may point into structs (`order.id`)."""

    key: str | None = None
    """STRING and BINARY as they are, numbers and times as text. None for null keys."""
    values: Sequence[str] = ()
    """One column: STRING and BINARY as they are, structs, arrays and maps as JSON, others as text. Several columns: a
    JSON object of them. Empty: a JSON object of all columns; but if `value` is the only column, as in text files, its
    value. Null fields are left out, as in Spark's `to_json`."""
    timestamp: str | None = None
    """TIMESTAMP or DATE, whole numbers as ms since the epoch, or text that Spark can cast. Null: time of the append."""
    partition: str | None = None
    """A whole number, or text with one. Null or None: chosen by the key."""
    plain_value: bool = True
    """Converts values to text or bytes. False keeps columns for a schema to encode: one column as it is, several as a
    struct."""
    plain_key: bool = True


def record_columns(frame: DataFrame, columns: RecordColumns) -> DataFrame:
    """Turn each row into a record.

    Args:
        frame: any columns.
        columns: the columns that become parts of a record.

    Returns:
        Columns `value`, and `key`, `timestamp` TIMESTAMP, `partition` INT if requested, as `kafkalike.spark.write`
        takes them. A text that is not a valid timestamp or number fails the job.

    Raises:
        AnalysisException: a column is missing, or cannot be converted.
    """
    value = _value(frame, columns.values) if columns.plain_value else _as_it_is(frame, columns.values)
    made = [value.alias("value")]
    if columns.key is not None:
        key = _key(frame, columns.key) if columns.plain_key else _column(frame, columns.key)
        made.append(key.alias("key"))
    if columns.timestamp is not None:
        made.append(_timestamp(frame, columns.timestamp).alias("timestamp"))
    if columns.partition is not None:
        made.append(_partition(frame, columns.partition).alias("partition"))
    return frame.select(*made)


def _column(frame: DataFrame, name: str) -> Column:
    """Return a column by its full name, dots included, or else a field of a struct."""
    return F.col(f"`{name.replace('`', '``')}`") if name in frame.columns else F.col(name)


def _type(frame: DataFrame, column: Column) -> spark_types.DataType:
    return frame.select(column.alias("it")).schema["it"].dataType


def _value(frame: DataFrame, names: Sequence[str]) -> Column:
    chosen = list(names) or list(frame.columns)
    if len(chosen) > 1 or (not names and chosen != ["value"]):
        return _json(F.struct(*[_column(frame, name).alias(name) for name in chosen]))
    column = _column(frame, chosen[0])
    kind = _type(frame, column)
    if isinstance(kind, (spark_types.StructType, spark_types.ArrayType, spark_types.MapType, spark_types.VariantType)):
        return _json(column)
    return _text(column, kind)


def _json(column: Column) -> Column:
    """Convert a column to JSON with microseconds, because Spark's default cuts times to the millisecond."""
    return F.to_json(column, _JSON)


def _as_it_is(frame: DataFrame, names: Sequence[str]) -> Column:
    chosen = list(names) or list(frame.columns)
    if len(chosen) == 1 and names:
        return _column(frame, chosen[0])
    return F.struct(*[_column(frame, name).alias(name) for name in chosen])


def _key(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (spark_types.StructType, spark_types.ArrayType, spark_types.MapType, spark_types.VariantType)):
        raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a key")
    return _text(column, kind)


def _text(column: Column, kind: spark_types.DataType) -> Column:
    return (
        column
        if isinstance(kind, (spark_types.StringType, spark_types.BinaryType))
        else column.cast(spark_types.StringType())
    )


def _timestamp(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (spark_types.TimestampType, spark_types.TimestampNTZType, spark_types.DateType)):
        return column.cast(spark_types.TimestampType())
    if isinstance(kind, spark_types.IntegralType):
        return F.timestamp_millis(column.cast(spark_types.LongType()))
    if isinstance(kind, spark_types.StringType):
        return _cast(column, spark_types.TimestampType(), name)
    raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a timestamp")


def _partition(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (spark_types.IntegralType, spark_types.StringType)):
        return _cast(column, spark_types.IntegerType(), name)
    raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a partition")


def _cast(column: Column, kind: spark_types.DataType, name: str) -> Column:
    """Cast, and fail on invalid values, because a null would silently mean "choose for me"."""
    made = column.try_cast(kind)
    problem = F.raise_error(
        F.concat(F.lit(f"column {name} holds no {kind.simpleString()}: "), column.cast(spark_types.StringType()))
    )
    return F.when(column.isNotNull() & made.isNull(), problem.cast(kind)).otherwise(made)


_CODEC_CLASS = "org.apache.commons.codec.digest.MurmurHash2"


def murmur2_column(key: Column) -> Column:
    """Compute Kafka's murmur2 of a serialized key.

    Args:
        key: a BINARY column; any bytes.

    Returns:
        INT, equal to `kafkalike.model.murmur2.murmur2`; null for null. With ANSI mode on or off.
    """
    text = key.cast("string")
    by_codec = F.java_method(F.lit(_CODEC_CLASS), F.lit("hash32"), text).cast("int")
    return F.when(F.is_valid_utf8(text), by_codec).when(key.isNotNull(), _murmur2_by_words(key))


def partition_column(key: Column, num_partitions: int) -> Column:
    """Compute the partition of a serialized key by Kafka's default rule.

    The rule is `(murmur2(key) & 0x7fffffff) % num_partitions`.

    Args:
        key: a BINARY column; any bytes.
        num_partitions: the topic's number of partitions.

    Returns:
        INT from 0 to `num_partitions` - 1; null for null.

    Raises:
        IllegalArgumentError: `num_partitions` is below 1.
    """
    check_partitions(num_partitions)
    return murmur2_column(key).bitwiseAND(F.lit(POSITIVE)) % F.lit(num_partitions)


def _murmur2_by_words(key: Column) -> Column:
    """Compute murmur2 by higher-order functions, for any bytes, about 10 times slower than the codec's.

    LONGs hold unsigned 32-bit values: a product with the constant stays below 2^63, so nothing overflows. Each step is
    a `transform` or `aggregate` of its own, because a lambda's argument is evaluated once, whereas an expression that
    is used twice is evaluated twice.
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
    """Read four bytes as an unsigned number, through hex digits because Spark cannot cast BINARY to a number."""
    return F.conv(F.hex(word), 16, 10).cast("bigint")


def _swapped(word: Column) -> Column:
    """Reverse the four bytes of an unsigned 32-bit number, because murmur2 reads little-endian."""
    return (
        F.shiftleft(word.bitwiseAND(F.lit(0xFF)), 24)
        .bitwiseOR(F.shiftleft(word.bitwiseAND(F.lit(0xFF00)), 8))
        .bitwiseOR(F.shiftright(word, 8).bitwiseAND(F.lit(0xFF00)))
        .bitwiseOR(F.shiftright(word, 24))
    )


def _times(value: Column) -> Column:
    """Multiply by murmur2's constant, modulo 2^32."""
    return (value * F.lit(MULTIPLIER)).bitwiseAND(F.lit(MASK))


def _signed(value: Column) -> Column:
    """Convert an unsigned 32-bit number to INT (two's complement), without a cast that would overflow in ANSI mode."""
    return F.when(value > POSITIVE, value - (MASK + 1)).otherwise(value).cast("int")
