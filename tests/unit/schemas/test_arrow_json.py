"""JSON values as Arrow columns, by a JSON Schema."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from tests.tools.avro_cases import framed
from tests.tools.schemas import SchemasInMemory


def decoded(schema: Any, *values: Any, depth: int = 3) -> tuple[list[Any], list[str | None], pa.Schema]:
    source = SchemasInMemory()
    known = Schema("JSON", json.dumps(schema))
    number = source.register("t-value", known)
    found = BatchDecoder(reader_of(known, source, depth=depth), source.schema_by_id)
    plain = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    rows, errors = found.decode(pa.array([framed(number, value) for value in plain], pa.binary()))
    rows.validate(full=True)
    return rows.to_pylist(), errors.to_pylist(), found.columns


def of(inner: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": inner}}


@pytest.mark.parametrize(
    ("inner", "kind", "value", "shown"),
    [
        ({"type": "integer"}, pa.int64(), 1.0, 1),
        ({"type": "number"}, pa.float64(), 1, 1.0),
        ({"type": "boolean"}, pa.bool_(), True, True),
        ({"type": "string"}, pa.string(), "é", "é"),
        ({"type": "string", "format": "date"}, pa.date32(), "2026-01-02", date(2026, 1, 2)),
        (
            {"type": "string", "format": "date-time"},
            pa.timestamp("us", "UTC"),
            "2026-01-02T03:04:05+01:00",
            datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
        ),
        ({"type": ["null", "integer"]}, pa.int64(), None, None),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, pa.string(), "x", "x"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, pa.string(), "x", '"x"'),
        ({"type": ["integer", "string"]}, pa.string(), 7, "7"),
        ({}, pa.string(), {"a": [1]}, '{"a":[1]}'),
        (True, pa.string(), 1, "1"),
        ({"enum": ["A", "B"]}, pa.string(), "A", "A"),
        ({"const": 3}, pa.string(), 3, "3"),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(pa.int64()), [1, 2], [1, 2]),
        ({"type": "array"}, pa.string(), [1, "a"], '[1,"a"]'),
        ({"type": "object"}, pa.string(), {"a": 1}, '{"a":1}'),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            pa.map_(pa.string(), pa.int64()),
            {"a": 1},
            [("a", 1)],
        ),
        (of({"type": "integer"}), pa.struct([("f", pa.int64())]), {"f": 1, "more": 2}, {"f": 1}),
        (
            {"allOf": [of({"type": "integer"}), {"properties": {"g": {"type": "string"}}}]},
            pa.struct([("f", pa.int64()), ("g", pa.string())]),
            {"g": "x"},
            {"f": None, "g": "x"},
        ),
    ],
)
def test_types(inner: Any, kind: pa.DataType, value: Any, shown: Any) -> None:
    """Those of JSON Schema, and a text of JSON where a value may be of several."""
    rows, errors, columns = decoded(of(inner), {"f": value}, {})

    assert columns == pa.schema([("f", kind)])
    assert (rows, errors) == ([{"f": shown}, {"f": None}], [None, None])


@pytest.mark.parametrize(
    ("inner", "value"),
    [
        ({"type": "integer"}, b'{"f": 1.5}'),
        ({"type": "integer"}, b'{"f": true}'),
        ({"type": "integer"}, b'{"f": 9223372036854775808}'),
        ({"type": "integer"}, b'{"f": 1e999}'),
        ({"type": "number"}, b'{"f": "1"}'),
        ({"type": "number"}, b'{"f": NaN}'),
        ({"type": "string"}, b'{"f": 1}'),
        ({"type": "string", "format": "date"}, b'{"f": "tomorrow"}'),
        ({"type": "array", "items": {"type": "string"}}, b'{"f": "abc"}'),
        ({"type": "array", "items": {"type": "string"}}, b'{"f": {}}'),
        ({"type": "array", "items": {"type": "string"}}, b'{"f": ""}'),
        ({}, b'{"f": [1e999]}'),
        ({"type": "string", "format": "date-time"}, b'{"f": "0001-01-01T00:00:00+14:00"}'),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, b'{"f": [1]}'),
        (of({}), b'{"f": "x"}'),
        ({"type": "string"}, b"[1]"),
        ({"type": "string"}, b"{"),
        ({"type": "string"}, b""),
        ({"type": "string"}, b'{"f": "\xff"}'),
        ({"type": "integer"}, b"[" * 100_000),
        ({"type": "integer"}, b'{"f": ' + b"9" * 5_000 + b"}"),
    ],
)
def test_a_bad_value_takes_no_other_along(inner: Any, value: bytes) -> None:
    """It is null, and has a text that says why."""
    rows, errors, _ = decoded(of(inner), {}, value, {})

    assert rows == [{"f": None}, None, {"f": None}]
    assert [error is None for error in errors] == [True, False, True]


def test_what_is_no_object_has_one_column() -> None:
    """It is called value."""
    assert decoded({"type": "array", "items": {"type": "integer"}}, [1], [])[0] == [{"value": [1]}, {"value": []}]


NODE = {
    "$ref": "#/definitions/node",
    "definitions": {
        "node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/definitions/node"}}}
    },
}


def test_a_schema_in_itself_has_columns_to_its_depth() -> None:
    """What lies deeper is left out."""
    value = {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": {"v": 4}}}}

    assert decoded(NODE, value, depth=2)[0] == [{"v": 1, "next": {"v": 2}}]


def test_references_to_other_schemas() -> None:
    """By the name of the reference."""
    source = SchemasInMemory()
    source.register("item", Schema("JSON", json.dumps({"definitions": {"n": {"type": "integer"}}})))
    order = Schema("JSON", json.dumps(of({"$ref": "item.json#/definitions/n"})), (Reference("item.json", "item", 1),))

    assert reader_of(order, source).columns == pa.schema([("f", pa.int64())])


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        '{"properties": {"f": {"$ref": "#/nowhere"}}}',
        '{"properties": {"f": {"$ref": "other.json"}}}',
        '{"$ref": "#"}',
        '{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}',
    ],
)
def test_what_is_no_schema_is_refused(schema: str) -> None:
    """With a named error."""
    with pytest.raises(InvalidSchemaError):
        reader_of(Schema("JSON", schema), SchemasInMemory())
