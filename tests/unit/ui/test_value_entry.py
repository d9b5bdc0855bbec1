"""JSON typed by people, encoded by a schema: what fits is sent, and each field that does not is named."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.schemas.schema import Registered, Schema, SchemaType
from kafkalike.schemas.serde.codec import codec_for
from kafkalike.ui.value_entry import InvalidEntryError, encoded, entry_text, example

CARD: Final = {"type": "record", "name": "Card", "namespace": "shop", "fields": [{"name": "digits", "type": "string"}]}
VOUCHER: Final = {"type": "record", "name": "Voucher", "fields": [{"name": "digits", "type": "string"}]}

PAYMENT: Final = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "euro", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}, "default": "OPEN"},
        {"name": "method", "type": ["null", CARD, VOUCHER], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}, "default": []},
        {"name": "any", "type": ["null", "int", "double", "string"], "default": None},
    ],
}

GOOD: Final = {"id": 9007199254740993, "euro": "12.50", "paid": "2026-01-31T12:00:00Z"}

PROTO: Final = """syntax = "proto3";
package shop;
message Order { int64 id = 1; repeated Line lines = 2; bytes raw = 3; }
message Line { int32 count = 1; }
"""

RULES: Final = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}


class Known:
    """A registry of one schema, of the id 7."""

    def __init__(self, kind: SchemaType, text: str) -> None:
        self.schema = Schema(kind, text)

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002
        """The schema."""
        assert id == 7
        return self.schema

    def latest(self, subject: str) -> Registered | None:
        """None."""
        raise NotImplementedError(subject)

    def ids_of(self, subject: str) -> Sequence[int]:
        """None."""
        raise NotImplementedError(subject)

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """None."""
        del schema
        return {}

    def decoded(self, data: bytes) -> Any:
        """What a reader reads."""
        return codec_for(self.schema, self).decode(data[5:])


AVRO: Final = Known("AVRO", json.dumps(PAYMENT))
PROTOBUF: Final = Known("PROTOBUF", PROTO)
JSON: Final = Known("JSON", json.dumps(RULES))


def test_avro_record_has_its_schema_id_exact_numbers_and_defaults() -> None:
    """64 bits, decimals, times, and the defaults of missing fields."""
    data = encoded(json.dumps(GOOD), 7, AVRO)

    assert data[:5] == b"\x00\x00\x00\x00\x07"
    found = AVRO.decoded(data)
    assert (found["id"], str(found["euro"]), found["paid"].isoformat()) == (
        9007199254740993,
        "12.50",
        "2026-01-31T12:00:00+00:00",
    )
    assert (found["raw"], found["state"], found["method"], found["lines"], found["any"]) == (
        b"\xff",
        "OPEN",
        None,
        [],
        None,
    )


@pytest.mark.parametrize(
    ("changed", "path", "message"),
    [
        ({"id": 1.5}, "id", "a whole number is needed, not 1.5"),
        ({"id": 1 << 63}, "id", "a number from -9223372036854775808 to 9223372036854775807 is needed"),
        ({"id": "1"}, "id", 'a whole number is needed, not "1"'),
        ({"euro": "1.234"}, "euro", "a decimal of 6 digits, of which 2 are behind the point, is needed"),
        ({"euro": "12345.00"}, "euro", "a decimal of 6 digits"),
        ({"euro": "1e999999999"}, "euro", "a decimal of 6 digits"),
        ({"paid": "noon"}, "paid", "a timestamp-millis in ISO 8601 or a number is needed"),
        ({"paid": "2026-01-31T12:00:00"}, "paid", "a time with its zone"),
        ({"raw": "€"}, "raw", "text with a character"),
        ({"state": "LOST"}, "state", 'one of OPEN, DONE is needed, not "LOST"'),
        ({"method": {"digits": 1}}, "method", "null or record shop.Card or record shop.Voucher is needed"),
        ({"method": {"shop.Card": {"digits": 1}}}, "method.digits", "a text is needed, not 1"),
        ({"lines": [{"a": 1}, {"b": None}]}, "lines[1].b", "a whole number is needed, not null"),
        ({"colour": 1}, "colour", "shop.Payment has no such field"),
        ({"any": []}, "any", "null or int or double or string is needed, not []"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_wrong_field_of_avro_is_named_by_its_path(changed: dict[str, Any], path: str, message: str) -> None:
    """With what is needed there."""
    with pytest.raises(InvalidEntryError) as raised:
        encoded(json.dumps({**GOOD, **changed}), 7, AVRO)

    (problem,) = raised.value.problems
    assert problem.path == path
    assert problem.message.startswith(message)


def test_all_wrong_fields_are_reported_at_once() -> None:
    """Missing, repeated and wrong ones."""
    with pytest.raises(InvalidEntryError) as raised:
        encoded('{"id": 1, "id": 2, "euro": true}', 7, AVRO)

    assert [(one.path, one.message) for one in raised.value.problems] == [
        ("id", "the name is repeated"),
        ("euro", "a decimal is needed, not true"),
        ("paid", "is missing: a long is needed"),
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(5, int), (5.0, float), ("5", str), (None, type(None))],
    ids=["whole", "fraction", "text", "null"],
)
def test_branch_of_a_union_is_the_one_of_the_notation(given: object, kept: type) -> None:
    """1.0 is not 1."""
    found = AVRO.decoded(encoded(json.dumps({**GOOD, "any": given}), 7, AVRO))["any"]

    assert (found, type(found)) == (given, kept)


@pytest.mark.parametrize("name", ["shop.Card", "shop.Voucher"])
def test_record_of_a_union_keeps_its_branch_when_it_is_edited(name: str) -> None:
    """Two records with the same fields are told apart by name."""
    text = json.dumps({**GOOD, "method": {name: {"digits": "42"}}})
    data = encoded(text, 7, AVRO)

    found = entry_text(data, AVRO)

    assert found is not None
    assert encoded(found[1], 7, AVRO) == data


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=8), st.floats(allow_nan=False) | st.text())
def test_record_encodes_to_the_same_bytes_from_its_text(number: int, raw: bytes, other: float | str) -> None:
    """Whatever it holds; a form shows the text, and sends it again."""
    value = {**GOOD, "id": number, "raw": raw.decode("latin-1"), "any": other}
    data = encoded(json.dumps(value), 7, AVRO)

    found = entry_text(data, AVRO)

    assert found is not None
    assert encoded(found[1], 7, AVRO) == data


def test_protobuf_message_is_encoded_and_edited() -> None:
    """With its place in the file, and all 64 bits."""
    data = encoded('{"id": 9007199254740993, "lines": [{"count": 2}], "raw": "AP8="}', 7, PROTOBUF)

    assert data[:6] == b"\x00\x00\x00\x00\x07\x00"
    assert PROTOBUF.decoded(data).id == 9007199254740993
    found = entry_text(data, PROTOBUF)
    assert found is not None
    assert encoded(found[1], 7, PROTOBUF) == data


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ('{"lines": [{"count": "x"}]}', "lines.count", "invalid literal for int()"),
        ('{"colour": 1}', "", "has no field named"),
        ("[1]", "", "a message or a dict is needed"),
        ('{"id": 1, "id": 2}', "id", "the name is repeated"),
    ],
    ids=["type", "unknown", "array", "repeated"],
)
def test_wrong_field_of_protobuf_is_named(text: str, path: str, message: str) -> None:
    """By Protobuf's own reader of JSON."""
    with pytest.raises(InvalidEntryError) as raised:
        encoded(text, 7, PROTOBUF)

    (problem,) = raised.value.problems
    assert problem.path == path
    assert message in problem.message


def test_json_schema_validates_and_keeps_the_digits() -> None:
    """1.10 stays 1.10."""
    assert encoded('{"age": 3, "x": 1.10}', 7, JSON) == b'\x00\x00\x00\x00\x07{"age": 3, "x": 1.10}'
    with pytest.raises(InvalidEntryError) as raised:
        encoded('{"age": -1}', 7, JSON)
    assert [(one.path, one.message) for one in raised.value.problems] == [("age", "-1 is less than the minimum of 0")]


@pytest.mark.parametrize("source", [AVRO, PROTOBUF, JSON], ids=["avro", "protobuf", "json"])
@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul"], ids=["empty", "open", "deep", "word"])
def test_text_that_is_not_json_is_refused(source: Known, text: str) -> None:
    """Without a traceback."""
    with pytest.raises(InvalidEntryError, match="not JSON"):
        encoded(text, 7, source)


@pytest.mark.parametrize("source", [AVRO, PROTOBUF, JSON], ids=["avro", "protobuf", "json"])
def test_example_is_a_valid_value(source: Known) -> None:
    """A newcomer changes it and sends it."""
    assert encoded(example(7, source), 7, source)


@pytest.mark.parametrize("data", [b"", b"plain", b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x07\xff"])
def test_bytes_without_an_exact_text_have_none(data: bytes) -> None:
    """The form shows Base64 instead."""
    assert entry_text(data, AVRO) is None
