"""Arrow columns as JSON and Protobuf values: what is read of them is what was written."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from kafkalike.schemas.arrow.derived_schema import derive_schema
from tests.tools.schemas import SchemasInMemory


def both_ways(schema: Schema, values: pa.Array) -> tuple[list[bytes | None], list[Any]]:
    source = SchemasInMemory()
    number = source.register("t-value", schema)
    written = BatchEncoder(schema, number, source, values.type, depth=3).encode(values)
    found, errors = BatchDecoder(reader_of(schema, source), source.schema_by_id).decode(written)
    assert errors.null_count == len(errors), errors
    return written.to_pylist(), found.to_pylist()


def json_schema(**properties: Any) -> Schema:
    return Schema("JSON", json.dumps({"type": "object", "properties": properties}))


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)


def test_json_of_columns() -> None:
    """Nulls are left out, texts of any JSON are that JSON."""
    schema = json_schema(
        id={"type": "integer"},
        at={"type": "string", "format": "date-time"},
        day={"type": "string", "format": "date"},
        any={},
        items={"type": "array", "items": {"type": "object", "properties": {"n": {"type": ["null", "number"]}}}},
        by={"type": "object", "additionalProperties": {"type": "string"}},
    )
    row = {
        "id": 1,
        "at": MOMENT,
        "day": date(2026, 1, 2),
        "any": '{"a":[1]}',
        "items": [{"n": 0.5}, None],
        "by": [("a", "b")],
    }
    kind = reader_of(schema, SchemasInMemory()).columns
    full = pa.array([row, dict.fromkeys(row), None], pa.struct(list(kind)))

    with pytest.raises(SerializationError):
        both_ways(schema, full)
    row["items"] = [{"n": 0.5}, {"n": None}]
    written, read = both_ways(schema, pa.array([row, dict.fromkeys(row), None], full.type))

    assert read == [row, dict.fromkeys(row), None]
    assert json.loads((written[0] or b"")[5:])["any"] == {"a": [1]}
    assert (written[1], written[2]) == (b"\0\0\0\0\x01{}", None)


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Color { NONE = 0; RED = 1; }
message Order {
  int64 id = 1; uint64 big = 2; Color color = 3; repeated Color colors = 4; optional string note = 5;
  google.protobuf.Timestamp at = 6; google.protobuf.Duration took = 7; google.protobuf.Int32Value maybe = 8;
  google.protobuf.Value free = 9; map<string, Line> lines = 10; repeated Line more = 11; map<int32, Color> by = 12;
  oneof one { string left = 13; Line right = 14; } bytes raw = 15;
}
message Line { string sku = 1; }
"""


def test_protobuf_of_columns() -> None:
    """Fields that are null are not set."""
    schema = Schema("PROTOBUF", PROTO.replace("message Order", "message Other {} message Order"))
    source = SchemasInMemory()
    number = source.register("t-value", schema)
    reader = reader_of(schema, source, message="Order")
    row = {
        "id": 1,
        "big": Decimal(2**64 - 1),
        "color": "RED",
        "colors": ["RED", "7"],
        "note": "",
        "at": MOMENT,
        "took": None,
        "maybe": 0,
        "free": "[1.0, null]",
        "lines": [("a", {"sku": "x"})],
        "more": [{"sku": ""}],
        "by": [(1, "RED")],
        "left": None,
        "right": {"sku": "r"},
        "raw": b"\xff",
    }
    values = pa.array([row, None], pa.struct(list(reader.columns)))

    written = BatchEncoder(schema, number, source, values.type, depth=3, message="Order").encode(values)

    found, errors = BatchDecoder(reader, source.schema_by_id).decode(written)
    assert (found.to_pylist(), errors.null_count) == ([row, None], 2)
    assert written[0].as_py()[:7] == b"\0\0\0\0\x01\x02\x02"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (json_schema(f={"type": "integer"}), {"f": "x"}),
        (json_schema(f={"type": "integer"}), {"g": 1}),
        (json_schema(f={"type": "object", "properties": {"g": {}}}), {"f": 1}),
        (json_schema(f={"type": "array", "items": {}}), {"f": "x"}),
        (json_schema(f={"type": "integer", "minimum": 3}), {"f": 1}),
        (Schema("PROTOBUF", PROTO), {"nothing": 1}),
        (Schema("PROTOBUF", PROTO), {"id": "x"}),
        (Schema("PROTOBUF", PROTO), {"id": [1]}),
        (Schema("PROTOBUF", PROTO), {"color": "BLUE"}),
        (Schema("PROTOBUF", PROTO), {"colors": "RED"}),
        (Schema("PROTOBUF", PROTO), {"right": "x"}),
        (Schema("PROTOBUF", PROTO), {"more": [None, {"sku": "x"}]}),
        (Schema("PROTOBUF", PROTO), {"lines": "x"}),
        (Schema("PROTOBUF", PROTO), {"free": "{"}),
    ],
)
def test_what_does_not_fit_is_refused(schema: Schema, value: Any) -> None:
    """With a named error."""
    with pytest.raises(SerializationError):
        both_ways(schema, pa.array([value]))


TYPE = pa.struct(
    [
        ("b", pa.bool_()),
        ("i", pa.int16()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.struct([("x", pa.float32())]))),
        ("m", pa.map_(pa.string(), pa.list_(pa.string()))),
    ]
)


def test_a_schema_of_columns_reads_what_it_writes() -> None:
    """Everything may be null, and the names of records in it are different."""
    avro_only = pa.struct([*TYPE, ("dec", pa.decimal128(9, 2)), ("local", pa.timestamp("us")), ("raw", pa.binary())])
    row = {"b": True, "i": 3, "d": date(2026, 1, 2), "t": MOMENT, "l": [{"x": 0.5}, {"x": None}], "m": [("k", ["v"])]}
    more = {"dec": Decimal("1.50"), "local": MOMENT.replace(tzinfo=None), "raw": b"\0"}

    avro = both_ways(derive_schema(avro_only, "a.b-value", "AVRO"), pa.array([{**row, **more}, {}], avro_only))
    plain = both_ways(derive_schema(TYPE, "a.b-value", "JSON"), pa.array([row, {}], TYPE))

    assert avro[1] == [{**row, **more}, dict.fromkeys(avro_only.names)]
    assert plain[1] == [row, dict.fromkeys(TYPE.names)]


def test_a_protobuf_schema_of_columns_reads_what_it_writes() -> None:
    """Numbers come in the order of names, whatever that of the columns is; only lists and maps cannot be null."""
    line = pa.struct([("sku", pa.string()), ("line_message", pa.int8())])
    kind = pa.struct(
        [
            ("raw", pa.binary()),
            ("b", pa.bool_()),
            ("f", pa.float64()),
            ("message", pa.string()),
            ("t", pa.timestamp("us", "UTC")),
            ("took", pa.duration("us")),
            ("line", line),
            ("lines", pa.list_(line)),
            ("line_message", pa.int16()),
            ("m", pa.map_(pa.string(), line)),
            ("counts", pa.map_(pa.int64(), pa.int64())),
        ]
    )
    one = {"sku": "x", "line_message": 7}
    row = {"raw": b"\xff", "b": False, "f": 0.0, "message": "", "t": MOMENT, "took": timedelta(microseconds=-1),
           "line": one, "lines": [one], "line_message": 3, "m": [("k", one)], "counts": [(1, 2)]}  # fmt: skip

    schema = derive_schema(kind, "a.b-value", "PROTOBUF")
    _, read = both_ways(schema, pa.array([row, {}], kind))

    assert read == [row, {**dict.fromkeys(kind.names), "lines": [], "m": [], "counts": []}]
    assert schema == derive_schema(pa.struct(list(reversed(kind))), "a.b-value", "PROTOBUF")
    assert "message a_b_value {" in schema.text
    assert "optional bool b = 1;" in schema.text


@pytest.mark.parametrize(
    ("kind", "schema_type"),
    [
        (pa.struct([("a b", pa.int32())]), "AVRO"),
        (pa.struct([("a", pa.month_day_nano_interval())]), "AVRO"),
        (pa.struct([("a", pa.binary())]), "JSON"),
        (pa.struct([("a", pa.decimal128(3, 1))]), "JSON"),
        (pa.struct([("a", pa.date32())]), "PROTOBUF"),
        (pa.struct([("a", pa.list_(pa.list_(pa.int32())))]), "PROTOBUF"),
        (pa.struct([("a", pa.map_(pa.float64(), pa.int32()))]), "PROTOBUF"),
        (pa.struct([("a", pa.decimal128(3, 1))]), "PROTOBUF"),
        (pa.struct([("a", pa.timestamp("us"))]), "PROTOBUF"),
        (pa.struct([("é", pa.int32())]), "PROTOBUF"),
        (pa.struct([("1a", pa.int32())]), "PROTOBUF"),
        (pa.int32(), "PROTOBUF"),
    ],
)
def test_columns_that_no_schema_has_words_for(kind: pa.DataType, schema_type: Any) -> None:
    """Are refused, by their names."""
    name = f"column {kind[0].name}" if pa.types.is_struct(kind) else "int32"
    with pytest.raises(IllegalArgumentError, match=name):
        derive_schema(kind, "t", schema_type)


def test_a_refusal_names_the_whole_path_of_a_column() -> None:
    kind = pa.struct([("a", pa.list_(pa.struct([("b", pa.map_(pa.string(), pa.month_day_nano_interval()))])))])

    for schema_type, path in (("AVRO", "a.items.b.values"), ("JSON", "a.items.b.values"), ("PROTOBUF", "a.b")):
        with pytest.raises(IllegalArgumentError, match=f"column {path}: .* has no type"):
            derive_schema(kind, "t", schema_type)  # type: ignore[arg-type]


SMALL = pa.struct([("x", pa.int32())])
OTHER = pa.struct([("y", pa.string())])


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("tags", pa.list_(SMALL)), ("tags_item", OTHER)]),
        pa.struct([("tags_item", OTHER), ("tags", pa.list_(SMALL))]),
        pa.struct([("m", pa.map_(pa.string(), SMALL)), ("m_value", OTHER)]),
        pa.struct([("a", pa.struct([("b_c", SMALL)])), ("a_b", pa.struct([("c", OTHER)]))]),
        pa.struct([("a", pa.list_(pa.list_(SMALL))), ("a_item", pa.list_(OTHER)), ("a_item_item", SMALL)]),
        pa.struct([("a", pa.struct([("b", pa.struct([("c_d", SMALL)])), ("b_c", pa.struct([("d", OTHER)]))]))]),
    ],
    ids=["list", "other order", "map", "struct", "lists of lists", "nested"],
)
def test_records_of_an_avro_schema_are_told_apart_where_columns_have_like_names(kind: pa.DataType) -> None:
    """fastavro takes the schema, and what is read is what was written."""
    schema = derive_schema(kind, "t-value", "AVRO")
    rows = pa.array([filled(kind)], kind)

    _, read = both_ways(schema, rows)

    parse_schema(json.loads(schema.text))
    assert read == rows.to_pylist()


def filled(kind: pa.DataType) -> Any:
    """A value with something in every place."""
    if pa.types.is_struct(kind):
        return {field.name: filled(field.type) for field in kind}
    if pa.types.is_map(kind):
        return [("k", filled(kind.item_type))]
    if pa.types.is_list(kind):
        return [filled(kind.value_type)]
    return 7 if kind == pa.int32() else "seven"


def test_names_without_a_clash_stay_as_they_were() -> None:
    """A schema that is registered already does not get another version."""
    text = derive_schema(pa.struct([("tags", pa.list_(SMALL)), ("one", OTHER)]), "t-value", "AVRO").text

    assert "namespace" not in text
    assert '"name": "t_value_tags_item"' in text
    assert '"name": "t_value_one"' in text
