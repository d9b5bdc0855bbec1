"""SQL values: a topic and the format of its values in, a view with columns instead of bytes out; bad rows stay."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.sql_names import sql_name
from kafkalike.model.transactions.snapshot import Snapshot
from kafkalike.spark.frames import read
from kafkalike.spark.sql_names import quoted

FORMATS: Final = ("json", "csv", "string", "binary")
KEY_FORMATS: Final = ("string", "binary")

RAW: Final = "value_raw"
ERROR: Final = "value_error"

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")

_CORRUPT: Final = "__kafkalike_corrupt"


def create_view(
    spark: SparkSession,
    topic: str,
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    *,
    name: str | None = None,
    value_format: str = "json",
    schema: str | StructType | None = None,
    options: Mapping[str, str] | None = None,
    key_format: str = "string",
    value_column: str | None = None,
    version_as_of: int | None = None,
    timestamp_as_of: str | datetime | None = None,
    at: Snapshot | None = None,
    storage_options: Any = None,  # noqa: ANN401 - see `connect`
) -> str:
    """Make a temporary view over a topic whose values are columns.

    A row whose value cannot be decoded never fails a query and is never left out: its fields are null, so that it
    adds nothing to a sum, `value_error` says what is wrong, and `value_raw` has the bytes. Count them with
    `SELECT count(value_error) FROM …`. Tombstones are rows with null fields and no error.

    Args:
        spark: a session with Delta.
        topic: the topic.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.
        name: of the view; None for the topic's SQL name and `__values`, such as `orders__values`. A name of
            `register_sql`'s is replaced by its next call.
        value_format: `json` or `csv`, by `schema`; `string` or `binary`: one column `value`.
        schema: fields of a JSON object or CSV line, as DDL or type.
        options: of Spark's `from_json` or `from_csv`, such as `timestampFormat`.
        key_format: `string` or `binary`.
        value_column: None makes each field a column; a name makes one struct column of it.
        version_as_of: the topic as of a version of its table (`DESCRIBE HISTORY`).
        timestamp_as_of: the topic as of a time, not after the table's last commit.
        at: the topic as of a snapshot; see `kafkalike.spark.read`.
        storage_options: who asks an object store; see `kafkalike.spark.read`.

    Returns:
        The view's name. Its columns: `key`, the fields (or `value_column`), `topic, partition, offset, timestamp,
        timestampType, headers, value_raw BINARY, value_error STRING`.

    Raises:
        IllegalArgumentError: bad arguments, or a field that is called like one of the other columns.
        ParseException: a bad schema.
        AnalysisException: no such version or time.
        UnknownTopicOrPartitionError: no such topic.
    """
    frame = read(
        spark,
        topic,
        bootstrap_servers,
        version_as_of=version_as_of,
        timestamp_as_of=timestamp_as_of,
        at=at,
        storage_options=storage_options,
    )
    decoded = decoded_values(
        frame,
        value_format=value_format,
        schema=schema,
        options=options,
        key_format=key_format,
        value_column=value_column,
    )
    view = name if name is not None else f"{sql_name(topic)}__values"
    decoded.createOrReplaceTempView(quoted(view))
    return view


def decoded_values(
    frame: DataFrame,
    *,
    value_format: str = "json",
    schema: str | StructType | None = None,
    options: Mapping[str, str] | None = None,
    key_format: str = "string",
    value_column: str | None = None,
) -> DataFrame:
    """The columns of `create_view`, for any frame with the columns of `kafkalike.spark.read`, streams included."""
    if value_format not in FORMATS:
        raise IllegalArgumentError(f"value_format must be one of {', '.join(FORMATS)}, not {value_format!r}")
    if key_format not in KEY_FORMATS:
        raise IllegalArgumentError(f"key_format must be one of {', '.join(KEY_FORMATS)}, not {key_format!r}")
    key = F.col("key").cast(key_format).alias("key")
    rest = [F.col(column) for column in RECORD_COLUMNS if column in frame.columns]
    if value_format in {"string", "binary"}:
        if schema is not None or options:
            raise IllegalArgumentError(f"schema and options are for json and csv, not for {value_format}")
        return _plain(frame, key, rest, value_format, value_column or "value")
    if schema is None:
        raise IllegalArgumentError(f"value_format {value_format} needs a schema, such as 'id BIGINT, name STRING'")
    fields = schema if isinstance(schema, StructType) else _parsed(schema)
    taken = {"key", *RECORD_COLUMNS, RAW, ERROR, _CORRUPT}
    named = [value_column] if value_column is not None else fields.fieldNames()
    clash = sorted(name for name in named if name.lower() in {other.lower() for other in taken})
    if clash:
        raise IllegalArgumentError(
            f"{', '.join(clash)} is a column of every record; with value_column='…' the fields become one struct"
        )
    text = F.col("value").cast("string")
    whole = _from_text(text, value_format, fields, dict(options or {}))
    error = _error(text, whole, value_format)
    base = frame.withColumns({"__whole": whole}).withColumns({ERROR: error})
    good = F.when(F.col(ERROR).isNull(), F.col("__whole"))
    values = [good.getField(name).alias(name) for name in fields.fieldNames()]
    if value_column is not None:
        made = F.struct(*values)
        values = [F.when(F.col(ERROR).isNull() & F.col("value").isNotNull(), made).alias(value_column)]
    return base.select(key, *values, *rest, F.col("value").alias(RAW), F.col(ERROR))


def _plain(frame: DataFrame, key: Column, rest: list[Column], kind: str, name: str) -> DataFrame:
    text = F.col("value").cast("string")
    wrong = F.lit("the value is not UTF-8") if kind == "string" else F.lit(None).cast("string")
    bad = ~F.is_valid_utf8(text) if kind == "string" else F.lit(False)  # noqa: FBT003
    value = F.when(~bad, F.col("value").cast(kind))
    raw, error = F.col("value").alias(RAW), F.when(bad, wrong).alias(ERROR)
    return frame.select(key, value.alias(name), *rest, raw, error)


def _parsed(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise IllegalArgumentError(f"schema must name columns, such as 'id BIGINT, name STRING', not {ddl!r}")
    return found


def _from_text(text: Column, value_format: str, fields: StructType, options: dict[str, str]) -> Column:
    """The fields, and the whole text where it is not what the fields say."""
    refused = sorted({name.lower() for name in options} & {"mode", "columnnameofcorruptrecord"})
    if refused:
        raise IllegalArgumentError(f"option {refused[0]} is taken: bad rows are kept, with a null in each field")
    given = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    with_corrupt = StructType([*fields.fields]).add(_CORRUPT, "string")
    if value_format == "json":
        return F.from_json(text, with_corrupt, given)
    return F.from_csv(text, with_corrupt.toDDL(), given)


def _error(text: Column, whole: Column, value_format: str) -> Column:
    shape = "an object of JSON" if value_format == "json" else "a line of CSV"
    problems = F.when(text.isNull(), F.lit(None).cast("string"))
    problems = problems.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
    problems = problems.when(F.trim(text) == F.lit(""), F.lit("the value is empty"))
    return problems.when(whole.isNull() | whole.getField(_CORRUPT).isNotNull(), F.lit(f"not {shape} with these fields"))
