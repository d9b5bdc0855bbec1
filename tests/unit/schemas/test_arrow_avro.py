"""Avro values as Arrow columns: the same values that fastavro wrote, whatever the schema; bad ones alone are bad."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow import avro_nodes as avro_items
from kafkalike.schemas.arrow.batch_decoder import BatchDecoder, reader_of
from tests.tools.avro_cases import Cases, avro, framed, text_of
from tests.tools.effort import seeds
from tests.tools.schemas import SchemasInMemory


def decoder(reads: Any, *wrote: Any, depth: int = 3) -> BatchDecoder:
    """A decoder with a reader's schema; the ids of writers' schemas count from 1."""
    source = SchemasInMemory()
    for number, schema in enumerate(wrote or [reads], 1):
        assert source.register(f"t{number}-value", Schema("AVRO", text_of(schema))) == number
    return BatchDecoder(reader_of(Schema("AVRO", text_of(reads)), source, depth=depth), source.schema_by_id)


def decoded(reads: Any, values: list[bytes | None], *wrote: Any, depth: int = 3) -> tuple[list[Any], list[str | None]]:
    found, errors = decoder(reads, *wrote, depth=depth).decode(pa.array(values, pa.binary()))
    found.validate(full=True)
    return found.to_pylist(), errors.to_pylist()


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    made = [f if isinstance(f, dict) else {"name": f[0], "type": f[1]} for f in fields]
    return {"type": "record", "name": name, "fields": made}


def walk_along(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every second seed arrays are walked along, as those are that are long."""
    if seed % 2:
        monkeypatch.setattr(avro_items, "LONG", 1)
        monkeypatch.setattr(avro_items, "FEW", 100)


def test_a_long_array_is_read_beside_short_ones() -> None:
    """In several blocks and with the sizes of blocks; damaged in the middle, it is wrong, as it is when it is short."""
    union = ["null", {"type": "array", "items": ["null", "int"]}]
    schema = record(("l", {"type": "array", "items": record(("s", "string"), ("u", union), name="I")}), ("z", "int"))
    item = b"\x02a\x02\x02\x02\x06\0"
    block = b"\xc8\x01" + item * 100
    sized = b"\xc7\x01" + b"\x90\x0b" + item * 100
    one = b"\x02" + item
    tail = b"\0\x04"
    values = [one + tail, block + sized + one + tail, tail, (block + tail).replace(item, b"\x02\xff" + item[2:], 1)]
    values += [block[:-1] + b"\x05" + tail, block[:50], b"\xc8\x01" + item * 99 + tail]

    found, errors = decoded(schema, [framed(1, value) for value in values])

    whole = {"s": "a", "u": [3]}
    assert found[:3] == [{"l": [whole], "z": 2}, {"l": [whole] * 201, "z": 2}, {"l": [], "z": 2}]
    assert errors[:4] == [None, None, None, "a text is not UTF-8"]
    assert (found[3:], all(errors[3:])) == ([None] * 4, True)


@pytest.mark.parametrize("seed", seeds(150, 25))
def test_what_fastavro_writes_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random schemas with every type, and values between others in a slice of an array; arrays in both ways."""
    walk_along(seed, monkeypatch)
    cases = Cases(Random(seed))
    schema = cases.record()
    pairs = [cases.value(schema) for _ in range(cases.random.choice([1, 7, 40]))]
    values = pa.array([b"\0before", *(avro(schema, pair[0]) for pair in pairs), None, b"after"], pa.binary())

    found, errors = decoder(schema).decode(values[1:-1])

    expected = pa.array([*(pair[1] for pair in pairs), None], found.type)
    assert errors.to_pylist() == [None] * (len(pairs) + 1)
    found.validate(full=True)
    assert found.equals(expected), (found, expected)


@pytest.mark.parametrize("seed", seeds(150, 25))
def test_a_damaged_value_takes_no_other_along(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are changed, cut or added. The neighbours are read as if nothing was; what fastavro refuses is an error."""
    walk_along(seed, monkeypatch)
    cases = Cases(Random(seed))
    schema = cases.record()
    pairs = [cases.value(schema) for _ in range(9)]
    values = [avro(schema, pair[0]) for pair in pairs]
    for victim in (2, 5):
        payload = bytearray(values[victim][5:])
        match cases.random.randrange(3):
            case 0 if payload:
                payload[cases.random.randrange(len(payload))] = cases.random.randrange(256)
            case 1 if payload:
                del payload[-1:]
            case _:
                payload += b"\x05"
        values[victim] = framed(1, bytes(payload))

    found, errors = decoder(schema).decode(pa.array(values, pa.binary()))

    expected = pa.array([pair[1] for pair in pairs], found.type)
    for nth, value in enumerate(values):
        if nth not in {2, 5}:
            assert errors[nth].as_py() is None
            assert found[nth : nth + 1].equals(expected[nth : nth + 1])
        elif not _fastavro_reads(schema, value):
            assert errors[nth].as_py() is not None
            assert not found[nth].is_valid


def _fastavro_reads(schema: Any, value: bytes) -> bool:
    plain = io.BytesIO(value[5:])
    # What a number means does not count.
    bare = json.loads(text_of(schema).replace('"logicalType"', '"meaning"'))
    try:
        schemaless_reader(plain, parse_schema(bare))
    except Exception:  # noqa: BLE001 - whatever it says
        return False
    return plain.tell() == len(value) - 5


def test_several_schemas_in_one_batch_come_to_the_latest() -> None:
    """Order stays; what the reader does not know is left out, what the writer did not know has its default."""
    old = record(("id", "int"), ("gone", {"type": "array", "items": "string"}), ("name", "string"))
    new = record(
        {"name": "label", "type": ["null", "string"], "aliases": ["name"]},
        ("id", "long"),
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "default": "\u0001\u0000",
        },
    )
    first = avro(old, {"id": 1, "gone": ["a", "b"], "name": "ann"}, 1)
    second = avro(new, {"label": None, "id": 1 << 40, "tags": [], "price": Decimal("-1.50")}, 2)

    rows, errors = decoded(new, [second, first, None, second], old, new)

    later: dict[str, Any] = {"label": None, "id": 1 << 40, "tags": [], "price": Decimal("-1.50")}
    assert rows == [later, {"label": "ann", "id": 1, "tags": ["x"], "price": Decimal("2.56")}, None, later]
    assert errors == [None] * 4


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
WITHOUT = {"type": "enum", "name": "E", "symbols": ["A"]}
DEFAULTED = {"type": "enum", "name": "E", "symbols": ["A", "Z"], "default": "Z"}


@pytest.mark.parametrize(
    ("wrote", "value", "reads", "expected"),
    [
        ("int", 7, "long", 7),
        ("int", 7, "float", 7.0),
        ("long", 7, "double", 7.0),
        ("float", 0.5, "double", 0.5),
        ("string", "é", "bytes", "é".encode()),
        ("bytes", b"ab", "string", "ab"),
        ("int", 7, ["null", "long"], 7),
        (["null", "int"], 7, "long", 7),
        (["null", "int"], None, "long", "the reader has long where the writer has null"),
        (["string", "int"], "x", "long", "the reader has long where the writer has string"),
        (["int", "long"], 7, ["int", "long"], 7),
        (["float", "null", "double"], 0.5, ["float", "null", "double"], 0.5),
        ("int", 7, ["string", "double", "boolean"], {"member0": None, "member1": 7.0, "member2": None}),
        (["string", "boolean"], True, ["boolean", "null", "string"], {"member0": True, "member1": None}),
        (ENUM, "A", WITHOUT, "A"),
        (ENUM, "B", WITHOUT, "the reader's enum does not have this symbol, and no default"),
        (ENUM, "B", DEFAULTED, "Z"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, "long", 5),
        ("string", "x", "int", "schema 1: the reader has int where the writer has string"),
    ],
)
def test_avros_rules_of_resolution(wrote: Any, value: Any, reads: Any, expected: Any) -> None:
    """A text that stands alone is the error of the value."""
    written = avro(record(("f", wrote)), {"f": value})

    rows, errors = decoded(record(("f", reads)), [written], record(("f", wrote)))

    if errors != [None]:
        assert (rows, errors) == ([None], [expected])
    else:
        assert rows == [{"f": expected}]


def test_records_of_other_names_are_matched_by_their_alias_alone() -> None:
    """The last part of a name counts."""
    wrote = record(("f", "int"), name="old.Order")
    same = {**record(("f", "int"), name="new.Purchase"), "aliases": ["old.Order"]}
    value = avro(wrote, {"f": 1})

    assert decoded(same, [value], wrote)[0] == [{"f": 1}]
    assert decoded(record(("f", "int"), name="Other"), [value], wrote)[1] == [
        "schema 1: the reader has Other where the writer has old.Order"
    ]


LIST = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}],
}


def chain(length: int) -> dict[str, Any]:
    node: dict[str, Any] | None = None
    for number in reversed(range(length)):
        node = {"v": number, "next": node}
    assert node is not None
    return node


def test_a_recursive_type_has_columns_to_its_depth() -> None:
    """What lies deeper is gone past, up to a limit."""
    rows, errors = decoded(LIST, [avro(LIST, chain(n)) for n in (1, 2, 5, 90)], depth=2)
    too_deep = avro(LIST, chain(2)) + b""

    assert rows == [
        {"v": 0, "next": None},
        *[{"v": 0, "next": {"v": 1}}] * 3,
    ]
    assert errors == [None] * 4
    deep = framed(1, b"".join(b"\x00\x02" for _ in range(5_000)) + b"\x00\x00")
    assert decoded(LIST, [deep, too_deep]) == (
        [None, {"v": 0, "next": {"v": 1, "next": None}}],
        ["nested too deeply", None],
    )


def test_references_to_other_schemas() -> None:
    """A type of a referenced schema is known by its name."""
    from kafkalike.model.schemas.schema import Reference

    source = SchemasInMemory()
    source.register("item", Schema("AVRO", text_of(record(("n", "int"), name="x.Item"))))
    order = Schema(
        "AVRO", text_of(record(("items", {"type": "array", "items": "x.Item"}))), (Reference("x.Item", "item", 1),)
    )
    number = source.register("t-value", order)
    found, errors = BatchDecoder(reader_of(order, source), source.schema_by_id).decode(
        pa.array([framed(number, b"\x04\x02\x04\x00")])
    )
    assert (found.to_pylist(), errors.to_pylist()) == ([{"items": [{"n": 1}, {"n": 2}]}], [None])


def test_a_schema_that_is_no_record_has_one_column() -> None:
    """It is called value."""
    assert decoded(["null", "long"], [avro(["null", "long"], 3), avro(["null", "long"], None)])[0] == [
        {"value": 3},
        {"value": None},
    ]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", "the value does not begin with a zero and the id of a schema"),
        (b"\0\0\0\0", "the value does not begin with a zero and the id of a schema"),
        (b"\1\0\0\0\1\2", "the value does not begin with a zero and the id of a schema"),
        (b"\0\0\0\0\x63\2", "schema 99: Schema 99 not found"),
        (framed(1, b""), "the value ends too early"),
        (framed(1, b"\xff" * 11), "a number has more than 10 bytes"),
        (framed(1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "a length that is negative or beyond the value's end"),
        (framed(1, b"\x02\xff"), "a text is not UTF-8"),
        (framed(1, b"\x02a\x00"), "bytes are left after the value"),
    ],
)
def test_what_is_wrong_is_said(value: bytes, error: str) -> None:
    """The value is null, those beside it are not."""
    good = avro(record(("f", "string")), {"f": "é"})

    assert decoded(record(("f", "string")), [good, value, good]) == (
        [{"f": "é"}, None, {"f": "é"}],
        [None, error, None],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("items", "payload", "error"),
    [
        ("null", b"\x80\x80\x80\x80\x80\x80\x80\x01\x00", "more items than the value has room for"),
        ("int", b"\x80\x80\x80\x80\x80\x80\x80\x01\x00", "more items than the value has room for"),
        (record(name="Empty"), b"\x80\x80\x80\x80\x80\x80\x80\x01\x00", "more items than the value has room for"),
        ("null", b"\x80\x80\x04\x80\x80\x04" * 40 + b"\x00", "more items than the value has room for"),
        ("int", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "more items than the value has room for"),
    ],
)
def test_a_few_bytes_cannot_ask_for_much(items: Any, payload: bytes, error: str) -> None:
    """Counts are limited by the bytes that are left, and for items of no bytes by a number."""
    schema = record(("f", {"type": "array", "items": items}))

    assert decoded(schema, [framed(1, payload)])[1] == [error]


@pytest.mark.slow
def test_defaults_that_add_up_are_split_or_refused() -> None:
    """A value of many empty items, each with a default of half a megabyte, is an error; one item is not."""
    empty = record(("f", {"type": "array", "items": record(name="E")}))
    filled = record(
        ("f", {"type": "array", "items": record({"name": "d", "type": "string", "default": "x" * (1 << 19)}, name="E")})
    )
    small, large = framed(1, b"\x02\x00"), framed(1, b"\x80\x80\x02\x00")

    rows, errors = decoded(filled, [small, large, small], empty)

    assert [row and len(row["f"]) for row in rows] == [1, None, 1]
    assert errors == [None, "the value's columns are too large", None]


@pytest.mark.parametrize("text", ["{", '"nothing"', '{"type": "record"}', "[" * 2000, '{"type": "enum", "name": "E"}'])
def test_what_is_no_schema_is_refused(text: str) -> None:
    """With a named error."""
    with pytest.raises(InvalidSchemaError, match="42201"):
        reader_of(Schema("AVRO", text), SchemasInMemory())
