"""`read_stream`: topics as a streaming DataFrame, with typed columns for records with schemas, and its engine.

The engine is Delta's source or the format's. It is settled when the query starts, see `stream_sources`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession

from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.maintenance.verify.untouched_log import check_readable, is_young
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.spark.call_options import ReaderSchemaOptions, SchemaChoice
from kafkalike.spark.format.format import FORMAT
from kafkalike.spark.jvm.spark_connect import is_remote
from kafkalike.spark.jvm.spark_session import check_delta, tell_hadoop
from kafkalike.spark.jvm.spark_version import HAS_PLANS
from kafkalike.spark.reads.format_registration import register_format
from kafkalike.spark.reads.frames import log_of, refuse_reserved, topic_frame
from kafkalike.spark.reads.stream_sources import NotedStream
from kafkalike.spark.typed.decode import FORMATS, check_format, open_with_registry, schema_of
from kafkalike.spark.typed.typed_views import PLAIN_KEYS, Typed, typed_columns

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

ENGINES: Final = ("kafkalike", "delta")

_log = logging.getLogger(__name__)

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
        engine: `kafkalike`: the format, which reads by offset. `delta`: Delta's own source, for the JVM's speed. It has
            the same columns, with `headers`. Its order holds between commits, but not within a partition of one batch;
            its limits are `maxFilesPerTrigger` and `maxBytesPerTrigger` (`options`); it starts at `earliest` or
            `latest`; it does not report lost records; and lag is committed by `write_stream(group_id=…)`. None: Delta's
            source where its result is the same, else the format. The query's checkpoint, its sink and the topic decide
            when it starts, see `docs/spark.md`.
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
    is_bound = engine is not None or bool(reader_options)
    if engine is None:
        why = against_delta(len(topics), begin, reader_options, follows_group=has_group)
        engine = _engine(topics, why or _against_table(spark, cluster, topics[0]))
    sent = cluster.store.tasks.sent_options()
    register_format(spark, None if sent is None else sent.given())
    if engine == "delta":
        noted = [
            NotedStream(root=cluster.root, topic=name, include_headers=include_headers, forced=is_bound)
            for name in topics
        ]
        frame = reduce(DataFrame.unionByName, (_of_table(spark, cluster, one, begin, reader_options) for one in noted))
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


def _engine(topics: list[str], against: str | None) -> str:
    """Return the engine, given what speaks against Delta's source."""
    if against is None:
        return "delta"
    _log.info('%s: the stream is read by format("kafkalike"), because %s', ", ".join(topics), against)
    return "kafkalike"


def _against_table(spark: SparkSession, cluster: Cluster, topic: str) -> str | None:
    """Return why a topic's table, or the session, needs the format; None if Delta's source can read it."""
    if not HAS_PLANS:
        return "plans of this Spark are not rewritten"
    if is_remote(spark) or "," in cluster.root or cluster.store.scheduler.is_remote:
        return "Delta's source is chosen in sessions with a JVM, for a cluster of one local root"
    try:
        check_delta(spark)
        refuse_reserved(spark)
        info = cluster.log(check_topic_name(topic)).info
    except KafkaError as cause:
        return str(cause)
    if not cluster.server.is_closed(info.configs):
        return "foreign writers may change the topic"
    return None if is_young(cluster.files_of(info)) else "the topic's table is old, or files were removed from it"


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


def _of_table(
    spark: SparkSession, cluster: Cluster, noted: NotedStream, begin: str, options: Mapping[str, str]
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
    log = log_of(cluster, noted.topic)
    check_readable(log)
    info = log.info
    # Retention and compaction only remove records; the remaining ones were there before.
    given = {"skipChangeCommits": "true", **options, **noted.options()}
    if begin == "latest":
        given["startingVersion"] = "latest"
    elif is_young(cluster.files_of(info)):
        # The records are the same, but Delta reads the versions' own files, in the order of the versions. Otherwise it
        # would run jobs over its list of all files for each batch.
        given["startingVersion"] = "0"
    return topic_frame(
        spark, info, cluster.table_uri(info), include_headers=noted.include_headers, options=given, stream=True
    )


def against_delta(
    topics: int, starting_offsets: str | None, options: Mapping[str, str], *, follows_group: bool
) -> str | None:
    """Return why the arguments of `read_stream` need the format; None if Delta's source can serve them.

    >>> against_delta(1, "earliest", {"maxFilesPerTrigger": "10"}, follows_group=False)
    >>> against_delta(1, None, {}, follows_group=False)
    'it starts at latest'
    """
    others = sorted(name for name in options if name.lower() not in LIMITS)
    if topics != 1:
        return "it reads several topics"
    if (starting_offsets or "latest").strip().lower() != "earliest":
        # Delta's source has no first batch that records the start, so a restart before the first record would skip
        # records.
        return f"it starts at {starting_offsets or 'latest'}"
    if follows_group:
        return "it commits its progress for a group"
    return f"it has the option {others[0]}" if others else None
