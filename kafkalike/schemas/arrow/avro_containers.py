"""Avro leaves and containers: numbers, bytes, arrays and maps of many values, as arrays of the reader's types.

The first items of all values are read side by side, then the second ones: fast for many values with some items each.
What is left of a few long ones is walked along, and its items are read side by side as if they were values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.schemas.arrow.avro_nodes import Convert, Gather, Node
from kafkalike.schemas.arrow.cursor import Cursor, Numbers, Rows, UnclearError, invalid, number_at
from kafkalike.schemas.arrow.exact_cast import DAY_MICROS, same_numbers

FEW: Final = 16
"""Values. An item of each, read side by side, costs about as much as walking along an item of so many."""
LONG: Final = 32
"""Items, from which walking is worth it."""


class ItemsNode(Node):
    """Arrays and maps: blocks of items, each after its number of items; a block of none ends them."""

    def __init__(self, kind: pa.DataType, item: Node, key: Node | None = None) -> None:
        """Take what reads the items.

        Args:
            kind: the reader's type, a list or a map.
            item: reads an item, or the value of an entry.
            key: reads the key of an entry.
        """
        self._kind = kind
        self._item = item
        self._key = key

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Lists or maps."""
        keys: list[pa.Array] = []
        items: list[pa.Array] = []
        owners: list[Numbers] = []
        for at, theirs, places in self._rounds(cursor, rows):
            if self._key is not None:
                keys.append(self._key.read(at, theirs))
            items.append(self._item.read(at, theirs))
            owners.append(places)
        owner = np.concatenate([np.empty(0, np.int64), *owners])
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=len(rows)), out=offsets[1:])
        order = pa.array(np.argsort(owner, kind="stable"))
        edges = pa.array(offsets)
        value = self._joined(items, self._value_type, order)
        if self._key is None:
            return pa.ListArray.from_arrays(edges, value, type=self._kind)
        return pa.MapArray.from_arrays(edges, self._joined(keys, pa.string(), order), value, type=self._kind)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Go past them."""
        for at, theirs, _ in self._rounds(cursor, rows):
            if self._key is not None:
                self._key.skip(at, theirs)
            self._item.skip(at, theirs)

    def past(self, data: bytes, at: int) -> int:
        """See `Node.past`."""
        if not self._item.item_bytes:
            # How many items there may be is counted while they are read.
            raise UnclearError
        while True:
            count, at = number_at(data, at)
            if count == 0:
                return at
            if count < 0:
                count, (_, at) = -count, number_at(data, at)
            for _ in range(count):
                at = self._past_item(data, at)
                if at > len(data):
                    raise UnclearError

    def _past_item(self, data: bytes, at: int) -> int:
        return self._item.past(data, at if self._key is None else self._key.past(data, at))

    @property
    def _value_type(self) -> pa.DataType:
        return self._kind.value_type if self._key is None else self._kind.item_type

    @staticmethod
    def _joined(pieces: list[pa.Array], kind: pa.DataType, order: pa.Array) -> pa.Array:
        return pa.concat_arrays(pieces).take(order) if pieces else pa.nulls(0, kind)

    def _rounds(self, cursor: Cursor, rows: Rows) -> Iterator[tuple[Cursor, Rows, Numbers]]:
        """Items that can be read side by side; the caller reads them before it asks for more.

        Yields:
            A cursor at the items, its rows, and for each the place in `rows` of the value that it is an item of.
        """
        item_bytes = self._item.item_bytes + (self._key is not None)
        open_ = np.arange(len(rows))
        while len(open_):
            counts = cursor.zigzag(rows[open_])
            sized = np.flatnonzero(counts < 0)
            if len(sized):
                # The block's size in bytes follows, for readers that want to go past it.
                cursor.zigzag(rows[open_[sized]])
                counts[sized] = -counts[sized]
            counts = cursor.counted(rows[open_], counts, item_bytes)
            open_ = open_[counts > 0]
            left = counts[counts > 0]
            now, walks = open_, item_bytes > 0
            while len(now):
                if walks and len(now) <= FEW and left.max() >= LONG:
                    found = self._walked(cursor, rows[now], left)
                    if found is not None:
                        inside, starts_of = found
                        yield inside, np.arange(len(starts_of)), now[starts_of]
                        cursor.take_problems(inside, rows[now[starts_of]])
                        break
                    # Damaged, or not so simple: item by item then, which says what is wrong.
                    walks = False
                yield cursor, rows[now], now
                left = left - 1
                going = (left > 0) & cursor.good(rows[now])
                now, left = now[going], left[going]
            open_ = open_[cursor.good(rows[open_])]

    def _walked(self, cursor: Cursor, rows: Rows, counts: Numbers) -> tuple[Cursor, Numbers] | None:
        """A cursor at the next items of some values, and for each item which of the values it is of.

        Args:
            cursor: where the values are read; it stands behind the items then.
            rows: the values.
            counts: of how many items each.
        """
        edges: list[Numbers] = []
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            first, data = cursor.rest(row)
            at = int(cursor.pos[row]) - first
            places = [at]
            try:
                for _ in range(count):
                    at = self._past_item(data, at)
                    places.append(at)
            except (UnclearError, IndexError):
                return None
            if at > len(data):
                return None
            edges.append(np.array(places, np.int64) + first)
        cursor.pos[rows] = [edge[-1] for edge in edges]
        starts = np.concatenate([edge[:-1] for edge in edges])
        ends = np.concatenate([edge[1:] for edge in edges])
        return cursor.inside(starts, ends), np.repeat(np.arange(len(rows)), counts)


_INT: Final = np.iinfo(np.int32)
_LARGEST: Final = (1 << 63) - 1


def whole_number_converter(kind: pa.DataType, factor: int = 1, *, narrow: bool = False) -> Convert:
    """Whole numbers as numbers, dates or times.

    Args:
        kind: the type of the array.
        factor: how many of the array's units one of the writer's has; below 0: how many of the writer's one of the
            array's has, and the number must be a multiple of it.
        narrow: whether the writer's type is `int`, whose numbers have 32 bits.
    """
    if pa.types.is_floating(kind):
        return _as_floats(kind, narrow=narrow)
    below = DAY_MICROS if pa.types.is_time(kind) else None

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
        if narrow:
            numbers = _of_32_bits(cursor, rows, numbers)
        if factor < 0:
            wrong = numbers % -factor != 0
            numbers = _failed(cursor, rows, numbers, wrong, "a time with parts of a microsecond") // -factor
        elif factor != 1:
            most = _LARGEST // factor
            wrong = (numbers > most) | (numbers < -most)
            numbers = _failed(cursor, rows, numbers, wrong, "a time that is beyond what microseconds can say") * factor
        if below is not None:
            wrong = (numbers < 0) | (numbers >= below)
            numbers = _failed(cursor, rows, numbers, wrong, "a time of day that is below 0 or beyond a day")
        if kind.bit_width == _INT.bits:
            return pa.array(numbers.astype(np.int32)).view(kind)
        return pa.array(numbers).view(kind)

    return convert


def _failed(cursor: Cursor, rows: Rows, numbers: Numbers, wrong: npt.NDArray[np.bool_], problem: str) -> Numbers:
    """The numbers, with 0 for those that are wrong, which are noted."""
    if not wrong.any():
        return numbers
    cursor.refuse(rows[wrong], problem)
    found: Numbers = np.where(wrong, 0, numbers)
    return found


def _of_32_bits(cursor: Cursor, rows: Rows, numbers: Numbers) -> Numbers:
    wrong = (numbers < _INT.min) | (numbers > _INT.max)
    return _failed(cursor, rows, numbers, wrong, "an int has more than 32 bits")


def _as_floats(kind: pa.DataType, *, narrow: bool) -> Convert:
    dtype = np.dtype(kind.to_pandas_dtype())

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
        if narrow:
            numbers = _of_32_bits(cursor, rows, numbers)
        found = numbers.astype(dtype)
        wrong = ~same_numbers(numbers, found)
        _failed(cursor, rows, numbers, wrong, f"a whole number that no {kind} is equal to")
        return pa.array(found)

    return convert


def floating(kind: pa.DataType) -> Convert:
    """Numbers as `float` or `double`."""
    dtype = kind.to_pandas_dtype()

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:  # noqa: ARG001 - nothing can be wrong
        return pa.array(numbers.astype(dtype, copy=False))

    return convert


def truth(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
    """Bytes that are 0 or 1 as truth values."""
    wrong = numbers > 1
    if wrong.any():
        cursor.fail(rows[wrong], "a boolean is neither 0 nor 1")
    return pa.array(numbers == 1)


def symbols(names: Sequence[str | None]) -> Convert:
    """Numbers of an enum's symbols as texts; None for those that the reader has no symbol for."""
    texts = pa.array(["" if name is None else name for name in names], pa.string())
    unknown = np.array([name is None for name in names], np.bool_)

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
        wrong = (numbers < 0) | (numbers >= len(names))
        if wrong.any():
            cursor.fail(rows[wrong], "an enum has no symbol of this number")
            numbers = np.where(wrong, 0, numbers)
        if unknown.any():
            cursor.fail(rows[unknown[numbers]], "the reader's enum does not have this symbol, and no default")
        return texts.take(pa.array(numbers))

    return convert


def text(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:
    """Bytes as texts; an empty one where they are no UTF-8."""
    found = cursor.gathered(starts, lengths, pa.string())
    bad = invalid(found)
    if not bad:
        return found
    cursor.fail(rows[bad], "a text is not UTF-8")
    lengths = lengths.copy()
    lengths[bad] = 0
    return cursor.gathered(starts, lengths, pa.string())


def raw(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
    """Bytes as bytes."""
    return cursor.gathered(starts, lengths, pa.binary())


def uuid(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
    """16 bytes as a UUID's text."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    plain = cursor.data[np.where(lengths == 16, starts, 0)[:, None] + np.arange(16)]  # noqa: PLR2004 - bytes of a UUID
    hexed = np.empty((len(starts), 32), np.uint8)
    hexed[:, ::2], hexed[:, 1::2] = digits[plain >> 4], digits[plain & 15]
    shown = np.full((len(starts), 36), ord("-"), np.uint8)
    at = 0
    for begin, end in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36)):
        shown[:, begin:end] = hexed[:, at : at + end - begin]
        at += end - begin
    edges = np.arange(len(starts) + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(edges), pa.py_buffer(shown)])


def duration(kind: pa.StructType) -> Gather:
    """12 bytes as months, days and milliseconds."""

    def gather(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
        plain = cursor.data[np.where(lengths == 12, starts, 0)[:, None] + np.arange(12)]  # noqa: PLR2004 - three of 4
        parts = plain.view("<u4").astype(np.int64)
        return pa.StructArray.from_arrays([pa.array(parts[:, nth].copy()) for nth in range(3)], fields=list(kind))

    return gather


def decimal(kind: pa.DataType) -> Gather:
    """Big-endian bytes, the highest with the sign, as decimals."""

    def gather(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:
        widest = int(lengths.max(initial=0))
        if widest > 64:  # noqa: PLR2004 - far more than any precision needs
            long = lengths > 64  # noqa: PLR2004
            cursor.refuse(rows[long], "a decimal has more digits than its type")
            lengths, widest = np.where(long, 0, lengths), 64
        negative = (lengths > 0) & (cursor.data[starts] & 0x80 != 0)
        sign = np.where(negative, 0xFF, 0).astype(np.uint8)
        # The last byte is the lowest one, which Arrow has first.
        low = np.repeat(sign[:, None], 16, axis=1)
        over = np.zeros(len(starts), np.bool_)
        for nth in range(widest):
            there = lengths > nth
            byte = cursor.data[np.where(there, starts + lengths - 1 - nth, 0)]
            if nth < 16:  # noqa: PLR2004 - bytes of Arrow's decimal
                low[:, nth] = np.where(there, byte, low[:, nth])
            else:
                over |= there & (byte != sign)
        over |= (low[:, 15] & 0x80 != 0) != negative
        found = pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(np.ascontiguousarray(low))])
        over[invalid(found)] = True
        if not over.any():
            return found
        cursor.refuse(rows[over], "a decimal has more digits than its type")
        low[over] = 0
        return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(low)])

    return gather
