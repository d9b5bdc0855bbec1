"""`from_topic`: decode columns of bytes by the schemas that their ids name.

A function over Arrow batches that Spark runs in its Python workers (decision 035).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.schemas.arrow.batch_decoder import DEPTH, BatchDecoder, reader_of
from kafkalike.spark.call_options import ReaderSchemaOptions, SchemaChoice
from kafkalike.spark.typed.arrow_udf import over_arrays, spark_type, to_storable
from kafkalike.spark.typed.reader_schema import (
    Part,
    ReaderSchema,
    open_with_registry,
    reading_of,
    schema_of,
    subject_of,
)

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
