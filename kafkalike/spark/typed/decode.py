"""`from_topic`: decode columns of bytes by the schemas that their ids name.

Decoding is a function over Arrow batches that Spark runs in its Python workers (decision 035). A topic's reader schema
comes from a registry that tasks can query too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, SchemaRegistryError, SerializationError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.batch_decoder import DEPTH, BatchDecoder, reader_of
from kafkalike.schemas.confluent_types import body_of, read_value
from kafkalike.schemas.factory import OWN, PreloadedSchemas, RegistryLocation
from kafkalike.spark.call_options import ReaderSchemaOptions, RegistryAddress, SchemaChoice
from kafkalike.spark.jvm.spark_version import arrow_udf

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


FOUND: Final = "found"
WRONG: Final = "wrong"
ON_ERROR: Final = ("null", "fail")


class Decode:
    """Decodes arrays of values in a task.

    It is pickled with the known schemas, but without the decoder built from them.

    Args:
        reading: schemas.
        depth: how often a type may contain itself.
        message: a Protobuf message's name.
        fail: whether a value that cannot be decoded fails the job.
    """

    def __init__(
        self, reading: ReaderSchema, *, depth: int = DEPTH, message: str | None = None, fail: bool = False
    ) -> None:
        self._reading = reading
        self._depth = depth
        self._message = message
        self._fail = fail
        self._made: BatchDecoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    @property
    def columns(self) -> pa.Schema:
        """The Arrow columns of a value.

        Raises:
            SchemaRegistryError, IllegalArgumentError: see `reader_of`.
        """
        return self._decoder.columns

    @property
    def spark_columns(self) -> StructType:
        """The Spark columns of a value."""
        return StructType([StructField(field.name, spark_type(field.type)) for field in self.columns])

    @property
    def is_record(self) -> bool:
        """True if values have fields; other values have one column, called `value`."""
        return self._decoder.is_record

    def __call__(self, values: pa.Array) -> pa.StructArray:
        """Decode values to structs of the value, null if it cannot be decoded, and its error.

        Raises:
            SerializationError: a value cannot be decoded, and `fail` is set.
        """
        found, errors = self.found(values)
        if self._fail and errors.null_count < len(errors):
            nth = next(nth for nth, error in enumerate(errors) if error.is_valid)
            raise SerializationError(f"a value cannot be decoded: {errors[nth].as_py()}")
        return pa.StructArray.from_arrays([to_storable(found), errors], names=[FOUND, WRONG])

    def found(self, values: pa.Array) -> tuple[pa.StructArray, pa.StringArray]:
        """Decode values to structs and errors; see `BatchDecoder.decode`."""
        return self._decoder.decode(values)

    @property
    def _decoder(self) -> BatchDecoder:
        if self._made is None:
            source = self._reading.source
            reader = reader_of(self._reading.schema, source, depth=self._depth, message=self._message)
            self._made = BatchDecoder(reader, source.schema_by_id)
        return self._made


def decode_column(values: Column, decode: Decode) -> Column:
    """Build a column of structs of `found` and `wrong`."""
    kind = StructType([StructField(FOUND, decode.spark_columns), StructField(WRONG, StringType())])

    return over_arrays(decode, kind, "from_topic")(values)


def from_topic(
    column: Column | str,
    topic: str | None = None,
    bootstrap_servers: Address | None = None,
    *,
    part: Part = "value",
    format: str | None = None,  # noqa: A002 - the word of readers and writers
    subject: str | None = None,
    schema: SchemaChoice | None = None,
    on_error: str = "null",
    schema_options: ReaderSchemaOptions | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> Column:
    """Decode a column of bytes by the schemas that the values' ids name.

    Records with different schemas are converted to the reader schema, which is the newest version of the subject at the
    time of this call. Tasks know the schemas of that time, and ask the registry once for each other id.

    Args:
        column: BINARY, such as `key` and `value` of `kafkalike.spark.read` and the format.
        topic: topic of the records.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        part: `key` or `value`.
        format: `avro`, `protobuf` or `json-schema`, to refuse schemas of other types; None takes any.
        subject: subject of the schemas; None for `<topic>-<part>`.
        schema: reader schema, a `kafkalike.schemas.Schema`; None for the subject's newest.
        on_error: a value that cannot be decoded becomes `null`, or lets the query `fail`. A tombstone is null.
        schema_options: registry, Protobuf message and depth.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.

    Returns:
        A struct of the fields; or a single value if the schema is not a record.

    Raises:
        IllegalArgumentError: bad arguments.
        SchemaRegistryError: the subject has no schema, or the schema cannot be parsed.
    """
    if on_error not in ON_ERROR:
        raise IllegalArgumentError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}")
    if (topic is None) == (subject is None):
        raise IllegalArgumentError("name either topic or subject, to find the schemas")
    options = schema_options or ReaderSchemaOptions()
    _, where = open_with_registry(bootstrap_servers, storage_options, options.registry)
    if format is not None:
        check_format("format", format)
    reader = None if schema is None else schema_of(schema, format)
    reading = reading_of(where, subject or subject_of(topic or "", part), format, reader)
    decode = Decode(reading, depth=options.depth, message=options.message, fail=on_error == "fail")
    values = F.col(column) if isinstance(column, str) else column
    return as_one_column(decode_column(values, decode).getField(FOUND), decode)


def as_one_column(found: Column, decode: Decode) -> Column:
    """Return a decoded value as one column: a struct for a record, otherwise the value itself."""
    return found if decode.is_record else found.getField(decode.columns.names[0])


def over_arrays(work: Callable[[pa.Array], pa.Array], kind: DataType, name: str) -> Callable[[Column], Column]:
    """Turn a function of Arrow arrays into a function of columns, which Spark runs in its Python workers.

    Args:
        work: takes an array and returns an array of the same length. It is pickled.
        kind: the result type.
        name: name in plans.
    """

    def function(batch: pa.Array) -> pa.Array:
        return work(batch)

    function.__name__ = name
    # The stub requires the kind of function; at runtime, `arrow_udf` requires annotations instead.
    untyped: Any = arrow_udf
    made: Callable[[Column], Column] = untyped(function, kind)
    return made


def spark_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of an Arrow type; times of day and durations become microseconds as BIGINT."""
    return from_arrow_type(storable_type(kind))


def storable_type(kind: pa.DataType) -> pa.DataType:
    """Replace the Arrow types that Delta cannot store."""
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(storable_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(storable_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, storable_type(kind.item_type))
    return kind


def to_storable(values: pa.Array) -> pa.Array:
    """Convert an array to types that Delta can store; returns the array itself if it has such types."""
    kind = storable_type(values.type)
    return values if kind == values.type else _cast(values, kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        made = [_cast(values.field(nth), field.type) for nth, field in enumerate(kind)]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            values.offsets, values.keys, _cast(values.items, kind.item_type), type=kind, mask=values.is_null()
        )
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            values.offsets, _cast(values.values, kind.value_type), type=kind, mask=values.is_null()
        )
    return values.cast(kind)


Part = Literal["key", "value"]

FORMATS: Final[Mapping[str, SchemaType]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
"""Formats of records with schemas, and their schema types. `json` is plain JSON, without the id of a schema."""


def check_format(name: str, given: str, *more: str) -> None:
    """Reject an unknown format of records with schemas.

    Args:
        name: the argument.
        given: its value.
        more: other allowed values.

    Raises:
        IllegalArgumentError: the format is unknown.
    """
    known = [*more, *FORMATS]
    if given not in known:
        hint = (
            "; json is plain JSON, without the id of a schema: for that, give create_view or decoded_values "
            "value_format='json' and a schema such as 'id BIGINT'"
        )
        raise IllegalArgumentError(
            f"{name} must be one of {', '.join(known)}, not {given!r}{hint if given == 'json' else ''}"
        )


NO_SUBJECT: Final = 40401


def registry_place(cluster: Cluster, registry: RegistryAddress | None) -> RegistryLocation:
    """Return the registry of a cluster, or another one.

    Args:
        cluster: opened.
        registry: None for the cluster's own; a URL, or settings for `open_registry`.

    Raises:
        KafkaConfigurationError: the settings do not name a registry.
    """
    own = OWN + cluster.root
    settings = {"url": own} if registry is None else {"url": registry} if isinstance(registry, str) else dict(registry)
    is_own = settings.get("url") in {OWN, own}
    if is_own:
        settings["url"] = own
    where = RegistryLocation(tuple(sorted(settings.items())), cluster.store.tasks.sent_options() if is_own else None)
    where.open()
    return where


def subject_of(topic: str, part: Part) -> str:
    """Return the subject of a topic's keys or values, by Confluent's default."""
    return f"{topic}-{part}"


def schema_of(given: object, kind: str | None = None) -> Schema:
    """Return a user's schema: `kafkalike.schemas.Schema`, Confluent's, or with a format its text.

    Raises:
        IllegalArgumentError: the argument is not a schema.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str) and kind is not None:
        return Schema(FORMATS[kind], given)
    try:
        return read_value(body_of(given))
    except TypeError:
        raise IllegalArgumentError(f"a kafkalike.schemas.Schema is needed, not {given!r}") from None


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """Schemas to read the keys or values of a topic."""

    schema: Schema
    """Schema of the reader, to which values are converted."""
    id: int | None
    """Its id, if it is the subject's latest schema."""
    source: PreloadedSchemas


def reading_of(
    where: RegistryLocation, subject: str, kind: str | None = None, schema: Schema | None = None
) -> ReaderSchema:
    """Return the schemas to read the records of a subject.

    Args:
        where: the registry.
        subject: the subject.
        kind: required format of the schema, from `FORMATS`; None for any.
        schema: the reader schema; None for the newest version of the subject.

    Raises:
        SchemaRegistryError: 40401, the subject has no schema.
        IllegalArgumentError: its schemas are of another type.
    """
    number = None
    if schema is None:
        found = where.open().latest(subject)
        if found is None:
            raise SchemaRegistryError(404, NO_SUBJECT, f"Subject '{subject}' not found.")
        schema, number = found.schema, found.id
    if kind is not None and schema.type != FORMATS[kind]:
        raise IllegalArgumentError(f"the schemas of {subject} are of type {schema.type}, not {FORMATS[kind]}")
    return ReaderSchema(schema, number, PreloadedSchemas.of(where, subject, [schema]))


def open_with_registry(
    bootstrap_servers: Address | None,
    storage_options: StorageOptionsLike | None,
    registry: RegistryAddress | None,
) -> tuple[Cluster, RegistryLocation]:
    """Open a cluster and a registry."""
    cluster = connect(bootstrap_servers, storage_options, access="spark")
    return cluster, registry_place(cluster, registry)
