"""Avro nodes: each reads one type of the writer's schema from many values at once, as a column of the reader's type.

For arrays and maps, the first items of all values are read side by side, then the second items, and so on. This is fast
for many values with a few items each. If only a few values have many items left, their items are located one by one in
plain Python and then read side by side as if each were a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from kafkalike.schemas.arrow.cursor import TOO_DEEP, Cursor, Numbers, Rows, UnclearError, number_at, past_bytes
from kafkalike.schemas.limits import MAX_VALUE_DEPTH

Convert = Callable[[Cursor, Rows, Numbers], pa.Array]
"""Makes an array of the reader's type from decoded numbers; may record problems with values."""
Gather = Callable[[Cursor, Rows, Numbers, Numbers], pa.Array]
"""Makes an array of the reader's type from runs of bytes, given by their starts and lengths."""


class Node(ABC):
    """Reader of one type. `read` returns an array with one element per row; `skip` only advances the cursor."""

    item_bytes: int = 1
    """Minimum size of a value of the type, in bytes."""

    @abstractmethod
    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Read one value of each row."""

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past one value of each row."""
        self.read(cursor, rows)

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the value that starts at `at`, without decoding it.

        Raises:
            UnclearError: the end cannot be found without decoding the value.
            IndexError: the bytes end inside the value.
        """
        del data, at
        raise UnclearError


class NullNode(Node):
    """A null, encoded in no bytes, as a null of the reader's type."""

    item_bytes = 0

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:  # noqa: ARG002 - nothing is read
        """Return a null per row."""
        return pa.nulls(len(rows), self._kind)

    def past(self, data: bytes, at: int) -> int:
        """Return `at`: a null has no bytes."""
        del data
        return at


class ConstantNode(Node):
    """A field that the writer's schema lacks, filled with the reader's default."""

    item_bytes = 0

    def __init__(self, value: pa.Array) -> None:
        self._value = value

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Return the default once per row.

        Raises:
            TooLargeError: the defaults of the batch would take too many bytes.
        """
        cursor.add(self._value.nbytes * len(rows))
        return self._value.take(pa.array(np.zeros(len(rows), np.int64)))


class NumberNode(Node):
    """A whole number of variable length."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Read and convert one number of each row."""
        return self._convert(cursor, rows, cursor.zigzag(rows))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past one number of each row."""
        cursor.zigzag(rows)

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the number at `at`."""
        return number_at(data, at)[1]


class PlainNode(Node):
    """A number of fixed size."""

    def __init__(self, dtype: str, convert: Convert) -> None:
        self._dtype = dtype
        self._convert = convert
        self.item_bytes = np.dtype(dtype).itemsize

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Read and convert one number of each row."""
        return self._convert(cursor, rows, cursor.fixed(rows, self._dtype))

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the number at `at`."""
        del data
        return at + self.item_bytes


class BytesNode(Node):
    """A run of bytes of fixed size, or preceded by its length."""

    def __init__(self, gather: Gather, size: int | None = None) -> None:
        self._gather = gather
        self._size = size
        self.item_bytes = 1 if size is None else size

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Read and convert one run of bytes of each row."""
        return self._gather(cursor, rows, *self._spans(cursor, rows))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past one run of bytes of each row."""
        self._spans(cursor, rows)

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the run of bytes at `at`."""
        return at + self._size if self._size is not None else past_bytes(data, at)

    def _spans(self, cursor: Cursor, rows: Rows) -> tuple[Numbers, Numbers]:
        if self._size is None:
            return cursor.spans(rows, cursor.zigzag(rows))
        return cursor.spans(rows, np.full(len(rows), self._size, np.int64))


class RecordNode(Node):
    """A record: reads the writer's fields in the writer's order, and returns the reader's fields in their order."""

    def __init__(
        self, kind: pa.StructType, steps: Sequence[tuple[Node, int | None]], missing: Sequence[tuple[Node, int]]
    ) -> None:
        """Set the fields.

        Args:
            kind: the reader's type.
            steps: for each field of the writer its node and its index in `kind`; None for a field that the reader
                drops.
            missing: nodes and indexes in `kind` of the fields that the writer lacks.
        """
        self._kind = kind
        self._steps = steps
        self._missing = missing
        self.item_bytes = sum(node.item_bytes for node, _ in steps)

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Return a struct per row."""
        made: list[pa.Array] = [None] * self._kind.num_fields
        for node, place in self._steps:
            if place is None:
                node.skip(cursor, rows)
            else:
                cursor.path.append(self._kind[place].name)
                made[place] = node.read(cursor, rows)
                cursor.path.pop()
        for node, place in self._missing:
            made[place] = node.read(cursor, rows)
        if not made:
            return pa.array([{}] * len(rows), self._kind)
        return pa.StructArray.from_arrays(made, fields=list(self._kind))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past all fields of each row."""
        for node, _ in self._steps:
            node.skip(cursor, rows)

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the record at `at`."""
        for node, _ in self._steps:
            at = node.past(data, at)
        return at


class SkippedNode(Node):
    """A record that the reader drops; it may be nested in itself."""

    item_bytes = 0

    def __init__(self) -> None:
        self.fields: list[Node] = []

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Advance past the records and return nulls."""
        self.skip(cursor, rows)
        return pa.nulls(len(rows))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past all fields; fail the values if the nesting is too deep."""
        if not len(rows):
            return
        if cursor.depth >= MAX_VALUE_DEPTH:
            cursor.fail(rows, TOO_DEEP)
            return
        cursor.depth += 1
        for node in self.fields:
            node.skip(cursor, rows)
        cursor.depth -= 1


class UnionNode(Node):
    """A union: the number of a branch, then a value of that branch."""

    def __init__(self, kind: pa.DataType, branches: Sequence[Node | str]) -> None:
        """Set the branches.

        Args:
            kind: the reader's type.
            branches: the node of each branch; a string is the reason why the reader cannot read that branch.
        """
        self._kind = kind
        self._branches = branches

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Return the values of all branches in the order of the rows."""
        pieces, chosen = [], np.full(len(rows), -1, np.int64)
        first = 0
        for node, places in self._taken(cursor, rows):
            if isinstance(node, NullNode):
                continue
            pieces.append(node.read(cursor, rows[places]))
            chosen[places] = first + np.arange(len(places))
            first += len(places)
        if not pieces:
            return pa.nulls(len(rows), self._kind)
        if len(pieces) == 1 and len(pieces[0]) == len(rows):
            return pieces[0]
        values = pa.concat_arrays(pieces)
        return values.take(pa.array(chosen, mask=chosen < 0))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past one value of each row."""
        for node, places in self._taken(cursor, rows):
            node.skip(cursor, rows[places])

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the union's value at `at`."""
        number, at = number_at(data, at)
        branch = self._branches[number] if 0 <= number < len(self._branches) else ""
        if isinstance(branch, str):
            raise UnclearError
        return branch.past(data, at)

    def _taken(self, cursor: Cursor, rows: Rows) -> list[tuple[Node, Numbers]]:
        """Return the branches that occur, each with the indexes in `rows` of its values."""
        numbers = cursor.zigzag(rows)
        wrong = (numbers < 0) | (numbers >= len(self._branches))
        if wrong.any():
            cursor.fail(rows[wrong], "a union has no branch of this number")
        taken = []
        good = cursor.good(rows)
        for number, branch in enumerate(self._branches):
            places = np.flatnonzero((numbers == number) & good)
            if isinstance(branch, str):
                cursor.fail(rows[places], branch)
            elif len(places):
                taken.append((branch, places))
        return taken


class BranchNode(Node):
    """A value of one branch of the reader's union, in a struct with a field for each branch."""

    def __init__(self, kind: pa.StructType, place: int, node: Node) -> None:
        self._kind = kind
        self._place = place
        self._node = node
        self.item_bytes = node.item_bytes

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Return structs with one field set."""
        made = [pa.nulls(len(rows), field.type) for field in self._kind]
        made[self._place] = self._node.read(cursor, rows)
        return pa.StructArray.from_arrays(made, fields=list(self._kind))

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        """Advance past one value of each row."""
        self._node.skip(cursor, rows)

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the value at `at`."""
        return self._node.past(data, at)


FEW: Final = 16
"""Number of values. Reading one item of each side by side costs about as much as locating this many items one by one.
"""
LONG: Final = 32
"""Number of items per value from which locating them one by one pays off."""


class ItemsNode(Node):
    """An array or a map: blocks of items, each preceded by its item count; an empty block ends them."""

    def __init__(self, kind: pa.DataType, item: Node, key: Node | None = None) -> None:
        """Set the nodes of the items.

        Args:
            kind: the reader's type, a list or a map.
            item: reads an item of an array, or the value of a map entry.
            key: reads the key of a map entry; None for an array.
        """
        self._kind = kind
        self._item = item
        self._key = key

    def read(self, cursor: Cursor, rows: Rows) -> pa.Array:
        """Return a list or a map per row."""
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
        """Advance past one array or map of each row."""
        for at, theirs, _ in self._rounds(cursor, rows):
            if self._key is not None:
                self._key.skip(at, theirs)
            self._item.skip(at, theirs)

    def past(self, data: bytes, at: int) -> int:
        """Return the position after the array or map at `at`."""
        if not self._item.item_bytes:
            # Items without bytes are counted against a limit, so they must be read.
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
        """Yield groups of items that can be read side by side; the caller must read each group before the next one.

        Yields:
            A cursor at the items, its rows, and for each row the index in `rows` of the value that owns the item.
        """
        item_bytes = self._item.item_bytes + (self._key is not None)
        open_ = np.arange(len(rows))
        while len(open_):
            counts = cursor.zigzag(rows[open_])
            sized = np.flatnonzero(counts < 0)
            if len(sized):
                # A negative count is followed by the block's size in bytes, for readers that skip the block.
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
                    # Damaged or not locatable: read item by item, which reports the problem.
                    walks = False
                yield cursor, rows[now], now
                left = left - 1
                going = (left > 0) & cursor.good(rows[now])
                now, left = now[going], left[going]
            open_ = open_[cursor.good(rows[open_])]

    def _walked(self, cursor: Cursor, rows: Rows, counts: Numbers) -> tuple[Cursor, Numbers] | None:
        """Return a cursor at the next items of some values, and for each item the index of its value.

        Args:
            cursor: reads the values; advanced past the items.
            rows: the values.
            counts: number of items of each value.

        Returns:
            None if the items cannot be located without decoding them.
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
