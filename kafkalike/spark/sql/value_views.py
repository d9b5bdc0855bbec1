"""`create_view`: a topic as a view with columns of its values; rows that cannot be decoded stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.schemas.json_types import inferred_schema
from kafkalike.model.topic_sql import LATEST, VALUES, plain_name
from kafkalike.spark.call_options import AsOf, ReaderSchemaOptions, SchemaChoice
from kafkalike.spark.jvm.spark_session import check_delta
from kafkalike.spark.reads.frames import read
from kafkalike.spark.sql_text import check_free, make_marked
from kafkalike.spark.typed.decode import FORMATS as TYPED
from kafkalike.spark.typed.decode import check_format, open_with_registry, schema_of
from kafkalike.spark.typed.typed_views import Typed, forget_view, make_view

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

FORMATS: Final = ("json", "csv", "string", "binary")
KEY_FORMATS: Final = ("string", "binary")

RAW: Final = "value_raw"
ERROR: Final = "value_error"

RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")

_CORRUPT: Final = "__kafkalike_corrupt"
_RANK: Final = "__kafkalike_rank"

INFER: Final = "infer"
SAMPLE: Final = 1000
"""Number of the newest offsets of each partition whose values are sampled to infer a schema."""


def create_view(
    spark: SparkSession,
    topic: str,
    bootstrap_servers: Address | None = None,
    *,
    latest: bool = False,
    format: str | None = None,  # noqa: A002 - the word of readers and writers
    name: str | None = None,
    value_format: str | None = None,
    schema: SchemaChoice | StructType | None = None,
    options: Mapping[str, str] | None = None,
    key_format: str = "string",
    value_column: str | None = None,
    as_of: AsOf | None = None,
    schema_options: ReaderSchemaOptions | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> str:
    """Create a temporary view over a topic whose values become columns.

    With `format`, the columns follow the topic's newest schema in the registry, whatever schemas its records were
    written with. The view keeps them: call `refresh_views`, or this function, after a schema was registered.

    A row whose value cannot be decoded never fails a query and is never left out. Its fields are null, so that it does
    not affect sums, `value_error` describes the error, and `value_raw` holds the bytes (with `format`: `_error` and
    `_raw`). Count such rows with `SELECT count(value_error) FROM …`. Tombstones are rows with null fields and no error.

    Args:
        spark: a session with Delta.
        topic: the topic.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        latest: show only the newest record of each key, and no key whose newest record is a tombstone: the records that
            compaction would leave. Records without a key are left out. A key with records in several partitions has a
            row for each of them.
        format: `avro`, `protobuf` or `json-schema`: records start with the id of a schema of this type. Excludes
            `value_format` and `options`.
        name: name of the view. None for the topic's name, as `register_sql` writes it, and `__values`, such as
            `orders__values`; with `latest`, and `__latest`. An earlier view by kafkalike under the name is replaced.
        value_format: `json` (plain JSON) or `csv`, by `schema`; `string` or `binary`: one column `value`. None for
            `json`, or with `latest` and without a schema for `binary`.
        schema: fields of a JSON object or CSV line, as DDL or type; for JSON also `infer`, which samples the values at
            the newest 1,000 offsets of each partition (`kafkalike.model.schemas.json_types`): call again to see newer
            fields. With `format`: reader schema, a `kafkalike.schemas.Schema` or its text, instead of the newest schema
            of the subject `<topic>-value`.
        options: of Spark's `from_json` or `from_csv`, such as `timestampFormat`.
        key_format: `string` or `binary`; with `format` also a format with schemas.
        value_column: name of one struct column for the value; None makes each field a column.
        as_of: a version of the topic's table (`DESCRIBE HISTORY`), a time or a snapshot; see `kafkalike.spark.read`.
        schema_options: with `format`: registry, Protobuf message and depth.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.

    Returns:
        The view's name. Its columns: `key`, the fields (or `value_column`), `topic, partition, offset, timestamp,
        timestampType, headers, value_raw BINARY, value_error STRING`; with `format` the last two are `_raw` and
        `_error`, with `_raw_key BINARY` before `_error` if keys have schemas.

    Raises:
        IllegalArgumentError: bad arguments, a field with the name of another column, a table or view of the name that
            kafkalike has not made, or a sample without fields for columns.
        SchemaRegistryError: with `format`: the topic has no schema, or the schema cannot be parsed.
        ParseException: the schema is not valid DDL.
        AnalysisException: the version or time does not exist.
        UnknownTopicOrPartitionError: the topic does not exist.
        KafkaConfigurationError: see `kafkalike.spark.read`.
    """
    check_delta(spark)
    records = partial(read, spark, topic, bootstrap_servers, as_of=as_of, storage_options=storage_options)
    view = name if name is not None else plain_name(topic) + (LATEST if latest else VALUES)
    check_free(spark, view)
    columns = ViewColumns(
        topic=topic,
        bootstrap_servers=bootstrap_servers,
        latest=latest,
        format=format,
        value_format=value_format,
        schema=schema,
        options=options,
        key_format=key_format,
        value_column=value_column,
        schema_options=schema_options,
        storage_options=storage_options,
    )

    def frame() -> DataFrame:
        return live_records(newest_records(records())) if latest else records()

    typed = columns.typed()
    if typed is not None:
        make_view(spark, view, typed, frame)
        return view
    inferred = schema == INFER
    log = connect(bootstrap_servers, storage_options, access="spark").log(topic) if inferred and as_of is None else None
    made = columns.plain(frame(), _inferred(records(), log) if inferred else None)
    make_marked(made, view)
    forget_view(spark, view)
    return view


def newest_records(records: DataFrame) -> DataFrame:
    """Return the newest record of each key in each partition, tombstones included; records without a key are left out.

    Args:
        records: columns of `kafkalike.spark.read`.
    """
    newest = F.row_number().over(Window.partitionBy("partition", "key").orderBy(F.col("offset").desc()))
    ranked = records.where(F.col("key").isNotNull()).withColumn(_RANK, newest)
    return ranked.where(F.col(_RANK) == 1).drop(_RANK)


def live_records(newest: DataFrame) -> DataFrame:
    """Return the records that are not tombstones."""
    return newest.where(F.col("value").isNotNull())


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewColumns:
    """The arguments of `create_view` that decide how records become columns; see there."""

    topic: str
    bootstrap_servers: Address | None
    latest: bool
    format: str | None
    value_format: str | None
    schema: SchemaChoice | StructType | None
    options: Mapping[str, str] | None
    key_format: str
    value_column: str | None
    schema_options: ReaderSchemaOptions | None
    storage_options: StorageOptionsLike | None

    def typed(self) -> Typed | None:
        """Return the options of columns by the registry's schemas; None without `format`.

        Raises:
            IllegalArgumentError: bad arguments.
            SchemaRegistryError: the registry cannot be opened.
        """
        if self.format is None:
            if self.schema_options is not None:
                raise IllegalArgumentError("schema_options go with format")
            if self.schema is not None and not isinstance(self.schema, (str, StructType)):
                raise IllegalArgumentError(f"schema must be DDL or a type of Spark's, not {self.schema!r}")
            if self.schema == INFER and self.plain_format != "json":
                raise IllegalArgumentError(f"schema='infer' is for value_format='json', not for {self.plain_format!r}")
            return None
        is_plain = self.value_format not in {None, "json"} or self.options is not None
        how = _typed(self.topic, self.format, self.key_format, self.schema, plain=is_plain)
        reader = self.schema_options or ReaderSchemaOptions()
        _, where = open_with_registry(self.bootstrap_servers, self.storage_options, reader.registry)
        return how(where=where, value_column=self.value_column, message=reader.message, depth=reader.depth)

    @property
    def plain_format(self) -> str:
        """The format of values without `format`."""
        if self.value_format is not None:
            return self.value_format
        return "binary" if self.latest and self.schema is None else "json"

    def plain(self, records: DataFrame, inferred: StructType | None = None) -> DataFrame:
        """Return the columns of values without `format`; see `decoded_values`.

        Args:
            records: columns of `kafkalike.spark.read`.
            inferred: the fields if the schema is `infer`.
        """
        schema = self.schema if inferred is None else inferred
        assert schema is None or isinstance(schema, str | StructType), "`typed` refuses others"
        return decoded_values(
            records,
            value_format=self.plain_format,
            schema=schema,
            options=self.options,
            key_format=self.key_format,
            value_column=self.value_column,
        )


def _inferred(records: DataFrame, log: TopicLog | None) -> StructType:
    """Infer the schema of JSON values, without reading more than a sample.

    Args:
        records: columns of `kafkalike.spark.read`.
        log: the topic's log, which knows the newest offsets; None for an older version.
    """
    if log is None:
        newest = {row[0]: row[1] + 1 for row in records.groupBy("partition").agg(F.max("offset")).collect()}
    else:
        newest = {p: log.log_end(p) for p in log.info.partitions}
    sampled = F.lit(False)  # noqa: FBT003
    for partition, end in newest.items():
        sampled |= (F.col("partition") == partition) & (F.col("offset") >= end - SAMPLE)
    rows = records.where(sampled & F.col("value").isNotNull()).orderBy("partition", "offset").select("value").collect()
    return StructType.fromJson(inferred_schema(bytes(row.value) for row in rows))


def _typed(topic: str, kind: str, key_kind: str, schema: object, *, plain: bool) -> Callable[..., Typed]:
    """Check the arguments for a view with a format, and return a partial `Typed`."""
    check_format("format", kind)
    check_format("key_format", key_kind, *KEY_FORMATS)
    if plain:
        raise IllegalArgumentError("value_format and options do not go with format")
    if schema == INFER:
        raise IllegalArgumentError("schema='infer' is for value_format='json'; format takes the topic's own schemas")
    reader = None if schema is None else schema_of(schema, kind)
    return partial(Typed, topic=topic, value_format=kind, key_format=key_kind, schema=reader)


def decoded_values(
    frame: DataFrame,
    *,
    value_format: str = "json",
    schema: str | StructType | None = None,
    options: Mapping[str, str] | None = None,
    key_format: str = "string",
    value_column: str | None = None,
) -> DataFrame:
    """Decode values into the columns of `create_view`.

    Args:
        frame: columns of `kafkalike.spark.read`; streams too.
        value_format: see `create_view`, as for the other arguments.
        schema: fields of a JSON object or CSV line, as DDL or type.
        options: of Spark's `from_json` or `from_csv`.
        key_format: `string` or `binary`.
        value_column: name of one struct column for the value.

    Returns:
        The columns of `create_view`.

    Raises:
        IllegalArgumentError: bad arguments, or a field with the name of another column.
    """
    if value_format not in FORMATS:
        hint = f"; create_view takes format={value_format!r} for records with schemas" if value_format in TYPED else ""
        raise IllegalArgumentError(f"value_format must be one of {', '.join(FORMATS)}, not {value_format!r}{hint}")
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
    """Parse the fields, and keep the whole text if it does not match them."""
    refused = sorted({name.lower() for name in options} & {"mode", "columnnameofcorruptrecord"})
    if refused:
        raise IllegalArgumentError(f"option {refused[0]} is taken: bad rows are kept, with a null in each field")
    given = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    with_corrupt = StructType([*fields.fields]).add(_CORRUPT, "string")
    if value_format == "json":
        return F.from_json(text, with_corrupt, given)
    # As JSON, because in a text of SQL a session's settings may make TIMESTAMP a type without a zone.
    return F.from_csv(text, with_corrupt.json(), given)


def _error(text: Column, whole: Column, value_format: str) -> Column:
    shape = "an object of JSON" if value_format == "json" else "a line of CSV"
    problems = F.when(text.isNull(), F.lit(None).cast("string"))
    problems = problems.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
    problems = problems.when(F.trim(text) == F.lit(""), F.lit("the value is empty"))
    return problems.when(whole.isNull() | whole.getField(_CORRUPT).isNotNull(), F.lit(f"not {shape} with these fields"))
