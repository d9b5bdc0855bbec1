"""The columns of records: those of Spark's Kafka sink plus `timestamp`, checked and typed, or made of any DataFrame.

Column names and error messages are those of Spark's Kafka sink.

A record's partition is Kafka's, the twin of `murmur2`, by expressions without a Python UDF: nothing leaves the JVM.
Where the bytes are valid UTF-8 (nearly every key), commons-codec's own MurmurHash2 does the work, reached by
`java_method`, whose default seed is Kafka's. `java_method` takes strings only and Java would replace invalid bytes, so
other keys (raw UUIDs, integers) take a slower way in LONG arithmetic. `CASE WHEN` evaluates that way only for the keys
that need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from kafkalike.model.murmur2 import MASK, MULTIPLIER, POSITIVE, SEED, check_partitions

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS: Final = ArrayType(_HEADER)

ALLOWED: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "timestamp": (TimestampType(), StringType()),
}
"""Types that each column may have."""

_OPTIONAL: Final[Mapping[str, DataType]] = {
    "partition": IntegerType(),
    "timestamp": TimestampType(),
    "key": BinaryType(),
    "headers": HEADERS,
}
"""Types that these columns get. Never as text: a session's settings say what TIMESTAMP means there."""

_SHOWN: Final = {
    "topic": "string",
    "partition": "int",
    "key": "string or binary",
    "value": "string or binary",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp or string",
}


def sink_columns(frame: DataFrame, *, needs_topic: bool) -> DataFrame:
    """Take the columns of a record out of a user's DataFrame.

    Args:
        frame: `value` STRING or BINARY is needed; `key` (STRING or BINARY), `headers`, `topic`, `partition` INT and
            `timestamp` (TIMESTAMP, or STRING such as `2026-01-02T09:30:00Z`) are taken when they are there; other
            columns are left out, as Spark's Kafka sink leaves them.
        needs_topic: whether the topic comes from the column.

    Returns:
        Columns `topic` (only when needed), `value` BINARY, and of `partition` INT, `timestamp` TIMESTAMP, `key` BINARY
        and `headers` those that the DataFrame has.

    Raises:
        AnalysisException: a needed column is missing or a column has another type.
    """
    types = check_columns(frame.schema, needs_topic=needs_topic)
    columns = [
        (
            _time_of_text() if name == "timestamp" and isinstance(types[name], StringType) else F.col(name).cast(kind)
        ).alias(name)
        for name, kind in _OPTIONAL.items()
        if name in types
    ]
    columns.append(F.col("value").cast(BinaryType()).alias("value"))
    return frame.select(*([F.col("topic")] if needs_topic else []), *columns)


def _time_of_text() -> Column:
    """The times that texts such as `2026-01-02T09:30:00Z` say; one that says none ends the job, in any mode of SQL."""
    text, time = F.col("timestamp"), F.col("timestamp").try_cast(TimestampType())
    problem = F.raise_error(F.concat(F.lit("timestamp is no time: "), text)).cast(TimestampType())
    return F.when(text.isNotNull() & time.isNull(), problem).otherwise(time)


def no_headers() -> Column:
    """An empty array of headers. `array()` is one of texts where a session wants the rules of Spark 2."""
    return F.array_repeat(F.lit(None).cast(_HEADER), 0)


def arrow_columns(frame: DataFrame) -> DataFrame:
    """The columns of a checked DataFrame as Spark's Python workers take them: those of a record, and `topic` if there.

    Headers that are null become empty ones, and the column `has_headers` says which they were.

    Spark takes 6 µs to hand over an array that is null, thirty times as long as an empty one; so headers are left out
    where the DataFrame has none, and go as empty arrays with a flag elsewhere.
    """
    columns = [name for name in ("topic", "partition", "timestamp", "key", "value") if name in frame.columns]
    if "headers" not in frame.columns:
        return frame.select(*columns)
    headers = F.coalesce(F.col("headers"), no_headers()).alias("headers")
    return frame.select(*columns, headers, F.col("headers").isNotNull().alias("has_headers"))


def check_columns(schema: StructType, *, needs_topic: bool) -> Mapping[str, DataType]:
    """Check that the columns of a user's DataFrame make up records; see `sink_columns`.

    Returns:
        The type of each column.

    Raises:
        AnalysisException: a needed column is missing or a column has another type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if needs_topic and "topic" not in types:
        raise AnalysisException(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in types:
        raise AnalysisException(
            f"required attribute 'value' not found; the DataFrame has {', '.join(types) or 'no columns'}"
        )
    for name, allowed in ALLOWED.items():
        if name in types and not any(_same(types[name], kind) for kind in allowed):
            raise AnalysisException(f"{name} must be a(n) {_SHOWN[name]}, not {types[name].simpleString()}")
    return types


def _same(given: DataType, allowed: DataType) -> bool:
    return given.simpleString() == allowed.simpleString()


_JSON: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark's own formats with microseconds, which its times have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Which columns of a DataFrame become what of a record; names may lead into structs (`order.id`)."""

    key: str | None = None
    """STRING and BINARY as they are, numbers and times as text; None for null keys."""
    values: Sequence[str] = ()
    """One column: STRING and BINARY as they are, structs, arrays and maps as JSON, others as text. Several: a JSON
    object of them. None: a JSON object of all columns. Fields that are null are left out, as Spark's `to_json` does.
    A DataFrame with no other column than `value` gives that one, as files of text do."""
    timestamp: str | None = None
    """TIMESTAMP or DATE, whole numbers as ms since the epoch, or text that Spark casts; null: time of the append."""
    partition: str | None = None
    """A whole number, or text that is one; null or None: chosen by the key."""
    plain_value: bool = True
    """Whether values become text or bytes here; else they stay columns, for a schema to write: one column as it is,
    several as a struct."""
    plain_key: bool = True


def record_columns(frame: DataFrame, columns: RecordColumns) -> DataFrame:
    """Make each row a record.

    Args:
        frame: any columns.
        columns: which of them become what.

    Returns:
        Columns `value`, and `key`, `timestamp` TIMESTAMP, `partition` INT where they were asked for: what
        `kafkalike.spark.write` takes. A text that is no timestamp or number makes the job fail.

    Raises:
        AnalysisException: a column is missing, or its type cannot become that.
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
    """A column by its name, dots included, else a field of a struct."""
    return F.col(f"`{name.replace('`', '``')}`") if name in frame.columns else F.col(name)


def _type(frame: DataFrame, column: Column) -> DataType:
    return frame.select(column.alias("it")).schema["it"].dataType


def _value(frame: DataFrame, names: Sequence[str]) -> Column:
    chosen = list(names) or list(frame.columns)
    if len(chosen) > 1 or (not names and chosen != ["value"]):
        return _json(F.struct(*[_column(frame, name).alias(name) for name in chosen]))
    column = _column(frame, chosen[0])
    kind = _type(frame, column)
    if isinstance(kind, (StructType, ArrayType, MapType, VariantType)):
        return _json(column)
    return _text(column, kind)


def _json(column: Column) -> Column:
    """A column as JSON; by default Spark cuts times to the millisecond."""
    return F.to_json(column, _JSON)


def _as_it_is(frame: DataFrame, names: Sequence[str]) -> Column:
    chosen = list(names) or list(frame.columns)
    if len(chosen) == 1 and names:
        return _column(frame, chosen[0])
    return F.struct(*[_column(frame, name).alias(name) for name in chosen])


def _key(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (StructType, ArrayType, MapType, VariantType)):
        raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a key")
    return _text(column, kind)


def _text(column: Column, kind: DataType) -> Column:
    return column if isinstance(kind, (StringType, BinaryType)) else column.cast(StringType())


def _timestamp(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (TimestampType, TimestampNTZType, DateType)):
        return column.cast(TimestampType())
    if isinstance(kind, IntegralType):
        return F.timestamp_millis(column.cast(LongType()))
    if isinstance(kind, StringType):
        return _cast(column, TimestampType(), name)
    raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a timestamp")


def _partition(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (IntegralType, StringType)):
        return _cast(column, IntegerType(), name)
    raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a partition")


def _cast(column: Column, kind: DataType, name: str) -> Column:
    """Cast, and fail for what does not become one: a null would quietly mean "choose for me"."""
    made = column.try_cast(kind)
    problem = F.raise_error(
        F.concat(F.lit(f"column {name} holds no {kind.simpleString()}: "), column.cast(StringType()))
    )
    return F.when(column.isNotNull() & made.isNull(), problem.cast(kind)).otherwise(made)


_CODEC_CLASS = "org.apache.commons.codec.digest.MurmurHash2"


def murmur2_column(key: Column) -> Column:
    """Kafka's murmur2 of a serialised key.

    Args:
        key: a BINARY column; any bytes.

    Returns:
        INT, equal to `kafkalike.model.murmur2.murmur2`; null for null. With ANSI mode on or off.
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
