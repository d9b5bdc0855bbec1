"""Cast an Arrow array to another type, or convert it to Python objects, without changing a value; else raise an error.

The casts of Arrow and NumPy change some values silently: a double becomes the nearest float, a long the nearest double,
a time of another unit keeps its number. This module converts only between types that can mean the same, and only values
that mean the same afterwards. Arrow's `to_pylist` raises errors that do not name the column for text that is not UTF-8
and for times that Python cannot represent; `objects` checks for both first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import SerializationError
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.arrow.value_arrays import WRONG

DAY_MICROS: Final = 86_400_000_000
"""Microseconds per day, the exclusive limit of a time of day."""

Is = Callable[[pa.DataType], bool]

_INT64_DIGITS, _UINT64_DIGITS = 19, 20
"""Digits of the longest whole numbers."""
_MOST_DIGITS: Final = 38
"""Maximum precision of a 128-bit decimal."""

_FLOAT64_LIMIT: Final = float(1 << 63)


def is_text(kind: pa.DataType) -> bool:
    """Return True for Arrow's string types."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return True for Arrow's binary types."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_numeric(kind: pa.DataType) -> bool:
    """Return True for Arrow's types of integers, floats and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def can_be(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if values of a type may mean the same as values of another type; `exactly` checks each value.

    Whole numbers may stand for times of day and durations in microseconds, as in Spark. A timestamp with a zone is an
    instant, and never equals a timestamp without one.
    """
    if kind == wanted:
        return True
    if pa.types.is_struct(wanted):
        return pa.types.is_struct(kind) and _like_struct(kind, wanted)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(kind) and (kind.tz is None) == (wanted.tz is None))
    return any(is_wanted(wanted) and any(is_kind(kind) for is_kind in kinds) for is_wanted, kinds in _PAIRS)


_PAIRS: Final[list[tuple[Is, tuple[Is, ...]]]] = [
    (pa.types.is_integer, (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)),
    (pa.types.is_floating, (pa.types.is_floating, pa.types.is_integer)),
    (pa.types.is_decimal, (pa.types.is_decimal, pa.types.is_integer)),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_time, (pa.types.is_time, pa.types.is_integer)),
    (pa.types.is_duration, (pa.types.is_duration, pa.types.is_integer)),
    (is_text, (is_text,)),
    (is_bytes, (is_bytes,)),
]


def _like_struct(kind: pa.StructType, wanted: pa.StructType) -> bool:
    names = [field.name for field in kind]
    return sorted(names) == sorted(field.name for field in wanted) and all(
        can_be(kind.field(field.name).type, field.type) for field in wanted
    )


def exactly(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values as another type; see `can_be`.

    Raises:
        ValueError, pa.ArrowException: a value changes its meaning or does not fit; the message names it.
    """
    kind = values.type
    if pa.types.is_floating(wanted):
        return _floats(values, wanted)
    if pa.types.is_time(wanted):
        return _times_of_day(values, wanted)
    if pa.types.is_duration(wanted) and pa.types.is_integer(kind):
        return values.cast(pa.int64()).cast(pa.duration("us")).cast(wanted)
    if pa.types.is_decimal(wanted):
        if pa.types.is_integer(kind):
            values = values.cast(pa.decimal128(_UINT64_DIGITS if pa.types.is_uint64(kind) else _INT64_DIGITS, 0))
        return _decimals(values, wanted)
    if pa.types.is_decimal(kind) and kind.scale < 0:
        values = _decimals(values, pa.decimal128(_MOST_DIGITS, 0))
    if pa.types.is_struct(wanted):
        made = [exactly(_part(values, field.name), field.type) for field in wanted]
        return pa.StructArray.from_arrays(made, fields=list(wanted), mask=values.is_null())
    held = values if kind == wanted else values.cast(wanted)
    if is_text(wanted):
        # Arrow and Spark pass strings on without validating their bytes.
        held.validate(full=True)
    return held


def _part(values: pa.StructArray, name: str) -> pa.Array:
    found = pc.struct_field(values, name)
    if found.null_count > values.null_count:
        raise ValueError(f"its {name} is null")
    return found


def _floats(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    dtype = np.dtype(wanted.to_pandas_dtype())
    held = values.drop_null().to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        made = held.astype(dtype)
    if held.dtype != dtype:
        wrong = ~same_numbers(held, made)
        if wrong.any():
            raise ValueError(f"{held[wrong.argmax()]} is not a {wanted}: the nearest is {made[wrong.argmax()]}")
    if not values.null_count:
        return pa.array(made, wanted)
    full = np.zeros(len(values), dtype)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    full[valid] = made
    return pa.array(full, wanted, mask=~valid)


def same_numbers(numbers: npt.NDArray[Any], floats: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the numbers that equal the float at the same index.

    Args:
        numbers: whole numbers or floats.
        floats: the nearest floats of another type.
    """
    if numbers.dtype.kind == "f":
        same: npt.NDArray[np.bool_] = (floats.astype(numbers.dtype) == numbers) | np.isnan(numbers)
        return same
    # A float of 2 ** 63 or 2 ** 64 overflows a 64-bit integer, and NumPy would silently wrap it.
    wide = floats.astype(np.float64)
    limit = 2 * _FLOAT64_LIMIT if numbers.dtype.kind == "u" else _FLOAT64_LIMIT
    inside = np.isfinite(wide) & (wide < limit)
    whole: npt.NDArray[np.bool_] = inside & (np.where(inside, wide, 0.0).astype(numbers.dtype) == numbers)
    return whole


def _decimals(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return decimals with another precision and scale.

    Arrow multiplies by a power of ten in a fixed number of bits and silently truncates a number that needs more, so the
    result is cast back and compared.
    """
    made = values.cast(wanted)
    if not made.cast(values.type).equals(values):
        raise ValueError(f"a decimal has more digits than {wanted}")
    return made


def _times_of_day(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type):
        micros = values.cast(pa.int64())
    else:
        micros = values.cast(pa.time64("us")).view(pa.int64())
    outside = pc.or_(pc.less(micros, 0), pc.greater_equal(micros, DAY_MICROS))
    if pc.any(outside).as_py():
        wrong = micros.filter(outside.fill_null(False))[0].as_py()  # noqa: FBT003 - Arrow's own
        raise ValueError(f"{wrong} microseconds are not a time of day")
    return micros.view(pa.time64("us")).cast(wanted)


def doubled_key(maps: pa.MapArray) -> object:
    """Return a duplicate key within a map, or None."""
    offsets = np.asarray(maps.offsets).astype(np.int64)
    keys = maps.keys[int(offsets[0]) : int(offsets[-1])]
    if not len(keys):
        return None
    codes = keys.dictionary_encode()
    owners = np.repeat(np.arange(len(maps)), np.diff(offsets))
    pairs = owners * (len(codes.dictionary) + 1) + codes.indices.fill_null(len(codes.dictionary)).to_numpy()
    order = np.argsort(pairs, kind="stable")
    same = np.flatnonzero(np.diff(pairs[order]) == 0)
    return keys[int(order[same[0] + 1])].as_py() if len(same) else None


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 and 9999, in days since 1970."""
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_SECONDS: Final = 86_400
_MOST_DAYS: Final = 999_999_999
"""Maximum days of a `timedelta` in Python."""


def is_list(kind: pa.DataType) -> bool:
    """Return True for Arrow's list types, but not for maps."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def check_kind(kind: pa.DataType, path: str) -> None:
    """Reject a type with a finer resolution than Python's types.

    Raises:
        UnmatchedError: the type has nanoseconds, or is `date64`; the message names the path.
    """
    fine = pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind)
    if pa.types.is_date64(kind) or (fine and kind.unit == "ns"):
        raise UnmatchedError(f"{path or 'the value'} is {kind}: cast it to {'date32' if not fine else 'microseconds'}")


def objects(values: pa.Array) -> list[Any]:
    """Return values as Python objects.

    Raises:
        SerializationError: Python has no such value; the message names the path.
    """
    _check(values, "")
    plain = _in_utc(values.type)
    found: list[Any] = (values if plain == values.type else values.view(plain)).to_pylist()
    return found


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """Return the type with all instants in UTC.

    A local time may lie outside of Python's years, or have an offset with seconds, which RFC 3339 cannot express.
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
    """Wrap a conversion so that its errors name a path."""

    def converted(*given: Any) -> Any:  # noqa: ANN401
        try:
            return convert(*given)
        except SerializationError:
            raise
        except (*WRONG, ArithmeticError) as cause:
            raise SerializationError(f"{path or 'the value'}: {cause}") from cause

    return converted


def without_doubles(entries: list[tuple[Any, Any]], path: str) -> dict[Any, Any]:
    """Return the entries of a map.

    Raises:
        SerializationError: a key is duplicated.
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
