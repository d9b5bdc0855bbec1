"""Columns and fields of Protobuf: a value is what Google's library reads, or is refused by the name of its column."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.batch_encoder import BatchEncoder
from tests.tools.avro_cases import framed
from tests.tools.protoc import compiled
from tests.tools.schemas import SchemasInMemory

I31, I63 = 1 << 31, 1 << 63
SCALARS: Final = (
    "int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64", "uint32", "fixed32", "uint64", "fixed64",
    "double", "float", "bool", "string", "bytes",
)  # fmt: skip
WHOLE: Final = SCALARS[:10]
TEXT: Final = (
    """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Color { NONE = 0; RED = 1; }
message Item { int32 x = 1; }
message Order {
"""
    + "".join(f"  optional {kind} f_{kind} = {number};\n" for number, kind in enumerate(SCALARS, 1))
    + """
  optional Color f_enum = 20;
  google.protobuf.Timestamp f_timestamp = 21;
  google.protobuf.Duration f_duration = 22;
  google.protobuf.Value f_json = 23;
  google.protobuf.UInt32Value f_wrapper = 24;
  Item f_message = 25;
  repeated int32 f_repeated = 26;
  map<string, int32> f_map = 27;
  map<int32, Item> f_by_number = 28;
  oneof one { string left = 30; int32 right = 31; }
}
"""
)
SCHEMA: Final = Schema("PROTOBUF", TEXT)
UTC_TIME: Final = pa.timestamp("us", "UTC")
COLUMNS: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(38, 10),
    "text": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "instant": UTC_TIME,
    "naive": pa.timestamp("us"),
    "nanos": pa.timestamp("ns", "UTC"),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "array": pa.list_(pa.int32()),
    "map": pa.map_(pa.string(), pa.int32()),
    "struct": pa.struct([("x", pa.int32())]),
}
FIT: Final[dict[str, set[str]]] = {
    **{kind: {"int", "float", "decimal"} for kind in WHOLE},
    "double": {"int", "float"},
    "float": {"int", "float"},
    "bool": {"bool"},
    "string": {"text"},
    "bytes": {"binary"},
    "enum": {"text", "int"},
    "timestamp": {"instant"},
    "duration": {"duration", "int"},
    "json": {"text"},
    "wrapper": {"int", "float", "decimal"},
    "message": {"struct"},
    "repeated": {"array"},
    "map": {"map"},
    "by_number": set(),
}


@cache
def order() -> Any:
    """Google's own class of the message, of Google's own compiler."""
    return GetMessageClass(compiled(TEXT).message_types_by_name["Order"])


def encoder(kind: pa.DataType) -> BatchEncoder:
    return BatchEncoder(SCHEMA, 1, SchemasInMemory(), kind, depth=3, message="shop.Order")


def written(name: str, values: pa.Array) -> Any:
    """What Google's library reads of the only value."""
    rows = pa.StructArray.from_arrays([values], [f"f_{name}"])
    (made,) = encoder(rows.type).encode(rows).to_pylist()
    # The schema's id, and two numbers that say which message it is.
    assert made[:7] == b"\0\0\0\0\x01\x02\x02"
    return getattr(order().FromString(made[7:]), f"f_{name}")


@pytest.mark.parametrize("field", FIT)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_goes_into_the_fields_that_can_mean_the_same(column: str, field: str) -> None:
    """Into all others it is refused before a value is looked at."""
    kind = pa.struct([(f"f_{field}", COLUMNS[column])])
    if column in FIT[field]:
        encoder(kind)
        return

    with pytest.raises(SerializationError, match=f"f_{field}.* is "):
        encoder(kind)


BOUNDS: Final = {
    **dict.fromkeys(SCALARS[:3], (-I31, I31 - 1)),
    **dict.fromkeys(SCALARS[3:6], (-I63, I63 - 1)),
    **dict.fromkeys(SCALARS[6:8], (0, 2 * I31 - 1)),
    **dict.fromkeys(SCALARS[8:10], (0, 2 * I63 - 1)),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_numbers_reach_from_the_first_to_the_last_and_no_further(kind: str) -> None:
    low, high = BOUNDS[kind]

    def of(number: int) -> pa.Array:
        return pa.array([Decimal(number)], pa.decimal128(38, 0))

    assert [written(kind, of(number)) for number in (low, high)] == [low, high]
    for number in (low - 1, high + 1):
        with pytest.raises(SerializationError, match=f"f_{kind}"):
            written(kind, of(number))


FLOAT32_MAX: Final = 3.4028234663852886e38
GOOD: list[tuple[str, pa.Array, Any]] = [
    ("int32", pa.array([7.0]), 7),
    ("int64", pa.array([Decimal("7.00")]), 7),
    ("uint64", pa.array([2 * I63 - 1], pa.uint64()), 2 * I63 - 1),
    *(("double", pa.array([x]), x) for x in (0.1, 5e-324, 1.7976931348623157e308, float("inf"))),
    ("double", pa.array([1 << 60]), float(1 << 60)),
    *(("float", pa.array([x]), x) for x in (0.5, FLOAT32_MAX, 2.0**-149, float("-inf"))),
    ("float", pa.array([1 << 24]), float(1 << 24)),
    ("bool", pa.array([True]), True),
    ("string", pa.array(["é\0"]), "é\0"),
    ("string", pa.array(["é"], pa.large_string()), "é"),
    ("bytes", pa.array([b"\xff"], pa.large_binary()), b"\xff"),
    ("enum", pa.array(["RED"]), 1),
    ("enum", pa.array(["-7"]), -7),
    ("enum", pa.array([7]), 7),
    ("wrapper", pa.array([2 * I31 - 1]), None),
    ("repeated", pa.array([[1, 2]], pa.large_list(pa.int64())), [1, 2]),
    ("map", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), {"a": 1}),
]


@pytest.mark.parametrize(("name", "values", "expected"), GOOD, ids=[f"{c[0]}-{nth}" for nth, c in enumerate(GOOD)])
def test_a_value_that_fits_is_what_google_reads(name: str, values: pa.Array, expected: Any) -> None:
    found = written(name, values)

    assert (found.value if name == "wrapper" else found) == (2 * I31 - 1 if name == "wrapper" else expected)


def test_times_are_what_google_reads() -> None:
    last = pa.array([datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)], UTC_TIME)
    before = written("timestamp", pa.array([-1], UTC_TIME))
    took = written("duration", pa.array([timedelta(microseconds=-1_500_001)], pa.duration("us")))

    assert (before.seconds, before.nanos) == (-1, 999_999_000)
    assert (took.seconds, took.nanos) == (-1, -500_001_000)
    assert written("timestamp", last).seconds == 253_402_300_799
    assert written("duration", pa.array([2_000_001])).nanos == 1_000


BAD_TEXT = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
BAD: list[tuple[str, pa.Array]] = [
    *(("int32", pa.array([x])) for x in (0.5, float("nan"), float("inf"), float(I31))),
    ("int64", pa.array([Decimal("7.01")])),
    ("uint32", pa.array([-1])),
    ("uint64", pa.array([-1.0])),
    *(("double", pa.array([n])) for n in ((1 << 53) + 1, I63 - 1)),
    *(("float", pa.array([x])) for x in (0.1, 1e300, -1e300, 1e-300, FLOAT32_MAX * 1.0000001)),
    ("float", pa.array([(1 << 24) + 1])),
    ("string", BAD_TEXT),
    *(("enum", pa.array([text])) for text in ("BLUE", "red", "", " 7", "1_0", "07", "1", "3000000000")),
    ("enum", pa.array([I31])),
    ("timestamp", pa.array([I63 - 1], UTC_TIME)),
    ("timestamp", pa.array([253_402_300_800], pa.timestamp("s", "UTC"))),
    ("duration", pa.array([315_576_000_001_000_000])),
    *(("json", pa.array([text])) for text in ("{", "9007199254740993", "[0.12345678901234567890]", "1e400", "NaN")),
    ("json", pa.array(['{"a":1,"a":2}'])),
    ("wrapper", pa.array([-1])),
    ("message", pa.array([{"x": I31}])),
    ("repeated", pa.array([[1, I31]])),
    ("repeated", pa.array([[1, None]])),
    ("map", pa.array([[("a", None)]], pa.map_(pa.string(), pa.int32()))),
    ("map", pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))),
    ("by_number", pa.array([[(I31, {"x": 1})]], pa.map_(pa.int64(), pa.struct([("x", pa.int32())])))),
    ("by_number", pa.array([[(1, None)]], pa.map_(pa.int64(), pa.struct([("x", pa.int32())])))),
]


@pytest.mark.parametrize(("name", "values"), BAD, ids=[f"{case[0]}-{nth}" for nth, case in enumerate(BAD)])
def test_a_value_that_does_not_fit_is_refused_by_its_column(name: str, values: pa.Array) -> None:
    with pytest.raises(SerializationError, match=f"f_{name}"):
        written(name, values)


def test_a_oneof_takes_one_of_its_fields() -> None:
    kind = pa.struct([("left", pa.string()), ("right", pa.int32())])

    (made,) = encoder(kind).encode(pa.array([{"left": None, "right": 5}], kind)).to_pylist()

    assert order().FromString(made[7:]).right == 5
    with pytest.raises(SerializationError, match="left and right, of which one may be set"):
        encoder(kind).encode(pa.array([{"left": "x", "right": 5}], kind))


def test_a_required_field_that_is_null_is_refused() -> None:
    schema = Schema("PROTOBUF", 'syntax = "proto2"; message Old { required int32 id = 1; optional int32 n = 2; }')
    rows = pa.array([{"id": None, "n": 1}], pa.struct([("id", pa.int32()), ("n", pa.int32())]))

    with pytest.raises(SerializationError, match="id"):
        BatchEncoder(schema, 1, SchemasInMemory(), rows.type, depth=3).encode(rows)


# --- reading -----------------------------------------------------------------------------------


def read(message: Any) -> tuple[dict[str, Any] | None, str | None]:
    source = SchemasInMemory()
    number = source.register("t-value", SCHEMA)
    decoder = BatchDecoder(reader_of(SCHEMA, source, message="shop.Order"), source.schema_by_id)
    rows, errors = decoder.decode(pa.array([framed(number, b"\x02\x02" + message.SerializeToString())], pa.binary()))
    rows.validate(full=True)
    return rows.to_pylist()[0], errors[0].as_py()


@pytest.mark.parametrize("end", [0, 1], ids=["lowest", "highest"])
def test_what_google_writes_is_read(end: int) -> None:
    given: dict[str, Any] = {kind: BOUNDS[kind][end] for kind in WHOLE}
    given |= {"double": [5e-324, 1.7976931348623157e308][end], "float": [2.0**-149, FLOAT32_MAX][end]}
    given |= {"bool": bool(end), "string": "é\0", "bytes": b"\xff", "enum": [1, I31 - 1][end]}
    made = order()(**{f"f_{name}": value for name, value in given.items()})
    made.f_timestamp.seconds = [-62_135_596_800, 253_402_300_799][end]
    made.f_duration.seconds = [-9_000_000, 9_000_000][end]
    made.f_json.number_value = 0.1

    row, error = read(made)

    assert error is None
    assert row is not None
    assert {name: row[f"f_{name}"] for name in given} == {**given, "enum": ["RED", "2147483647"][end]}
    moments = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
    assert row["f_timestamp"] == moments[end]
    assert row["f_duration"] == timedelta(seconds=[-9_000_000, 9_000_000][end])
    assert row["f_json"] == "0.1"
    assert type(row["f_uint64"]) is Decimal


@pytest.mark.parametrize(
    ("field", "seconds", "nanos"),
    [
        ("timestamp", 0, 1),
        ("timestamp", 0, 999_999_999),
        ("timestamp", 0, -1_000),
        ("timestamp", 0, 1_000_000_000),
        ("timestamp", 253_402_300_800, 0),
        ("timestamp", -62_135_596_801, 0),
        ("duration", 0, -1),
        ("duration", 1, -1_000),
        ("duration", 315_576_000_001, 0),
    ],
)
def test_a_time_that_the_column_cannot_hold_is_an_error_with_its_name(field: str, seconds: int, nanos: int) -> None:
    made = order()()
    getattr(made, f"f_{field}").seconds, getattr(made, f"f_{field}").nanos = seconds, nanos

    row, error = read(made)

    assert row is None
    assert str(error).startswith(f"f_{field}: ")


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=["nan", "infinity"])
def test_what_no_json_can_say_is_an_error_with_its_name(number: float) -> None:
    made = order()()
    made.f_json.number_value = number

    row, error = read(made)

    assert row is None
    assert str(error).startswith("f_json: ")


# --- changed schemas ---------------------------------------------------------------------------

INSIDE = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message R {{ {} }}'


def evolved(wrote: str, reads: str, value: Any) -> tuple[Any, str | None]:
    """The field `f` as a reader with another schema sees what Google's library wrote."""
    source = SchemasInMemory()
    old, new = (Schema("PROTOBUF", INSIDE.format(text)) for text in (wrote, reads))
    number = source.register("t-value", old)
    source.register("u-value", new)
    message = GetMessageClass(compiled(old.text).message_types_by_name["R"])(f=value)
    data = framed(number, b"\0" + message.SerializeToString())
    rows, errors = BatchDecoder(reader_of(new, source), source.schema_by_id).decode(pa.array([data], pa.binary()))
    row = rows.to_pylist()[0]
    return (None if row is None else row["f"]), errors[0].as_py()


@pytest.mark.parametrize(
    ("wrote", "reads", "value", "expected"),
    [
        ("int32 f = 1;", "int64 f = 1;", -1, -1),
        ("int64 f = 1;", "int32 f = 1;", I31 - 1, I31 - 1),
        ("int64 f = 1;", "bool f = 1;", 1, True),
        ("uint32 f = 1;", "int32 f = 1;", 7, 7),
        ("sint64 f = 1;", "sint32 f = 1;", -I31, -I31),
        ("fixed32 f = 1;", "sfixed32 f = 1;", 7, 7),
        ("string f = 1;", "bytes f = 1;", "é", "é".encode()),
        ("repeated int64 f = 1;", "repeated int32 f = 1;", [1, 2], [1, 2]),
        ("map<int64, string> f = 1;", "map<int32, bytes> f = 1;", {1: "a"}, [(1, b"a")]),
        ("double f = 1;", "int64 f = 1;", 0.0, 0),
        ("string f = 1;", "repeated string f = 1;", "a", ["a"]),
        ("repeated string f = 1;", "string f = 1;", ["a"], "a"),
    ],
)
def test_a_changed_type_that_can_say_the_value_reads_it(wrote: str, reads: str, value: Any, expected: Any) -> None:
    assert evolved(wrote, reads, value) == (expected, None)


@pytest.mark.parametrize(
    ("wrote", "reads", "value"),
    [
        ("int64 f = 1;", "int32 f = 1;", 1 << 32),
        ("int32 f = 1;", "uint32 f = 1;", -1),
        ("uint64 f = 1;", "int64 f = 1;", 2 * I63 - 1),
        ("int64 f = 1;", "bool f = 1;", 2),
        ("sint64 f = 1;", "sint32 f = 1;", -I31 - 1),
        ("fixed64 f = 1;", "sfixed64 f = 1;", I63),
        ("int32 f = 1;", "sint32 f = 1;", 1),
        ("int64 f = 1;", "double f = 1;", 1),
        ("fixed64 f = 1;", "double f = 1;", 1),
        ("float f = 1;", "fixed32 f = 1;", 1.0),
        ("int64 f = 1;", "google.protobuf.Timestamp f = 1;", 1_700_000_000),
        ("repeated int32 f = 1;", "int32 f = 1;", [1, 2]),
        ("repeated string f = 1;", "string f = 1;", ["a", "b"]),
        ("repeated int64 f = 1;", "repeated int32 f = 1;", [1, 1 << 32]),
        ("map<int64, string> f = 1;", "map<int32, string> f = 1;", {1 << 32: "a"}),
        ("map<string, int64> f = 1;", "map<string, double> f = 1;", {"a": 1}),
    ],
)
def test_a_changed_type_that_cannot_say_the_value_is_an_error_with_its_name(wrote: str, reads: str, value: Any) -> None:
    """Google's library gives another number, the last one, or none."""
    found, error = evolved(wrote, reads, value)

    assert found is None
    assert str(error).startswith("f: the ")


def test_changes_are_found_below_messages_lists_and_maps() -> None:
    line = "message L {{ optional L next = 1; {} n = 2; }} {}"
    for field, value in (
        ("L f = 1;", {"next": {"next": {"n": 1 << 32}}}),
        ("repeated L f = 1;", [{"n": 1}, {"n": 1 << 32}]),
        ("map<string, L> f = 1;", {"a": {"next": {"n": 1 << 32}}}),
    ):
        found, error = evolved(line.format("int64", field), line.format("int32", field), value)

        assert found is None
        assert str(error).startswith("n: the writer's int64 does not fit int32")
