"""`to_topic`: encode columns as keys or values with the ids of their schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType

from kafkalike.errors import IllegalArgumentError, SchemaRegistryError, SerializationError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.batch_decoder import DEPTH
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from kafkalike.schemas.arrow.derived_schema import derive_schema
from kafkalike.schemas.factory import PreloadedSchemas, RegistryLocation
from kafkalike.spark.call_options import RecordSchemas, SchemaChoice
from kafkalike.spark.jvm.spark_version import UTC_TIMES
from kafkalike.spark.typed import decode

_RAISED: Final = re.compile(
    rf"^(?:{re.escape(SerializationError.__module__)}\.)?SerializationError: (.*)$", re.MULTILINE
)
LATEST: Final = "latest"
RECORD_COLUMNS: Final = frozenset({"key", "topic", "partition", "timestamp", "headers"})
"""Columns of a record besides its value."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Schema and id to write keys or values."""

    schema: Schema
    id: int
    source: PreloadedSchemas
    message: str | None = None

    def encoder(self, kind: pa.DataType) -> BatchEncoder:
        """Return an encoder for values of an Arrow type.

        Raises:
            SerializationError: the type does not fit the schema.
        """
        return BatchEncoder(self.schema, self.id, self.source, kind, depth=DEPTH, message=self.message)


class Encode:
    """Encodes arrays of values in a task. It is pickled without the encoder.

    Args:
        writing: schemas.
    """

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._made: tuple[pa.DataType, BatchEncoder] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def __call__(self, values: pa.Array) -> pa.Array:
        """Encode each value to bytes; null is a tombstone.

        Raises:
            SerializationError: a value does not fit the schema.
        """
        if self._made is None or self._made[0] != values.type:
            self._made = values.type, self._writing.encoder(values.type)
        return self._made[1].encode(values)


@contextmanager
def named_errors() -> Iterator[None]:
    """Raise the `SerializationError` of a row, which Spark reports as the text of another exception."""
    try:
        yield
    except PySparkException as cause:
        found = _RAISED.search(str(cause))
        if found is None:
            raise
        raise SerializationError(found[1]) from cause


def encode_column(values: Column, writing: Writing) -> Column:
    """Build a BINARY column."""
    return decode.over_arrays(Encode(writing), BinaryType(), "to_topic")(values)


def to_topic(
    column: Column | str,
    topic: str | None = None,
    bootstrap_servers: Address | None = None,
    *,
    part: decode.Part = "value",
    subject: str | None = None,
    schema: SchemaChoice = LATEST,
    register: bool = True,
    message: str | None = None,
    registry: str | Mapping[str, str] | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> Column:
    """Encode a column as the keys or values of records: a schema id, then the value in the schema's format.

    Args:
        column: a struct with the fields of the schema, by name; or a single value if the schema is not a record. Null
            is a tombstone.
        topic: topic of the records.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        part: `key` or `value`.
        subject: subject of the schema; None for `<topic>-<part>`.
        schema: `latest` for the newest version of the subject, or a `kafkalike.schemas.Schema`.
        register: whether this call registers a schema that the subject lacks as its next version.
        message: full name of a Protobuf message. None takes the first message of the schema.
        registry: None for the cluster's own; otherwise an argument of `kafkalike.schemas.open_registry`.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.

    Returns:
        BINARY. A value that does not fit the schema fails the query (`SerializationError`).

    Raises:
        IllegalArgumentError: bad arguments.
        SchemaRegistryError: the schema does not exist, or must not be registered.
    """
    if (topic is None) == (subject is None):
        raise IllegalArgumentError("name either topic or subject, to find the schemas")
    _, where = decode.open_with_registry(bootstrap_servers, storage_options, registry)
    where_to = subject or decode.subject_of(topic or "", part)
    wanted = None if schema == LATEST else decode.schema_of(schema)
    writing = _settled(where, where_to, wanted, register=register, message=message)
    return encode_column(F.col(column) if isinstance(column, str) else column, writing)


def record_columns(frame: DataFrame, topic: str | None, where: RegistryLocation, schemas: RecordSchemas) -> DataFrame:
    """Turn a DataFrame of columns into the columns of records.

    Args:
        frame: with a schema of values, the value is the column `value`, or without one a struct of all columns except
            `RECORD_COLUMNS`; with a schema of keys, the key is the column `key`.
        topic: the topic.
        where: the registry.
        schemas: schemas of values and keys.

    Raises:
        IllegalArgumentError: no topic, a missing column, or bad schemas.
        SerializationError: the columns do not fit the schema; nothing was registered.
        SchemaRegistryError: the schema does not exist, or must not be registered.
    """
    if topic is None:
        raise IllegalArgumentError("records with schemas need the argument topic, whose schemas they have")
    made = frame
    if schemas.value is not None:
        if "value" not in frame.columns:
            names = [name for name in frame.columns if name not in RECORD_COLUMNS]
            if not names:
                raise IllegalArgumentError("the DataFrame has no column for the value")
            others = [F.col(_quoted(name)) for name in frame.columns if name in RECORD_COLUMNS]
            made = frame.select(*others, F.struct(*(F.col(_quoted(name)) for name in names)).alias("value"))
        made = _part(made, topic, "value", where, schemas)
    if schemas.key is not None:
        if "key" not in frame.columns:
            raise IllegalArgumentError("the DataFrame has no column key")
        made = _part(made, topic, "key", where, schemas)
    return made


def _part(
    frame: DataFrame, topic: str, part: decode.Part, where: RegistryLocation, schemas: RecordSchemas
) -> DataFrame:
    writing = writing_of(arrow_type(frame.schema[part].dataType), topic, part, where, schemas)
    return frame.withColumn(part, encode_column(F.col(part), writing))


def writing_of(
    kind: pa.DataType, topic: str, part: decode.Part, where: RegistryLocation, schemas: RecordSchemas
) -> Writing:
    """Resolve the schema for the values or keys of a DataFrame, and register it if necessary.

    Args:
        kind: the type of their column.
        topic: the topic.
        part: `key` or `value`.
        where: the registry.
        schemas: schemas of values and keys.

    Raises: see `record_columns`.
    """
    said = schemas.value if part == "value" else schemas.key
    subject = decode.subject_of(topic, part)
    if said == LATEST:
        wanted = None
    elif isinstance(said, str):
        decode.check_format("a schema that is not a Schema", said, LATEST)
        wanted = _of_columns(kind, f"{topic}_{part}", decode.FORMATS[said], where, subject, register=schemas.register)
    else:
        wanted = decode.schema_of(said)
    message = schemas.message if part == "value" else None
    return _settled(where, subject, wanted, register=schemas.register, message=message, kind=kind)


def _of_columns(
    kind: pa.DataType, name: str, schema_type: SchemaType, where: RegistryLocation, subject: str, *, register: bool
) -> Schema | None:
    """Derive a schema from columns; None for the newest schema of the subject."""
    if schema_type == "PROTOBUF":
        # A newly derived schema could number its fields differently, so the existing schema is used.
        source = where.open()
        latest = source.latest(subject)
        if latest is None and register:
            source.register_first(subject, derive_schema(kind, name, schema_type))
            latest = source.latest(subject)
        if latest is not None and latest.schema.type == schema_type:
            return None
    return derive_schema(kind, name, schema_type)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type in which tasks receive a column."""
    return to_arrow_type(kind, **UTC_TIMES)


def _settled(
    where: RegistryLocation,
    subject: str,
    schema: Schema | None,
    *,
    register: bool,
    message: str | None,
    kind: pa.DataType | None = None,
) -> Writing:
    """Return the schema to write with, and its id. A schema that does not fit is refused before it is registered."""
    source = where.open()
    if schema is None:
        latest = source.latest(subject)
        if latest is None:
            raise SchemaRegistryError(404, decode.NO_SUBJECT, f"Subject '{subject}' not found.")
        schema, number = latest.schema, latest.id
    else:
        number = 0
    sent = PreloadedSchemas(where, {}, {schema: dict(source.referenced(schema))})
    if kind is not None:
        Writing(schema, number, sent, message).encoder(kind)
    if number == 0:
        number = where.id_of(subject, schema, register=register)
    return Writing(schema, number, sent, message)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
