"""Case ids: names of parametrized cases, from their values, so that a failure says which case it was."""

import re
from functools import partial
from typing import Final
from zlib import crc32

LONGEST: Final = 48
"""Characters of an id; a longer one ends with a checksum, as pytest refuses two equal ids."""

_UNSTABLE: Final = re.compile(r" at 0x|frozenset|\{[^:{}]*,[^:{}]*\}")
"""Addresses and the order of sets differ from process to process, and pytest-xdist needs the same ids in all."""


def case_id(value: object) -> str | None:
    """Return an id for a value of a test's parameter, or None for those that pytest itself names well or by number.

    >>> case_id({"a": [1, b"x"]})
    "a=[1, b'x']"
    >>> case_id(partial(int, base=2))
    'int(base=2)'
    >>> case_id({"b", "a"}) is None
    True
    """
    if value is None or isinstance(value, str | bytes | int | float | complex | type | re.Pattern):
        return None
    if isinstance(value, partial):
        given = [*map(repr, value.args), *(f"{name}={part!r}" for name, part in value.keywords.items())]
        text = f"{getattr(value.func, '__name__', 'call')}({', '.join(given)})"
    elif isinstance(value, dict):
        text = ", ".join(f"{name}={part!r}" for name, part in value.items()) or "{}"
    elif hasattr(value, "__name__"):
        return None
    else:
        text = repr(value)
    if _UNSTABLE.search(text):
        return None
    text = re.sub(r"[^\x20-\x7e]+|\s+", " ", text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 8]}~{crc32(text.encode()) & 0xFFFFFF:06x}"
