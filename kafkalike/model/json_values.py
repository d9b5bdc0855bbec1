"""JSON values: an object's text parsed fast, and values that anybody may have written checked for type and range."""

from __future__ import annotations

import json
from typing import Any, Final

raw_decode: Final = json.JSONDecoder().raw_decode
"""The value that a text begins with, and where it ends; for loops that parse many texts. See `parsed`."""


def parse_json(text: str) -> Any:  # noqa: ANN401
    """As `json.loads`, which first looks for white space around the value, though hardly anybody writes any.

    Raises:
        ValueError, RecursionError: it is not JSON.
    """
    if text[:1] == "{" and text[-1] == "}":
        found, end = raw_decode(text)
        if end == len(text):
            return found
    return json.loads(text)


INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)


def checked_list(found: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    """A list.

    Raises:
        TypeError: it is none.
    """
    if type(found) is not list:
        raise TypeError(f"{type(found).__name__} where a list must be")
    return found


def checked_int(found: Any, within: range) -> int:  # noqa: ANN401 - any JSON
    """A whole number of a range.

    Raises:
        ValueError: it is none.
    """
    if type(found) is not int or found not in within:
        raise ValueError(f"{type(found).__name__} where a number of {within} must be, or one outside it")
    return found


def checked_text(found: Any) -> str:  # noqa: ANN401 - any JSON
    """Text that can be stored.

    Raises:
        TypeError: it is none.
        ValueError: half a surrogate pair is text to JSON, and can be stored nowhere.
    """
    if type(found) is not str:
        raise TypeError(f"{type(found).__name__} where text must be")
    found.encode()
    return found
