"""The functions of a typed view's columns, as Spark's Python workers call them: without Spark."""

from __future__ import annotations

import gc
import json
import pickle

import pyarrow as pa
import pytest

from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas import Registry
from kafkalike.schemas import Schema as Shape
from kafkalike.schemas.factory import PreloadedSchemas, RegistryLocation
from kafkalike.spark.typed.decode import FOUND, WRONG, Decode, ReaderSchema
from kafkalike.spark.typed.typed_views import OneColumn, ValueColumns
from tests.tools.avro_cases import avro

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}


def columns(root: str) -> ValueColumns:
    number = Registry(root).register_schema("t-value", Shape(json.dumps(SCHEMA)))
    schema = Schema("AVRO", json.dumps(SCHEMA))
    source = PreloadedSchemas.of(RegistryLocation((("url", f"kafkalike:{root}"),)), "t-value", [schema])
    return ValueColumns(Decode(ReaderSchema(schema, number, source)))


def in_a_worker(made: ValueColumns, *places: int | str) -> list[OneColumn]:
    """The functions, unpickled one after the other where no other one is left."""
    sent = [pickle.dumps(made.function(place)) for place in places]
    gc.collect()
    return [pickle.loads(one) for one in sent]  # noqa: S301 - our own


def values(first: int, count: int) -> pa.Array:
    return pa.array([avro(SCHEMA, {"a": nth, "b": f"b{nth}"}, 1) for nth in range(first, first + count)], pa.binary())


def decode_one(value: bytes) -> int:
    """The first field, a number below 64."""
    return value[5] // 2


@pytest.mark.slow
def test_the_columns_of_a_batch_are_decoded_together(root: str) -> None:
    """Once for each batch, also where batches are parts of one array, or are asked for again."""
    a, wrong = in_a_worker(columns(root), 0, WRONG)
    array = values(0, 6)
    batches = [array, array[:3], array[3:], values(10, 2), array]

    for nth, batch in enumerate(batches, 1):
        assert a(batch).to_pylist() == [decode_one(value) for value in batch.to_pylist()]
        # As a worker does: another object over the same bytes.
        again = pa.RecordBatch.from_arrays([batch], ["_0"]).column(0)
        assert wrong(again).to_pylist() == [None] * len(batch)
        assert a.decoded == wrong.decoded == nth
    assert a(array).to_pylist() == list(range(6))
    assert a(array).to_pylist() == list(range(6))


@pytest.mark.slow
def test_a_damaged_value_is_null_in_all_columns(root: str) -> None:
    """Also in those that stand before the damage."""
    a, b, wrong, whole = in_a_worker(columns(root), 0, 1, WRONG, FOUND)
    good, cut = avro(SCHEMA, {"a": 1, "b": "x"}, 1), avro(SCHEMA, {"a": 2, "b": "y"}, 1)[:-1]
    batch = pa.array([good, cut, None, b"junk"], pa.binary())

    assert a(batch).to_pylist() == [1, None, None, None]
    assert b(batch).to_pylist() == ["x", None, None, None]
    assert [error is None for error in wrong(batch).to_pylist()] == [True, False, True, False]
    assert whole(batch).to_pylist() == [{"a": 1, "b": "x"}, None, None, None]
