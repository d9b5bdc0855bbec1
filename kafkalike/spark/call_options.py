"""Option objects of the functions of `kafkalike.spark`: what belongs together, checked and frozen."""

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
"""Takes the BINARY key column and the number of partitions; gives an INT column, null to leave it to the default."""

SchemaChoice: TypeAlias = "str | Schema | ConfluentSchema"
"""`latest`, a format whose schema is made of the columns, or a `kafkalike.schemas.Schema`."""

AsOf: TypeAlias = "Snapshot | int | str | datetime"
"""A snapshot of topics; or of one topic a version of its table, or a time, also as text."""

RegistryAddress: TypeAlias = str | Mapping[str, str]
"""What `kafkalike.schemas.open_registry` takes: a URL, or settings such as `schema.registry.url`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How records are produced; Kafka's names, with `_` for `.`.

    Raises:
        UnsupportedCodecError: there is no such compression.
    """

    partitioner: Partitioner | None = None
    """Chooses partitions for rows whose `partition` is null, before the default: Kafka's murmur2 of the key's bytes,
    and turns of rows for null keys."""
    compression_type: str | None = None
    """None, gzip, snappy, lz4 or zstd; a topic's own `compression.type` wins."""
    delivery_timeout_ms: float = 120_000
    """How long (ms) to wait for other writers and retry, from when the DataFrame has been computed."""

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise UnsupportedCodecError(
                f"compression_type must be None or one of {', '.join(CODECS)}, not {self.compression_type!r}"
            )

    @property
    def codec(self) -> str:
        """The compression of records whose topic has none of its own."""
        return self.compression_type or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """How a streaming query runs; the names of Spark's `DataStreamWriter`.

    Raises:
        IllegalArgumentError: there is no such output mode.
    """

    output_mode: str = "append"
    """`append`; `update` appends the rows that a batch changes; `complete` appends the whole result of each batch
    again."""
    processing_time: str | None = None
    """How often a batch starts, as `10 seconds`; None: as soon as the last one is done."""
    query_name: str | None = None
    """Shown by Spark."""

    def __post_init__(self) -> None:
        if self.output_mode not in OUTPUT_MODES:
            raise IllegalArgumentError(
                f"output_mode must be one of {', '.join(OUTPUT_MODES)}, not {self.output_mode!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """What becomes of rows with an error; Kafka Connect's names, with `_` for `.`."""

    errors_tolerance: str = "none"
    """`all`: rows with an error become dead letters, in one decision with the other records of the batch. The frame has
    the columns of `decoded_values`: `_error` is not null for such rows, and `_raw` has their bytes. `none`: such
    columns mean nothing."""
    errors_deadletterqueue_topic_name: str | None = None
    """Topic of the dead letters; None: that of the topic that a row comes from, its name with `.dlq` behind; the empty
    text: such rows are left out."""
    errors_deadletterqueue_context_headers_enable: bool = True
    """Whether letters say where they come from and why."""


@dataclass(frozen=True, slots=True)
class RecordSchemas:
    """The schemas that records of a DataFrame are written with."""

    value: SchemaChoice | None = None
    """The values are the column `value`, or where there is none a struct of all columns that are no others of a record,
    as Avro, Protobuf or JSON with the id of a schema: `latest` for the newest version of the subject `<topic>-value`,
    `avro` or `json` for a schema made of the columns (all of them may be null), `protobuf` for that where the subject
    has none, and for the newest version where it has, or a `kafkalike.schemas.Schema`. None: `value` is bytes or
    text."""
    key: SchemaChoice | None = None
    """The same for the column `key`, and the subject `<topic>-key`."""
    register: bool = True
    """Whether a schema that a subject does not have becomes its next version."""
    message: str | None = None
    """Full name of the values' Protobuf message; None for the first one of the schema."""
    registry: RegistryAddress | None = None
    """None for the cluster's own."""

    def __bool__(self) -> bool:
        return self.value is not None or self.key is not None

    @classmethod
    def of(cls, given: RecordSchemas | SchemaChoice | None) -> RecordSchemas:
        """What a user has given: these, or the schema of the values alone."""
        return given if isinstance(given, RecordSchemas) else cls(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchemaOptions:
    """How values with schemas become columns."""

    message: str | None = None
    """Full name of a Protobuf message; None for the first one of the schema."""
    depth: int = 3
    """How often a type may stand in itself; fields that would go deeper are left out."""
    registry: RegistryAddress | None = None
    """None for the cluster's own."""
