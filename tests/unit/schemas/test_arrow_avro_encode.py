"""Arrow columns as Avro values: fastavro reads what was meant, and the bytes are those that it writes itself."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from tests.tools.avro_cases import Cases, avro, text_of
from tests.tools.effort import seeds
from tests.tools.schemas import SchemasInMemory


def encoded(schema: Any, values: pa.Array) -> list[bytes | None]:
    source = SchemasInMemory()
    known = Schema("AVRO", text_of(schema))
    encoder = BatchEncoder(known, source.register("t-value", known), source, values.type, depth=3)
    return list(encoder.encode(values).to_pylist())


@pytest.mark.parametrize("seed", seeds(150, 25))
def test_the_bytes_are_those_that_fastavro_writes(seed: int) -> None:
    """Random schemas with every type; decimals, which may be written longer than needed, come back as they were."""
    cases = Cases(Random(seed))
    schema = cases.record()
    pairs = [cases.value(schema) for _ in range(cases.random.choice([1, 7, 40]))]
    source = SchemasInMemory()
    known = Schema("AVRO", text_of(schema))
    source.register("t-value", known)
    decoder = BatchDecoder(reader_of(known, source), source.schema_by_id)
    written = [avro(schema, pair[0]) for pair in pairs]
    columns, _ = decoder.decode(pa.array([None, *written, None], pa.binary()))

    found = encoded(schema, columns[1:])

    if '"decimal"' not in known.text:
        assert found == [*written, None]
    assert decoder.decode(pa.array([None, *found], pa.binary()))[0].equals(columns)


def record(*fields: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields],
    }


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int", pa.array([1], pa.int64()), 1),
        ("long", pa.array([1], pa.int8()), 1),
        ("float", pa.array([0.5], pa.float64()), 0.5),
        ("double", pa.array([2], pa.int32()), 2.0),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.array([MOMENT], pa.timestamp("us", "Europe/Berlin")),
            MOMENT,
        ),
        ({"type": "int", "logicalType": "time-millis"}, pa.array([5_000], pa.int64()), 5),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, pa.array([1], pa.int64()), b"\x64"),
        (
            {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 4},
            pa.array([Decimal(-1)]),
            b"\xff" * 3,
        ),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"ab"], pa.binary(2)), b"ab"),
        (["null", "string"], pa.array(["x"]), "x"),
        (["int", "null"], pa.array([None], pa.int32()), None),
        ({"type": "map", "values": "int"}, pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), {"a": 1}),
    ],
)
def test_columns_of_near_types_are_taken(kind: Any, values: pa.Array, expected: Any) -> None:
    """Numbers of other sizes, and times of other units."""
    bare = {k: v for k, v in kind.items() if k != "logicalType"} if isinstance(expected, bytes) else kind

    made = encoded(record(("f", kind)), pa.StructArray.from_arrays([values], ["f"]))

    written = avro(record(("f", bare)), {"f": expected})
    assert made == [written]


def test_fields_that_columns_lack_have_their_default_or_null() -> None:
    """Order is the schema's."""
    schema = record(
        ("a", "int"), ("b", {"type": "array", "items": "int"}, [1]), ("c", ["null", "string"]), ("d", "int")
    )

    made = encoded(schema, pa.array([{"d": 2, "a": 1}]))

    assert made == [avro(schema, {"a": 1, "b": [1], "c": None, "d": 2})]


@pytest.mark.parametrize(
    ("schema", "value", "error"),
    [
        (record(("f", "int")), {"f": 1, "g": 2}, "has g, which record R does not have"),
        (record(("f", "int"), ("g", "int")), {"f": 1}, "g is missing, and has no default"),
        (record(("f", "int")), {"f": "x"}, "f is string, and the schema has int"),
        (record(("f", "string")), {"f": 1}, "f is int64, and the schema has string"),
        (record(("f", "int")), {"f": None}, "f is null"),
        (record(("f", ["int", "string"])), {"f": 1}, "the schema has a union"),
        (record(("f", record(("g", "int")))), {"f": 1}, "f is int64, and the schema has record R"),
        (record(("f", "int")), {"f": 1 << 31}, "f is not of the schema"),
        (record(("f", {"type": "enum", "name": "E", "symbols": ["A"]})), {"f": "B"}, "enum E has no symbol 'B'"),
        (record(("f", {"type": "fixed", "name": "F", "size": 2})), {"f": b"a"}, "fixed F has 2 bytes"),
        (
            record(("f", {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"})),
            {"f": "not one"},
            "f is not of the schema",
        ),
        (
            record(("f", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})),
            {"f": Decimal(1000)},
            "f is not of the schema",
        ),
    ],
)
def test_what_does_not_fit_is_refused(schema: Any, value: Any, error: str) -> None:
    """With the field's name."""
    values = pa.array([value])
    if value["f"] is None:
        values = pa.array([value], pa.struct([("f", pa.int32())]))
    text = text_of(schema).replace('"name": "R", "fields": [{"name": "g"', '"name": "S", "fields": [{"name": "g"')

    with pytest.raises(SerializationError, match=error.replace("record R", "record [RS]")):
        BatchEncoder(Schema("AVRO", text), 1, SchemasInMemory(), values.type, depth=3).encode(values)
