"""Tokens of a `.proto` file, and its options.

Standard options become fields of Google's option messages; custom ones stay uninterpreted.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.limits import MAX_SCHEMA_DEPTH, check_length

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*(?s:.*?)\*/|\ufeff)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fF]?)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<sign>[;{}\[\]()<>=,.:/+-])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_SHORT: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_FIRST_LINE: Final = 1


class Tokens:
    """A cursor over the tokens of a file.

    Args:
        text: the file's text.

    Raises:
        InvalidSchemaError: raised by every method if another token follows; the message names the line.
    """

    def __init__(self, text: str) -> None:
        check_length(text)
        self._text = text
        self._found: list[tuple[str, str, int]] = []
        self._at = 0
        place = depth = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                self._refuse(f"{text[place]!r} has no meaning here", place)
            kind = str(match.lastgroup)
            if kind != "space":
                self._found.append((kind, match.group(), place))
                depth += (match.group() in "{[<(") - (match.group() in "}]>)") if kind == "sign" else 0
                if depth > MAX_SCHEMA_DEPTH:
                    self._refuse(f"more than {MAX_SCHEMA_DEPTH} levels", place)
            place = match.end()
        self._found.append(("end", "the end", len(text)))

    @property
    def ended(self) -> bool:
        """True after the last token."""
        return self._found[self._at][0] == "end"

    def refuse(self, why: str) -> NoReturn:
        """Raise an error at the next token."""
        self._refuse(why, self._found[self._at][2])

    def _refuse(self, why: str, place: int) -> NoReturn:
        line = self._text.count("\n", 0, place) + _FIRST_LINE
        raise InvalidSchemaError(f"line {line} of the Protobuf schema: {why}")

    def sees(self, text: str) -> bool:
        """Return True if a word or sign follows."""
        kind, found, _ = self._found[self._at]
        return found == text and kind in {"word", "sign"}

    def sees_kind(self, kind: str) -> bool:
        """Return True if a `word`, `number` or `string` follows."""
        return self._found[self._at][0] == kind

    def follows(self, *texts: str) -> bool:
        """Return True if these words and signs follow."""
        return [found for _, found, _ in self._found[self._at : self._at + len(texts)]] == list(texts)

    def accept(self, text: str) -> bool:
        """Consume a word or sign if it follows."""
        if not self.sees(text):
            return False
        self._at += 1
        return True

    def expect(self, *texts: str) -> None:
        """Consume words and signs; raise an error if others follow."""
        for text in texts:
            if not self.accept(text):
                self.refuse(f"{text!r} is expected, not {self._found[self._at][1]!r}")

    def next(self, kind: str) -> str:
        """Consume a token of a kind and return its text."""
        found, text, _ = self._found[self._at]
        if found != kind:
            self.refuse(f"a {kind} is expected, not {text!r}")
        self._at += 1
        return text

    def any(self) -> str:
        """Consume any token and return its text."""
        if self.ended:
            self.refuse("the text ends inside a definition")
        self._at += 1
        return self._found[self._at - 1][1]

    def name(self) -> str:
        """Consume a dotted name, which may start with a dot."""
        parts = ["." if self.accept(".") else "", self.next("word")]
        while self.accept("."):
            parts += [".", self.next("word")]
        return "".join(parts)

    def integer(self) -> int:
        """Consume an integer, which may be negative."""
        negative = self.accept("-")
        value = to_int(self.next("number"))
        if value is None:
            self._at -= 1
            self.refuse("a whole number is expected")
        return -value if negative else value

    def string(self) -> bytes:
        """Consume adjacent strings and return their bytes."""
        parts = [_unescaped(self.next("string"))]
        while self.sees_kind("string"):
            parts.append(_unescaped(self.next("string")))
        return b"".join(parts)

    def text(self) -> str:
        """Consume adjacent strings and return them as text."""
        try:
            return self.string().decode()
        except UnicodeDecodeError:
            self._at -= 1
            self.refuse("the string is not UTF-8")


def to_int(number: str) -> int | None:
    """Parse a decimal, octal or hexadecimal integer; return None for other numbers."""
    try:
        if number[:2] in {"0x", "0X"}:
            return int(number, 16)
        return int(number, 8) if number[0] == "0" and len(number) > 1 else int(number)
    except ValueError:
        return None


def _unescaped(quoted: str) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        in_hex, octal, short, long, letter = match.groups()
        if in_hex or octal:
            return bytes([int(in_hex, 16) if in_hex else int(octal, 8) & 255])
        if short or long:
            code = int(short or long, 16)
            return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else b"?"  # noqa: PLR2004 - Unicode's end
        return _SHORT.get(letter, bytes(letter))

    return _ESCAPE.sub(plain, quoted[1:-1].encode("utf-8", "surrogatepass"))


_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT32}
Value = tuple[str, Any]
"""A kind (`word`, `int`, `float`, `string`, `aggregate`) and the value of that kind."""


def read_option(tokens: Tokens, options: Any) -> None:  # noqa: ANN401 - any of Google's options messages
    """Parse `name = value` into an options message."""
    name = _name(tokens)
    tokens.expect("=")
    set_option(options, name, read_value(tokens))


def read_field_options(tokens: Tokens, field: FieldDescriptorProto) -> None:
    """Parse the options in brackets after a field, if any."""
    if not tokens.accept("["):
        return
    while True:
        name = _name(tokens)
        tokens.expect("=")
        value = read_value(tokens)
        if name == [("default", False)]:
            field.default_value = _default(value)
        elif name == [("json_name", False)]:
            field.json_name = value[1].decode(errors="replace") if value[0] == "string" else str(value[1])
        else:
            set_option(field.options, name, value)
        if not tokens.accept(","):
            break
    tokens.expect("]")


def read_options(tokens: Tokens, owner: Any) -> None:  # noqa: ANN401 - any descriptor with options
    """Parse the options in brackets after anything but a field, if any."""
    if not tokens.accept("["):
        return
    read_option(tokens, owner.options)
    while tokens.accept(","):
        read_option(tokens, owner.options)
    tokens.expect("]")


def _name(tokens: Tokens) -> list[tuple[str, bool]]:
    parts: list[tuple[str, bool]] = []
    while True:
        if tokens.accept("("):
            parts.append((tokens.name(), True))
            tokens.expect(")")
        else:
            parts.append((tokens.next("word"), False))
        if not tokens.accept("."):
            return parts


def read_value(tokens: Tokens) -> Value:
    """Parse the value of an option."""
    if tokens.sees("{"):
        return "aggregate", _aggregate(tokens)
    if tokens.sees_kind("string"):
        return "string", tokens.string()
    negative = tokens.accept("-")
    if not negative:
        tokens.accept("+")
    if tokens.sees_kind("word"):
        word = tokens.any()
        return ("float", -float(word)) if negative else ("word", word)
    text = tokens.next("number")
    whole = to_int(text)
    if whole is not None:
        return "int", -whole if negative else whole
    number = float(text.rstrip("fF"))
    return "float", -number if negative else number


def _aggregate(tokens: Tokens) -> str:
    parts: list[str] = []
    depth = 0
    while True:
        text = tokens.any()
        depth += (text == "{") - (text == "}")
        if depth == 0:
            return " ".join(parts[1:])
        parts.append(text)


def _default(value: Value) -> str:
    kind, found = value
    if kind == "string":
        # Defaults of `bytes` are stored escaped, defaults of `string` as text, which is always UTF-8.
        try:
            return str(found.decode())
        except UnicodeDecodeError:
            return "".join(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in found)  # noqa: PLR2004 - ASCII
    return str(found)


def set_option(options: Any, name: list[tuple[str, bool]], value: Value) -> None:  # noqa: ANN401
    """Set a standard option by name; keep any other uninterpreted."""
    owner = options
    for position, (part, is_extension) in enumerate(name):
        field = None if is_extension else owner.DESCRIPTOR.fields_by_name.get(part)
        if field is None:
            break
        if position == len(name) - 1:
            fits, found = _fitting(field, value)
            if not fits:
                break
            if field.is_repeated:
                getattr(owner, part).append(found)
            else:
                setattr(owner, part, found)
            return
        if field.message_type is None or field.is_repeated:
            break
        owner = getattr(owner, part)
    _keep(options.uninterpreted_option.add(), name, value)


def _fitting(field: FieldDescriptor, value: Value) -> tuple[bool, Any]:
    kind, found = value
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return found in {"true", "false"}, found == "true"
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(found) if kind == "word" else None
        return known is not None, known.number if known is not None else 0
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return kind == "string", found.decode(errors="replace") if kind == "string" else ""
    if field.cpp_type in _INTEGERS:
        return kind == "int", found
    return False, None


def _keep(option: UninterpretedOption, name: list[tuple[str, bool]], value: Value) -> None:
    for part, is_extension in name:
        option.name.add(name_part=part, is_extension=is_extension)
    kind, found = value
    if kind == "word":
        option.identifier_value = found
    elif kind == "string":
        option.string_value = found
    elif kind == "aggregate":
        option.aggregate_value = found
    elif kind == "int" and -(1 << 63) <= found < 0:
        option.negative_int_value = found
    elif kind == "int" and 0 <= found < 1 << 64:
        option.positive_int_value = found
    else:
        try:
            option.double_value = float(found)
        except OverflowError as cause:
            raise InvalidSchemaError(
                f"an option of the Protobuf schema has a number that is too large: {cause}"
            ) from cause
