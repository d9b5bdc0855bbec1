"""Arrow arrays of Python values, such as parsed JSON or messages; values that do not fit are named.

Columns are made of lists: a list of a field of all values, then Arrow's own conversion, which also checks types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.errors import SerializationError

WRONG: Final = (ValueError, TypeError, OverflowError, AttributeError, RecursionError, SerializationError)
"""What conversions raise for a value that they do not take; Arrow's errors are among them."""


class FieldError(ValueError):
    """A value of a field is none of its column's type.

    Args:
        path: the field's name, below those of the fields around it.
        reason: what is wrong.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Column(ABC):
    """What makes an array of values; None is null."""

    kind: pa.DataType

    @abstractmethod
    def array(self, values: Sequence[Any]) -> pa.Array:
        """Make it.

        Raises:
            one of `WRONG`: a value is none of this type.
        """


class LeafColumn(Column):
    """Values that Arrow takes as they are, or after a conversion."""

    def __init__(self, kind: pa.DataType, convert: Callable[[Any], Any] | None = None) -> None:
        self.kind = kind
        self.convert = convert

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See `Column`."""
        convert = self.convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.kind)


class Lists(Column):
    """Lists of values; `only` refuses other sequences, such as texts."""

    def __init__(self, item: Column, only: type | None = None) -> None:
        self.item = item
        self._only = only
        self.kind = pa.list_(item.kind)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See `Column`."""
        there = [() if value is None else value for value in values]
        if self._only is not None:
            for value in values:
                if value is not None and not isinstance(value, self._only):
                    raise TypeError(f"a {self._only.__name__} is needed, not {str(value)[:100]!r}")
        items = self.item.array(list(chain.from_iterable(there)))
        return pa.ListArray.from_arrays(_edges(values, there), items, type=self.kind)


class Maps(Column):
    """Mappings."""

    def __init__(self, key: Column, item: Column) -> None:
        self._key = key
        self.item = item
        self.kind = pa.map_(key.kind, item.kind)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See `Column`."""
        there = [() if value is None else list(value.items()) for value in values]
        entries = list(chain.from_iterable(there))
        keys = self._key.array([key for key, _ in entries])
        items = self.item.array([item for _, item in entries])
        return pa.MapArray.from_arrays(_edges(values, there), keys, items, type=self.kind)


class Structs(Column):
    """Values with fields."""

    def __init__(
        self,
        fields: Sequence[tuple[str, Callable[[Sequence[Any]], Sequence[Any]], Column]],
        required: Collection[str] = (),
    ) -> None:
        """Take the fields.

        Args:
            fields: for each its name, what takes the values of it from all values, and its column.
            required: names of those that a value must have, be they null.
        """
        self.fields = fields
        self.required = required
        self.kind = pa.struct([(name, column.kind) for name, _, column in fields])

    def array(self, values: Sequence[Any]) -> pa.Array:
        """See `Column`."""
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
    """An array of values, and what is wrong with those that are null there although they were not.

    Values are tried all at once, and by halves where that fails.
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
    """Parse values one by one, and make columns of them all."""
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
