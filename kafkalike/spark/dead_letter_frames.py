"""Dead letters of DataFrames: records for dead-letter topics, built from rows that could not be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, DataType, StringType, TimestampType

from kafkalike.errors import IllegalArgumentError
from kafkalike.model import dead_letter
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.spark.record_columns import HEADERS as HEADERS_TYPE
from kafkalike.spark.record_columns import no_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalike.log.cluster.cluster import Cluster

ERRORS: Final = ("_error", "value_error")
RAWS: Final = ("_raw", "value_raw")
"""Columns with a value's error, and with its bytes, as `create_view` and `decoded_values` name them."""

RAW_KEY: Final = "_raw_key"

EXCEPTION_CLASS: Final = "kafkalike.errors.SerializationError"
DECODER: Final = "kafkalike.spark.decoded_values"


def dead_letters(
    rows: DataFrame,
    topic: str | None = None,
    *,
    context_headers: bool = True,
    connector: str = "spark",
    task: str = "0",
) -> DataFrame:
    """Build dead letters from decoded rows with an error, as records for `write` and `write_stream`.

    A letter has the key, bytes, headers and time of its record, and Kafka Connect's headers `__connect.errors.…`.

    Args:
        rows: rows from `create_view` or `decoded_values`, or a stream of them: `_error` (or `value_error`) is not null
            if the record could not be decoded, `_raw` (or `value_raw`) holds its bytes, and `topic`, `partition`,
            `offset`, `timestamp`, `key` and `headers` are the record's. Missing columns are left out.
        topic: the dead-letter topic. It should exist. None: the topic of each row, with `.dlq` appended, which `write`
            creates so that it accepts all records of the row's topic.
        context_headers: whether letters get headers with their origin and error.
        connector: name of the job that could not decode the rows.
        task: number of the attempt.

    Returns:
        Columns `topic`, `key`, `value`, `headers`, `timestamp`.

    Raises:
        IllegalArgumentError: a column is missing: the error, the bytes, or without `topic` the topic.
    """
    error, raw = _found(rows, ERRORS), _found(rows, RAWS)
    letter = _letter(rows, raw, error, topic, context_headers=context_headers, connector=connector, task=task)
    return rows.where(F.col(error).isNotNull()).select(*(column.alias(name) for name, column in letter.items()))


def with_letters(
    rows: DataFrame, topic: str | None, settings: DeadLetterSettings, *, connector: str, task: str
) -> DataFrame:
    """Build the records of decoded rows: good rows as they are, the others as dead letters, each with its topic.

    Args:
        rows: the columns for `dead_letters`, and for good rows the columns for `write`, with `value`.
        topic: the topic of good rows; None takes the column.
        settings: settings of the dead letters.
        connector: name of the job that could not decode the rows.
        task: number of the attempt.

    Raises:
        IllegalArgumentError: a column is missing.
    """
    error, raw = _found(rows, ERRORS), _found(rows, RAWS)
    is_bad = F.col(error).isNotNull()
    good: dict[str, Column] = {
        "topic": F.col("topic") if topic is None else F.lit(topic),
        "key": _or_null(rows, "key", BinaryType()),
        "value": F.col("value").cast(BinaryType()),
        "headers": _or_null(rows, "headers", HEADERS_TYPE),
        "timestamp": _or_null(rows, "timestamp", TimestampType()),
    }
    partition = [F.when(~is_bad, F.col("partition")).alias("partition")] if "partition" in rows.columns else []
    if settings.errors_deadletterqueue_topic_name == "":
        return rows.where(~is_bad).select(*(good[name].alias(name) for name in good), *partition)
    letter = _letter(
        rows,
        raw,
        error,
        settings.errors_deadletterqueue_topic_name,
        context_headers=settings.errors_deadletterqueue_context_headers_enable,
        connector=connector,
        task=task,
    )
    made = [F.when(is_bad, letter[name]).otherwise(good[name]).alias(name) for name in good]
    return rows.select(*made, *partition)


def _or_null(rows: DataFrame, name: str, kind: DataType) -> Column:
    return F.col(name).cast(kind) if name in rows.columns else F.lit(None).cast(kind)


def error_of(rows: DataFrame) -> str:
    """Return the name of the column with a value's error.

    Raises:
        IllegalArgumentError: the rows have no such column.
    """
    return _found(rows, ERRORS)


def ensure_topics(cluster: Cluster, settings: DeadLetterSettings, sources: Iterable[str]) -> None:
    """Create the dead-letter topics of some topics, with settings under which they accept those topics' records."""
    from kafkalike.log.dead_letter_topic import ensure

    for source in sources:
        name = settings.letters_of(source)
        if name is not None and name != source:
            ensure(cluster, name, source)


def _letter(
    rows: DataFrame,
    raw: str,
    error: str,
    topic: str | None,
    *,
    context_headers: bool,
    connector: str,
    task: str,
) -> dict[str, Column]:
    """Build the columns `topic`, `key`, `value`, `headers`, `timestamp` of the letter of a row."""
    columns = rows.columns
    if not topic and "topic" not in columns:
        raise IllegalArgumentError("the rows have no column `topic`; name the dead-letter topic")
    own = F.col("topic") if "topic" in columns else F.lit(None).cast(StringType())
    default = F.when(own.endswith(dead_letter.SUFFIX), F.raise_error(_itself(own)).cast(StringType()))
    key = RAW_KEY if RAW_KEY in columns else "key"
    headers = F.col("headers") if "headers" in columns else F.lit(None).cast(HEADERS_TYPE)
    kept = F.filter(F.coalesce(headers, no_headers()), lambda one: ~one["key"].startswith(dead_letter.PREFIX))
    if context_headers:
        texts = {
            dead_letter.TOPIC: own,
            dead_letter.PARTITION: F.col("partition").cast(StringType()) if "partition" in columns else F.lit(None),
            dead_letter.OFFSET: F.col("offset").cast(StringType()) if "offset" in columns else F.lit(None),
            dead_letter.CONNECTOR: F.lit(connector),
            dead_letter.TASK: F.lit(task),
            dead_letter.STAGE: F.lit(dead_letter.VALUE_CONVERTER),
            dead_letter.CLASS: F.lit(DECODER),
            dead_letter.EXCEPTION: F.lit(EXCEPTION_CLASS),
            dead_letter.MESSAGE: F.substring(F.col(error), 1, dead_letter.MOST_MESSAGE // 4),
            dead_letter.STACKTRACE: F.lit(""),
        }
        about = [
            F.struct(F.lit(name).alias("key"), text.cast(StringType()).cast(BinaryType()).alias("value"))
            for name, text in texts.items()
        ]
        kept = F.concat(kept, F.array(*about).cast(HEADERS_TYPE))
    else:
        # Null, as for a record without headers.
        kept = F.when(F.size(kept) > 0, kept)
    return {
        "topic": F.lit(topic) if topic else default.otherwise(F.concat(own, F.lit(dead_letter.SUFFIX))),
        "key": _or_null(rows, key, BinaryType()),
        "value": F.col(raw).cast(BinaryType()),
        "headers": kept,
        "timestamp": _or_null(rows, "timestamp", TimestampType()),
    }


def _itself(own: Column) -> Column:
    return F.concat(F.lit("a row of "), own, F.lit(" has an error, and that is the dead-letter topic itself"))


def _found(rows: DataFrame, names: tuple[str, ...]) -> str:
    for name in names:
        if name in rows.columns:
            return name
    raise IllegalArgumentError(
        f"the rows have no column `{names[0]}`: they must come from create_view or decoded_values, which add "
        "a value's error and its bytes"
    )
