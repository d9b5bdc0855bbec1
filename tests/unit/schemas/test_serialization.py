"""Serialisers: Kafka's formats byte for byte, tombstones, errors, and foreign interfaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.schemas.serialization import (
    DefaultSerializer,
    Deserializer,
    JsonSerializer,
    Serializer,
    StringSerializer,
    as_deserializer,
    as_serializer,
    deserializer_for,
    serializer_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalike.model.record_batch import Headers
    from kafkalike.schemas.serialization import Field

NAMES = ["bytes", "string", "json", "long", "integer", "double", "float", "default"]

JSON_VALUES = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


def there_and_back(name: str, value: object) -> object:
    data = serializer_for(name).serialize("orders", [], value)
    return deserializer_for(name).deserialize("orders", [], data)


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("string", "Grüße", b"Gr\xc3\xbc\xc3\x9fe"),
        ("json", {"a": [1, None, "ü"], "b": True}, b'{"a":[1,null,"\xc3\xbc"],"b":true}'),
        ("long", 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        ("long", -(2**63), b"\x80\x00\x00\x00\x00\x00\x00\x00"),
        ("integer", -2, b"\xff\xff\xff\xfe"),
        ("double", 1.0, b"\x3f\xf0\x00\x00\x00\x00\x00\x00"),
        ("float", -2.0, b"\xc0\x00\x00\x00"),
        ("default", "a", b"a"),
    ],
)
def test_a_value_has_kafkas_bytes(name: str, value: object, data: bytes) -> None:
    """The bytes are those of Kafka's serialiser of that name, and they read back."""
    assert serializer_for(name).serialize("orders", [], value) == data
    assert deserializer_for(name).deserialize("orders", [], data) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_reads_back(value: str) -> None:
    """Any text without lone surrogates survives."""
    assert there_and_back("string", value) == value


@given(JSON_VALUES)
def test_json_reads_back_and_is_compact(value: object) -> None:
    """Any JSON value survives, written as the standard library's compact form."""
    data = JsonSerializer().serialize("orders", [], value)

    assert JsonSerializer().deserialize("orders", [], data) == value
    assert data == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_read_back(value: int) -> None:
    """All signed 64-bit integers survive."""
    assert there_and_back("long", value) == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_integers_read_back(value: int) -> None:
    """All signed 32-bit integers survive."""
    assert there_and_back("integer", value) == value


@given(st.floats(allow_nan=False))
def test_doubles_read_back(value: float) -> None:
    """All doubles survive, the infinities too."""
    assert there_and_back("double", value) == value


@pytest.mark.parametrize("name", NAMES)
def test_none_stays_none(name: str) -> None:
    """A tombstone is a tombstone in every format, both ways."""
    assert there_and_back(name, None) is None
    assert serializer_for(name).serialize("orders", [], None) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bytes", "text"),
        ("string", b"bytes"),
        ("string", "\ud800"),
        ("json", {1, 2}),
        ("json", float("nan")),
        ("json", "\ud800"),
        ("long", 2**63),
        ("long", 1.0),
        ("long", True),
        ("integer", -(2**31) - 1),
        ("double", "1.0"),
        ("double", 10**400),
        ("float", 1e39),
        ("default", 7),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(name: str, value: object) -> None:
    """The error names topic, type and format, and keeps its cause."""
    with pytest.raises(SerializationError, match=rf"topic 'orders': .*written as {name}: ") as caught:
        serializer_for(name).serialize("orders", [], value)

    assert type(value).__name__ in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("string", b"\xff"),
        ("json", b"{"),
        ("json", b"\xff"),
        ("json", b""),
        ("long", b"\x00" * 4),
        ("integer", b""),
        ("double", b"\x00" * 9),
        ("float", b"\x00" * 8),
        ("default", b"\xc0\x80"),
    ],
)
def test_bytes_of_another_format_are_an_error(name: str, data: bytes) -> None:
    """The error says how many bytes could not be read as what."""
    with pytest.raises(SerializationError, match=rf"\({len(data)} bytes\) cannot be read as {name}: "):
        deserializer_for(name).deserialize("orders", [], data)


def test_json_nested_without_end_is_an_error() -> None:
    """A structure that contains itself does not end the program."""
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(SerializationError, match="written as json"):
        JsonSerializer().serialize("orders", [], endless)


def test_an_error_does_not_print_a_large_value() -> None:
    """A megabyte of bad input makes a short message."""
    with pytest.raises(SerializationError) as caught:
        JsonSerializer().deserialize("orders", [], b"x" * 1_000_000)

    assert len(str(caught.value)) < 300


def test_text_may_have_another_encoding() -> None:
    """The encoding is an argument, and one that Python does not know is refused at once."""
    assert StringSerializer("utf-16-be").serialize("orders", [], "a") == b"\x00a"
    assert StringSerializer(encoding="latin-1").deserialize("orders", [], b"\xfc") == "ü"
    with pytest.raises(LookupError):
        StringSerializer("no-such-codec")


@pytest.mark.parametrize("value", [b"a", bytearray(b"a"), memoryview(b"a"), "a"], ids=lambda v: type(v).__name__)
def test_the_default_serialiser_takes_text_and_bytes(value: object) -> None:
    """Text is encoded, bytes-like values pass as bytes."""
    data = DefaultSerializer().serialize("orders", [], value)

    assert type(data) is bytes
    assert data == b"a"


@pytest.mark.parametrize(
    "name", ["long", "LONG", "LongSerializer", "org.apache.kafka.common.serialization.LongDeserializer"]
)
def test_formats_are_found_by_kafkas_names(name: str) -> None:
    """Short names and Java class names, of either direction, name the same format."""
    assert serializer_for(name).serialize("orders", [], 1) == bytes(7) + b"\x01"
    assert deserializer_for(name).deserialize("orders", [], bytes(7) + b"\x01") == 1


def test_byte_arrays_are_bytes() -> None:
    """Kafka's name for bytes is known."""
    assert serializer_for("ByteArraySerializer") is serializer_for("bytes")


@pytest.mark.parametrize("look_up", [serializer_for, deserializer_for])
@pytest.mark.parametrize("name", ["avro", "", "de", "serializer"])
def test_an_unknown_name_is_answered_with_the_known_ones(look_up: Callable[[str], object], name: str) -> None:
    """The error lists what can be had."""
    with pytest.raises(IllegalArgumentError, match=f"{name!r}; known are {', '.join(NAMES)}"):
        look_up(name)


class Third(Serializer, Deserializer):
    """A user's format with kafka-python 3.x's methods."""

    def serialize(self, topic: str, headers: Headers, data: object) -> bytes:
        return f"{topic}|{list(headers)}|{data}".encode()

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> str:
        return f"{topic}|{list(headers)}|{data!r}"


class Second:
    """A user's format with kafka-python 2.x's methods."""

    def serialize(self, topic: str, data: object) -> bytes:
        return f"{topic}|{data}".encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        return f"{topic}|{data!r}"


class Sloppy:
    """A user's format whose methods take whatever comes."""

    def serialize(self, *args: object) -> bytes:
        return str(len(args)).encode()

    def deserialize(self, *args: object) -> int:
        return len(args)


@pytest.mark.parametrize(
    ("obj", "data", "value"),
    [
        (Third(), b"orders|[('h', b'x')]|a", "orders|[('h', b'x')]|b'a'"),
        (Second(), b"orders|a", "orders|b'a'"),
        (Sloppy(), b"3", 3),
    ],
    ids=["3.x", "2.x", "any arguments"],
)
def test_objects_of_both_generations_are_called_as_they_expect(obj: object, data: bytes, value: object) -> None:
    """An object gets the headers when its method takes them."""
    headers: Headers = [("h", b"x")]

    assert as_serializer(obj)("orders", headers, "a") == data
    assert as_deserializer(obj)("orders", headers, b"a") == value


def test_plain_callables_get_the_data_alone() -> None:
    """Functions, unbound methods and types are taken."""
    assert as_serializer(str.encode)("orders", [], "a") == b"a"
    assert as_serializer(lambda value: json.dumps(value).encode())("orders", [], [1]) == b"[1]"
    assert as_deserializer(int)("orders", [], b"12") == 12


@pytest.mark.parametrize(
    ("obj", "value"),
    [
        (Third(), "orders|[]|None"),
        (Second(), "orders|None"),
        (Sloppy(), 3),
        (lambda data: f"called with {data}", "called with None"),
        (None, None),
        (deserializer_for("json"), None),
    ],
    ids=["3.x", "2.x", "any arguments", "callable", "no deserialiser", "ready-made"],
)
def test_a_deserialiser_is_called_with_none_as_well(obj: object, value: object) -> None:
    """As kafka-python does; what a tombstone means is the user's to say."""
    assert as_deserializer(obj)("orders", [], None) == value


def test_a_users_serialiser_is_called_with_none_as_in_kafka_python() -> None:
    """What it makes of None is stored; a ready-made one keeps a tombstone one."""
    assert as_serializer(lambda value: json.dumps(value).encode())("orders", [], None) == b"null"
    assert as_serializer(Third())("orders", [], None) == Third().serialize("orders", [], None)
    assert as_serializer(None)("orders", [], None) is None
    for name in ("bytes", "string", "json", "long", "integer", "double", "float", "default"):
        assert as_serializer(serializer_for(name))("orders", [], None) is None


def test_without_a_serialiser_bytes_pass() -> None:
    """None as a setting means bytes in, bytes out."""
    assert as_serializer(None)("orders", [], b"a") == b"a"
    assert as_deserializer(None)("orders", [], b"a") == b"a"


@pytest.mark.parametrize("data", [bytearray(b"a"), memoryview(b"a")])
def test_bytes_like_results_become_bytes(data: object) -> None:
    """What follows can rely on immutable bytes."""
    done = as_serializer(None)("orders", [], data)

    assert type(done) is bytes
    assert done == b"a"


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (None, "key", "topic 'orders': the key must be bytes, not str; set key_serializer"),
        (None, "value", "topic 'orders': the value must be bytes, not str; set value_serializer"),
        (str, "key", "topic 'orders': key_serializer returned str, not bytes"),
    ],
    ids=["text as key", "text as value", "serializer that returns text"],
)
def test_a_result_that_is_not_bytes_is_a_type_error(obj: object, field: Field, message: str) -> None:
    """As in kafka-python, text without a serialiser is a TypeError; it names topic, part, type and setting."""
    with pytest.raises(TypeError) as raised:
        as_serializer(obj, field)("orders", [], "text")

    assert str(raised.value) == message


def test_a_users_error_passes_as_it_is() -> None:
    """Code that catches its own error keeps working."""
    with pytest.raises(json.JSONDecodeError):
        as_deserializer(json.loads)("orders", [], b"{")


@pytest.mark.parametrize("adapt", [as_serializer, as_deserializer])
@pytest.mark.parametrize("wrong", [7, "json", JsonSerializer, Second])
def test_what_is_no_serialiser_is_refused(adapt: Callable[[object], object], wrong: object) -> None:
    """A class that was not instantiated, a name or a number are slips; the error says what is needed."""
    with pytest.raises(IllegalArgumentError, match=r"serializer: an (instance|object)"):
        adapt(wrong)
