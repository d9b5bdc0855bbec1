"""Decode records into rows for files and tables, or into dead letters if decoding fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.spark.call_options import ReaderSchemaOptions
from kafkalike.spark.dead_letter_frames import dead_letters, error_of
from kafkalike.spark.sql.value_views import decoded_values
from kafkalike.spark.typed.decode import FORMATS as TYPED
from kafkalike.spark.typed.decode import Part, from_topic, open_with_registry
from kafkalike.spark.typed.typed_views import Typed, typed_columns

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

VALUE_FORMATS: Final = ("string", "json", "binary", *TYPED)
KEY_FORMATS: Final = ("string", *TYPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Options to turn records into rows."""

    value_format: str = "string"
    """`string`: the value as text. `json`: parsed by `schema`. `binary`: bytes, the key too. `avro`, `protobuf` and
    `json-schema`: by the schemas of the topic."""
    key_format: str = "string"
    """`string`, or a format with schemas."""
    schema: str | None = None
    """Fields of a JSON value, as DDL."""
    malformed: str = "fail"
    """Handling of a value, or of a key with a schema, that cannot be parsed: `fail` the job, or become `null`."""
    value_only: bool = False
    """Writes values alone: the fields of a JSON object (all null for a tombstone), or one column `value`."""
    headers: bool = False
    """Adds the column `headers`."""
    message: str | None = None
    """Full name of the values' Protobuf message. None takes the first message of the schema."""
    registry: str | Mapping[str, str] | None = None
    """The schema registry. None takes the cluster's own."""


def decode_rows(frame: DataFrame, decoding: Decoding, topic: str, cluster: Cluster) -> DataFrame:
    """Turn records into rows for files and tables.

    Args:
        frame: columns of `kafkalike.spark.read`.
        decoding: options of the rows.
        topic: the records' topic, for its schemas.
        cluster: the topic's cluster.

    Returns:
        Columns `key`, `value`, `partition`, `offset`, `timestamp`, and `headers` if requested; or the value alone.

    Raises:
        IllegalArgumentError: an unknown format, or JSON without a schema.
        ParseException: the schema is not valid DDL.
        SchemaRegistryError: the topic has no schemas.
    """
    typed = partial(_typed, topic=topic, cluster=cluster, decoding=decoding)
    value = typed("value", decoding.value_format) if decoding.value_format in TYPED else _value(decoding)
    if decoding.value_only:
        made = frame.select(value.alias("value"))
        nested = isinstance(made.schema["value"].dataType, StructType)
        return made.select("value.*") if nested else made
    if decoding.key_format in TYPED:
        key = typed("key", decoding.key_format)
    elif decoding.key_format == "string":
        key = F.col("key") if decoding.value_format == "binary" else F.col("key").cast("string")
    else:
        raise IllegalArgumentError(f"key format must be one of {', '.join(KEY_FORMATS)}, not {decoding.key_format!r}")
    columns = [key.alias("key"), value.alias("value"), *map(F.col, ("partition", "offset", "timestamp"))]
    return frame.select(*columns, *([F.col("headers")] if decoding.headers else []))


def decode_rows_and_letters(  # noqa: PLR0917 - see `decode_rows`
    frame: DataFrame,
    decoding: Decoding,
    topic: str,
    cluster: Cluster,
    settings: DeadLetterSettings,
    connector: str,
) -> tuple[DataFrame, DataFrame | None]:
    """Split records into decoded rows, and dead letters of records that cannot be decoded.

    Args:
        frame: columns of `kafkalike.spark.read`.
        decoding: options of the rows; `malformed` does not matter.
        topic: the records' topic, for its schemas.
        cluster: the topic's cluster.
        settings: settings of the dead letters.
        connector: name of the job that could not decode the records.

    Returns:
        Rows with the columns of `decode_rows`, and letters with the columns of `kafkalike.spark.dead_letters`; None for
        the letters if the settings drop them.

    Raises:
        IllegalArgumentError: keys have schemas, and values do not; and see `decode_rows`.
    """
    rows = _with_errors(frame, decoding, topic, cluster)
    good = rows.where(F.col(error_of(rows)).isNull())
    if decoding.value_only:
        nested = isinstance(good.schema["value"].dataType, StructType)
        made = good.select("value.*") if nested else good.select("value")
    else:
        plain = decoding.key_format == "string" and decoding.value_format != "binary"
        key = F.col("key").cast("string") if plain else F.col("key")
        columns = [key.alias("key"), *map(F.col, ("value", "partition", "offset", "timestamp"))]
        made = good.select(*columns, *([F.col("headers")] if decoding.headers else []))
    name = settings.errors_deadletterqueue_topic_name
    headers = settings.errors_deadletterqueue_context_headers_enable
    letters = None if name == "" else dead_letters(rows, name, context_headers=headers, connector=connector)
    return made, letters


def _with_errors(frame: DataFrame, decoding: Decoding, topic: str, cluster: Cluster) -> DataFrame:
    """Add the error of each record. The value is one column, and keys are bytes unless they have a schema."""
    if decoding.value_format in TYPED:
        how = Typed(
            topic=topic,
            where=open_with_registry(cluster, None, decoding.registry)[1],
            value_format=decoding.value_format,
            key_format=decoding.key_format if decoding.key_format in TYPED else "binary",
            value_column="value",
            message=decoding.message,
        )
        return typed_columns(frame, how)[0]
    if decoding.key_format in TYPED:
        raise IllegalArgumentError("dead letters for keys with schemas need values with schemas")
    return decoded_values(
        frame,
        value_format=decoding.value_format,
        schema=decoding.schema,
        key_format="binary",
        value_column="value",
    )


def _typed(part: Part, form: str, *, topic: str, cluster: Cluster, decoding: Decoding) -> Column:
    return from_topic(
        part,
        topic,
        cluster,
        part=part,
        format=form,
        on_error=decoding.malformed,
        schema_options=ReaderSchemaOptions(
            message=decoding.message if part == "value" else None, registry=decoding.registry
        ),
    )


def _value(decoding: Decoding) -> Column:
    value = F.col("value")
    match decoding.value_format:
        case "binary":
            return value
        case "string":
            return value.cast("string")
        case "json" if decoding.schema is not None:
            return _json(value.cast("string"), decoding.schema, decoding.malformed)
        case "json":
            raise IllegalArgumentError("value format json needs a schema")
    raise IllegalArgumentError(f"value format must be one of {', '.join(VALUE_FORMATS)}, not {decoding.value_format!r}")


def _json(text: Column, schema: str, malformed: str) -> Column:
    """Parse JSON; a tombstone stays null."""
    if malformed == "null":
        return F.from_json(text, schema)
    # Spark reads an empty text as null in every mode.
    empty = F.raise_error(F.lit("a value is empty, which is no JSON"))
    parsed = F.from_json(text, schema, {"mode": "FAILFAST"})
    return F.when(F.trim(text) == F.lit(""), F.from_json(empty.cast("string"), schema)).otherwise(parsed)
