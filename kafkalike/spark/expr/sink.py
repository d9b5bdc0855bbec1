"""Sink columns: a user's DataFrame in, the columns of a record, checked and typed, out.

The columns and messages are those of Spark's Kafka sink, plus `timestamp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
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
