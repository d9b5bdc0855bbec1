"""Cast an Arrow array to another type without changing a value, or raise an error that names the value.

A cast of Arrow's or NumPy's changes some values in silence: doubles become the nearest float, long numbers the nearest
double, times of another unit their number. Only pairs of types that can mean the same are converted here, and only
values that mean the same afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DAY_MICROS: Final = 86_400_000_000
"""Microseconds of a day; a time of day is below them."""

Is = Callable[[pa.DataType], bool]

_INT64_DIGITS, _UINT64_DIGITS = 19, 20
"""Digits of the longest whole numbers."""
_MOST_DIGITS: Final = 38
"""Of a decimal of 128 bits."""

_FLOAT64_LIMIT: Final = float(1 << 63)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's for bytes."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def can_be(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may mean the same as values of another one; `exactly` says which do.

    Whole numbers stand for times of day and durations in microseconds, as Spark has them. A time with a zone is an
    instant, and one without is none.
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
        ValueError, pa.ArrowException: a value means something else there, or nothing. It says which.
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
        # Arrow and Spark carry text without looking at its bytes.
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
            raise ValueError(f"{held[wrong.argmax()]} is no {wanted}: the nearest one is {made[wrong.argmax()]}")
    if not values.null_count:
        return pa.array(made, wanted)
    full = np.zeros(len(values), dtype)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    full[valid] = made
    return pa.array(full, wanted, mask=~valid)


def same_numbers(numbers: npt.NDArray[Any], floats: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Say for each number whether it is the float beside it.

    Args:
        numbers: whole numbers or floats.
        floats: the nearest floats of another type.
    """
    if numbers.dtype.kind == "f":
        same: npt.NDArray[np.bool_] = (floats.astype(numbers.dtype) == numbers) | np.isnan(numbers)
        return same
    # A float of 2 to the 63rd or 64th is no whole number of 64 bits, and NumPy would make another one of it.
    wide = floats.astype(np.float64)
    limit = 2 * _FLOAT64_LIMIT if numbers.dtype.kind == "u" else _FLOAT64_LIMIT
    inside = np.isfinite(wide) & (wide < limit)
    whole: npt.NDArray[np.bool_] = inside & (np.where(inside, wide, 0.0).astype(numbers.dtype) == numbers)
    return whole


def _decimals(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Decimals of another precision and scale.

    Arrow multiplies by a power of ten in as many bits as it has, and takes what is left of a number that needs more.
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
        raise ValueError(f"{wrong} microseconds are no time of day")
    return micros.view(pa.time64("us")).cast(wanted)


def doubled_key(maps: pa.MapArray) -> object:
    """Return a key that stands twice in one of some maps, or None."""
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
