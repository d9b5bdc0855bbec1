"""Avro items: arrays and maps of many values in, lists and maps out.

The first items of all values are read side by side, then the second ones: fast for many values with some items each.
What is left of a few long ones is walked along, and its items are read side by side as if they were values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from kafkalike.schemas.arrow.avro_nodes import Node
from kafkalike.schemas.arrow.avro_walk import UnclearError, number_at
from kafkalike.schemas.arrow.cursor import Cursor, Numbers, Rows

FEW: Final = 16
"""Values. An item of each, read side by side, costs about as much as walking along an item of so many."""
LONG: Final = 32
"""Items, from which walking is worth it."""


class Items(Node):
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
