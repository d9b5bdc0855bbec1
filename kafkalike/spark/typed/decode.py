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
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, SchemaRegistryError, SerializationError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.batch_decoder import DEPTH, BatchDecoder, reader_of
from kafkalike.schemas.confluent_types import body_of, read_value
from kafkalike.schemas.factory import OWN, SentSchemas, Where
from kafkalike.spark.call_options import ReaderSchemaOptions, RegistryAddress, SchemaChoice

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


FOUND: Final = "found"
WRONG: Final = "wrong"
ON_ERROR: Final = ("null", "fail")


class Decode:
    """Decodes arrays of values: what a task does.

    It is pickled with the schemas that are known, not with what is made of them.

    Args:
        reading: schemas.
        depth: how often a type may stand in itself.
        message: a Protobuf message's name.
        fail: whether a value that cannot be decoded ends the job.
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
        """The columns of a value, as Arrow has them.

        Raises:
            SchemaRegistryError, IllegalArgumentError: see `reader_of`.
        """
        return self._decoder.columns

    @property
    def spark_columns(self) -> StructType:
        """The same as Spark has them."""
        return StructType([StructField(field.name, spark_type(field.type)) for field in self.columns])

    @property
    def is_record(self) -> bool:
        """Whether values have fields; else they are one thing, whose column is called `value`."""
        return self._decoder.is_record

    def __call__(self, values: pa.Array) -> pa.StructArray:
        """Structs of what was found, null where nothing was, and what was wrong.

        Raises:
            SerializationError: something was, and this is to fail.
        """
        found, errors = self.found(values)
        if self._fail and errors.null_count < len(errors):
            nth = next(nth for nth, error in enumerate(errors) if error.is_valid)
            raise SerializationError(f"a value cannot be decoded: {errors[nth].as_py()}")
        return pa.StructArray.from_arrays([to_storable(found), errors], names=[FOUND, WRONG])

    def found(self, values: pa.Array) -> tuple[pa.StructArray, pa.StringArray]:
        """See `BatchDecoder.decode`."""
        return self._decoder.decode(values)

    @property
    def _decoder(self) -> BatchDecoder:
        if self._made is None:
            source = self._reading.source
            reader = reader_of(self._reading.schema, source, depth=self._depth, message=self._message)
            self._made = BatchDecoder(reader, source.schema_by_id)
        return self._made


def decode_column(values: Column, decode: Decode) -> Column:
    """A struct of `found` and `wrong` for each of a column's values."""
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
    """The values of a column of bytes, decoded by the schemas that their ids name.

    Records that were written with different schemas come to one type: that of the reader's schema, which is the newest
    version of the subject at the time of this call. Tasks know the schemas of then, and ask the registry once for each
    other id that they meet.

    Args:
        column: BINARY, as `kafkalike.spark.read` and the formats have `key` and `value`.
        topic: whose records they are.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        part: `key` or `value`.
        format: `avro`, `protobuf` or `json`, to refuse schemas of other types; None takes any.
        subject: where the schemas are; None for `<topic>-<part>`.
        schema: the reader's, a `kafkalike.schemas.Schema`; None for the subject's newest.
        on_error: what a value that cannot be decoded does: become `null`, or `fail` the query. A tombstone is null.
        schema_options: registry, Protobuf message and depth.
        storage_options: who asks an object store; see `kafkalike.spark.read`.

    Returns:
        A struct of the fields; of a schema that is no record, what it is.

    Raises:
        IllegalArgumentError: bad arguments.
        SchemaRegistryError: the subject has no schema, or one that cannot be understood.
    """
    if on_error not in ON_ERROR:
        raise IllegalArgumentError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}")
    if (topic is None) == (subject is None):
        raise IllegalArgumentError("one of topic and subject is needed, to find the schemas")
    options = schema_options or ReaderSchemaOptions()
    _, where = open_with_registry(bootstrap_servers, storage_options, options.registry)
    reader = None if schema is None else schema_of(schema, format)
    reading = reading_of(where, subject or subject_of(topic or "", part), format, reader)
    decode = Decode(reading, depth=options.depth, message=options.message, fail=on_error == "fail")
    values = F.col(column) if isinstance(column, str) else column
    return as_one_column(decode_column(values, decode).getField(FOUND), decode)


def as_one_column(found: Column, decode: Decode) -> Column:
    """A value as one column: a record is a struct, anything else is itself."""
    return found if decode.is_record else found.getField(decode.columns.names[0])


def over_arrays(work: Callable[[pa.Array], pa.Array], kind: DataType, name: str) -> Callable[[Column], Column]:
    """A function of a column, which Spark runs on batches in its Python workers.

    Args:
        work: gets an array and gives one of the same length. It is pickled.
        kind: the type of what it gives.
        name: what plans show.
    """

    def function(batch: pa.Array) -> pa.Array:
        return work(batch)

    function.__name__ = name
    # Its stub wants the kind of function, and it itself the annotations instead.
    untyped: Any = arrow_udf
    made: Callable[[Column], Column] = untyped(function, kind)
    return made


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type. Times of day and durations are microseconds as BIGINT: Delta has no type."""
    return from_arrow_type(storable_type(kind))


def storable_type(kind: pa.DataType) -> pa.DataType:
    """An Arrow type without those that Delta cannot store."""
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
    """An array of a type of which Delta can store all; the same one where it is that already."""
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

FORMATS: Final[Mapping[str, SchemaType]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""Formats of records with schemas, and the types of these."""

NO_SUBJECT: Final = 40401


def registry_place(cluster: Cluster, registry: RegistryAddress | None) -> Where:
    """The registry of a cluster, or another one.

    Args:
        cluster: opened.
        registry: None for the cluster's own; a URL, or the settings that `open_registry` takes.

    Raises:
        KafkaConfigurationError: it names no registry.
    """
    own = OWN + cluster.root
    settings = {"url": own} if registry is None else {"url": registry} if isinstance(registry, str) else dict(registry)
    is_own = settings.get("url") in {OWN, own}
    if is_own:
        settings["url"] = own
    where = Where(tuple(sorted(settings.items())), cluster.store.tasks.sent_options() if is_own else None)
    where.open()
    return where


def subject_of(topic: str, part: Part) -> str:
    """The subject of a topic's keys or values, by Confluent's default."""
    return f"{topic}-{part}"


def schema_of(given: object, kind: str | None = None) -> Schema:
    """A schema that a user gave: `kafkalike.schemas.Schema`, Confluent's, or with a format its text.

    Raises:
        IllegalArgumentError: it is none.
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
    """How the keys or values of a topic are read."""

    schema: Schema
    """The reader's."""
    id: int | None
    """Its id, where it is the subject's latest."""
    source: SentSchemas


def reading_of(where: Where, subject: str, kind: str | None = None, schema: Schema | None = None) -> ReaderSchema:
    """What reads the records of a subject.

    Args:
        where: the registry.
        subject: the subject.
        kind: one of `FORMATS` that the schema must be of; None for any.
        schema: the reader's schema; None for the newest version of the subject.

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
    return ReaderSchema(schema, number, SentSchemas.of(where, subject, [schema]))


def open_with_registry(
    bootstrap_servers: Address | None,
    storage_options: StorageOptionsLike | None,
    registry: RegistryAddress | None,
) -> tuple[Cluster, Where]:
    """The cluster and the registry that a user named."""
    cluster = connect(bootstrap_servers, storage_options, access="spark")
    return cluster, registry_place(cluster, registry)
