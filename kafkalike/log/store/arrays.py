"""Arrays: NumPy numbers and Python bytes in, Arrow arrays out.

`pyarrow.array` looks for pandas objects in whatever it is given and imports pandas for it: up to a second at the first
record that a process sends. Buffers say what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def numbers(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Numbers without nulls as an array of a type of the same width; shares the memory."""
    held = np.ascontiguousarray(values)
    if held.itemsize * 8 != kind.bit_width:
        message = f"{held.dtype} has another width than {kind}"
        raise TypeError(message)
    return pa.Array.from_buffers(kind, len(held), [None, pa.py_buffer(held)])


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """Byte strings, or None for null, as a BINARY array; at most 2 GiB in all."""
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter((0 if v is None else len(v) for v in values), np.int64, len(values)), out=ends[1:])
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(values, pa.binary())
    present = np.fromiter((v is not None for v in values), np.bool_, len(values))
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    body = pa.py_buffer(b"".join(v for v in values if v is not None))
    return pa.Array.from_buffers(pa.binary(), len(values), [valid, pa.py_buffer(ends.astype(np.int32)), body])
