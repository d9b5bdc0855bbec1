"""Protobuf messages as Arrow columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from kafkalike.schemas.arrow.protobuf_columns import message_columns
from kafkalike.schemas.arrow.value_arrays import converted
from tests.tools.avro_cases import framed
from tests.tools.protoc import compiled
from tests.tools.schemas import SchemasInMemory

EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
enum Color { NONE = 0; RED = 1; ALSO_NONE = 5; }
message Order {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; fixed64 f64 = 6; sfixed32 sf32 = 7;
  float f = 8; double d = 9; bool b = 10; string s = 11; bytes raw = 12; Color color = 13;
  optional int32 maybe = 14;
  repeated int32 numbers = 15; repeated Item items = 16;
  map<string, Item> by_name = 17; map<int32, string> by_number = 18;
  oneof one { string left = 19; Item right = 20; }
  google.protobuf.Timestamp at = 21; google.protobuf.Duration took = 22; google.protobuf.StringValue note = 23;
  google.protobuf.Struct free = 24; google.protobuf.Any any = 25;
  Nothing nothing = 26;
}
message Item { string sku = 1; int32 n = 2; }
message Nothing {}
message Tree { int32 v = 1; repeated Tree children = 2; map<string, Tree> named = 3; Tree left = 4; }
"""
FILE = compiled(EVERYTHING)


def made(name: str, **fields: Any) -> Any:
    return GetMessageClass(FILE.message_types_by_name[name])(**fields)


def rows(name: str, *messages: Any, depth: int = 3) -> list[Any]:
    column = message_columns(FILE.message_types_by_name[name], depth)
    found = column.array(messages)
    found.validate(full=True)
    assert found.type == column.kind
    return list(found.to_pylist())


def test_scalars_and_presence() -> None:
    """A missing field is its default, with presence it is null; unsigned ones get the room they need."""
    empty, full = rows(
        "Order",
        made("Order"),
        made(
            "Order",
            **dict.fromkeys(("i32", "i64", "s32", "sf32"), -7),
            u32=2**32 - 1,
            u64=2**64 - 1,
            f64=2**63,
            f=0.5,
            d=0.25,
            b=True,
            s="é",
            raw=b"\xff",
            color=1,
            maybe=0,
        ),
    )

    assert {name: empty[name] for name in ("i32", "s", "raw", "color", "b", "maybe", "numbers", "by_name", "at")} == {
        "i32": 0,
        "s": "",
        "raw": b"",
        "color": "NONE",
        "b": False,
        "maybe": None,
        "numbers": [],
        "by_name": [],
        "at": None,
    }
    assert (full["i32"], full["u32"], full["u64"], full["f64"]) == (-7, 2**32 - 1, Decimal(2**64 - 1), Decimal(2**63))
    assert (full["f"], full["raw"], full["color"], full["maybe"]) == (0.5, b"\xff", "RED", 0)


def test_an_enums_unknown_number_is_its_name() -> None:
    """Proto3 keeps it."""
    assert rows("Order", made("Order", color=9))[0]["color"] == "9"


def test_nested_repeated_maps_and_oneof() -> None:
    """The branch of a oneof that is not set is null."""
    item = made("Item", sku="x", n=2)
    plain = {"sku": "x", "n": 2}

    right, left = rows(
        "Order",
        made("Order", numbers=[1, 2], items=[item, item], by_name={"a": item}, by_number={-1: "b"}, right=item),
        made("Order", left="l"),
    )

    assert (right["numbers"], right["items"], right["by_name"]) == ([1, 2], [plain] * 2, [("a", plain)])
    assert (right["by_number"], right["right"], right["left"]) == ([(-1, "b")], plain, None)
    assert (left["left"], left["right"], left["items"]) == ("l", None, [])


def test_googles_own_messages() -> None:
    """Times are times, wrappers are what they wrap, free structures are JSON."""
    order = made("Order", nothing=made("Nothing"))
    order.at.seconds, order.at.nanos = 1_700_000_000, 123_456_000
    order.took.seconds, order.took.nanos = -1, -500_000_000
    order.note.value = ""
    order.free.update({"a": [1, None, "é"]})
    order.any.Pack(made("Item", sku="x"))

    (found,) = rows("Order", order)

    assert found["at"] == datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)
    assert found["took"] == timedelta(seconds=-1, microseconds=-500_000)
    assert (found["note"], found["free"], found["nothing"]) == ("", '{"a": [1.0, null, "é"]}', {})
    assert found["any"] == {"type_url": "type.googleapis.com/shop.Item", "value": b"\n\x01x"}


def test_a_recursive_message_has_columns_to_its_depth() -> None:
    """Fields that would go deeper are left out."""
    leaf = made("Tree", v=3)
    tree = made("Tree", v=1, children=[made("Tree", v=2, left=leaf)])

    assert message_columns(FILE.message_types_by_name["Tree"], 1).kind == pa.struct([("v", pa.int32())])
    assert rows("Tree", tree, depth=2) == [{"v": 1, "children": [{"v": 2}], "named": [], "left": None}]


@pytest.mark.parametrize("seconds", [-62_135_596_801, 253_402_300_800, 2**62])
def test_a_bad_message_takes_no_other_along(seconds: int) -> None:
    """It is null, and has a text that says why."""
    bad, good = made("Order"), made("Order", i32=1)
    bad.at.seconds = seconds

    found, problems = converted(message_columns(FILE.message_types_by_name["Order"], 3), [good, bad, None, good])

    assert [row and row["i32"] for row in found.to_pylist()] == [1, None, None, 1]
    assert problems == {1: f"at: a timestamp of {seconds} s is beyond the years 1 to 9999"}


NEW = """
syntax = "proto3";
package shop;
message Line { string sku = 1; }
message Order { int64 id = 1; string note = 3; message Part { int32 n = 1; } repeated Part parts = 4; }
"""
OLD = """
syntax = "proto3";
package shop;
message Order { int32 id = 1; string gone = 2; }
"""


def test_values_of_several_schemas_come_to_the_latest() -> None:
    """The place of the message in its file may differ; other messages, and what is no message, are errors."""
    source = SchemasInMemory()
    old, new = Schema("PROTOBUF", OLD), Schema("PROTOBUF", NEW)
    assert [source.register("t-value", schema) for schema in (old, new)] == [1, 2]
    reader = reader_of(new, source, message="shop.Order")
    values = [
        framed(1, b"\0" + b"\x08\x07\x12\x01x"),
        framed(2, b"\x02\x02" + b"\x08\x08\x1a\x01n\x22\x02\x08\x01"),
        framed(2, b"\0" + b"\x0a\x01s"),
        framed(2, b"\x02\x08"),
        framed(1, b"\0\x08"),
        framed(1, b""),
        framed(1, b"\0\x1a\x01\xff"),
        None,
    ]

    found, errors = BatchDecoder(reader, source.schema_by_id).decode(pa.array(values, pa.binary()))

    assert found.to_pylist()[:2] == [
        {"id": 7, "note": "", "parts": []},
        {"id": 8, "note": "n", "parts": [{"n": 1}]},
    ]
    assert found.to_pylist()[2:] == [None] * 6
    assert errors.to_pylist()[:4] == [
        None,
        None,
        "the value is a message shop.Line, not shop.Order",
        "the schema has no message at the place [4]",
    ]
    assert [error is None for error in errors.to_pylist()[4:]] == [False, False, False, True]


def test_the_first_message_counts_unless_one_is_named() -> None:
    """One that is not there is an error."""
    source, schema = SchemasInMemory(), Schema("PROTOBUF", NEW)

    assert reader_of(schema, source).columns.names == ["sku"]
    assert reader_of(schema, source, message="shop.Order.Part").columns.names == ["n"]
    with pytest.raises(IllegalArgumentError, match=r"no message shop\.Nobody"):
        reader_of(schema, source, message="shop.Nobody")
