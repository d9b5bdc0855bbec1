"""Arrow arrays of Python values, such as parsed JSON or messages, with errors that name the values that do not fit.

A column is built from a Python list with that field of all values, which Arrow converts and type-checks. Numbers of
JSON keep all of their digits: they have any length, and Python's `json` would return the nearest double.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.errors import SerializationError

WRONG: Final = (ValueError, TypeError, OverflowError, AttributeError, RecursionError, SerializationError)
"""Errors that conversions raise for a value that they reject; Arrow's errors are subclasses of them."""


class FieldError(ValueError):
    """The value of a field does not fit the type of its column.

    Args:
        path: names of the enclosing fields and the field.
        reason: why the value does not fit.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Column(ABC):
    """Builds an Arrow array from Python values; None becomes null."""

    kind: pa.DataType

    @abstractmethod
    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the values as an array.

        Raises:
            Any error in `WRONG`: a value does not fit the column's type.
        """


class LeafColumn(Column):
    """Values that Arrow accepts directly or after a conversion."""

    def __init__(self, kind: pa.DataType, convert: Callable[[Any], Any] | None = None) -> None:
        self.kind = kind
        self.convert = convert

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the converted values as an array."""
        convert = self.convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.kind)


class Lists(Column):
    """Lists of values; `only` rejects other sequences, such as strings."""

    def __init__(self, item: Column, only: type | None = None) -> None:
        self.item = item
        self._only = only
        self.kind = pa.list_(item.kind)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the lists as an array."""
        there = [() if value is None else value for value in values]
        if self._only is not None:
            for value in values:
                if value is not None and not isinstance(value, self._only):
                    raise TypeError(f"a {self._only.__name__} is needed, not {str(value)[:100]!r}")
        items = self.item.array(list(chain.from_iterable(there)))
        return pa.ListArray.from_arrays(_edges(values, there), items, type=self.kind)


class Maps(Column):
    """Mappings as Arrow maps, with one column for keys and another for values."""

    def __init__(self, key: Column, item: Column) -> None:
        self._key = key
        self.item = item
        self.kind = pa.map_(key.kind, item.kind)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the mappings as an array."""
        there = [() if value is None else list(value.items()) for value in values]
        entries = list(chain.from_iterable(there))
        keys = self._key.array([key for key, _ in entries])
        items = self.item.array([item for _, item in entries])
        return pa.MapArray.from_arrays(_edges(values, there), keys, items, type=self.kind)


class Structs(Column):
    """Objects with fields as Arrow structs."""

    def __init__(
        self,
        fields: Sequence[tuple[str, Callable[[Sequence[Any]], Sequence[Any]], Column]],
        required: Collection[str] = (),
    ) -> None:
        """Set the fields.

        Args:
            fields: for each field its name, a function that returns its value for each of the objects, and its column.
            required: names of the fields that must be present, even if they are null.
        """
        self.fields = fields
        self.required = required
        self.kind = pa.struct([(name, column.kind) for name, _, column in fields])

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the objects as an array."""
        there = [value for value in values if value is not None]
        if not self.fields:
            return pa.array([None if value is None else {} for value in values], self.kind)
        made = pa.StructArray.from_arrays(
            [_field_array(name, column, take(there)) for name, take, column in self.fields], fields=list(self.kind)
        )
        if len(there) == len(values):
            return made
        mask = np.array([value is None for value in values], np.bool_)
        return made.take(pa.array(np.cumsum(~mask) - 1, mask=mask))


def _field_array(name: str, column: Column, values: Sequence[Any]) -> pa.Array:
    try:
        return column.array(values)
    except FieldError as cause:
        raise FieldError(f"{name}.{cause.path}", cause.reason) from cause
    except WRONG as cause:
        raise FieldError(name, str(cause) or type(cause).__name__) from cause


def _edges(values: Sequence[Any], there: Sequence[Sequence[Any]]) -> pa.Array:
    edges = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(items) for items in there], out=edges[1:])
    mask = np.array([*(value is None for value in values), False], np.bool_)
    return pa.array(edges, mask=mask) if mask.any() else pa.array(edges)


def converted(column: Column, values: Sequence[Any]) -> tuple[pa.Array, dict[int, str]]:
    """Return an array of values, and error texts for the values that became null because they do not fit.

    All values are converted at once; if that fails, the bad values are found by bisection.
    """
    problems: dict[int, str] = {}
    return _converted(column, values, 0, problems), problems


def _converted(column: Column, values: Sequence[Any], first: int, problems: dict[int, str]) -> pa.Array:
    try:
        return column.array(values)
    except WRONG as cause:
        if len(values) == 1:
            problems[first] = str(cause) or type(cause).__name__
            return pa.nulls(1, column.kind)
    half = len(values) // 2
    low = _converted(column, values[:half], first, problems)
    return pa.concat_arrays([low, _converted(column, values[half:], first + half, problems)])


def one_by_one(
    column: Column,
    parse_one: Callable[[bytes], Any],
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> tuple[pa.StructArray, dict[int, str]]:
    """Parse values one by one, then build the columns of all of them."""
    problems: dict[int, str] = {}
    plain = data.tobytes()
    parsed = []
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        try:
            parsed.append(parse_one(plain[start:end]))
        except WRONG as cause:
            problems[row] = str(cause) or type(cause).__name__
            parsed.append(None)
    found, wrong = converted(column, parsed)
    return found, {**wrong, **problems}


MOST_DIGITS: Final = 400
"""Maximum digits of a whole number; a double has at most 309."""


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text[:40]} is out of range for numbers") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {doubled!r} twice")
    return found


# Created once, because `json.loads` creates a decoder in each call with options.
_DECODER: Final = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_constant)
_STRICT: Final = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_constant, object_pairs_hook=_pairs)


def parsed(text: str, *, strict: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON, with a Decimal for each number that has a point or an exponent.

    Args:
        text: the JSON text.
        strict: reject an object with a duplicate name; otherwise the last one counts.

    Raises:
        ValueError: the text is not valid JSON.
    """
    return (_STRICT if strict else _DECODER).decode(text)


def is_number(value: object) -> bool:
    """Return True for a number; a bool is not a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def whole_number(value: Any) -> int:  # noqa: ANN401 - a number
    """Return a number as an int, however it is written: 1.0 is 1.

    Raises:
        ValueError: the number is not whole.
    """
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, Decimal) and value.adjusted() < MOST_DIGITS and value == value.to_integral_value():
        return int(value)
    raise ValueError(f"{value} is not a whole number")


def nearest(value: Any) -> float:  # noqa: ANN401 - a number
    """Return the double of a JSON number: an equal double for a whole number, otherwise the nearest double.

    Raises:
        ValueError, OverflowError: a whole number has no equal double, or the number is out of range.
    """
    found = float(value)
    if math.isinf(found) or (found == 0 and value != 0):
        raise ValueError(f"{str(value)[:40]} is out of range for a double")
    if isinstance(value, int) and int(found) != value:
        raise ValueError(f"no double equals the whole number {value}")
    if isinstance(value, Decimal) and not _same(found, value) and value == value.to_integral_value():
        raise ValueError(f"no double equals the whole number {value}")
    return found


def exact(value: Any) -> int | float:  # noqa: ANN401 - a number
    """Return an int or float that Python's `json` writes with all digits of the number.

    Raises:
        ValueError: the number has more digits than a double, or is infinite or NaN.
    """
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no number {value}")
        return value
    is_below_zero = value.is_signed() and not value
    if value.adjusted() < MOST_DIGITS and value == value.to_integral_value() and not is_below_zero:
        return int(value)
    found = float(value)
    if not _same(found, value):
        raise ValueError(f"{value} has more digits than JSON readers keep: a double holds about 17")
    return found


def _same(found: float, value: Decimal) -> bool:
    """Return True if the shortest decimal form of a double equals a decimal number."""
    return math.isfinite(found) and Decimal(repr(found)) == value


def unchanged(value: Any) -> Any:  # noqa: ANN401
    """Return the value: a conversion that has nothing to do."""
    return value
