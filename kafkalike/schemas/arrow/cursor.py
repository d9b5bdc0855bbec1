"""A cursor over the bytes of many values that are read side by side: one NumPy operation reads the same field of all.

A problem ends only the value that has it; the other values are read on. If one value has very many parts, they are
located one by one in plain Python and then read side by side.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.schemas.limits import MAX_EMPTY_ITEMS

Rows: TypeAlias = npt.NDArray[np.int64]
"""Indexes of values, ascending and unique."""
Numbers: TypeAlias = npt.NDArray[Any]

PADDING: Final = 16
"""Zero bytes behind the last value, so that reading past its end is safe until the end is checked."""
LARGEST_BATCH: Final = 1 << 30
"""Maximum bytes of values that are read side by side, because Arrow's offsets have 32 bits."""
MOST_ADDED: Final = 1 << 26
"""Maximum bytes of defaults in a batch."""

_MOST_BITS: Final = 70
"""Bits of the longest 64-bit number: ten bytes with seven bits each."""
_WORD: Final = 8
"""Bytes that are read at once of numbers with more than one byte."""
_EACH: Final = np.uint64(0x0101010101010101)
"""The lowest bit of each byte of a word."""
_LAST: Final = np.uint64(0x8080808080808080)
"""The continuation bit of each byte of a word; it is clear in the last byte of a number."""
_SEVEN: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_JOINS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(gap))
    for low, high, gap in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""Steps that join neighboring groups of bits, doubling their width: masks of both groups, and the gap between them."""
ENDS_EARLY: Final = "the value ends too early"
BAD_NUMBER: Final = "a number has more than 10 bytes"
BAD_LENGTH: Final = "a length that is negative or beyond the value's end"
TOO_DEEP: Final = "nested too deeply"


class TooLargeError(Exception):
    """The columns would become too large; decode fewer values at once."""


class Cursor:
    """The read position of each of many values.

    Methods take `rows`, the indexes of values, and return results in their order. A value with a problem is moved to
    its end, and results for it are meaningless.
    """

    def __init__(self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> None:
        """Set the positions to the start of each value.

        Args:
            data: the bytes of all values, in order.
            starts: the start of each value.
            ends: the end of each value.
        """
        self.data = np.concatenate([data, np.zeros(PADDING, np.uint8)])
        self.pos = starts.astype(np.int64)
        self.end = ends.astype(np.int64)
        self.problem = np.zeros(len(starts), np.int32)
        """For each value 0, or an index into `problems`."""
        self.problems: list[str | None] = [None]
        self.depth = 0
        """Current nesting depth in a recursive type."""
        self.path: list[str] = []
        """Names of the reader's fields that lead to the current position."""
        self._empty = np.zeros(len(starts), np.int64)
        self._added = 0
        self._rests: dict[int, tuple[int, bytes]] = {}

    def inside(self, starts: Numbers, ends: Numbers) -> Cursor:
        """Return a cursor over parts of the values, as if each part were a value. Call `take_problems` after reading.

        Args:
            starts: the start of each part.
            ends: the end of each part.
        """
        made = copy(self)
        made.pos, made.end = starts, ends
        made.problem, made.problems = np.zeros(len(starts), np.int32), [None]
        made._empty, made._rests = np.zeros(len(starts), np.int64), {}  # noqa: SLF001 - of the same class
        return made

    def rest(self, row: int) -> tuple[int, bytes]:
        """Return the position and bytes of the unread rest of a value; they may start before the current position."""
        found = self._rests.get(row)
        if found is None:
            first = int(self.pos[row])
            # Cached, because a value may have very many blocks, and each of them calls this.
            found = self._rests[row] = first, self.data[first : int(self.end[row])].tobytes()
        return found

    def take_problems(self, inside: Cursor, rows: Rows) -> None:
        """Copy the problems of parts to the values that own them.

        Args:
            inside: the cursor over the parts, which have been read.
            rows: for each part the value that owns it.
        """
        inside.finish()
        self._added = inside._added
        for number, problem in enumerate(inside.problems):
            if problem is not None:
                self.fail(np.unique(rows[inside.problem == number]), problem)

    def fail(self, rows: Rows, problem: str) -> None:
        """Record a problem of some values; the first problem of each value counts."""
        if not len(rows):
            return
        if problem not in self.problems:
            self.problems.append(problem)
        fresh = rows[self.problem[rows] == 0]
        self.problem[fresh] = self.problems.index(problem)
        self.pos[rows] = self.end[rows]

    def refuse(self, rows: Rows, problem: str) -> None:
        """Record that a field of some values does not fit its column; the problem names the field."""
        self.fail(rows, f"{'.'.join(self.path)}: {problem}" if self.path else problem)

    def good(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the values without a problem so far."""
        if len(self.problems) == 1:
            return np.ones(len(rows), np.bool_)
        found: npt.NDArray[np.bool_] = self.problem[rows] == 0
        return found

    def finish(self) -> None:
        """Fail the values that have unread bytes."""
        left = np.flatnonzero((self.pos != self.end) & (self.problem == 0))
        self.fail(left, "bytes are left after the value")

    def add(self, size: int) -> None:
        """Count the bytes of defaults, which do not come from the values.

        Raises:
            TooLargeError: the total is above `MOST_ADDED`.
        """
        self._added += size
        if self._added > MOST_ADDED:
            raise TooLargeError

    def varint(self, rows: Rows) -> npt.NDArray[np.uint64]:
        """Read numbers of variable length: seven bits per byte, the low ones first."""
        begin = self._at(rows)
        byte = self.data[begin]
        more = (byte & 0x80).nonzero()[0]
        if not len(more):
            self._moved(rows, begin + 1)
            return byte.astype(np.uint64)
        if len(more) == len(rows):
            found, sizes = self._longer(begin)
            at = begin + sizes
        else:
            found, at = byte.astype(np.uint64), begin + 1
            found[more], sizes = self._longer(begin[more])
            at[more] += sizes - 1
        more = more[sizes > _WORD]
        if len(more):
            more = self._longest(found, at, more)
        self._moved(rows, at)
        if len(more):
            self.fail(rows[more], BAD_NUMBER)
        return found

    def _longer(self, at: Numbers) -> tuple[npt.NDArray[np.uint64], Numbers]:
        """Return numbers of up to eight bytes, and their sizes.

        A size of nine marks a longer number; its first eight bytes are returned.
        """
        word = self._loose("<u8")[at]
        last = ~word & _LAST
        # All bits up to the lowest clear continuation bit.
        mine = last ^ (last - np.uint64(1))
        found = word & mine & _SEVEN
        for low, high, gap in _JOINS:
            found = (found & low) | ((found & high) >> gap)
        sizes = ((mine & _EACH) * _EACH) >> np.uint64(56)
        return found, sizes.astype(np.int64) + (last == 0)

    def _longest(self, found: npt.NDArray[np.uint64], at: Numbers, more: Numbers) -> Numbers:
        """Read the bytes after the eighth of the numbers at `more`; return the indexes of those without an end."""
        at[more] -= 1
        shift = 7 * _WORD
        while len(more) and shift < _MOST_BITS:
            byte = self.data[at[more]]
            found[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            at[more] += 1
            more = more[(byte & 0x80) != 0]
            shift += 7
        return more

    def zigzag(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Read signed numbers of variable length, Avro's encoding of whole numbers."""
        found = self.varint(rows)
        sign = found & np.uint64(1)
        found >>= np.uint64(1)
        found ^= np.negative(sign, out=sign)
        return found.view(np.int64)

    def byte(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Read one byte of each row."""
        at = self._at(rows)
        found: npt.NDArray[np.uint8] = self.data[at]
        self._moved(rows, at + 1)
        return found

    def fixed(self, rows: Rows, dtype: str) -> Numbers:
        """Read numbers of fixed size.

        Args:
            rows: the values.
            dtype: NumPy's type, such as `<f8`.
        """
        at = self._at(rows)
        found: Numbers = self._loose(dtype)[at]
        self._moved(rows, at + found.itemsize)
        return found

    def spans(self, rows: Rows, lengths: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Advance past runs of bytes; return their starts and their lengths, 0 for an impossible length."""
        at = self._at(rows)
        wrong = (lengths < 0) | (lengths > self._end(rows) - at)
        if wrong.any():
            self.fail(rows[wrong], BAD_LENGTH)
            lengths = np.where(wrong, 0, lengths)
            at = self.pos[rows]
        self._put(rows, at + lengths)
        return at, lengths

    def counted(self, rows: Rows, counts: npt.NDArray[np.int64], item_bytes: int) -> npt.NDArray[np.int64]:
        """Return the item counts, with 0 for an impossible one.

        Args:
            rows: the values.
            counts: the count that each value states.
            item_bytes: minimum size of an item, in bytes.
        """
        left = self._end(rows) - self._at(rows)
        most = left // item_bytes if item_bytes else MAX_EMPTY_ITEMS - self._empty[rows]
        wrong = (counts < 0) | (counts > most)
        if wrong.any():
            self.fail(rows[wrong], "more items than the value has room for")
        counts = np.where(wrong | ~self.good(rows), 0, counts)
        if not item_bytes:
            self._empty[rows] += counts
        return counts

    def gathered(self, starts: Numbers, lengths: Numbers, kind: pa.DataType) -> pa.Array:
        """Return runs of bytes as an array of strings or binary values, without validating them.

        The runs and the gaps between them form an array over the existing bytes, of which Arrow copies every second
        element.
        """
        count = len(starts)
        edges = np.empty(2 * count + 1, np.int32)
        edges[:-1:2], edges[1::2] = starts, starts + lengths
        edges[-1] = edges[-2] if count else 0
        all_runs = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(self.data)])
        return all_runs.take(pa.array(np.arange(0, 2 * count, 2)))

    def _moved(self, rows: Rows, at: Numbers) -> None:
        ends = self._end(rows)
        over = at > ends
        if over.any():
            self._put(rows, np.minimum(at, ends))
            self.fail(rows[over], ENDS_EARLY)
        else:
            self._put(rows, at)

    def _at(self, rows: Rows) -> Numbers:
        """Return the positions of rows. Read-only, because the positions of all rows are returned without a copy."""
        return self.pos if len(rows) == len(self.pos) else self.pos[rows]

    def _end(self, rows: Rows) -> Numbers:
        return self.end if len(rows) == len(self.end) else self.end[rows]

    def _put(self, rows: Rows, at: Numbers) -> None:
        """Set the positions of rows; the cursor may keep the array."""
        if len(rows) == len(self.pos):
            self.pos = at
        else:
            self.pos[rows] = at

    def _loose(self, dtype: str) -> Numbers:
        """Return the data as an array of numbers that start at every byte, without a copy."""
        count = len(self.data) - np.dtype(dtype).itemsize + 1
        return np.ndarray((count,), dtype, self.data, strides=(1,))


def invalid(values: pa.Array) -> list[int]:
    """Return the indexes of elements that are invalid for their type, such as strings that are not UTF-8."""
    return _invalid(values, 0)


def _invalid(values: pa.Array, first: int) -> list[int]:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return [first]
        half = len(values) // 2
        return [*_invalid(values[:half], first), *_invalid(values[half:], first + half)]
    return []


_MOST_VARINT_BITS: Final = 63


class UnclearError(Exception):
    """The end of a value cannot be found without decoding it, or the value is damaged."""


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at a position, and the position after it.

    Raises:
        UnclearError: the number has too many bytes.
        IndexError: the bytes end inside the number.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift > _MOST_VARINT_BITS:
            raise UnclearError


def past_bytes(data: bytes, at: int) -> int:
    """Return the position after a run of bytes that is preceded by its length."""
    size, at = number_at(data, at)
    if size < 0:
        raise UnclearError
    return at + size
