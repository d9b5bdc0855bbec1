"""Values that pass between columns and schemas: each is the same on both sides, or refused by the name of its place."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest
from google.protobuf import text_format
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from kafkalike.schemas.compatibility.json_compatibility import problems
from kafkalike.schemas.proto.proto_files import build_file
from kafkalike.schemas.serde.avro_codec import AvroCodec
from kafkalike.schemas.serde.json_serde import JsonCodec
from tests.tools.avro_cases import framed
from tests.tools.schemas import SchemasInMemory

NAME: Final = "price"
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the first and the last instant that Python has."""
UUID_TEXT: Final = "0000abcd-0000-0000-0000-00000000000F"


def schema_of(kind: SchemaType, of: Any) -> Schema:
    if kind == "AVRO":
        return Schema(kind, json.dumps({"type": "record", "name": "R", "fields": [{"name": NAME, "type": of}]}))
    if kind == "JSON":
        return Schema(kind, json.dumps({"type": "object", "properties": {NAME: of}}))
    return Schema(kind, of)


def written(schema: Schema, values: pa.Array) -> list[bytes]:
    encoder = BatchEncoder(schema, 1, SchemasInMemory(), pa.struct([(NAME, values.type)]), depth=3)
    made = encoder.encode(pa.StructArray.from_arrays([values], [NAME]))
    return [value[5:] for value in made.to_pylist()]


def read(wrote: Schema, reads: Schema, payload: bytes) -> tuple[Any, str | None]:
    """The columns of a value, and what is wrong with it."""
    decoder = BatchDecoder(reader_of(reads, SchemasInMemory()), {1: wrote}.__getitem__)
    found, errors = decoder.decode(pa.array([framed(1, payload)], pa.binary()))
    return found[0].as_py(), errors[0].as_py()


# --- Avro ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "values"),
    [
        pytest.param("null", pa.array([5]), id="field"),
        pytest.param(["null"], pa.array([5]), id="union"),
        pytest.param({"type": "array", "items": "null"}, pa.array([[5]]), id="items"),
        pytest.param({"type": "map", "values": "null"}, pa.array([[("a", 5)]], pa.map_("string", "int64")), id="map"),
    ],
)
def test_a_value_where_avro_takes_nothing_but_null_is_refused(of: Any, values: pa.Array) -> None:
    with pytest.raises(SerializationError, match=rf"{NAME}.* is not null"):
        written(schema_of("AVRO", of), values)


def test_nulls_where_avro_takes_nothing_but_null_are_written() -> None:
    assert written(schema_of("AVRO", "null"), pa.nulls(1)) == [b""]
    assert written(schema_of("AVRO", ["null"]), pa.nulls(1)) == [b"\0"]


@pytest.mark.parametrize("text", ["nope", UUID_TEXT + "\n", UUID_TEXT[:-1], "{" + UUID_TEXT + "}"])
def test_a_text_that_is_no_uuid_is_refused_as_its_readers_would(text: str) -> None:
    schema = schema_of("AVRO", {"type": "string", "logicalType": "uuid"})

    with pytest.raises(SerializationError, match=f"{NAME}.* is not a UUID"):
        written(schema, pa.array([UUID_TEXT, text]))


def test_a_text_that_is_a_uuid_is_read_as_one() -> None:
    schema = schema_of("AVRO", {"type": "string", "logicalType": "uuid"})
    (payload,) = written(schema, pa.array([UUID_TEXT]))

    assert AvroCodec(schema, SchemasInMemory()).decode(payload) == {NAME: UUID(UUID_TEXT)}


def named(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


def decimal_type(precision: int, scale: int) -> dict[str, Any]:
    return named("bytes", "decimal", precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("values", "precision", "scale"),
    [
        pytest.param(pa.array([Decimal(872)], pa.decimal128(3, 0)), 38, 38, id="few-digits"),
        pytest.param(pa.array([Decimal("-9" + "9" * 18 + ".1")], pa.decimal128(30, 11)), 38, 33, id="many-digits"),
        pytest.param(pa.array([Decimal(1 << 218)], pa.decimal256(76, 0)), 38, 38, id="256-bits-that-become-0"),
        pytest.param(pa.array([(1 << 63) - 1]), 38, 21, id="whole-number"),
    ],
)
def test_a_decimal_that_overflows_the_bits_of_arrow_is_refused(values: pa.Array, precision: int, scale: int) -> None:
    """Arrow multiplies by a power of ten, and what was left of some numbers had digits enough."""
    with pytest.raises(SerializationError, match=NAME):
        written(schema_of("AVRO", decimal_type(precision, scale)), values)


@pytest.mark.parametrize("text", ["0", "9999999999999999999999999999.9999999999", "-0.0000000001", None])
def test_a_decimal_of_all_digits_is_read_as_it_was_written(text: str | None) -> None:
    schema = schema_of("AVRO", ["null", decimal_type(38, 10)])
    value = None if text is None else Decimal(text)
    (payload,) = written(schema, pa.array([value], pa.decimal128(38, 10)))

    assert read(schema, schema, payload) == ({NAME: value}, None)


ALIASED: Final = [
    {"name": "x", "type": "int", "aliases": ["a"], "default": -1},
    {"name": "a", "type": "int", "default": -2},
]


@pytest.mark.parametrize("fields", [ALIASED, ALIASED[::-1]], ids=["alias-first", "name-first"])
def test_a_field_is_read_by_its_name_before_an_alias_as_in_records(fields: list[Any]) -> None:
    wrote = Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}))
    reads = Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))

    assert read(wrote, reads, b"\x02") == ({"x": -1, "a": 1}, None)
    assert AvroCodec(wrote, SchemasInMemory(), reads).decode(b"\x02") == {"x": -1, "a": 1}


def with_default(of: Any, default: Any) -> tuple[Any, str | None]:
    """What is read as a field that was not written."""
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": of, "default": default}]
    wrote = Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields[:1]}))
    return read(wrote, Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields})), b"\x02")


@pytest.mark.parametrize(
    ("of", "default"),
    [
        pytest.param(named("bytes", "decimal", precision=4, scale=2), "\x7f\xff\xff\xff", id="decimal"),
        pytest.param(named("long", "timestamp-millis"), 1 << 62, id="timestamp"),
        pytest.param(named("int", "time-millis"), -5, id="time-below-0"),
        pytest.param(named("int", "time-millis"), 86_400_000, id="time-of-tomorrow"),
        pytest.param(named("long", "time-micros"), 86_400_000_000, id="micros-of-tomorrow"),
        pytest.param("float", 1e300, id="float-beyond-all"),
        pytest.param("float", 16_777_217, id="float-that-is-another"),
        pytest.param("double", 9_007_199_254_740_993, id="double-that-is-another"),
        pytest.param({"type": "array", "items": "float"}, [0.5, 1e300], id="array"),
    ],
)
def test_a_default_that_its_column_cannot_hold_is_an_error_with_the_fields_name(of: Any, default: Any) -> None:
    found, problem = with_default(of, default)

    assert found is None
    assert "the default of b is not a valid " in (problem or "")


@pytest.mark.parametrize(
    ("of", "default", "expected"),
    [
        pytest.param(["float", "double"], 0.1, 0.1, id="wider-of-two"),
        pytest.param(["float", "double"], 1e300, 1e300, id="wider-of-two-large"),
        pytest.param(["int", "long"], 1 << 40, 1 << 40, id="long"),
        pytest.param("float", "-Infinity", -math.inf, id="infinity"),
        pytest.param(["int", "double"], 2.5, {"member0": None, "member1": 2.5}, id="member"),
    ],
)
def test_a_default_that_fits_is_read(of: Any, default: Any, expected: Any) -> None:
    assert with_default(of, default) == ({"a": 1, "b": expected}, None)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_column_that_is_there_twice_is_refused_by_its_name(kind: SchemaType) -> None:
    of = {
        "AVRO": "long",
        "JSON": {"type": "integer"},
        "PROTOBUF": f'syntax = "proto3"; message M {{ int64 {NAME} = 1; }}',
    }
    doubled = pa.struct([(NAME, pa.int64()), (NAME, pa.int64())])

    with pytest.raises(SerializationError, match=f"{NAME} is duplicated"):
        BatchEncoder(schema_of(kind, of[kind]), 1, SchemasInMemory(), doubled, depth=3)


# --- JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["9007199254740993.0", '[1,{"a":9007199254740993.0}]', "-9.007199254740993e15"])
def test_a_whole_number_with_a_point_that_no_double_is_equal_to_is_refused(text: str) -> None:
    with pytest.raises(SerializationError, match=f"{NAME}.*no double equals"):
        written(schema_of("JSON", {}), pa.array([text]))


@pytest.mark.parametrize("text", ["-0.0", "[-0.0]"])
def test_a_zero_below_zero_keeps_its_sign_in_any_json(text: str) -> None:
    schema = schema_of("JSON", {})

    assert written(schema, pa.array([text])) == [f'{{"{NAME}":{text}}}'.encode()]
    assert read(schema, schema, f'{{"{NAME}":{text}}}'.encode()) == ({NAME: text}, None)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "+05:00", "-11:30", "UTC"])
@pytest.mark.parametrize("micros", [FIRST, -5_364_662_400_000_000, 0, LAST])
def test_an_instant_of_any_zone_is_read_back(zone: str, micros: int) -> None:
    """Its local time may lie beyond Python's years, or seconds away from UTC, as all did before 1900."""
    values = pa.array([micros], pa.timestamp("us", zone))
    date_time = schema_of("JSON", {"type": "string", "format": "date-time"})
    message = 'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp price = 1; }'
    for schema in (date_time, schema_of("PROTOBUF", f'syntax = "proto3"; {message}')):
        (payload,) = written(schema, values)
        found, problem = read(schema, schema, payload)

        assert problem is None
        assert pa.scalar(found[NAME], pa.timestamp("us", "UTC")).value == micros


def test_an_instant_below_lists_and_maps_is_written_in_utc() -> None:
    zone = pa.timestamp("us", "Asia/Kolkata")
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    of = {"type": "string", "format": "date-time"}
    schema = schema_of("JSON", {"type": "array", "items": {"type": "object", "additionalProperties": of}})
    values = pa.array([[], [[("a", moment)]], None], pa.list_view(pa.map_(pa.string(), zone))).slice(1)

    assert written(schema, values) == [b'{"price":[{"a":"2026-01-02T00:00:00Z"}]}', b"{}"]


ROOT: Final[dict[str, Any]] = {
    "$id": "http://x.invalid/root.json",
    "type": "object",
    "$defs": {
        "a": {"$id": "sub/a.json", "$anchor": "here", "type": "object", "properties": {"y": {"$ref": "b.json"}}},
        "b": {"$id": "sub/b.json", "type": "integer"},
        "other": {"$id": "sub/sub/b.json", "type": "string"},
    },
}


@pytest.mark.parametrize("reference", ["#/$defs/a", "sub/a.json", "sub/a.json#here"], ids=["pointer", "id", "anchor"])
def test_an_id_that_is_relative_counts_once_behind_a_reference(reference: str) -> None:
    """`sub/` of `sub/` would be another schema."""
    schema = Schema("JSON", json.dumps({**ROOT, "properties": {NAME: {"$ref": reference}}}))
    changed = Schema("JSON", json.dumps({**ROOT, "properties": {NAME: {"properties": {"y": {"type": "integer"}}}}}))

    assert read(schema, schema, b'{"price":{"y":5}}') == ({NAME: {"y": 5}}, None)
    assert JsonCodec(schema, SchemasInMemory()).decode(b'{"price":{"y":5}}') == {NAME: {"y": 5}}
    assert problems(changed, schema, SchemasInMemory().referenced) == []


# --- Protobuf --------------------------------------------------------------------------------

IMPORTS: Final = "".join(
    f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "duration", "wrappers", "struct")
)
E3: Final = "enum E { A = 0; B = 1; C = 2; }"
E2: Final = "enum E { A = 0; B = 1; }"


def proto(text: str) -> Schema:
    version = "2" if "optional" in text or "map<string, E>" in text else "3"
    return Schema("PROTOBUF", f'syntax = "proto{version}"; {IMPORTS} {text}'.replace("G.", "google.protobuf."))


def evolved(wrote: str, reads: str, value: str) -> tuple[Any, str | None]:
    """What is read of a message that Google's library has written."""
    file = build_file(proto(wrote), {})
    message = text_format.Parse(value, GetMessageClass(next(iter(file.message_types_by_name.values())))())
    return read(proto(wrote), proto(reads), b"\0" + message.SerializeToString())


@pytest.mark.parametrize(
    ("wrote", "reads", "value"),
    [
        pytest.param("G.Timestamp a = 1;", "G.Duration a = 1;", "a { seconds: 5 }", id="timestamp-duration"),
        pytest.param("G.Int64Value a = 1;", "G.Timestamp a = 1;", "a { value: 5 }", id="number-timestamp"),
        pytest.param("N a = 1;", "G.Timestamp a = 1;", "a { x: 5 }", id="own-timestamp"),
        pytest.param("G.Timestamp a = 1;", "N a = 1;", "a { seconds: 5 }", id="timestamp-own"),
        pytest.param("G.Struct a = 1;", "G.ListValue a = 1;", "a { fields { key: 'x' } }", id="struct-list"),
        pytest.param("repeated G.Timestamp a = 1;", "repeated G.Duration a = 1;", "a { seconds: 5 }", id="repeated"),
        pytest.param(
            "map<string, G.Timestamp> a = 1;",
            "map<string, G.Duration> a = 1;",
            "a { key: 'x' value { seconds: 5 } }",
            id="map",
        ),
    ],
)
def test_a_message_of_googles_that_became_another_is_an_error(wrote: str, reads: str, value: str) -> None:
    more = "} message N { int64 x = 1; }"
    found, problem = evolved(f"message M {{ {wrote} {more}", f"message M {{ {reads} {more}", value)

    assert found is None
    assert (problem or "").startswith("a: the writer's ")


@pytest.mark.parametrize(
    ("wrote", "reads", "value"),
    [
        pytest.param(
            "message M { int32 a = 1; int32 b = 2; }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "a: 1 b: 2",
            id="plain",
        ),
        pytest.param(
            "message M { N n = 1; } message N { int32 a = 1; oneof p { int32 b = 2; int32 c = 3; } }",
            "message M { N n = 1; } message N { oneof o { int32 a = 1; int32 b = 2; int32 c = 3; } }",
            "n { a: 1 b: 2 }",
            id="below-a-message",
        ),
    ],
)
def test_fields_that_came_into_one_choice_are_an_error_where_both_are_set(wrote: str, reads: str, value: str) -> None:
    assert evolved(wrote, reads, value) == (None, "a and b are set, of which the reader takes one")
    assert evolved(wrote, reads, value.replace("a: 1", ""))[1] is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("optional E e = 1;", "e: C", id="optional"),
        pytest.param("repeated E e = 1; optional int32 x = 2;", "e: A e: C e: B", id="repeated"),
        pytest.param("map<string, E> e = 1;", "e { key: 'x' value: C }", id="map"),
    ],
)
def test_a_number_that_the_readers_closed_enum_drops_is_an_error(field: str, value: str) -> None:
    found, problem = evolved(f"message M {{ {field} }} {E3}", f"message M {{ {field} }} {E2}", value)

    assert found is None
    assert (problem or "").startswith("e: the writer's ")
    assert evolved(f"message M {{ {field} }} {E3}", f"message M {{ {field} }} {E2}", value.replace("C", "B"))[1] is None


def test_a_map_with_nan_beside_a_field_of_another_type_is_read() -> None:
    text = "message M {{ map<string, double> e = 1; {} x = 2; }}"
    found, problem = evolved(text.format("int32"), text.format("int64"), "e { key: 'x' value: nan } x: 1")

    assert problem is None
    assert (found["x"], found["e"][0][0], math.isnan(found["e"][0][1])) == (1, "x", True)
