"""Columns and types of Avro: a value arrives exactly, as fastavro reads it, or is refused by the name of its column."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from tests.tools.avro_cases import avro, framed
from tests.tools.schemas import SchemasInMemory

NAME: Final = "price"
UTC_TIME = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
FINE = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)


def named(logical: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


TYPES: Final[dict[str, Any]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "fixed": {"type": "fixed", "name": "F", "size": 2},
    "enum": {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    "date": named("date", "int"),
    "time-millis": named("time-millis", "int"),
    "time-micros": named("time-micros", "long"),
    "timestamp-millis": named("timestamp-millis", "long"),
    "timestamp-micros": named("timestamp-micros", "long"),
    "local-timestamp-millis": named("local-timestamp-millis", "long"),
    "local-timestamp-micros": named("local-timestamp-micros", "long"),
    "decimal(4,2)": named("decimal", "bytes", precision=4, scale=2),
    "decimal(38,0)": named("decimal", "bytes", precision=38),
    "fixed decimal(4,2)": named("decimal", "fixed", name="D", size=2, precision=4, scale=2),
    "uuid": named("uuid", "string"),
    "fixed uuid": named("uuid", "fixed", name="U", size=16),
    "array": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "int"},
    "record": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]},
}

COLUMNS: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0)": pa.decimal128(38, 0),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "instant": UTC_TIME,
    "naive": NAIVE,
    "time": pa.time64("us"),
    "array": pa.list_(pa.int32()),
    "map": pa.map_(pa.string(), pa.int32()),
    "struct": pa.struct([("x", pa.int32())]),
}
INTS = {"int8", "int16", "int32", "int64", "uint64"}
NUMBERS = INTS | {"float32", "float64"}
FIT: Final[dict[str, set[str]]] = {
    "boolean": {"bool"},
    "int": NUMBERS | {"decimal(10,2)", "decimal(38,0)"},
    "long": NUMBERS | {"decimal(10,2)", "decimal(38,0)"},
    "float": NUMBERS,
    "double": NUMBERS,
    "string": {"string"},
    "enum": {"string"},
    "uuid": {"string"},
    "fixed uuid": {"string"},
    "bytes": {"binary"},
    "fixed": {"binary"},
    "date": {"date"},
    "time-millis": {"time"} | INTS,
    "time-micros": {"time"} | INTS,
    "timestamp-millis": {"instant"},
    "timestamp-micros": {"instant"},
    "local-timestamp-millis": {"naive"},
    "local-timestamp-micros": {"naive"},
    "decimal(4,2)": {"decimal(10,2)", "decimal(38,0)"} | INTS,
    "decimal(38,0)": {"decimal(10,2)", "decimal(38,0)"} | INTS,
    "fixed decimal(4,2)": {"decimal(10,2)", "decimal(38,0)"} | INTS,
    "array": {"array"},
    "map": {"map"},
    "record": {"struct"},
}
"""Which columns may go into which types; values are judged one by one."""


def schema_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": NAME, "type": kind}]}


def encoder(kind: Any, column: pa.DataType) -> BatchEncoder:
    schema = Schema("AVRO", json.dumps(schema_of(kind)))
    return BatchEncoder(schema, 1, SchemasInMemory(), pa.struct([(NAME, column)]), depth=3)


def written(kind: Any, values: pa.Array) -> Any:
    """What fastavro reads of the only value."""
    (made,) = encoder(kind, values.type).encode(pa.StructArray.from_arrays([values], [NAME])).to_pylist()
    payload = io.BytesIO(made[5:])
    found = schemaless_reader(payload, parse_schema(schema_of(kind)))
    assert payload.read() == b""
    return found[NAME]  # type: ignore[call-overload, index]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_goes_into_the_types_that_can_mean_the_same(column: str, kind: str) -> None:
    """Into all others it is refused before a value is looked at."""
    if column in FIT[kind]:
        encoder(TYPES[kind], COLUMNS[column])
        return

    with pytest.raises(SerializationError, match=f"{NAME}.* is .*, and the schema has"):
        encoder(TYPES[kind], COLUMNS[column])


I32, I64 = 1 << 31, 1 << 63
FLOAT32_MAX = 3.4028234663852886e38
TINY = 2.0**-149
GOOD: list[tuple[str, pa.Array, Any]] = [
    ("boolean", pa.array([True]), True),
    *(("int", pa.array([n], pa.int64()), n) for n in (-I32, -1, 0, I32 - 1)),
    ("int", pa.array([-128], pa.int8()), -128),
    ("int", pa.array([7.0]), 7),
    ("int", pa.array([Decimal("7.00")]), 7),
    *(("long", pa.array([n], pa.int64()), n) for n in (-I64, I64 - 1)),
    ("long", pa.array([I64 - 1], pa.uint64()), I64 - 1),
    ("long", pa.array([-float(I64)]), -I64),
    ("long", pa.array([Decimal(I64 - 1)], pa.decimal128(38, 0)), I64 - 1),
    *(("float", pa.array([x]), x) for x in (0.5, FLOAT32_MAX, -FLOAT32_MAX, TINY, float("inf"))),
    ("float", pa.array([1 << 24]), float(1 << 24)),
    ("float", pa.array([(1 << 24) + 2]), float((1 << 24) + 2)),
    *(("double", pa.array([x]), x) for x in (0.1, 1.7976931348623157e308, 5e-324, float("-inf"))),
    ("double", pa.array([0.1], pa.float32()), 0.10000000149011612),
    *(("double", pa.array([n], pa.int64()), float(n)) for n in (1 << 53, 1 << 60, -I64)),
    ("string", pa.array(["é\0"]), "é\0"),
    ("string", pa.array(["é"], pa.large_string()), "é"),
    ("string", pa.array(["long enough for a view"], pa.string_view()), "long enough for a view"),
    ("bytes", pa.array([b"\xff"]), b"\xff"),
    ("bytes", pa.array([b"\xff\x00"], pa.binary(2)), b"\xff\x00"),
    ("bytes", pa.array([b"\xff"], pa.binary_view()), b"\xff"),
    ("fixed", pa.array([b"ab"]), b"ab"),
    ("enum", pa.array(["B"]), "B"),
    *(("date", pa.array([d]), d) for d in (date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31))),
    ("time-millis", pa.array([time(23, 59, 59, 999_000)]), time(23, 59, 59, 999_000)),
    ("time-millis", pa.array([5], pa.time32("ms")), time(0, 0, 0, 5_000)),
    ("time-millis", pa.array([5_000], pa.int64()), time(0, 0, 0, 5_000)),
    ("time-micros", pa.array([86_399_999_999]), time(23, 59, 59, 999_999)),
    ("time-micros", pa.array([5], pa.time32("s")), time(0, 0, 5)),
    ("timestamp-millis", pa.array([MOMENT], UTC_TIME), MOMENT),
    ("timestamp-millis", pa.array([-1], pa.timestamp("ms", "UTC")), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ("timestamp-millis", pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo")), MOMENT),
    ("timestamp-micros", pa.array([FINE], UTC_TIME), FINE),
    ("timestamp-micros", pa.array([1_000], pa.timestamp("ns", "UTC")), datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    ("local-timestamp-millis", pa.array([MOMENT.replace(tzinfo=None)], NAIVE), MOMENT.replace(tzinfo=None)),
    ("local-timestamp-micros", pa.array([FINE.replace(tzinfo=None)], NAIVE), FINE.replace(tzinfo=None)),
    *(
        ("decimal(4,2)", pa.array([Decimal(d)], pa.decimal128(10, 2)), Decimal(d))
        for d in ("99.99", "-99.99", "0.00", "1.28", "-1.28", "-1.29")
    ),
    ("decimal(4,2)", pa.array([Decimal("1.5000")]), Decimal("1.50")),
    ("decimal(4,2)", pa.array([-99]), Decimal("-99.00")),
    ("decimal(38,0)", pa.array([Decimal(10**38 - 1)], pa.decimal128(38, 0)), Decimal(10**38 - 1)),
    ("decimal(38,0)", pa.array([2 * I64 - 1], pa.uint64()), Decimal(2 * I64 - 1)),
    ("fixed decimal(4,2)", pa.array([Decimal("-99.99")]), Decimal("-99.99")),
    ("uuid", pa.array(["0f0e0d0c-0b0a-0908-0706-050403020100"]), UUID("0f0e0d0c-0b0a-0908-0706-050403020100")),
    ("fixed uuid", pa.array(["0f0e0d0c-0b0a-0908-0706-050403020100"]), bytes(range(16))[::-1]),
    ("array", pa.array([[1, 2]], pa.list_(pa.int64())), [1, 2]),
    ("array", pa.array([[1, 2]], pa.large_list(pa.int64())), [1, 2]),
    ("map", pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())), {"a": 1, "b": 2}),
    ("record", pa.array([{"x": 1}]), {"x": 1}),
]


@pytest.mark.parametrize(
    ("kind", "values", "expected"), GOOD, ids=[f"{case[0]}-{nth}" for nth, case in enumerate(GOOD)]
)
def test_a_value_that_fits_is_what_fastavro_reads(kind: str, values: pa.Array, expected: Any) -> None:
    assert written(TYPES[kind], values) == expected


def test_numbers_that_are_none_stay_none() -> None:
    """Also as floats of 32 bits; a zero below zero stays one."""
    assert str(written("float", pa.array([float("nan")]))) == "nan"
    assert str(written("double", pa.array([-0.0]))) == "-0.0"
    assert str(written("float", pa.array([-0.0]))) == "-0.0"


BAD_TEXT = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
BAD: list[tuple[str, pa.Array]] = [
    *(("int", pa.array([n], pa.int64())) for n in (-I32 - 1, I32, I64 - 1)),
    *(("int", pa.array([x])) for x in (0.5, float("nan"), float("inf"), 3e9)),
    ("int", pa.array([Decimal("7.01")])),
    ("int", pa.array([Decimal(I32)])),
    ("long", pa.array([I64], pa.uint64())),
    ("long", pa.array([float(I64)])),
    ("long", pa.array([Decimal(I64)], pa.decimal128(38, 0))),
    *(("float", pa.array([x])) for x in (0.1, 1e300, -1e300, 1e-300, FLOAT32_MAX * 1.0000001)),
    ("float", pa.array([(1 << 24) + 1])),
    ("float", pa.array([I64 - 1])),
    *(("double", pa.array([n], pa.int64())) for n in ((1 << 53) + 1, -(1 << 53) - 1, I64 - 1)),
    ("double", pa.array([2 * I64 - 1], pa.uint64())),
    ("string", BAD_TEXT),
    *(("fixed", pa.array([x])) for x in (b"", b"a", b"abc")),
    *(("enum", pa.array([x])) for x in ("C", "a", "")),
    ("date", pa.array([1], pa.date64())),
    *(("time-micros", pa.array([n], pa.int64())) for n in (-1, 86_400_000_000)),
    *(("time-millis", pa.array([n], pa.int64())) for n in (-1_000, 1, 5_999, 86_400_000_000)),
    ("time-millis", pa.array([time(0, 0, 0, 1)])),
    ("time-micros", pa.array([1], pa.time64("ns"))),
    ("time-micros", pa.array([86_400_000], pa.time32("ms"))),
    ("timestamp-millis", pa.array([FINE], UTC_TIME)),
    ("timestamp-millis", pa.array([-1], UTC_TIME)),
    ("local-timestamp-millis", pa.array([FINE.replace(tzinfo=None)], NAIVE)),
    ("timestamp-micros", pa.array([1], pa.timestamp("ns", "UTC"))),
    ("timestamp-micros", pa.array([I64 - 1], pa.timestamp("s", "UTC"))),
    *(("decimal(4,2)", pa.array([Decimal(d)])) for d in ("100.00", "-100.00", "0.001")),
    ("decimal(4,2)", pa.array([100])),
    ("decimal(38,0)", pa.array([Decimal("0.5")])),
    *(
        ("fixed uuid", pa.array([x]))
        for x in ("", "0f0e0d0c0b0a09080706050403020100", "0f0e0d0c-0b0a-0908-0706-05040302010g", "0-" * 16 + "0" * 16)
    ),
    ("array", pa.array([[I32]], pa.list_(pa.int64()))),
    ("array", pa.array([[None]], pa.list_(pa.int64()))),
    ("map", pa.array([[("a", I32)]], pa.map_(pa.string(), pa.int64()))),
    ("map", pa.array([[("a", 1), ("b", 2), ("a", 3)]], pa.map_(pa.string(), pa.int64()))),
    ("record", pa.array([{"x": I32}])),
]


@pytest.mark.parametrize(("kind", "values"), BAD, ids=[f"{case[0]}-{nth}" for nth, case in enumerate(BAD)])
def test_a_value_that_does_not_fit_is_refused_by_its_column(kind: str, values: pa.Array) -> None:
    with pytest.raises(SerializationError, match=f"^{NAME}"):
        written(TYPES[kind], values)


def test_one_bad_value_among_many_is_found() -> None:
    """Wherever it stands, whatever nulls are beside it."""
    values = pa.array([1, None] * 5_000 + [I32], pa.int64())
    rows = pa.StructArray.from_arrays([values], [NAME])

    with pytest.raises(SerializationError, match=f"^{NAME}"):
        encoder(["null", "int"], pa.int64()).encode(rows)


def test_a_duration_keeps_its_parts_or_is_refused() -> None:
    kind = named("duration", "fixed", name="T", size=12)
    fields = ["months", "days", "milliseconds"]

    def of(*parts: int | None) -> pa.Array:
        return pa.array([dict(zip(fields, parts, strict=True))], pa.struct([(f, pa.int64()) for f in fields]))

    assert written(kind, of(1, 2, (1 << 32) - 1)) == b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff"
    for parts in ((-1, 0, 0), (0, 1 << 32, 0), (0, 0, None)):
        with pytest.raises(SerializationError, match=f"^{NAME}"):
            written(kind, of(*parts))


def test_a_value_with_two_members_of_a_union_is_refused() -> None:
    union = ["null", "int", "string"]
    kind = pa.struct([("member0", pa.int32()), ("member1", pa.string())])

    assert written(union, pa.array([{"member1": "x"}], kind)) == "x"
    assert written(union, pa.array([{}], kind)) is None
    with pytest.raises(SerializationError, match=f"{NAME} has more than one member"):
        written(union, pa.array([{"member0": 1, "member1": "x"}], kind))


# --- reading -----------------------------------------------------------------------------------


def read(wrote: Any, reads: Any, payload: bytes | Any) -> tuple[Any, str | None]:
    """The column's value, and the error: of bytes, or of a value that fastavro writes."""
    source = SchemasInMemory()
    old, new = (Schema("AVRO", json.dumps(schema_of(kind))) for kind in (wrote, reads))
    number = source.register("t-value", old)
    source.register("u-value", new)
    data = framed(number, payload) if isinstance(payload, bytes) else avro(schema_of(wrote), {NAME: payload}, number)
    rows, errors = BatchDecoder(reader_of(new, source), source.schema_by_id).decode(pa.array([data], pa.binary()))
    rows.validate(full=True)
    row = rows.to_pylist()[0]
    return (None if row is None else row[NAME]), errors[0].as_py()


@pytest.mark.parametrize(
    ("wrote", "reads", "value", "expected"),
    [
        ("date", "date", date(2026, 1, 2), date(2026, 1, 2)),
        ("time-millis", "time-micros", time(1, 2, 3), time(1, 2, 3)),
        ("timestamp-millis", "timestamp-micros", MOMENT, MOMENT),
        ("timestamp-micros", "timestamp-millis", FINE, FINE),
        ("local-timestamp-millis", "local-timestamp-micros", 5, datetime(1970, 1, 1, 0, 0, 0, 5_000)),  # noqa: DTZ001
        ("decimal(4,2)", "decimal(10,2)", Decimal("-1.50"), Decimal("-1.50")),
        ("long", "timestamp-millis", 5, datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)),
        ("int", "date", 1, date(1970, 1, 2)),
        ("int", "double", I32 - 1, float(I32 - 1)),
        ("long", "double", 1 << 53, float(1 << 53)),
        ("int", "float", 1 << 24, float(1 << 24)),
        ("float", "double", 0.5, 0.5),
        ("string", "uuid", "0f0e0d0c-0b0a-0908-0706-050403020100", "0f0e0d0c-0b0a-0908-0706-050403020100"),
        ("timestamp-nanos", "timestamp-micros", 5_000, datetime(1970, 1, 1, 0, 0, 0, 5, UTC)),
        ("timestamp-nanos", "timestamp-nanos", 5_001, 5_001),
    ],
)
def test_a_changed_schema_reads_the_same_value(wrote: str, reads: str, value: Any, expected: Any) -> None:
    kinds = {**TYPES, "decimal(10,2)": named("decimal", "bytes", precision=10, scale=2)}
    kinds["timestamp-nanos"] = named("timestamp-nanos", "long")

    assert read(kinds[wrote], kinds[reads], value) == (expected, None)


LOGICAL = ("date", "time-millis", "time-micros", "timestamp-millis", "local-timestamp-millis", "timestamp-nanos")


@pytest.mark.parametrize(
    ("wrote", "reads"),
    [
        *(("date", other) for other in LOGICAL[1:]),
        ("date", "timestamp-micros"),
        ("time-millis", "date"),
        ("time-millis", "timestamp-millis"),
        ("time-micros", "timestamp-micros"),
        ("timestamp-millis", "time-micros"),
        ("timestamp-millis", "local-timestamp-millis"),
        ("local-timestamp-micros", "timestamp-micros"),
        ("timestamp-millis", "timestamp-nanos"),
        ("decimal(4,2)", "decimal(4,3)"),
        ("decimal(4,2)", "string"),
        ("string", "decimal(4,2)"),
    ],
)
def test_another_meaning_is_an_error_and_not_the_old_number(wrote: str, reads: str) -> None:
    """A day is no millisecond, a time of a place no instant, and a hundredth no thousandth."""
    kinds = {**TYPES, "timestamp-nanos": named("timestamp-nanos", "long")}
    kinds["decimal(4,3)"] = named("decimal", "bytes", precision=4, scale=3)
    payload = b"\x02\x31" if {wrote, reads} & {"string", "decimal(4,3)"} else b"\x02"

    value, error = read(kinds[wrote], kinds[reads], payload)

    assert value is None
    assert error is not None
    assert error.startswith("schema 1: price: the reader has ")


@pytest.mark.parametrize(
    ("wrote", "reads", "payload"),
    [
        ("long", "double", b"\x82\x80\x80\x80\x80\x80\x80\x20"),
        ("int", "float", b"\x82\x80\x80\x10"),
        ("int", "int", b"\x80\x80\x80\x80\x10"),
        ("timestamp-nanos", "timestamp-micros", b"\x02"),
        ("timestamp-millis", "timestamp-millis", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ("time-millis", "time-millis", b"\x01"),
        ("time-micros", "time-micros", b"\x80\x80\xbb\xdd\x83\x05"),
        ("decimal(4,2)", "decimal(4,2)", b"\x04\x27\x10"),
        ("string", "string", b"\x02\xff"),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_an_error(wrote: str, reads: str, payload: bytes) -> None:
    """2**53 + 1 as a double, 2**24 + 1 as a float, and what no time and no decimal of the type can be."""
    kinds = {**TYPES, "timestamp-nanos": named("timestamp-nanos", "long")}

    value, error = read(kinds[wrote], kinds[reads], payload)

    assert value is None
    assert str(error).startswith(f"{NAME}: ") or error == "a text is not UTF-8"


def test_a_problem_names_the_path_of_its_field() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}

    value, error = read(
        {"type": "array", "items": inner}, {"type": "array", "items": inner}, b"\x02\x80\x80\x80\x80\x10\x00"
    )

    assert value is None
    assert error == "price.n: an int has more than 32 bits"
