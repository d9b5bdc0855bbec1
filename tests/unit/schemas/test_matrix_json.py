"""Columns and types of JSON Schema: a value stands in the JSON exactly, or is refused by the name of its column."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import jsonschema
import pyarrow as pa
import pytest

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from kafkalike.schemas.compatibility.json_compatibility import problems
from tests.tools.avro_cases import framed
from tests.tools.schemas import SchemasInMemory

NAME: Final = "price"
I63: Final = 1 << 63
TYPES: Final[dict[str, Any]] = {
    "any": {},
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "string": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
    "array": {"type": "array", "items": {"type": "integer"}},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "object": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
UTC_TIME: Final = pa.timestamp("us", "UTC")
NAIVE: Final = pa.timestamp("us")
COLUMNS: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(38, 10),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "instant": UTC_TIME,
    "naive": NAIVE,
    "nanos": pa.timestamp("ns", "UTC"),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "array": pa.list_(pa.int32()),
    "map": pa.map_(pa.string(), pa.int32()),
    "map of numbers": pa.map_(pa.int32(), pa.int32()),
    "struct": pa.struct([("x", pa.int32())]),
}
NUMBERS: Final = {"int", "float", "decimal"}
FIT: Final[dict[str, set[str]]] = {
    "any": NUMBERS | {"bool", "string", "date", "instant", "naive"},
    "boolean": {"bool"},
    "integer": NUMBERS,
    "number": NUMBERS,
    "string": {"string", "date", "instant", "naive"},
    "date": {"date", "string"},
    "date-time": {"instant", "string"},
    "array": {"array"},
    "map": {"map"},
    "object": {"struct"},
}


def schema_of(kind: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {NAME: kind}}


def encoder(kind: Any, column: pa.DataType) -> BatchEncoder:
    schema = Schema("JSON", json.dumps(schema_of(kind)))
    return BatchEncoder(schema, 1, SchemasInMemory(), pa.struct([(NAME, column)]), depth=3)


def written(kind: Any, values: pa.Array) -> str:
    """The JSON of the value, which `jsonschema` finds to be of the schema."""
    (made,) = encoder(kind, values.type).encode(pa.StructArray.from_arrays([values], [NAME])).to_pylist()
    jsonschema.validate(json.loads(made[5:]), schema_of(kind))
    text = made[5:].decode()
    head = f'{{"{NAME}":'
    assert text.startswith(head)
    return str(text[len(head) : -1])


@pytest.mark.parametrize("kind", FIT)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_goes_into_the_types_that_can_mean_the_same(column: str, kind: str) -> None:
    """Into all others it is refused before a value is looked at."""
    if column in FIT[kind]:
        encoder(TYPES[kind], COLUMNS[column])
        return

    with pytest.raises(SerializationError, match=f"{NAME} is "):
        encoder(TYPES[kind], COLUMNS[column])


def dec(text: str) -> pa.Array:
    return pa.array([Decimal(text)])


GOOD: list[tuple[str, pa.Array, str]] = [
    *(("integer", pa.array([n], pa.int64()), str(n)) for n in (-I63, -1, 0, (1 << 53) + 1, I63 - 1)),
    ("integer", pa.array([2 * I63 - 1], pa.uint64()), "18446744073709551615"),
    ("integer", pa.array([7.0]), "7"),
    ("integer", pa.array([1e22]), "10000000000000000000000"),
    ("integer", dec("9007199254740993.00"), "9007199254740993"),
    ("integer", dec("-12345678901234567890123456789012345678"), "-12345678901234567890123456789012345678"),
    ("number", dec("0.1"), "0.1"),
    ("number", dec("-1234567.89"), "-1234567.89"),
    ("number", dec("123456789.012345"), "123456789.012345"),
    ("number", dec("5.00"), "5"),
    ("number", pa.array([1 << 53]), "9007199254740992"),
    ("number", pa.array([1 << 60]), "1152921504606846976"),
    ("number", pa.array([0.1]), "0.1"),
    ("number", pa.array([5e-324]), "5e-324"),
    ("number", pa.array([1.7976931348623157e308]), "1.7976931348623157e+308"),
    ("number", pa.array([-0.0]), "-0.0"),
    ("number", pa.array([0.1], pa.float32()), "0.10000000149011612"),
    ("any", pa.array([I63 - 1]), "9223372036854775807"),
    ("any", dec("0.1"), "0.1"),
    ("any", pa.array(['{"a": [1, 0.1, 9007199254740993, null, "x"]}']), '{"a":[1,0.1,9007199254740993,null,"x"]}'),
    ("boolean", pa.array([True]), "true"),
    ("string", pa.array(["é\0"]), '"é\\u0000"'),
    ("string", pa.array(["a view that is long"], pa.string_view()), '"a view that is long"'),
    ("string", pa.array([datetime(2026, 1, 2)], NAIVE), '"2026-01-02T00:00:00"'),  # noqa: DTZ001
    ("date", pa.array([date(1, 1, 1)]), '"0001-01-01"'),
    ("date", pa.array([date(9999, 12, 31)]), '"9999-12-31"'),
    ("date", pa.array(["2026-02-28"]), '"2026-02-28"'),
    ("date-time", pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC)], UTC_TIME), '"2026-01-02T03:04:05.000006Z"'),
    ("date-time", pa.array([0], pa.timestamp("us", "Asia/Tokyo")), '"1970-01-01T00:00:00Z"'),
    ("date-time", pa.array(["2026-01-02T03:04:05.000000000+01:00"]), '"2026-01-02T03:04:05.000000000+01:00"'),
    ("array", pa.array([[1, 2]], pa.large_list(pa.int8())), "[1,2]"),
    ("array", pa.array([[1, 2]], pa.list_view(pa.int8())), "[1,2]"),
    ("map", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), '{"a":1}'),
    ("object", pa.array([{"x": 1}]), '{"x":1}'),
]


@pytest.mark.parametrize(("kind", "values", "text"), GOOD, ids=[f"{case[0]}-{nth}" for nth, case in enumerate(GOOD)])
def test_a_value_that_fits_stands_in_the_json_with_all_its_digits(kind: str, values: pa.Array, text: str) -> None:
    assert written(TYPES[kind], values) == text


BAD_TEXT = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
BAD: list[tuple[str, pa.Array]] = [
    *(("integer", dec(text)) for text in ("0.5", "1E-10", "9007199254740993.01")),
    *(("integer", pa.array([x])) for x in (0.5, float("nan"), float("inf"))),
    *(("number", dec(text)) for text in ("0.12345678901234567890", "9007199254740993", "12345678901234567890.5")),
    *(("number", pa.array([x])) for x in (float("nan"), float("inf"), float("-inf"))),
    *(("number", pa.array([n])) for n in ((1 << 53) + 1, I63 - 1)),
    *(("any", pa.array([text])) for text in ("{", "NaN", "1e400", '{"a":0.12345678901234567890}', '{"a":1,"a":2}')),
    ("any", pa.array([float("nan")])),
    ("any", dec("0.12345678901234567890")),
    *((kind, BAD_TEXT) for kind in ("string", "any", "date")),
    *(("date", pa.array([text])) for text in ("20260102", "2026-13-01", "2026-01-02T00:00:00Z", "tomorrow")),
    ("date", pa.array([2_932_897], pa.date32())),
    *(
        ("date-time", pa.array([text]))
        for text in ("2026-01-02T03:04:05", "2026-01-02", "2026-01-02T03:04:05.0000001Z", "2026-02-30T00:00:00Z")
    ),
    ("date-time", pa.array([I63 - 1], UTC_TIME)),
    ("array", pa.array([[0.5]])),
    ("map", pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))),
    ("object", pa.array([{"x": 0.5}])),
    ("null", pa.array([1])),
]


@pytest.mark.parametrize(("kind", "values"), BAD, ids=[f"{case[0]}-{nth}" for nth, case in enumerate(BAD)])
def test_a_value_that_does_not_fit_is_refused_by_its_column(kind: str, values: pa.Array) -> None:
    with pytest.raises(SerializationError, match=NAME):
        written(TYPES[kind], values)


# --- reading -----------------------------------------------------------------------------------


def read(schema: Any, *values: str, used: dict[str, Any] | None = None) -> tuple[list[Any], list[str | None]]:
    """The rows and errors of texts of JSON; used schemas by the names of their references."""
    source = SchemasInMemory()
    references = []
    for name, other in (used or {}).items():
        source.register(name, Schema("JSON", json.dumps(other)))
        references.append(Reference(name, name, 1))
    known = Schema("JSON", json.dumps(schema), tuple(references))
    number = source.register("t-value", known)
    found = BatchDecoder(reader_of(known, source), source.schema_by_id)
    data = [framed(number, text.encode("utf-8", "surrogatepass")) for text in values]
    rows, errors = found.decode(pa.array(data, pa.binary()))
    rows.validate(full=True)
    return rows.to_pylist(), errors.to_pylist()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("integer", "9007199254740993", (1 << 53) + 1),
        ("integer", "9007199254740993.0", (1 << 53) + 1),
        ("integer", "-9223372036854775808", -I63),
        ("integer", "9223372036854775807", I63 - 1),
        ("integer", "1e3", 1000),
        ("number", "0.1", 0.1),
        ("number", "0.1000000000000000055511151231257827", 0.1),
        ("number", "1e23", 1e23),
        ("number", "9007199254740992", float(1 << 53)),
        ("number", "1.7976931348623157e308", 1.7976931348623157e308),
        ("number", "5e-324", 5e-324),
        ("any", '{"a":0.1,"b":1.0,"c":1e2}', '{"a":0.1,"b":1,"c":100}'),
        ("any", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("date", '"2026-01-02"', date(2026, 1, 2)),
        ("date-time", '"2026-01-02T03:04:05.123456Z"', datetime(2026, 1, 2, 3, 4, 5, 123_456, UTC)),
        ("date-time", '"2026-01-02t03:04:05.100000000z"', datetime(2026, 1, 2, 3, 4, 5, 100_000, UTC)),
        ("date-time", '"2026-01-02T03:04:05.1+0100"', datetime(2026, 1, 2, 2, 4, 5, 100_000, UTC)),
    ],
)
def test_what_stands_in_json_is_what_is_read(kind: str, text: str, expected: Any) -> None:
    assert read(schema_of(TYPES[kind]), f'{{"{NAME}":{text}}}') == ([{NAME: expected}], [None])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("integer", "9223372036854775808"),
        ("integer", "9007199254740993.5"),
        ("integer", "1e30"),
        ("integer", "1e999999999999"),
        ("integer", "1e99999999999999999999999"),
        ("number", "9007199254740993"),
        ("number", "1e400"),
        ("number", "-1e400"),
        ("number", "1e-400"),
        ("any", "0.12345678901234567890"),
        ("any", '{"a":[1e400]}'),
        ("date", '"20260102"'),
        ("date", '"2026-01-02T00:00:00Z"'),
        ("date-time", '"2026-01-02"'),
        ("date-time", '"2026-01-02T03:04:05"'),
        ("date-time", '"2026-01-02T03:04:05.0000001Z"'),
        ("date-time", '"2026-01-02T03:04:60Z"'),
        ("date-time", "1767323045"),
        ("boolean", "1"),
        ("string", "1"),
        ("null", "1"),
        ("array", "[0.5]"),
        ("map", '{"a":0.5}'),
        ("object", '{"x":0.5}'),
    ],
)
def test_what_a_column_cannot_hold_is_an_error_with_its_name(kind: str, text: str) -> None:
    rows, errors = read(schema_of(TYPES[kind]), f'{{"{NAME}":{text}}}')

    assert rows == [None]
    assert kind.startswith("integer") or errors[0] is not None
    assert str(errors[0]).startswith(NAME) or "out of range for numbers" in str(errors[0])


# --- references --------------------------------------------------------------------------------

INTEGER: Final = {"type": "integer"}
CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("anchor", {"$ref": "#money", "$defs": {"m": {"$anchor": "money", **INTEGER}}}, {}),
    (
        "anchor of draft 7",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#money",
            "definitions": {"m": {"$id": "#money", **INTEGER}},
        },
        {},
    ),
    ("pointer", {"$ref": "#/$defs/m", "$defs": {"m": INTEGER}}, {}),
    ("pointer with escapes", {"$ref": "#/$defs/a~1b%25~0c", "$defs": {"a/b%~c": INTEGER}}, {}),
    (
        "bundled",
        {"$id": "https://x.test/order", "$ref": "money", "$defs": {"m": {"$id": "https://x.test/money", **INTEGER}}},
        {},
    ),
    (
        "bundled with an anchor",
        {
            "$id": "https://x.test/order",
            "$ref": "/money#whole",
            "$defs": {"m": {"$id": "/money", "$defs": {"w": {"$anchor": "whole", **INTEGER}}}},
        },
        {},
    ),
    (
        "pointer inside a bundled schema",
        {
            "$id": "https://x.test/order",
            "$ref": "https://x.test/money",
            "$defs": {
                "w": {"type": "string"},
                "m": {"$id": "https://x.test/money", "$ref": "#/$defs/w", "$defs": {"w": INTEGER}},
            },
        },
        {},
    ),
    (
        "its own id",
        {"$id": "https://x.test/order", "$ref": "https://x.test/order#/$defs/m", "$defs": {"m": INTEGER}},
        {},
    ),
    ("used", {"$ref": "money.json"}, {"money.json": INTEGER}),
    ("used, with a pointer", {"$ref": "money.json#/definitions/w"}, {"money.json": {"definitions": {"w": INTEGER}}}),
    (
        "used, with an anchor",
        {"$ref": "money.json#w"},
        {"money.json": {"definitions": {"w": {"$id": "#w", **INTEGER}}}},
    ),
    (
        "used, by its own id",
        {"$ref": "https://x.test/money"},
        {"money.json": {"$id": "https://x.test/money", **INTEGER}},
    ),
    ("used beside an id", {"$id": "https://x.test/order", "$ref": "money.json"}, {"money.json": INTEGER}),
    (
        "used by a used one",
        {"$ref": "money.json"},
        {"whole.json": INTEGER, "money.json": {"$id": "https://y.test/m", "allOf": [{"$ref": "whole.json"}]}},
    ),
    ("several steps", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": INTEGER}}, {}),
    ("beside the reference", {"$ref": "#/$defs/a", **INTEGER, "$defs": {"a": {"minimum": 0}}}, {}),
    ("allOf", {"allOf": [{"$ref": "#/$defs/a"}, {"minimum": 0}], "$defs": {"a": INTEGER}}, {}),
    (
        "allOf in allOf",
        {"allOf": [{"allOf": [{"allOf": [{"$ref": "#m"}]}]}], "$defs": {"m": {"$anchor": "m", **INTEGER}}},
        {},
    ),
    ("anyOf with null", {"anyOf": [{"type": "null"}, {"$ref": "#m"}], "$defs": {"m": {"$anchor": "m", **INTEGER}}}, {}),
    (
        "null behind a reference",
        {"oneOf": [{"$ref": "#/$defs/n"}, INTEGER], "$defs": {"n": {"type": "null"}}},
        {},
    ),
]


@pytest.mark.parametrize(("schema", "used"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_reference_means_the_same_to_views_checks_and_comparisons(schema: Any, used: dict[str, Any]) -> None:
    """A whole number is read as one and written as one; a text is refused when it is written, and read as an error."""
    top = {"allOf": [{"type": "object"}], "properties": {"other": True}, **schema_at_name(schema)}
    good, bad = f'{{"{NAME}":7}}', f'{{"{NAME}":"7"}}'
    source = SchemasInMemory()
    for name, other in used.items():
        source.register(name, Schema("JSON", json.dumps(other)))
    known = Schema("JSON", json.dumps(top), tuple(Reference(name, name, 1) for name in used))

    rows, errors = read(top, good, bad, used=used)
    encoder = BatchEncoder(known, 1, source, pa.struct([(NAME, pa.int64())]), depth=3)
    made = encoder.encode(pa.array([{NAME: 7}], pa.struct([(NAME, pa.int64())])))

    assert [row and row[NAME] for row in rows] == [7, None]
    assert [error is None for error in errors] == [True, False]
    assert made.to_pylist() == [framed(1, good.encode())]
    with pytest.raises(SerializationError, match=NAME):
        BatchEncoder(known, 1, source, pa.struct([(NAME, pa.string())]), depth=3).encode(pa.array([{NAME: "7"}]))
    assert problems(known, known, source.referenced) == []


def schema_at_name(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema below a property; what names things stays at the top."""
    outside = {"$id", "$schema", "$defs", "definitions"}
    inner = {key: part for key, part in schema.items() if key not in outside}
    return {**{key: part for key, part in schema.items() if key in outside}, "properties": {NAME: inner, "other": True}}


def test_parts_of_an_object_are_merged_at_every_level() -> None:
    """`allOf` inside properties, items and values of maps; the same property in two parts; parts of other documents."""
    line = {"type": "object", "properties": {"n": INTEGER, "unit": {"properties": {"name": {"type": "string"}}}}}
    schema = {
        "allOf": [{"$ref": "base.json"}],
        "properties": {
            "lines": {
                "items": {"allOf": [{"$ref": "#/$defs/line"}, {"properties": {"m": {"type": "string"}}}]},
                "type": "array",
            },
            "by": {"type": "object", "additionalProperties": {"allOf": [{"$ref": "#/$defs/line"}]}},
            "shared": {"properties": {"b": INTEGER}},
        },
        "$defs": {"line": {"allOf": [line, {"properties": {"unit": {"properties": {"size": INTEGER}}}}]}},
    }
    base = {
        "type": "object",
        "properties": {"id": {"$ref": "#/$defs/id"}, "shared": {"properties": {"a": INTEGER}}},
        "$defs": {"id": INTEGER},
    }
    one = '{"n":1,"unit":{"name":"kg","size":2},"m":"x"}'

    rows, errors = read(
        schema, f'{{"id":5,"lines":[{one}],"by":{{"k":{one}}},"shared":{{"a":1,"b":2}}}}', used={"base.json": base}
    )

    unit = {"n": 1, "unit": {"name": "kg", "size": 2}}
    assert errors == [None]
    assert rows == [{"lines": [{**unit, "m": "x"}], "by": [("k", unit)], "shared": {"b": 2, "a": 1}, "id": 5}]


def test_a_number_that_is_also_to_be_whole_is_a_whole_number() -> None:
    kind = {"allOf": [{"type": "number"}, {"type": ["integer", "null"]}]}

    assert read(schema_of(kind), f'{{"{NAME}":9007199254740993}}') == ([{NAME: 9007199254740993}], [None])


def test_nothing_counts_beside_a_reference_in_draft_7() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {NAME: {"$ref": "#/definitions/m", "type": "string"}},
        "definitions": {"m": INTEGER},
    }

    assert read(schema, f'{{"{NAME}":7}}') == ([{NAME: 7}], [None])


@pytest.mark.parametrize(
    "kind",
    [
        {"$ref": "#nowhere"},
        {"$ref": "https://x.test/nothing"},
        {"$ref": "#/properties/price"},
        {"$ref": 7},
        {"allOf": [{"$ref": "#/$defs/a"}]},
    ],
    ids=["anchor", "address", "itself", "number", "circle"],
)
def test_a_reference_that_leads_nowhere_is_refused(kind: Any) -> None:
    schema = {**schema_of(kind), "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}

    with pytest.raises(InvalidSchemaError):
        read(schema, "{}")
