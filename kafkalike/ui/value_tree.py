"""Value tree: convert the bytes of a key, value or header to text and a tree for pages, without HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

    kind: Literal["string", "number", "boolean", "null", "more"]
    text: str


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

    @property
    def short(self) -> str:
        """Return one line of the text, for a table."""
        line = " ".join(self.text.split())
        return line if len(line) <= SHORT else f"{line[:SHORT]}…"


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
        return _structured(kind, value, len(data), _line(value))
    text = _text(data if len(data) <= READ_BYTES else _beginning(data))
    if text is None:
        return ShownValue(
            kind="binary",
            size=len(data),
            text=_hex(data[:SHOWN_HEX]),
            cut=len(data) > SHOWN_HEX,
            problem=problem,
        )
    if not brief and len(data) <= READ_BYTES and text.lstrip()[:1] in {"{", "["}:
        try:
            return _structured("json", json.loads(text), len(data), text, problem)
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
        return _written(_plain(value))
    except RecursionError:
        return "nested too deeply for one line"


def _tree(value: Any, left: list[int], depth: int) -> Tree:  # noqa: ANN401 - any JSON
    left[0] -= 1
    if isinstance(value, (Mapping, list, tuple)):
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        parts: list[tuple[str, Tree]] = []
        for name, part in pairs:
            if left[0] <= 0 or depth == 0:
                left[0] = min(left[0], -1)
                parts.append(("…", ValueLeaf(kind="more", text="more in the download")))
                break
            parts.append((_written(str(name))[1:-1], _tree(part, left, depth - 1)))
        return ValueBranch(kind="object" if isinstance(value, Mapping) else "array", parts=tuple(parts))
    if value is None:
        return ValueLeaf(kind="null", text="null")
    if isinstance(value, bool):
        return ValueLeaf(kind="boolean", text="true" if value else "false")
    if isinstance(value, (int, float)):
        return ValueLeaf(kind="number", text=_number(value))
    text = _plain(value)
    return ValueLeaf(kind="string", text=_written(text if isinstance(text, str) else str(text)))


def _written(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Format a value as one line of JSON, with invisible characters and lone surrogates escaped.

    Values may contain lone surrogates, which cannot be encoded, and characters that reverse the text direction.
    """
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def _number(value: int | float) -> str:  # noqa: PYI041 - told apart
    if isinstance(value, float):
        return json.dumps(value) if math.isfinite(value) else str(value)
    # Python refuses to format numbers of thousands of digits.
    return str(_plain(value))


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of a schema
    """Convert a value of a schema to JSON types."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 1 << 1024 else hex(value)
    return value if value is None or isinstance(value, (str, bool, float)) else str(value)


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
