"""`read_stream`: topics as a streaming DataFrame, with typed columns for records with schemas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession

from kafkalike.errors import IllegalArgumentError
from kafkalike.maintenance.verify.untouched_log import check_readable, is_young
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.spark.call_options import ReaderSchemaOptions, SchemaChoice
from kafkalike.spark.format.format import FORMAT
from kafkalike.spark.jvm.spark_session import check_delta, tell_hadoop
from kafkalike.spark.reads.format_registration import register_format
from kafkalike.spark.reads.frames import log_of, refuse_reserved, topic_frame
from kafkalike.spark.reads.stream_start import NOTE
from kafkalike.spark.typed.decode import FORMATS, check_format, open_with_registry, schema_of
from kafkalike.spark.typed.typed_views import PLAIN_KEYS, Typed, typed_columns

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

ENGINES: Final = ("kafkalike", "delta")

LIMITS: Final = frozenset({"maxfilespertrigger", "maxbytespertrigger"})
"""Options of Delta's source, in lower case."""


def read_stream(
    spark: SparkSession,
    topic: str | Iterable[str],
    bootstrap_servers: Address | None = None,
    *,
    format: str | None = None,  # noqa: A002 - the word of readers and writers
    key_format: str | None = None,
    schema: SchemaChoice | None = None,
    value_column: str | None = None,
    engine: str | None = None,
    starting_offsets: str | None = None,
    group_id: str | None = None,
    auto_offset_reset: str | None = None,
    options: Mapping[str, str] | None = None,
    schema_options: ReaderSchemaOptions | None = None,
    include_headers: bool = True,
    storage_options: StorageOptionsLike | None = None,
) -> DataFrame:
    """Read one or more topics as a stream.

    Args:
        spark: the session.
        topic: a topic, or several; exactly one with `format`.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        format: None: the columns of format `kafkalike`. `avro`, `protobuf` or `json-schema`: the columns of
            `kafkalike.spark.create_view` with this `format`, by the topic's newest schema when the query starts.
            Records of newer schemas are read too, without their new fields; restart the query to see those.
        key_format: with `format`: `string` (None), `binary`, or a format with schemas.
        schema: reader schema of the values, a `kafkalike.schemas.Schema` or its text; None for the newest.
        value_column: name of one struct column for the value; None makes each field a column.
        engine: `kafkalike` (None): the format, which reads by offset. `delta`: Delta's own source. It has the same
            columns, with `headers`. Its order holds between commits, but not within a partition of one batch; its
            limits are `maxFilesPerTrigger` and `maxBytesPerTrigger` (`options`); it starts at `earliest` or `latest`;
            it does not report lost records; and lag is committed by `write_stream(group_id=…)`.
        starting_offsets: start of a new query: `latest` (None), `earliest`, JSON, or `committed` for the offsets of
            `group_id`; the format's option `startingOffsets`.
        group_id: consumer group for which to commit the query's progress; the format's option `kafka.group.id`.
        auto_offset_reset: start of `committed` in partitions without a committed offset: `latest` (None), `earliest`,
            or `none` for an error.
        options: more options of the format, such as `maxOffsetsPerTrigger`.
        schema_options: with `format`: registry, Protobuf message and depth.
        include_headers: whether to include the column `headers`.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.

    Returns:
        A streaming DataFrame.

    Raises:
        IllegalArgumentError: bad arguments.
        SchemaRegistryError: the topic has no schema, or the schema cannot be parsed.
        CorruptRecordError, DataLossError: with engine delta, a foreign writer has broken the topic's log. Delta's
            source does not notice such damage after this call.
        KafkaConfigurationError: with engine delta, the session has no Delta.

    Example:
        ```python
        orders = ks.read_stream(spark, "orders", "./data", starting_offsets="earliest")
        query = orders.writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
        query.awaitTermination()
        print(spark.table("seen").count())  # 2
        ```
    """
    _check_formats(format, key_format, is_typed=any(one is not None for one in (schema, value_column, schema_options)))
    _check_engine(spark, engine)
    topics = [topic] if isinstance(topic, str) else list(topic)
    if not topics:
        raise IllegalArgumentError("at least one topic is needed")
    reader_schema = schema_options or ReaderSchemaOptions()
    cluster, where = open_with_registry(bootstrap_servers, storage_options, reader_schema.registry)
    how = None
    if format is not None:
        if len(topics) > 1:
            raise IllegalArgumentError("format is for one topic: each has columns of its own")
        how = Typed(
            topic=topics[0],
            where=where,
            value_format=format,
            key_format=key_format or "string",
            schema=None if schema is None else schema_of(schema, format),
            value_column=value_column,
            message=reader_schema.message,
            depth=reader_schema.depth,
        )
    begin, reader_options = (starting_offsets or "latest").strip().lower(), dict(options or {})
    has_group = group_id is not None or auto_offset_reset is not None
    if engine == "delta" and has_group:
        raise IllegalArgumentError("engine delta commits no offsets: give group_id to write_stream")
    sent = cluster.store.tasks.sent_options()
    register_format(spark, None if sent is None else sent.given())
    if engine == "delta":
        tables = (_of_table(spark, cluster, name, begin, reader_options, include_headers) for name in topics)
        frame = reduce(DataFrame.unionByName, tables)
        return frame if how is None else typed_columns(frame, how)[0]
    reader = spark.readStream.format(FORMAT).option("kafka.bootstrap.servers", cluster.root)
    reader = reader.option("subscribe", ",".join(map(check_topic_name, topics)))
    said = {
        "includeHeaders": str(include_headers).lower(),
        "startingOffsets": starting_offsets,
        "kafka.group.id": group_id,
        "kafka.auto.offset.reset": auto_offset_reset,
    }
    reader = reader.options(**{name: value for name, value in said.items() if value is not None})
    frame = reader.options(**reader_options).load()
    return frame if how is None else typed_columns(frame, how)[0]


def _check_formats(value_format: str | None, key_format: str | None, *, is_typed: bool) -> None:
    if value_format is not None:
        check_format("format", value_format)
    if value_format is None and is_typed:
        raise IllegalArgumentError("schema, value_column and schema_options go with format")
    if key_format is not None and (value_format is None or key_format not in {*PLAIN_KEYS, *FORMATS}):
        raise IllegalArgumentError("key_format goes with format, and is string, binary or a format with schemas")


def _check_engine(spark: SparkSession, engine: str | None) -> None:
    if engine not in {None, *ENGINES}:
        raise IllegalArgumentError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if engine == "delta":
        check_delta(spark)


def _of_table(  # noqa: PLR0917
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    begin: str,
    options: Mapping[str, str],
    include_headers: bool,  # noqa: FBT001
) -> DataFrame:
    """Stream a topic's table by Delta's source."""
    unknown = {name.lower() for name in options} - LIMITS
    if begin not in {"earliest", "latest"} or unknown:
        raise IllegalArgumentError(
            "engine delta begins at earliest or latest, and takes the options maxFilesPerTrigger and "
            f"maxBytesPerTrigger, not {', '.join(sorted(unknown)) or begin}"
        )
    tell_hadoop(spark, cluster)
    refuse_reserved(spark)
    log = log_of(cluster, topic)
    check_readable(log)
    info = log.info
    # Retention and compaction only remove records; the remaining ones were there before.
    given = {"skipChangeCommits": "true", **options, NOTE: topic}
    if begin == "latest":
        given["startingVersion"] = "latest"
    elif is_young(cluster.files_of(info)):
        # The records are the same, but Delta reads the versions' own files, in the order of the versions. Otherwise it
        # would run jobs over its list of all files for each batch.
        given["startingVersion"] = "0"
    return topic_frame(
        spark, info, cluster.table_uri(info), include_headers=include_headers, options=given, stream=True
    )
