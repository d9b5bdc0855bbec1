"""Value tree: convert the bytes of a key, value or header to text and a tree for pages, without HTML."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal

from kafkalike.errors import KafkaError

SHOWN_BYTES: Final = 64 * 1024
"""Maximum bytes of a value on a page; the rest is in the download."""

SHOWN_HEX: Final = 4096
"""Maximum bytes shown as hexadecimal digits."""

SHOWN_NODES: Final = 2_000
"""Maximum nodes of a tree."""

SHOWN_DEPTH: Final = 24
"""Maximum depth of a tree."""

READ_BYTES: Final = 16 * SHOWN_BYTES
"""Maximum bytes to parse; of a longer value, a page shows the beginning and no tree."""

SHORT: Final = 120
"""Maximum characters of a value in a table."""

Kind = Literal["null", "empty", "json", "text", "binary", "avro", "protobuf", "json schema"]

Decode = Callable[[bytes], tuple[Kind, Any] | None]
"""From bytes of a record with a schema to kind and value; None for bytes without a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLeaf:
    """JSON value without parts, as text."""

    kind: Literal["string", "number", "boolean", "null", "bytes", "more"]
    text: str
    """Notation of the value; hexadecimal digits of bytes."""
    base64: str = ""
    """Base64 of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueBranch:
    """JSON object or array."""

    kind: Literal["object", "array"]
    parts: tuple[tuple[str, ValueLeaf | ValueBranch], ...]
    """Pairs of a name in JSON notation, or a position, and the value."""


Tree = ValueLeaf | ValueBranch


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownValue:
    """Bytes as a page shows them."""

    kind: Kind
    size: int
    """Size in bytes."""
    text: str
    """The whole text, or its first `SHOWN_BYTES` characters."""
    tree: Tree | None = None
    """Tree of JSON and of records with a schema."""
    cut: bool = False
    """True if `text` or `tree` is incomplete."""
    problem: str = ""
    """Error of bytes that could not be decoded with their schema."""
    base64: str = ""
    """Base64 of binary bytes, of as many as `text` shows."""
    schema_id: int | None = None
    """Id of the schema by which the bytes were decoded."""

    @property
    def short(self) -> str:
        """Return one line of the text, for a table."""
        line = " ".join(self.text.split())
        return line if len(line) <= SHORT else f"{line[:SHORT]}…"


class JsonNumber(str):
    """Number of a JSON text, in the digits of the text."""

    __slots__ = ()


class JsonObject(Sequence[tuple[str, Any]]):
    """Object of a JSON text: its names in order, repeated ones too.

    Args:
        pairs: names and values.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self._pairs = pairs

    def __getitem__(self, at: Any) -> Any:  # noqa: ANN401 - an index or a slice
        """Return a pair."""
        return self._pairs[at]

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._pairs)


def exact_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON without loss: objects as `JsonObject`, numbers as `JsonNumber`.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(
        text,
        object_pairs_hook=JsonObject,
        parse_float=JsonNumber,
        parse_int=JsonNumber,
        parse_constant=JsonNumber,
    )


def message_fields(message: Any) -> Any:  # noqa: ANN401 - a Protobuf message
    """Return the fields of a Protobuf message with exact numbers and bytes, those without presence too.

    Args:
        message: the message. Types of Google's own files have the form of Protobuf's JSON.
    """
    if message.DESCRIPTOR.file.name.startswith("google/protobuf/"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(message, preserving_proto_field_name=True)

    def one(field: Any, value: Any) -> Any:  # noqa: ANN401
        if field.message_type is not None:
            return message_fields(value)
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return value if known is None else known.name
        return value

    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): one(of, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [one(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = one(field, value)
    return found


def no_schemas(data: bytes) -> None:
    """Decode nothing; the `Decode` of a cluster without schemas."""
    del data


def shown(data: bytes | None, decode: Decode = no_schemas, *, brief: bool = False) -> ShownValue:
    """Convert bytes for a page: to a value with a schema, else to JSON, text or hexadecimal digits.

    Args:
        data: key, value or content of a header; None for null.
        decode: decodes records with a schema; its error is shown with the bytes.
        brief: show JSON without a schema as text, which is faster.
    """
    if data is None:
        return ShownValue(kind="null", size=0, text="null")
    if not data:
        return ShownValue(kind="empty", size=0, text="")
    problem = ""
    try:
        found = decode(data)
    except (KafkaError, OSError, ValueError, RecursionError) as error:
        found, problem = None, f"{type(error).__name__}: {error}"
    if found is not None:
        kind, value = found
        made = _structured(kind, value, len(data), _line(value))
        return replace(made, schema_id=int.from_bytes(data[1:5], "big"))
    text = _text(data if len(data) <= READ_BYTES else _beginning(data))
    if text is None:
        return ShownValue(
            kind="binary",
            size=len(data),
            text=_hex(data[:SHOWN_HEX]),
            base64=base64.b64encode(data[:SHOWN_HEX]).decode(),
            cut=len(data) > SHOWN_HEX,
            problem=problem,
        )
    if not brief and len(data) <= READ_BYTES and text.lstrip()[:1] in {"{", "["}:
        try:
            return _structured("json", exact_json(text), len(data), text, problem)
        except (ValueError, RecursionError):
            pass
    cut = len(text) > SHOWN_BYTES or len(data) > READ_BYTES
    return ShownValue(kind="text", size=len(data), text=text[:SHOWN_BYTES], cut=cut, problem=problem)


def shown_briefly(data: bytes | None, decode: Decode = no_schemas) -> ShownValue:
    """Convert bytes for a row of a table, which shows no tree.

    Args:
        data: key, value or content of a header; None for null.
        decode: decodes records with a schema.
    """
    return shown(data, decode, brief=True)


def _structured(kind: Kind, value: Any, size: int, text: str, problem: str = "") -> ShownValue:  # noqa: ANN401 - any JSON
    left = [SHOWN_NODES]
    tree = _tree(value, left, SHOWN_DEPTH)
    cut = left[0] < 0 or len(text) > SHOWN_BYTES
    return ShownValue(kind=kind, size=size, text=text[:SHOWN_BYTES], tree=tree, cut=cut, problem=problem)


def _line(value: Any) -> str:  # noqa: ANN401 - a value of a schema
    try:
        return json_text(value)
    except RecursionError:
        return "nested too deeply for one line"


def _tree(value: Any, left: list[int], depth: int) -> Tree:  # noqa: ANN401 - any JSON
    left[0] -= 1
    pairs = _pairs(value)
    if pairs is not None:
        parts: list[tuple[str, Tree]] = []
        for name, part in pairs:
            if left[0] <= 0 or depth == 0:
                left[0] = min(left[0], -1)
                parts.append(("…", ValueLeaf(kind="more", text="more in the download")))
                break
            parts.append((_written(str(name))[1:-1], _tree(part, left, depth - 1)))
        return ValueBranch(kind="array" if isinstance(value, (list, tuple)) else "object", parts=tuple(parts))
    if isinstance(value, (bytes, bytearray)):
        return ValueLeaf(kind="bytes", text=value.hex(), base64=base64.b64encode(value).decode())
    if value is None:
        return ValueLeaf(kind="null", text="null")
    if isinstance(value, bool):
        return ValueLeaf(kind="boolean", text="true" if value else "false")
    if _is_number(value):
        return ValueLeaf(kind="number", text=_number(value))
    return ValueLeaf(kind="string", text=_written(str(value)))


def _pairs(value: Any) -> Iterator[tuple[Any, Any]] | None:  # noqa: ANN401 - any JSON
    """Return the names or positions of an object or array with their values; None for other values."""
    if isinstance(value, JsonObject):
        return iter(value)
    if isinstance(value, Mapping):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, (list, tuple)) else None


def json_text(value: Any, indent: str = "", *, bytes_text: Callable[[bytes], str] = bytes.hex) -> str:  # noqa: ANN401
    """Format a value as JSON with exact numbers and repeated names.

    Args:
        value: JSON of `exact_json`, or a value of a schema.
        indent: of each level; empty for one line.
        bytes_text: text of bytes.

    Raises:
        RecursionError: it is nested too deeply.
    """

    def text(value: Any, margin: str) -> str:  # noqa: ANN401
        pairs = _pairs(value)
        if pairs is None:
            if isinstance(value, (bytes, bytearray)):
                return _written(bytes_text(bytes(value)))
            if value is None or isinstance(value, bool):
                return json.dumps(value)
            return _number(value) if _is_number(value) else _written(str(value))
        is_array, inner = isinstance(value, (list, tuple)), margin + indent
        parts = [
            text(part, inner) if is_array else f"{_written(str(name))}: {text(part, inner)}" for name, part in pairs
        ]
        first, last = ("[", "]") if is_array else ("{", "}")
        if not parts or not indent:
            return f"{first}{', '.join(parts)}{last}"
        return f"{first}\n" + ",\n".join(inner + part for part in parts) + f"\n{margin}{last}"

    return text(value, "")


def _is_number(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, (JsonNumber, int, float, Decimal)) and not isinstance(value, bool)


def _written(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Format a value as one line of JSON, with invisible characters and lone surrogates escaped.

    Values may contain lone surrogates, which cannot be encoded, and characters that reverse the text direction.
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def _number(value: Any) -> str:  # noqa: ANN401 - see `_is_number`
    if isinstance(value, (JsonNumber, Decimal)):
        return str(value)
    if isinstance(value, float):
        return json.dumps(value)
    # Python refuses to format numbers of thousands of digits.
    return str(value) if abs(value) < 1 << 1024 else hex(value)


def _beginning(data: bytes) -> bytes:
    """Return the first `SHOWN_BYTES`, without a partial character at the end."""
    end = SHOWN_BYTES
    while end > SHOWN_BYTES - 4 and data[end] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a character
        end -= 1
    return data[:end]


def _text(data: bytes) -> str | None:
    """Decode readable text; None for other bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(sign.isprintable() or sign in "\n\r\t" for sign in text[:SHOWN_BYTES]) else None


def _hex(data: bytes) -> str:
    lines = []
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)  # noqa: PLR2004 - ASCII
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {signs}")
    return "\n".join(lines)
