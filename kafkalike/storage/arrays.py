"""Arrays: convert NumPy numbers and Python bytes to Arrow arrays, and Arrow's numbers to NumPy's.

`pyarrow.array` and `pyarrow.scalar` look for pandas objects in their arguments and import pandas for it: up to a second
at the first record that a process sends. So do `to_numpy`, and `pyarrow.compute` with a Python number. `cast`, `filter`
and `is_valid` import `pyarrow.compute`, which costs each process that opens a cluster 30 ms. Arrays made from buffers
need neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

FEW_TURNS: Final = 64
"""Maximum number of run boundaries up to which runs are concatenated one by one."""


def numbers(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Numbers without nulls as an array of a type of the same width; shares the memory."""
    held = np.ascontiguousarray(values)
    if held.itemsize * 8 != kind.bit_width:
        raise TypeError(f"{held.dtype} has another width than {kind}")
    return pa.Array.from_buffers(kind, len(held), [None, pa.py_buffer(held)])


def held_numbers(values: pa.Array) -> np.ndarray:
    """Return the values of an array of 64-bit numbers or times, arbitrary where it is null; shares the memory."""
    return np.frombuffer(values.buffers()[1] or b"", np.int64)[values.offset : values.offset + len(values)]


def held_integers(values: pa.Array) -> np.ndarray:
    """Return the values of an array of 32-bit integers, arbitrary where it is null; shares the memory."""
    return np.frombuffer(values.buffers()[1] or b"", np.int32)[values.offset : values.offset + len(values)]


def repeated(value: str | int, rows: int) -> pa.Array:
    """Return an array that repeats a text, or a 32-bit integer."""
    if isinstance(value, int):
        one = numbers(np.array([value], np.int32), pa.int32())
    else:
        text = value.encode()
        ends = np.array([0, len(text)], np.int32)
        one = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    return pa.repeat(one[0], rows)


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """Byte strings, or None for null, as a BINARY array; at most 2 GiB in all."""
    nulls = values.count(None)
    if nulls and nulls == len(values):
        # Records without keys.
        return pa.nulls(nulls, pa.binary())
    ends = np.zeros(len(values) + 1, np.int64)
    whole = not nulls
    lengths = map(len, values) if whole else (0 if v is None else len(v) for v in values)  # type: ignore[arg-type]
    np.cumsum(np.fromiter(lengths, np.int64, len(values)), out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(values, pa.binary())
    if whole:
        # Three times as fast as checking each value: this is half of the work for a sent record.
        body = pa.py_buffer(b"".join(values))  # type: ignore[arg-type]
        return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends.astype(np.int32)), body])
    present = np.fromiter((v is not None for v in values), np.bool_, len(values))
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    body = pa.py_buffer(b"".join(v for v in values if v is not None))
    return pa.Array.from_buffers(pa.binary(), len(values), [valid, pa.py_buffer(ends.astype(np.int32)), body])


def scalars(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return texts, integers, times or booleans, or None for null, as an array.

    Raises:
        ValueError, TypeError, AttributeError, OverflowError: a value does not fit the type.
    """
    is_text, valid = pa.types.is_string(kind), None
    if None in values:
        valid = _bits([v is not None for v in values])
        empty = "" if is_text else 0
        values = [empty if v is None else v for v in values]
    if is_text:
        texts = binaries(list(map(str.encode, values))).buffers()
        return pa.Array.from_buffers(kind, len(values), [valid, *texts[1:]])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [valid, _bits(list(map(bool, values)))])
    held = np.array(values, np.dtype(f"int{kind.bit_width}"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(held)])


def flags_of(values: np.ndarray) -> pa.Array:
    """Return booleans as an array."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def _bits(values: Sequence[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(values, np.bool_), bitorder="little"))


def whole_numbers(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column of integers or times, times in its own unit; None for null.

    Raises:
        pa.ArrowException: the column has another type.
    """
    if column.type != pa.int64() and not pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found: list[Any] = []
    for chunk in column.chunks:
        found += chunk.view(pa.int64()).to_pylist() if chunk.null_count else held_numbers(chunk).tolist()
    return found


def nulls_of(values: pa.Array) -> np.ndarray:
    """Return which values are null."""
    if not values.null_count:
        return np.zeros(len(values), np.bool_)
    if (valid := values.buffers()[0]) is None:
        return np.ones(len(values), np.bool_)
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
    found: np.ndarray = bits[values.offset : values.offset + len(values)] == 0
    return found


def lengths_of(values: pa.Array, null: int) -> np.ndarray:
    """Return the bytes of each BINARY or STRING value, or the entries of each list.

    Args:
        values: at most 2 GiB, or 2^31 entries.
        null: length of a null.
    """
    if not len(values):
        return np.zeros(0, np.int64)
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    found: np.ndarray = np.diff(ends).astype(np.int64)
    if values.null_count:
        found[nulls_of(values)] = null
    return found


def without_nulls(values: pa.Array) -> pa.Array:
    """Return an array without its nulls; shares the memory if the other values are contiguous."""
    if not values.null_count:
        return values
    valid = np.unpackbits(np.frombuffer(values.buffers()[0], np.uint8), bitorder="little")
    valid = valid[values.offset : values.offset + len(values)]
    # The positions at which runs of valid values begin and end.
    turns = np.flatnonzero(np.diff(valid, prepend=np.uint8(0), append=np.uint8(0))).tolist()
    if len(turns) > FEW_TURNS:
        return values.filter(values.is_valid())
    return pa.concat_arrays(
        [values.slice(0, 0), *(values.slice(a, b - a) for a, b in zip(turns[::2], turns[1::2], strict=True))]
    )
