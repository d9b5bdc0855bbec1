"""What the console shows of bytes."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import SerializationError
from kafkalike.ui.value_tree import (
    READ_BYTES,
    SHOWN_BYTES,
    SHOWN_DEPTH,
    Kind,
    Tree,
    ValueBranch,
    ValueLeaf,
    shown,
    shown_briefly,
)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", ""),
        (b"plain", "text", "plain"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"[1, 2]", "json", "[1, 2]"),
        (b"{not json", "text", "{not json"),
        (b"12", "text", "12"),
        ("ä\nb".encode(), "text", "ä\nb"),
        (b"\x00\x01A", "binary", "00000000  00 01 41" + " " * 41 + "..A"),
        (b"\xff\xfe", "binary", "00000000  ff fe" + " " * 44 + ".."),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, kind: str, text: str) -> None:
    """JSON, text and other bytes."""
    found = shown(data)

    assert (found.kind, found.text, found.size, found.cut) == (kind, text, len(data or b""), False)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_shown(data: bytes) -> None:
    """Nothing raises, and no sign that moves the cursor or changes the direction comes through as text."""
    found = shown(data)

    assert found.size == len(data)
    if found.kind == "text":
        assert all(sign.isprintable() or sign in "\r\n\t" for sign in found.text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def value_of(tree: Tree) -> Any:
    """The JSON that a tree was made of."""
    if isinstance(tree, ValueLeaf):
        return json.loads(tree.text)
    if tree.kind == "array":
        return [value_of(part) for _, part in tree.parts]
    return {json.loads(f'"{name}"'): value_of(part) for name, part in tree.parts}


@given(st.lists(JSON, max_size=4) | st.dictionaries(st.text(), JSON, max_size=4))
def test_a_tree_holds_all_of_a_small_value(value: object) -> None:
    """Names, numbers and texts as they are."""
    found = shown(json.dumps(value).encode())

    assert found.tree is not None
    assert value_of(found.tree) == value


@pytest.mark.slow
def test_a_large_value_is_shown_in_part() -> None:
    """A page costs the same whatever stands in a record."""
    long = shown(b"x" * (SHOWN_BYTES + 1))
    wide = shown(json.dumps(list(range(100_000))).encode())
    deep = shown(b"[" * 500 + b"]" * 500)
    bottomless = shown(b"[" * 200_000)

    assert (long.cut, len(long.text), long.size) == (True, SHOWN_BYTES, SHOWN_BYTES + 1)
    assert wide.cut
    assert isinstance(wide.tree, ValueBranch)
    assert len(wide.tree.parts) < 3000
    assert deep.cut
    assert depth(deep.tree) <= SHOWN_DEPTH + 2
    assert bottomless.kind == "text"


def test_no_half_sign_and_no_turned_direction_comes_out_of_json() -> None:
    """JSON may name them; an answer could not be sent with the first, and the second deceives."""

    def decode(_data: bytes) -> tuple[Kind, Any]:
        return "json schema", {"\ud800": "a\ud801b\u202e"}

    for found in (shown(rb'{"\ud800": "a\ud801b\u202e"}'), shown(b"\x00", decode)):
        assert isinstance(found.tree, ValueBranch)
        ((name, part),) = found.tree.parts
        assert isinstance(part, ValueLeaf)
        assert (name, part.text) == (r"\ud800", r'"a\ud801b\u202e"')
        assert found.text.isprintable()


def test_what_is_very_long_is_looked_at_in_part() -> None:
    """And never cut inside of a sign."""
    long = shown("ä".encode() * READ_BYTES)
    odd = shown(b"x" + "ä".encode() * READ_BYTES)
    rest = shown(b"a" * READ_BYTES + b"\xff")

    assert [(one.kind, one.cut, len(one.text)) for one in (long, odd, rest)] == [
        ("text", True, SHOWN_BYTES // 2),
        ("text", True, SHOWN_BYTES // 2),
        ("text", True, SHOWN_BYTES),
    ]


def test_a_row_of_a_table_needs_no_tree() -> None:
    """Its JSON is one line."""
    found = shown_briefly(b'{"a":\n 1}')

    assert (found.kind, found.short, found.tree) == ("text", '{"a": 1}', None)


def depth(tree: Tree | None) -> int:
    """Levels of a tree."""
    parts = tree.parts if isinstance(tree, ValueBranch) else ()
    return 1 + max((depth(part) for _, part in parts), default=0)


def test_numbers_that_json_has_not_are_shown() -> None:
    """What schemas may hold, and what Python's reader takes."""

    def decode(_data: bytes) -> tuple[Kind, Any]:
        return "avro", {"nan": float("nan"), "bytes": b"\x01\xff", "many": 10**5000, "all": (1, None)}

    found = shown(b"\x00", decode)

    assert found.kind == "avro"
    assert isinstance(found.tree, ValueBranch)
    texts = {name: part.text for name, part in found.tree.parts if isinstance(part, ValueLeaf)}
    assert texts["nan"] == "NaN"
    assert texts["bytes"] == "01ff"
    assert texts["many"].startswith("0x")


@pytest.mark.parametrize(
    "text",
    ["1.0", "1", "1.10", "9007199254740993", "123456789012345678901234567890.10", "1e400", "-0.0", "1E5", "9" * 5000],
    ids=["fraction", "whole", "trailing zero", "64 bits", "decimal", "huge", "minus zero", "exponent", "many digits"],
)
def test_number_of_json_keeps_its_digits(text: str) -> None:
    """No float in between."""
    tree = shown(f"[{text}]".encode()).tree

    assert isinstance(tree, ValueBranch)
    assert tree.parts == (("0", ValueLeaf(kind="number", text=text)),)


def test_repeated_name_of_json_is_shown_each_time() -> None:
    """The bytes have it; a reader may take the first one."""
    tree = shown(b'{"a": 1, "b": 2, "a": 3}').tree

    assert isinstance(tree, ValueBranch)
    assert [(name, part.text) for name, part in tree.parts if isinstance(part, ValueLeaf)] == [
        ("a", "1"),
        ("b", "2"),
        ("a", "3"),
    ]


def test_bytes_of_a_schema_are_hexadecimal_and_base64() -> None:
    """The page switches between them; decimals have their digits."""

    def decode(_data: bytes) -> tuple[Kind, Any]:
        return "avro", {"raw": b"\x01\xff", "euro": Decimal("12.50")}

    tree = shown(b"\x00\x00\x00\x00\x07", decode).tree

    assert isinstance(tree, ValueBranch)
    assert tree.parts == (
        ("raw", ValueLeaf(kind="bytes", text="01ff", base64="Af8=")),
        ("euro", ValueLeaf(kind="number", text="12.50")),
    )


def test_bytes_that_are_not_of_their_schema_are_shown_with_the_reason() -> None:
    """The reader sees both."""

    def decode(_data: bytes) -> tuple[Kind, Any]:
        raise SerializationError("too short")

    found = shown(b"\x00\x00\x00\x00\x01", decode)

    assert found.kind == "binary"
    assert "too short" in found.problem


def test_a_row_of_a_table_is_one_short_line() -> None:
    """Whatever the value."""
    assert shown(b"a\nb").short == "a b"
    assert len(shown(b"x" * 1000).short) < 130
