"""A cursor over the bytes of many values, read side by side: one NumPy operation reads the same field of all of them.

What is wrong with a value is noted and ends that value alone; the others go on. Where one value has very many parts it
is walked along first, in plain Python, and its parts are then read side by side.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.schemas.limits import MAX_EMPTY_ITEMS

Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of values, ascending, each once."""
Numbers: TypeAlias = npt.NDArray[Any]

PADDING: Final = 16
"""Bytes that may be read behind the last value before anybody looks whether it had ended."""
LARGEST_BATCH: Final = 1 << 30
"""Bytes of values that are read side by side: Arrow's offsets have 32 bits."""
MOST_ADDED: Final = 1 << 26
"""Bytes of defaults that a batch may get."""

_MOST_BITS: Final = 70
"""Of a number of 64 bits, seven in each byte."""
_WORD: Final = 8
"""Bytes that are read at once of numbers that have more than one."""
_EACH: Final = np.uint64(0x0101010101010101)
"""A bit of each byte of a word."""
_LAST: Final = np.uint64(0x8080808080808080)
"""Of each byte the bit that is not set where a number ends."""
_SEVEN: Final = np.uint64(0x7F7F7F7F7F7F7F7F)
_JOINS: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(gap))
    for low, high, gap in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
"""How neighbours are put together, twice as many bits each time: masks of both, and the gap between them."""
ENDS_EARLY: Final = "the value ends too early"
BAD_NUMBER: Final = "a number has more than 10 bytes"
BAD_LENGTH: Final = "a length that is negative or beyond the value's end"
TOO_DEEP: Final = "nested too deeply"


class TooLargeError(Exception):
    """Columns would become too large: fewer values must be decoded at once."""


class Cursor:
    """Where each of many values is read. Rows of its methods name values; results are in the order of the rows.

    A value with a problem stands at its end from then on: what is read of it means nothing.
    """

    def __init__(self, data: npt.NDArray[np.uint8], starts: Numbers, ends: Numbers) -> None:
        """Begin.

        Args:
            data: bytes of all values, in their order.
            starts: where each begins.
            ends: where each ends.
        """
        self.data = np.concatenate([data, np.zeros(PADDING, np.uint8)])
        self.pos = starts.astype(np.int64)
        self.end = ends.astype(np.int64)
        self.problem = np.zeros(len(starts), np.int32)
        """0, or a number of `problems`."""
        self.problems: list[str | None] = [None]
        self.depth = 0
        """How deep in a recursive type the reading is."""
        self.path: list[str] = []
        """Names of the reader's fields that lead to where the reading is."""
        self._empty = np.zeros(len(starts), np.int64)
        self._added = 0
        self._rests: dict[int, tuple[int, bytes]] = {}

    def inside(self, starts: Numbers, ends: Numbers) -> Cursor:
        """A cursor at parts of the values, as if each was a value; `take_problems` comes after it.

        Args:
            starts: where each begins.
            ends: where each ends.
        """
        made = copy(self)
        made.pos, made.end = starts, ends
        made.problem, made.problems = np.zeros(len(starts), np.int32), [None]
        made._empty, made._rests = np.zeros(len(starts), np.int64), {}  # noqa: SLF001 - of the same class
        return made

    def rest(self, row: int) -> tuple[int, bytes]:
        """What is left of a value, as bytes, and where they begin: not behind where it is read now."""
        found = self._rests.get(row)
        if found is None:
            first = int(self.pos[row])
            # Kept: a value may have very many blocks of items, each of which asks.
            found = self._rests[row] = first, self.data[first : int(self.end[row])].tobytes()
        return found

    def take_problems(self, inside: Cursor, rows: Rows) -> None:
        """What is wrong with parts is wrong with their values.

        Args:
            inside: the cursor at the parts, which have been read.
            rows: for each part the value that it is of.
        """
        inside.finish()
        self._added = inside._added
        for number, problem in enumerate(inside.problems):
            if problem is not None:
                self.fail(np.unique(rows[inside.problem == number]), problem)

    def fail(self, rows: Rows, problem: str) -> None:
        """Note what is wrong with some values; the first problem of each counts."""
        if not len(rows):
            return
        if problem not in self.problems:
            self.problems.append(problem)
        fresh = rows[self.problem[rows] == 0]
        self.problem[fresh] = self.problems.index(problem)
        self.pos[rows] = self.end[rows]

    def refuse(self, rows: Rows, problem: str) -> None:
        """Note that a field of some values has a value that its column cannot hold; the problem names the field."""
        self.fail(rows, f"{'.'.join(self.path)}: {problem}" if self.path else problem)

    def good(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which of some values have no problem so far."""
        if len(self.problems) == 1:
            return np.ones(len(rows), np.bool_)
        found: npt.NDArray[np.bool_] = self.problem[rows] == 0
        return found

    def finish(self) -> None:
        """Note values of which something is left."""
        left = np.flatnonzero((self.pos != self.end) & (self.problem == 0))
        self.fail(left, "bytes are left behind the value")

    def add(self, size: int) -> None:
        """Count bytes that do not come from the values: defaults.

        Raises:
            TooLargeError: they are too many.
        """
        self._added += size
        if self._added > MOST_ADDED:
            raise TooLargeError

    def varint(self, rows: Rows) -> npt.NDArray[np.uint64]:
        """A number of variable length: seven bits a byte, the low ones first."""
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
        """Numbers of up to eight bytes, and how many they have; nine where there are more, of which these are eight."""
        word = self._loose("<u8")[at]
        last = ~word & _LAST
        # All bits up to the lowest one that says that nothing follows.
        mine = last ^ (last - np.uint64(1))
        found = word & mine & _SEVEN
        for low, high, gap in _JOINS:
            found = (found & low) | ((found & high) >> gap)
        sizes = ((mine & _EACH) * _EACH) >> np.uint64(56)
        return found, sizes.astype(np.int64) + (last == 0)

    def _longest(self, found: npt.NDArray[np.uint64], at: Numbers, more: Numbers) -> Numbers:
        """Read on behind eight bytes of some numbers, whose places are `more`; gives those that do not end."""
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
        """A signed number of variable length, as Avro writes all whole numbers."""
        found = self.varint(rows)
        sign = found & np.uint64(1)
        found >>= np.uint64(1)
        found ^= np.negative(sign, out=sign)
        return found.view(np.int64)

    def byte(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """One byte."""
        at = self._at(rows)
        found: npt.NDArray[np.uint8] = self.data[at]
        self._moved(rows, at + 1)
        return found

    def fixed(self, rows: Rows, dtype: str) -> Numbers:
        """A number of fixed size, such as `<f8`."""
        at = self._at(rows)
        found: Numbers = self._loose(dtype)[at]
        self._moved(rows, at + found.itemsize)
        return found

    def spans(self, rows: Rows, lengths: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Runs of bytes of these lengths: starts and lengths, which are 0 where that cannot be."""
        at = self._at(rows)
        wrong = (lengths < 0) | (lengths > self._end(rows) - at)
        if wrong.any():
            self.fail(rows[wrong], BAD_LENGTH)
            lengths = np.where(wrong, 0, lengths)
            at = self.pos[rows]
        self._put(rows, at + lengths)
        return at, lengths

    def counted(self, rows: Rows, counts: npt.NDArray[np.int64], item_bytes: int) -> npt.NDArray[np.int64]:
        """Numbers of items that follow, 0 where there cannot be so many.

        Args:
            rows: of which values.
            counts: how many each one says.
            item_bytes: an item has at least so many.
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
        """Runs of bytes as an array of texts or bytes, which are not looked at.

        The runs and the gaps between them are an array over the bytes as they are; Arrow copies every second element.
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
        """Where values are read, not to be written to: where all of them are asked for it is no copy."""
        return self.pos if len(rows) == len(self.pos) else self.pos[rows]

    def _end(self, rows: Rows) -> Numbers:
        return self.end if len(rows) == len(self.end) else self.end[rows]

    def _put(self, rows: Rows, at: Numbers) -> None:
        """Go to other places, in an array that may be the cursor's from here on."""
        if len(rows) == len(self.pos):
            self.pos = at
        else:
            self.pos[rows] = at

    def _loose(self, dtype: str) -> Numbers:
        """The data as numbers that begin at each of its bytes, no copy."""
        count = len(self.data) - np.dtype(dtype).itemsize + 1
        return np.ndarray((count,), dtype, self.data, strides=(1,))


def invalid(values: pa.Array) -> list[int]:
    """Which elements their type does not allow, such as texts that are no UTF-8: looked for by halves."""
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
    """Where a value ends cannot be said without reading it, or it is damaged."""


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends.

    Raises:
        UnclearError: it has too many bytes.
        IndexError: the bytes end before.
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
    """Where a run of bytes ends that follows its length."""
    size, at = number_at(data, at)
    if size < 0:
        raise UnclearError
    return at + size
