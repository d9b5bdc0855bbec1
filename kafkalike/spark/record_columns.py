"""The columns of records: those of Spark's Kafka sink plus `timestamp`, checked and typed, or made of any DataFrame.

Column names and error messages are those of Spark's Kafka sink.
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
