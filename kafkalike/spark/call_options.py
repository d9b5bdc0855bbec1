"""Option objects of the functions of `kafkalike.spark`. They are frozen, and check their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkalike.errors import IllegalArgumentError, UnsupportedCodecError
from kafkalike.model.config.topic_config import CODECS

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column

    from kafkalike.log.snapshots import Snapshot
    from kafkalike.model.schemas.schema import Schema
    from kafkalike.schemas.confluent_types import Schema as ConfluentSchema

OUTPUT_MODES: Final = ("append", "update", "complete")

Partitioner: TypeAlias = "Callable[[Column, int], Column]"
"""A function of the BINARY key column and the number of partitions. It returns an INT column, null for the default
partition."""

SchemaChoice: TypeAlias = "str | Schema | ConfluentSchema"
"""`latest`, the name of a format to derive a schema from the columns, or a `kafkalike.schemas.Schema`."""

AsOf: TypeAlias = "Snapshot | int | str | datetime"
"""A snapshot of topics; or for one topic a version of its table, or a time, which may be text."""

RegistryAddress: TypeAlias = str | Mapping[str, str]
"""A URL, or settings such as `schema.registry.url`, as for `kafkalike.schemas.open_registry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Settings of a producer, under Kafka's names with `_` for `.`.

    Raises:
        UnsupportedCodecError: the compression is unknown.
    """

    partitioner: Partitioner | None = None
    """Chooses the partition of rows whose `partition` is null. Rows for which it returns null get the default: Kafka's
    murmur2 of the key's bytes, and round robin for null keys."""
    compression_type: str | None = None
    """None, gzip, snappy, lz4 or zstd. A topic's own `compression.type` wins."""
    delivery_timeout_ms: float = 120_000
    """Longest wait (ms) for other writers, retries included, after the DataFrame has been computed."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise UnsupportedCodecError(
                f"compression_type must be None or one of {', '.join(CODECS)}, not {self.compression_type!r}"
            )

    @property
    def codec(self) -> str:
        """The compression of records whose topic does not set one."""
        return self.compression_type or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """Settings of a streaming query, under the names of Spark's `DataStreamWriter`.

    Raises:
        IllegalArgumentError: the output mode is unknown.
    """

    output_mode: str = "append"
    """`append`; `update` appends the rows that a batch changes; `complete` appends the whole result of each batch once
    more."""
    processing_time: str | None = None
    """Interval between batches, such as `10 seconds`. None starts a batch as soon as the last one has ended."""
    query_name: str | None = None
    """Name of the query in Spark's UI."""

    def __post_init__(self) -> None:
        if self.output_mode not in OUTPUT_MODES:
            raise IllegalArgumentError(
                f"output_mode must be one of {', '.join(OUTPUT_MODES)}, not {self.output_mode!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """Handling of rows with an error, under Kafka Connect's names with `_` for `.`."""

    errors_tolerance: str = "none"
    """`all`: rows with an error become dead letters, decided together with the other records of the batch. The frame
    has the columns of `decoded_values`: `_error` is not null for such rows, and `_raw` holds their bytes. `none`: such
    columns have no meaning."""
    errors_deadletterqueue_topic_name: str | None = None
    """Topic of the dead letters. None: the topic of the row, with `.dlq` appended. The empty text drops such rows."""
    errors_deadletterqueue_context_headers_enable: bool = True
    """Adds headers with the origin of a letter and its error."""


@dataclass(frozen=True, slots=True)
class RecordSchemas:
    """Schemas with which to encode the records of a DataFrame."""

    value: SchemaChoice | None = None
    """Schema of the values, which are the column `value`, or without one a struct of all columns that are not `key`,
    `topic`, `partition`, `timestamp` or `headers`. They are encoded as Avro, Protobuf or JSON with a schema id.
    `latest` takes the newest version of the subject `<topic>-value`. `avro` and `json-schema` derive a schema from the
    columns, with nullable fields. `protobuf` takes the subject's newest version, or derives a schema if the subject is
    empty. A `kafkalike.schemas.Schema` is used as it is. None: `value` is bytes or text."""
    key: SchemaChoice | None = None
    """The schema of the column `key`, in the same forms; its subject is `<topic>-key`."""
    register: bool = True
    """Registers a schema that the subject lacks as its next version."""
    message: str | None = None
    """Full name of the values' Protobuf message. None takes the first message of the schema."""
    registry: RegistryAddress | None = None
    """The schema registry. None takes the cluster's own."""

    def __bool__(self) -> bool:
        return self.value is not None or self.key is not None

    @classmethod
    def of(cls, given: RecordSchemas | SchemaChoice | None) -> RecordSchemas:
        """Return the given schemas; a single one is that of the values."""
        return given if isinstance(given, RecordSchemas) else cls(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchemaOptions:
    """Options to turn values with schemas into columns."""

    message: str | None = None
    """Full name of a Protobuf message. None takes the first message of the schema."""
    depth: int = 3
    """How often a type may contain itself. Fields below that depth are left out."""
    registry: RegistryAddress | None = None
    """The schema registry. None takes the cluster's own."""
