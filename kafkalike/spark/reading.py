"""Reading of streams: a topic in, a streaming DataFrame of its records out, with columns where they have schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafkalike.errors import IllegalArgumentError
from kafkalike.schemas.arrow.readers import DEPTH
from kafkalike.spark.format.format import FORMAT, register_format
from kafkalike.spark.typed.registry import FORMATS, opened, schema_of
from kafkalike.spark.typed.views import PLAIN_KEYS, Typed, typed_columns


def read_stream(
    spark: SparkSession,
    topic: str,
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    *,
    value_format: str | None = None,
    key_format: str | None = None,
    schema: object = None,
    value_column: str | None = None,
    starting_offsets: str | None = None,
    group_id: str | None = None,
    auto_offset_reset: str | None = None,
    options: Mapping[str, str] | None = None,
    message: str | None = None,
    depth: int = DEPTH,
    registry: str | Mapping[str, str] | None = None,
    storage_options: Any = None,  # noqa: ANN401 - see `connect`
) -> DataFrame:
    """A topic as it grows.

    Args:
        spark: the session.
        topic: the topic.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.
        value_format: None: the columns of format `kafkalike`. `avro`, `protobuf` or `json`: the columns of
            `kafkalike.spark.create_view` with this `format`, those of the topic's newest schema when the query starts.
            Records of newer schemas are read too, without what is new in them; start the query again to see that.
        key_format: with `value_format`: `string` (None), `binary`, or a format with schemas.
        schema: a `kafkalike.schemas.Schema`, or its text, to bring the values to; None for the newest.
        value_column: None makes each field a column; a name makes one struct column of it.
        starting_offsets: where a new query begins: `latest` (None), `earliest`, JSON, or `committed` for where `group_id`
            stands; the format's option `startingOffsets`.
        group_id: the query's progress is committed for this consumer group; the format's option `kafka.group.id`.
        auto_offset_reset: what `committed` is where the group has committed nothing: `latest` (None), `earliest`, or
            `none` for an error.
        options: more options of the format, such as `maxOffsetsPerTrigger`.
        message: full name of a Protobuf message; None for the first one of the schema.
        depth: how often a type may stand in itself; fields that would go deeper are left out.
        registry: None for the cluster's own; else what `kafkalike.schemas.open_registry` takes.
        storage_options: who asks an object store; see `kafkalike.spark.read`.

    Returns:
        A streaming DataFrame.

    Raises:
        IllegalArgumentError: bad arguments.
        SchemaRegistryError: the topic has no schema, or one that cannot be understood.
    """
    if value_format is not None and value_format not in FORMATS:
        raise IllegalArgumentError(f"value_format must be one of {', '.join(FORMATS)}, not {value_format!r}")
    if key_format is not None and (value_format is None or key_format not in {*PLAIN_KEYS, *FORMATS}):
        raise IllegalArgumentError("key_format goes with value_format, and is string, binary or a format with schemas")
    cluster, where = opened(bootstrap_servers, storage_options, registry)
    sent = cluster.store.sent_options()
    register_format(spark, None if sent is None else sent.given())
    reader = spark.readStream.format(FORMAT).option("kafka.bootstrap.servers", cluster.root).option("subscribe", topic)
    said = {
        "startingOffsets": starting_offsets,
        "kafka.group.id": group_id,
        "kafka.auto.offset.reset": auto_offset_reset,
    }
    reader = reader.options(**{name: value for name, value in said.items() if value is not None})
    frame = reader.options(**(options or {})).load()
    if value_format is None:
        return frame
    how = Typed(
        topic=topic,
        where=where,
        value_format=value_format,
        key_format=key_format or "string",
        schema=None if schema is None else schema_of(schema, value_format),
        value_column=value_column,
        message=message,
        depth=depth,
    )
    return typed_columns(frame, how)[0]
