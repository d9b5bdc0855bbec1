"""Objects: Arrow values that become Python objects one by one, checked before that, with the names of their columns.

`to_pylist` raises bare errors without a name for text that is not UTF-8 and times that Python does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import SerializationError
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.arrow.exact_cast import is_text
from kafkalike.schemas.arrow.value_arrays import WRONG

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 and 9999, in days since 1970."""
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS: Final = 86_400
_MOST_DAYS: Final = 999_999_999
"""Of a `timedelta`."""


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for lists; a map is none."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def check_kind(kind: pa.DataType, path: str) -> None:
    """Refuse a type whose values are finer than Python's.

    Raises:
        UnmatchedError: names the path.
    """
    fine = pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind)
    if pa.types.is_date64(kind) or (fine and kind.unit == "ns"):
        raise UnmatchedError(f"{path or 'the value'} is {kind}: cast it to {'date32' if not fine else 'microseconds'}")


def objects(values: pa.Array) -> list[Any]:
    """Return values as Python objects.

    Raises:
        SerializationError: one has none; the error names its path.
    """
    _check(values, "")
    plain = _in_utc(values.type)
    found: list[Any] = (values if plain == values.type else values.view(plain)).to_pylist()
    return found


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """A type whose instants Python has in UTC.

    A local time may be beyond Python's years, or seconds away from UTC, which RFC 3339 cannot say.
    """
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), kind.item_field.with_type(_in_utc(kind.item_type)))
    if not is_list(kind):
        return kind
    item = kind.value_field.with_type(_in_utc(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return next(make(item) for is_kind, make in _LISTS if is_kind(kind))


_LISTS: Final[list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]]]] = [
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
]


def at(path: str, convert: Callable[..., Any]) -> Callable[..., Any]:
    """A conversion whose errors name a path."""

    def converted(*given: Any) -> Any:  # noqa: ANN401
        try:
            return convert(*given)
        except SerializationError:
            raise
        except (*WRONG, ArithmeticError) as cause:
            raise SerializationError(f"{path or 'the value'}: {cause}") from cause

    return converted


def without_doubles(entries: list[tuple[Any, Any]], path: str) -> dict[Any, Any]:
    """The entries of a map.

    Raises:
        SerializationError: a key is there twice.
    """
    found = dict(entries)
    if len(found) != len(entries):
        keys = [key for key, _ in entries]
        doubled = next(key for key in keys if keys.count(key) > 1)
        raise SerializationError(f"{path or 'the value'} has the key {doubled!r} twice")
    return found


def _check(values: pa.Array, path: str) -> None:
    kind = values.type
    if pa.types.is_struct(kind):
        for nth, field in enumerate(kind):
            _check(pc.struct_field(values, [nth]), f"{path}.{field.name}".lstrip("."))
    elif is_list(kind):
        _check(values.flatten(), f"{path}[]")
    elif pa.types.is_map(kind):
        held = values.drop_null()
        first, last = (held.offsets[0].as_py(), held.offsets[-1].as_py()) if len(held) else (0, 0)
        _check(held.keys[first:last], f"{path}{{}}")
        _check(held.items[first:last], f"{path}{{}}")
    else:
        _check_leaf(values.drop_null() if values.null_count else values, path or "the value")


def _check_leaf(values: pa.Array, path: str) -> None:
    kind = values.type
    if is_text(kind):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as cause:
            raise SerializationError(f"{path}: text that is not UTF-8") from cause
        return
    bounds = _bounds(kind)
    if bounds is None or not len(values):
        return
    width = pa.int64() if kind.bit_width == 64 else pa.int32()  # noqa: PLR2004 - bits of a long
    found = pc.min_max(values.view(width)).as_py()
    for value in (found["min"], found["max"]):
        if not bounds[0] <= value <= bounds[1]:
            raise SerializationError(f"{path}: {value} as {kind} is beyond what the schema can say")


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY
    if pa.types.is_timestamp(kind):
        unit = _UNITS[kind.unit] * _DAY_SECONDS
        return _FIRST_DAY * unit, (_LAST_DAY + 1) * unit - 1
    if pa.types.is_time(kind):
        return 0, _DAY_SECONDS * _UNITS[kind.unit] - 1
    if pa.types.is_duration(kind):
        most = _MOST_DAYS * _DAY_SECONDS * _UNITS[kind.unit]
        return -most, most
    return None
