"""Codecs: values and payloads of each type of schema, and what hostile ones may cost."""

from __future__ import annotations

import contextlib
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.model.schemas.schema import Reference, Schema, SchemaType
from kafkalike.schemas import limits
from kafkalike.schemas.avro_schema import parse_avro
from kafkalike.schemas.compatibility import avro_compatibility
from kafkalike.schemas.limits import MAX_EMPTY_ITEMS, MAX_VALUE_DEPTH
from kafkalike.schemas.serde.avro_limits import Walk, shape_of
from kafkalike.schemas.serde.codec import Codec, codec_for
from kafkalike.schemas.wire import frame, join, join_indexes, split, split_indexes
from tests.tools.avro_pairs import pairs, schemas_with_values
from tests.tools.effort import examples
from tests.tools.evolutions import AVRO, Evolution
from tests.tools.schemas import SchemasInMemory

SLOW = list(HealthCheck)
NODE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


def codec(value: Any, type: SchemaType = "AVRO") -> Codec:  # noqa: A002
    return codec_for(Schema(type, value if isinstance(value, str) else json.dumps(value)), SchemasInMemory())


def zigzag(value: int) -> bytes:
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest & ~0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


# --- the frame -----------------------------------------------------------------------------------


@given(st.integers(0, (1 << 31) - 1), st.binary())
def test_a_frame_is_split_as_it_was_joined(number: int, payload: bytes) -> None:
    assert split(join(number, payload)) == (number, payload)


@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=8).map(tuple), st.binary(max_size=5))
def test_the_place_of_a_message_is_split_as_it_was_joined(indexes: tuple[int, ...], payload: bytes) -> None:
    joined = join_indexes(indexes)

    assert split_indexes(joined + payload) == (indexes, len(joined))


@pytest.mark.parametrize("data", [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01x", b"{}   ", b"\xff" * 9])
def test_what_has_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        split(data)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\xff" * 12, zigzag(65), b"\x04\x02", zigzag(1 << 40)])
def test_a_wrong_place_of_a_message_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        split_indexes(data)


@pytest.mark.parametrize("number", [-1, 1 << 31])
def test_an_id_has_four_bytes(number: int) -> None:
    with pytest.raises(SerializationError):
        frame(number)


# --- Avro ----------------------------------------------------------------------------------------


@pytest.mark.slow
@given(schemas_with_values())
@settings(max_examples=examples(200, 50), deadline=None, suppress_health_check=SLOW)
def test_what_is_written_is_read_and_is_what_fastavro_writes(pair: tuple[Any, Any]) -> None:
    schema, value = pair
    made = codec(schema)
    if made.described.kind == "bytes":  # type: ignore[attr-defined]
        return
    payload = made.encode(value)
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, fastavro.parse_schema(schema), value)

    assert payload == theirs.getvalue()
    assert made.encode(made.decode(payload)) == payload
    Walk(made.described).check(payload, 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "case", [c for c in AVRO if c.backward and "string and" not in c.name], ids=lambda case: case.name
)
def test_what_a_table_calls_compatible_can_be_read(case: Evolution) -> None:
    source = SchemasInMemory()
    for value in generate_many(json.loads(case.old.text), 5):
        codec_for(case.old, source, reader=case.new).decode(codec_for(case.old, source).encode(value))


@pytest.mark.slow
@given(pairs(), pairs(), st.data())
@settings(max_examples=examples(300, 50), deadline=None, suppress_health_check=SLOW)
def test_what_is_compatible_can_be_read(new: Any, old: Any, data: st.DataObject) -> None:
    """Most pairs have nothing in common; the evolutions of the tables are tried too."""
    reader, writer = (Schema("AVRO", json.dumps(schema)) for schema in (new[0], old[0]))
    if avro_compatibility.problems(reader, writer, lambda _: {}):
        return
    if old[0] == "bytes" or (isinstance(old[0], dict) and old[0]["type"] == "bytes"):
        return  # written without its length, and read as it stands
    value = data.draw(old[1])
    source = SchemasInMemory()

    codec_for(writer, source, reader=reader).decode(codec_for(writer, source).encode(value))


def test_types_of_references_are_taken_from_where_they_are_defined() -> None:
    source = SchemasInMemory()
    outer = {
        "type": "record",
        "name": "n.Outer",
        "fields": [
            {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "v", "type": "int"}]}},
            {"name": "again", "type": "Inner"},
        ],
    }
    source.register("outer", Schema("AVRO", json.dumps(outer)))
    text = json.dumps(["null", "n.Inner", "n.Outer"])
    made = codec_for(Schema("AVRO", text, (Reference("n.Outer", "outer", 1),)), source)
    value = {"inner": {"v": 1}, "again": {"v": 2}}

    assert made.decode(made.encode(value)) == value
    assert made.decode(made.encode({"v": 7})) == {"v": 7}


def test_a_record_is_read_as_another_schema() -> None:
    old = Schema("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}')
    new = Schema(
        "AVRO",
        '{"type":"record","name":"R","fields":[{"name":"b","type":"long","aliases":["a"]},'
        '{"name":"c","type":"string","default":"x"}]}',
    )
    source = SchemasInMemory()

    assert codec_for(old, source, reader=new).decode(codec_for(old, source).encode({"a": 4})) == {"b": 4, "c": "x"}


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ("bytes?", zigzag(1 << 60)),
        ("string", zigzag(1 << 60)),
        ("string", zigzag(-5)),
        ("string", b"\x80" * 1000),
        ("string", zigzag(2) + b"\xff\xff"),
        ("int", b""),
        ("double", b"abc"),
        ("boolean", b""),
        ("int", b"\x02\x02"),
        ({"type": "array", "items": "int"}, zigzag(1 << 60)),
        ({"type": "array", "items": "null"}, zigzag(1 << 60)),
        ({"type": "array", "items": "null"}, zigzag(-(1 << 62)) + zigzag(0)),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, zigzag(1 << 40)),
        (
            {"type": "array", "items": {"type": "array", "items": "null"}},
            zigzag(2) + (zigzag(MAX_EMPTY_ITEMS) + b"\x00") * 2,
        ),
        ({"type": "map", "values": "null"}, zigzag(1 << 60)),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, zigzag(77)),
        (["null", "int"], zigzag(9)),
        (["null", "int"], zigzag(-1)),
        (NODE, b"\x02" * 100_000),
        (NODE, b"\x02" * 100_000 + b"\x00"),
        (
            {"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "array", "items": "T"}}]},
            b"\x02" * 9_999,
        ),
        (
            {"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "map", "values": "T"}}]},
            b"\x02\x00" * 9_999,
        ),
    ],
)
def test_a_hostile_payload_is_refused_at_once(schema: Any, payload: bytes) -> None:
    made = codec(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "bytes"}]} if schema == "bytes?" else schema
    )

    with pytest.raises(SerializationError):
        made.decode(payload)


def chain(length: int) -> Any:
    value: Any = None
    for _ in range(length):
        value = {"next": value}
    return value


@pytest.mark.slow
def test_a_recursive_value_has_a_limit_in_both_directions() -> None:
    made, most = codec(NODE), MAX_VALUE_DEPTH // 2 - 1
    held: dict[str, Any] = {}
    held["next"] = held

    assert made.decode(made.encode(chain(most))) == chain(most)
    for value in (chain(MAX_VALUE_DEPTH), chain(50_000), held):
        with pytest.raises(SerializationError, match="nested"):
            made.encode(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]},
        {
            "type": "record",
            "name": "A",
            "fields": [{"name": "b", "type": {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}}],
        },
    ],
)
def test_a_record_that_always_holds_itself_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidSchemaError, match="always contains itself"):
        codec(schema)


def levels(count: int, leaf: str, parts: int) -> Any:
    fields: list[Any] = [
        {"name": "a0", "type": {"type": "record", "name": "A0", "fields": [{"name": "x", "type": leaf}]}}
    ]
    for level in range(1, count):
        below = [{"name": f"p{part}", "type": f"A{level - 1}"} for part in range(parts)]
        fields.append({"name": f"a{level}", "type": {"type": "record", "name": f"A{level}", "fields": below}})
    return {"type": "record", "name": "Top", "fields": fields}


@pytest.mark.parametrize(("count", "parts"), [(40, 2), (3_000, 1)])
def test_types_that_grow_with_each_name_are_refused(count: int, parts: int) -> None:
    with pytest.raises(InvalidSchemaError):
        codec(levels(count, "null", parts))


def test_a_shape_says_what_must_be_checked() -> None:
    def shape(schema: Any) -> tuple[bool, bool]:
        found = shape_of(parse_avro(Schema("AVRO", json.dumps(schema)), {}))
        return found.recursive, found.empty_items

    assert shape("int") == (False, False)
    assert shape(NODE) == (True, False)
    assert shape({"type": "array", "items": "null"}) == (False, True)
    assert shape({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}) == (False, True)
    assert shape({"type": "array", "items": {"type": "map", "values": "null"}}) == (False, False)


@pytest.mark.slow
@given(pairs().map(lambda pair: pair[0]), st.binary(max_size=40))
@settings(max_examples=examples(300, 50), deadline=None, suppress_health_check=SLOW)
def test_any_bytes_are_a_value_or_refused(schema: Any, payload: bytes) -> None:
    with contextlib.suppress(SerializationError):
        codec(schema).decode(payload)


def test_a_value_that_does_not_fit_is_refused() -> None:
    made = codec({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})

    for value in ({}, {"a": "x"}, {"a": 1 << 80}, 5, {"a": None}):
        with pytest.raises(SerializationError, match="not of the Avro schema"):
            made.encode(value)


# --- JSON Schema ---------------------------------------------------------------------------------


def test_json_is_checked_by_its_schema() -> None:
    made = codec({"type": "object", "properties": {"a": {"type": "integer"}}}, "JSON")

    assert made.decode(made.encode({"a": 1, "é": "€"})) == {"a": 1, "é": "€"}
    with pytest.raises(SerializationError, match=r"at \$\.a: 'x' is not of type 'integer'"):
        made.encode({"a": "x"})
    with pytest.raises(SerializationError, match="integer"):
        made.decode(b'{"a": "x"}')


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 100_000, b'"\xed\xa0\x80"'])
def test_what_is_no_json_is_refused(payload: bytes) -> None:
    with pytest.raises(SerializationError):
        codec({}, "JSON").decode(payload)


def test_what_json_cannot_say_is_refused() -> None:
    for value in (float("nan"), object(), {1, 2}, b"x", "\ud800"):
        with pytest.raises(SerializationError):
            codec({}, "JSON").encode(value)


def test_json_references_are_looked_up_in_the_registry_and_nowhere_else() -> None:
    source = SchemasInMemory()
    source.register("t", Schema("JSON", '{"type":"integer"}'))
    schema = Schema("JSON", '{"properties":{"a":{"$ref":"t.json"}}}', (Reference("t.json", "t", 1),))

    assert codec_for(schema, source).encode({"a": 1}) == b'{"a":1}'
    with pytest.raises(SerializationError):
        codec_for(schema, source).encode({"a": "x"})
    with pytest.raises(SerializationError, match="no reference"):
        codec({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "JSON").encode({"a": 1})


@pytest.mark.parametrize("text", ["", "[]", '{"type": "nothing"}', '{"minimum": "x"}', '{"$ref": 5}'])
def test_a_text_that_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        codec(text, "JSON")


# --- Protobuf ------------------------------------------------------------------------------------

PROTO = 'syntax = "proto3"; package p; message A { string s = 1; A next = 2; message B { int32 n = 1; } } message C { }'


def test_messages_are_read_by_their_place() -> None:
    made = codec(PROTO, "PROTOBUF")
    inner = made.message_class((0, 0))  # type: ignore[attr-defined]

    assert made.encode({"s": "x"}) == b"\x00\x0a\x01x"
    assert made.encode(inner(n=3)) == b"\x04\x00\x00\x08\x03"
    assert made.decode(b"\x04\x00\x00\x08\x03") == inner(n=3)
    with pytest.raises(SerializationError, match="no message at the place"):
        made.decode(b"\x02\x08")


@pytest.mark.parametrize(
    "payload", [b"", b"\x00\x0a\xff\xff\xff\xff\x0f", b"\x00\x0a\x05x", b"\x00\xff", b"\x00\x0a\x01\xff"]
)
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(SerializationError):
        codec(PROTO, "PROTOBUF").decode(payload)


def test_messages_in_each_other_have_a_limit() -> None:
    payload = b""
    for _ in range(1_000):
        length, rest = len(payload), bytearray()
        while length > 127:
            rest.append(length & 127 | 128)
            length >>= 7
        payload = b"\x12" + bytes([*rest, length]) + payload

    with pytest.raises(SerializationError, match="is not of its Protobuf schema"):
        codec(PROTO, "PROTOBUF").decode(b"\x00" + payload)


def test_a_message_of_another_schema_is_refused() -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    made = codec(PROTO, "PROTOBUF")
    for value in (Timestamp(), 5, {"unknown": 1}, {"s": 1}):
        with pytest.raises(SerializationError):
            made.encode(value)


def test_a_reader_of_another_type_is_refused() -> None:
    with pytest.raises(SerializationError, match="schema has the type AVRO, the reader's has JSON"):
        codec_for(Schema("AVRO", '"int"'), SchemasInMemory(), reader=Schema("JSON", "{}"))


def test_a_long_decimal_is_refused_before_digits_are_made_of_it() -> None:
    """Python needs minutes for the digits of a megabyte."""
    decimal = {"logicalType": "decimal", "precision": 4, "scale": 2}
    long = 1_000_000
    cases: list[tuple[Any, bytes]] = [
        ({"type": "bytes", **decimal}, zigzag(long) + b"\x7f" * long),
        (["null", {"type": "bytes", **decimal}], zigzag(1) + zigzag(long) + b"\x7f" * long),
        ({"type": "fixed", "name": "F", "size": long, **decimal}, b"\x7f" * long),
    ]
    for kind, payload in cases:
        with pytest.raises(SerializationError, match="decimal has more than"):
            codec({"type": "record", "name": "R", "fields": [{"name": "d", "type": kind}]}).decode(payload)
    fields = [{"name": "d", "type": {"type": "bytes", **decimal}}, {"name": "s", "type": "string"}]
    both = codec({"type": "record", "name": "R", "fields": fields})
    value = {"d": Decimal("12.34"), "s": "x" * long}
    assert both.decode(both.encode(value)) == value


@pytest.mark.slow
def test_the_items_of_a_long_array_are_not_compared_in_pairs() -> None:
    """Neither where they cannot be sorted, nor where all have the same hash."""
    dialect = "http://json-schema.org/draft-07/schema#"
    inside = {"$schema": dialect, "properties": {"a": {"$ref": "#"}}, "uniqueItems": True}
    arrays = codec(inside, "JSON")
    for items in (
        [{"a": number} for number in range(20_000)],
        [[], *(number * (2**61 - 1) for number in range(20_000))],
    ):
        assert arrays.decode(json.dumps(items).encode()) == items
        assert arrays.decode(json.dumps({"a": items}).encode()) == {"a": items}
        with pytest.raises(SerializationError, match="not unique"):
            arrays.decode(json.dumps([*items, items[0]]).encode())


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", None, [1], {"a": 1}, {"a": True}, 0, False, [], {}, ""], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([[1, 2], [2, 1]], True),
        ([None, {}, None], False),
        ([1e308, int(1e308)], False),
    ],
)
def test_items_are_the_same_as_json_schema_says(items: list[Any], unique: bool) -> None:  # noqa: FBT001
    arrays = codec({"type": "array", "uniqueItems": True}, "JSON")
    payload = json.dumps(items).encode()
    if unique:
        assert arrays.decode(payload) == items
    else:
        with pytest.raises(SerializationError, match="not unique"):
            arrays.decode(payload)


def test_records_do_not_share_a_default() -> None:
    """Who changes one record changes no other one."""
    inner = {"type": "record", "name": "Q", "fields": [{"name": "x", "type": {"type": "map", "values": "int"}}]}
    wrote = {"type": "record", "name": "R", "fields": []}
    fields = [
        {"name": "a", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "q", "type": inner, "default": {"x": {}}},
    ]
    texts = [Schema("AVRO", json.dumps(one)) for one in (wrote, {**wrote, "fields": fields})]
    reading = codec_for(texts[0], SchemasInMemory(), reader=texts[1])
    first = reading.decode(b"")
    first["a"].append(1)
    first["q"]["x"]["y"] = 1
    assert reading.decode(b"") == {"a": [], "q": {"x": {}}}


# --- what fastavro reads otherwise ---------------------------------------------------------------


@pytest.mark.parametrize("number", [-3, -2, -1, 2, 3])
def test_a_union_has_the_branches_that_it_has(number: int) -> None:
    """None from the end, as Python's lists have them; alone, in an array, and read as another schema."""
    union = ["null", "string"]
    alone = {"type": "record", "name": "R", "fields": [{"name": "a", "type": union}]}
    below = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": union}}]}
    wide = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string", "int"]}]}
    as_wide = codec_for(Schema("AVRO", json.dumps(alone)), SchemasInMemory(), reader=Schema("AVRO", json.dumps(wide)))

    for reads, before in ((codec(alone), b""), (codec(below), zigzag(1)), (as_wide, b"")):
        assert reads.decode(before + zigzag(1) + zigzag(1) + b"x" + (b"\0" if before else b""))
        with pytest.raises(SerializationError):
            reads.decode(before + zigzag(number) + zigzag(1) + b"x" + (b"\0" if before else b""))


def test_a_default_is_read_as_a_record_that_says_the_same() -> None:
    """With its logical type, in whatever it stands."""
    kinds: list[tuple[Any, Any, Any]] = [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_500, None),
        (["null", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}], None, None),
        ([{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "null"], "\x01\0", Decimal("2.56")),
        ({"type": "string", "logicalType": "uuid"}, "00000000-0000-0000-0000-000000000001", None),
        ({"type": "array", "items": "bytes"}, ["\xff"], [b"\xff"]),
        ({"type": "map", "values": {"type": "int", "logicalType": "date"}}, {"a": 1}, None),
        ("double", "NaN", None),
    ]
    for nth, (kind, default, wanted) in enumerate(kinds):
        field = {"name": "f", "type": kind, "default": default}
        inner = {"name": "in", "type": {"type": "record", "name": "In", "fields": [field]}, "default": {}}
        new = {"type": "record", "name": "R", "fields": [field, inner]}
        old = {"type": "record", "name": "R", "fields": []}
        reads = codec_for(Schema("AVRO", json.dumps(old)), SchemasInMemory(), reader=Schema("AVRO", json.dumps(new)))

        found = reads.decode(b"")

        assert repr(found["f"]) == repr(found["in"]["f"])
        assert repr(codec(new).decode(codec(new).encode(found))) == repr(found), nth
        if wanted is not None:
            assert found["f"] == wanted


# --- patterns of JSON Schema ---------------------------------------------------------------------

NEWEST_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def fits(schema: Any, value: Any) -> bool:
    try:
        codec(schema, "JSON").encode(value)
    except SerializationError as error:
        if "cannot be applied" in str(error):
            raise
        return False
    return True


def test_a_pattern_costs_what_the_text_is_long() -> None:
    """Of a text, and of names; one that Python's own would look for until the end of days."""
    text = "a" * 5_000 + "b"
    names = {"patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False}

    assert not fits({"pattern": "^(a+)+$"}, text)
    assert fits({"pattern": "^(a+)+b$"}, text)
    assert (fits(names, {"aa": 1}), fits(names, {"aa": "x"}), fits(names, {text: 1})) == (True, False, False)
    assert fits({"pattern": "^\\u00e9\\/\\d$"}, "é/1")
    others = {"properties": {"b": {}}, "patternProperties": {"^a": {}}, "additionalProperties": {"type": "integer"}}
    assert (fits(others, {"b": "", "ab": "", "c": 1}), fits(others, {"c": ""})) == (True, False)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(?=a)b"},
        {"properties": {"default": {"pattern": r"(a)\1"}}},
        {"patternProperties": {"(?!a)": {}}},
        {"$schema": NEWEST_DRAFT, "patternProperties": {"^(x+)+$": {}}, "unevaluatedProperties": False},
    ],
)
def test_a_pattern_that_nobody_can_bound_is_refused_by_name(schema: Any) -> None:
    """Who looks around or back; several quantifiers where the library looks by itself."""
    with pytest.raises(InvalidSchemaError, match="the pattern"):
        codec(schema, "JSON")


def test_a_pattern_in_a_value_of_the_schema_is_none() -> None:
    """What stands in an example is no keyword."""
    schema = {"$schema": NEWEST_DRAFT, "examples": [{"pattern": "(?=a)"}], "default": {"pattern": "("}}

    assert fits({**schema, "patternProperties": {"^x[+*]+": {}}, "unevaluatedProperties": False}, {"x+": 1})


def test_references_that_multiply_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty definitions, each with the next one twice; a value that needs few of them is right all the same."""
    monkeypatch.setattr(limits, "MAX_REFERENCES_FOLLOWED", 1_000)
    twice = {f"d{nth}": {"allOf": [{"$ref": f"#/$defs/d{nth + 1}"}] * 2} for nth in range(30)}
    made = codec({"$schema": NEWEST_DRAFT, "$defs": {**twice, "d30": {}}, "$ref": "#/$defs/d0"}, "JSON")
    few = codec({"$schema": NEWEST_DRAFT, "$defs": {"d": {}}, "items": {"$ref": "#/$defs/d"}}, "JSON")

    with pytest.raises(SerializationError, match="more than 1,000 times"):
        made.encode(1)
    for _ in range(3):
        few.encode([1] * 900)
