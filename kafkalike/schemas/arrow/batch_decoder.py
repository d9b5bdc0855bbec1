"""Decode a batch of records with schemas into structs of the reader's columns, with an error text per bad record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.errors import IllegalArgumentError, InvalidSchemaError, SchemaRegistryError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.avro_plan import AvroReader
from kafkalike.schemas.arrow.column_reader import ColumnReader, UnmatchedError, ValueReader
from kafkalike.schemas.arrow.cursor import LARGEST_BATCH, Numbers, TooLargeError
from kafkalike.schemas.schema_source import SchemaSource

HEAD: Final = 5
"""Bytes before the payload: a zero byte and the schema id."""

NOT_FRAMED: Final = "the value does not begin with a zero and the id of a schema"
NOT_FOUND: Final = 404
TOO_LARGE: Final = "the value's columns are too large"


class BatchDecoder:
    """Decodes batches of values. Not thread-safe.

    Each value is read with the schema of its id and converted to the columns of the reader's schema. A value that
    cannot be read becomes null, with an error text; other values are unaffected.
    """

    def __init__(self, reader: ColumnReader, schema_of: Callable[[int], Schema]) -> None:
        """Create a decoder.

        Args:
            reader: converts values to columns; see `reader_of`.
            schema_of: returns the schema of an id, and is called once per id. `SchemaRegistryError` with status 404
                marks an unknown id; other errors fail the batch.
        """
        self._reader = reader
        self._schema_of = schema_of
        self._readings: dict[int, ValueReader | str] = {}
        self.columns: pa.Schema = reader.columns
        self.is_record = reader.is_record
        self._kind = pa.struct(list(reader.columns))

    def decode(self, values: pa.Array) -> tuple[pa.StructArray, pa.StringArray]:
        """Decode values.

        Args:
            values: an array of BINARY; null is a tombstone.

        Returns:
            A struct of the columns per value, null for tombstones and for unreadable values; and an array of error
            texts, null for readable values.

        Raises:
            OSError, KafkaError: the registry could not be reached.
        """
        if values.nbytes > LARGEST_BATCH and len(values) > 1:
            return self._halves(values)
        if pa.types.is_large_binary(values.type):
            values = values.cast(pa.binary())
        try:
            return self._decoded(values)
        except TooLargeError:
            if len(values) > 1:
                return self._halves(values)
            return pa.nulls(1, self._kind), pa.array([TOO_LARGE], pa.string())

    def _halves(self, values: pa.Array) -> tuple[pa.StructArray, pa.StringArray]:
        half = len(values) // 2
        low, high = self.decode(values[:half]), self.decode(values[half:])
        return pa.concat_arrays([low[0], high[0]]), pa.concat_arrays([low[1], high[1]])

    def _decoded(self, values: pa.Array) -> tuple[pa.StructArray, pa.StringArray]:
        data, starts, ends = _spans(values)
        errors: dict[int, str] = {}
        there = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        framed = there & (ends - starts >= HEAD)
        framed[framed] = data[starts[framed]] == 0
        errors.update(dict.fromkeys(np.flatnonzero(there & ~framed).tolist(), NOT_FRAMED))
        rows = np.flatnonzero(framed)
        ids = _ids(data, starts[rows])
        pieces, places = [], []
        alike = len(ids) > 0 and bool((ids == ids[0]).all())
        for number in [int(ids[0])] if alike else np.unique(ids).tolist():
            mine = rows if alike else rows[ids == number]
            reading = self._reading(number)
            if isinstance(reading, str):
                errors.update(dict.fromkeys(mine.tolist(), reading))
                continue
            found, problems = reading(data, starts[mine] + HEAD, ends[mine])
            good = np.ones(len(mine), np.bool_)
            for nth, problem in problems.items():
                errors[int(mine[nth])] = problem
                good[nth] = False
            pieces.append(found if good.all() else found.filter(pa.array(good)))
            places.append(mine[good])
        return self._placed(pieces, places, len(values)), _texts(errors, len(values))

    def _placed(self, pieces: list[pa.StructArray], places: list[Numbers], count: int) -> pa.StructArray:
        """Merge the structs of several schemas into the order of their values."""
        if len(pieces) == 1 and len(pieces[0]) == count:
            return pieces[0]
        chosen = np.full(count, -1, np.int64)
        first = 0
        for where in places:
            chosen[where] = np.arange(first, first + len(where))
            first += len(where)
        if not first:
            return pa.nulls(count, self._kind)
        return pa.concat_arrays(pieces).take(pa.array(chosen, mask=chosen < 0))

    def _reading(self, number: int) -> ValueReader | str:
        """Return the reader of a schema's values, or the reason why they cannot be read."""
        known = self._readings.get(number)
        if known is None:
            try:
                schema = self._schema_of(number)
            except SchemaRegistryError as cause:
                if cause.http_status_code != NOT_FOUND:
                    raise
                # Not cached: the next batch asks the registry again.
                return f"schema {number}: {cause.error_message}"
            try:
                known = self._reader.of(schema)
            except UnmatchedError as cause:
                known = f"schema {number}: {cause}"
            except InvalidSchemaError as cause:
                known = f"schema {number}: {cause.error_message}"
            self._readings[number] = known
        return known


def _spans(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Numbers, Numbers]:
    """Return the bytes of an array of BINARY, and the start and end of each element."""
    _, offsets, plain = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if not len(values):
        edges = np.zeros(1, np.int64)
    data = np.frombuffer(plain or b"", np.uint8)[edges[0] : edges[-1]]
    edges = edges - edges[0]
    return data, edges[:-1], edges[1:]


def _ids(data: npt.NDArray[np.uint8], starts: Numbers) -> npt.NDArray[np.uint32]:
    """Return the schema ids of framed values."""
    if not len(starts):
        return np.empty(0, np.uint32)
    # A view with a number at every byte, without a copy.
    numbers: Numbers = np.ndarray((len(data) - HEAD + 2,), ">u4", data, strides=(1,))
    found: npt.NDArray[np.uint32] = numbers[starts + 1].astype(np.uint32)
    return found


def _texts(errors: dict[int, str], count: int) -> pa.StringArray:
    if not errors:
        return pa.nulls(count, pa.string())
    return pa.array([errors.get(row) for row in range(count)], pa.string())


DEPTH: Final = 3
"""Default number of times that a type may be nested in itself."""


def reader_of(schema: Schema, source: SchemaSource, *, depth: int = DEPTH, message: str | None = None) -> ColumnReader:
    """Return a reader that converts values to the columns of a schema.

    Args:
        schema: the reader's schema.
        source: looks up the schemas that it references.
        depth: how many times a type may be nested in itself; deeper fields are left out.
        message: full name of the Protobuf message; None for the first one in the file.

    Raises:
        IllegalArgumentError: `depth` is below 1, or the schema has no such message.
        InvalidSchemaError: the schema is invalid.
        SchemaRegistryError: a referenced schema is not registered.
    """
    if depth < 1:
        raise IllegalArgumentError(f"depth must be at least 1, not {depth}")
    if message is not None and schema.type != "PROTOBUF":
        raise IllegalArgumentError(f"message is only valid for Protobuf schemas, not {schema.type}")
    match schema.type:
        case "AVRO":
            return AvroReader(schema, source, depth)
        case "PROTOBUF":
            require_module("google.protobuf", "Columns of Protobuf")
            from kafkalike.schemas.arrow.protobuf_columns import ProtobufReader

            return ProtobufReader(schema, source, depth, message)
        case "JSON":
            require_module("jsonschema", "JSON schemas")
            from kafkalike.schemas.arrow.json_columns import JsonReader

            return JsonReader(schema, source, depth)
    raise IllegalArgumentError(f"{schema.type!r} is not a schema type: use AVRO, PROTOBUF or JSON")
