"""Tokens of a `.proto` file: words, numbers, strings and signs, read one after the other."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.json_text import check_length
from kafkalike.schemas.limits import MAX_SCHEMA_DEPTH

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
    """What is left of a file's text.

    Args:
        text: the whole of it.

    Raises:
        InvalidSchemaError: from every method, where the text goes on differently; says the line.
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
        """Whether nothing is left."""
        return self._found[self._at][0] == "end"

    def refuse(self, why: str) -> NoReturn:
        """Say what is wrong at the token that is next."""
        self._refuse(why, self._found[self._at][2])

    def _refuse(self, why: str, place: int) -> NoReturn:
        line = self._text.count("\n", 0, place) + _FIRST_LINE
        raise InvalidSchemaError(f"line {line} of the Protobuf schema: {why}")

    def sees(self, text: str) -> bool:
        """Whether a word or sign comes next."""
        kind, found, _ = self._found[self._at]
        return found == text and kind in {"word", "sign"}

    def sees_kind(self, kind: str) -> bool:
        """Whether a `word`, `number` or `string` comes next."""
        return self._found[self._at][0] == kind

    def follows(self, *texts: str) -> bool:
        """Whether these words and signs come next."""
        return [found for _, found, _ in self._found[self._at : self._at + len(texts)]] == list(texts)

    def accept(self, text: str) -> bool:
        """Take a word or sign if it comes next."""
        if not self.sees(text):
            return False
        self._at += 1
        return True

    def expect(self, *texts: str) -> None:
        """Take words and signs that must come next."""
        for text in texts:
            if not self.accept(text):
                self.refuse(f"{text!r} is expected, not {self._found[self._at][1]!r}")

    def next(self, kind: str) -> str:
        """The text of a token of a kind that must come next."""
        found, text, _ = self._found[self._at]
        if found != kind:
            self.refuse(f"a {kind} is expected, not {text!r}")
        self._at += 1
        return text

    def any(self) -> str:
        """The text of the next token, whatever it is."""
        if self.ended:
            self.refuse("the text ends too early")
        self._at += 1
        return self._found[self._at - 1][1]

    def name(self) -> str:
        """A name with dots, which may begin with one."""
        parts = ["." if self.accept(".") else "", self.next("word")]
        while self.accept("."):
            parts += [".", self.next("word")]
        return "".join(parts)

    def integer(self) -> int:
        """A whole number, perhaps negative."""
        negative = self.accept("-")
        value = to_int(self.next("number"))
        if value is None:
            self._at -= 1
            self.refuse("a whole number is expected")
        return -value if negative else value

    def string(self) -> bytes:
        """Strings that stand side by side, as bytes."""
        parts = [_unescaped(self.next("string"))]
        while self.sees_kind("string"):
            parts.append(_unescaped(self.next("string")))
        return b"".join(parts)

    def text(self) -> str:
        """Strings that stand side by side, as text."""
        try:
            return self.string().decode()
        except UnicodeDecodeError:
            self._at -= 1
            self.refuse("the string is no UTF-8")


def to_int(number: str) -> int | None:
    """A decimal, octal or hexadecimal number; None for one with a fraction."""
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
