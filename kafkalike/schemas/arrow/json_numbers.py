"""Numbers of JSON as columns and back, with all of their digits.

JSON has decimal numbers of any length, and Python's `json` makes the nearest double of them.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any, Final

MOST_DIGITS: Final = 400
"""Digits that a whole number may have; a double has 309 at most."""


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:40]} is beyond every number that can be computed with") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {doubled!r} twice")
    return found


# `json.loads` makes a decoder for each call that has options.
_DECODER: Final = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_constant)
_STRICT: Final = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_constant, object_pairs_hook=_pairs)


def parsed(text: str, *, strict: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Return what a text of JSON says, with a Decimal for each number that has a point or an exponent.

    Args:
        text: the text.
        strict: whether a name that an object has twice is refused; else the last one counts.

    Raises:
        ValueError: it is no JSON.
    """
    return (_STRICT if strict else _DECODER).decode(text)


def is_number(value: object) -> bool:
    """Whether a value is a number; `True` is none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def whole_number(value: Any) -> int:  # noqa: ANN401 - a number
    """Return a number that is whole, however it is written: 1.0 is 1.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, Decimal) and value.adjusted() < MOST_DIGITS and value == value.to_integral_value():
        return int(value)
    raise ValueError(f"{value} is no whole number")


def nearest(value: Any) -> float:  # noqa: ANN401 - a number
    """Return the double that a number in JSON means: the number itself if it is whole, else the nearest one.

    Raises:
        ValueError, OverflowError: no double is the whole number, or it is beyond all doubles.
    """
    found = float(value)
    if math.isinf(found) or (found == 0 and value != 0):
        raise ValueError(f"{str(value)[:40]} is beyond what a double can say")
    if isinstance(value, int) and int(found) != value:
        raise ValueError(f"{value} is a whole number that no double is equal to")
    if isinstance(value, Decimal) and not _same(found, value) and value == value.to_integral_value():
        raise ValueError(f"{value} is a whole number that no double is equal to")
    return found


def exact(value: Any) -> int | float:  # noqa: ANN401 - a number
    """Return a number that Python's `json` writes with the digits that it has.

    Raises:
        ValueError: it has more digits than a double, or is infinite or no number.
    """
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number in JSON")
        return value
    is_below_zero = value.is_signed() and not value
    if value.adjusted() < MOST_DIGITS and value == value.to_integral_value() and not is_below_zero:
        return int(value)
    found = float(value)
    if not _same(found, value):
        raise ValueError(f"{value} has more digits than a number in JSON keeps for its readers")
    return found


def _same(found: float, value: Decimal) -> bool:
    """Whether the shortest text of a double is a decimal number."""
    return math.isfinite(found) and Decimal(repr(found)) == value
