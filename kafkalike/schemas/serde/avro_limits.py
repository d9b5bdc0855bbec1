"""Limits on Avro types and payloads, checked before fastavro, which has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import InvalidSchemaError, SerializationError
from kafkalike.schemas.avro_schema import AvroType
from kafkalike.schemas.limits import MAX_DECIMAL_BYTES, MAX_EMPTY_ITEMS, MAX_TYPE_DEPTH, MAX_VALUE_DEPTH

_FIXED_BYTES: Final[Mapping[str, int]] = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = frozenset({"int", "long", "enum"})


@dataclass(frozen=True, slots=True)
class Shape:
    """Properties of a type that bound the cost of its values."""

    recursive: bool
    """True if a record may contain itself."""
    empty_items: bool
    """True if an array may have items of zero bytes."""
    decimals: bool
    """True if a value may contain decimals."""
    levels: int
    """Maximum levels that a value can be nested in without taking a byte."""


def shape_of(described: AvroType) -> Shape:
    """Return the shape of a type.

    Raises:
        InvalidSchemaError: a record necessarily contains itself, types are nested too deeply, or a value has more than
            `MAX_EMPTY_ITEMS` parts of zero bytes.
    """
    costs = _Costs()
    costs.of(described, 0)
    return Shape(costs.recursive, costs.empty_items, costs.decimals, costs.levels)


class _Costs:
    def __init__(self) -> None:
        self.recursive = False
        self.empty_items = False
        self.decimals = False
        self.levels = 1
        self._known: dict[int, tuple[int, int, int]] = {}
        self._open: dict[int, bool] = {}

    def of(self, described: AvroType, depth: int) -> tuple[int, int, int]:
        """Return the minimum size of a value, the number of its parts, and the levels below it."""
        if depth > MAX_TYPE_DEPTH:
            raise InvalidSchemaError(f"types are nested in more than {MAX_TYPE_DEPTH} levels")
        mark = id(described)
        if mark in self._known:
            found = self._known[mark]
            if depth + found[2] > MAX_TYPE_DEPTH:
                raise InvalidSchemaError(f"types are nested in more than {MAX_TYPE_DEPTH} levels")
            return found
        if mark in self._open:
            self.recursive = True
            if not self._open[mark]:
                raise InvalidSchemaError(f"the record {described.name!r} always contains itself")
            return 0, 1, 0
        if described.kind != "record":
            return self._of_others(described, depth)
        self._open[mark] = False
        self.levels += 1
        parts = [self.of(field.type, depth + 1) for field in described.fields]
        del self._open[mark]
        made = (sum(p[0] for p in parts), 1 + sum(p[1] for p in parts), 1 + max((p[2] for p in parts), default=0))
        if made[1] > MAX_EMPTY_ITEMS:
            raise InvalidSchemaError(f"each value of {described.name!r} has more than {MAX_EMPTY_ITEMS:,} parts")
        self._known[mark] = made
        return made

    def _of_others(self, described: AvroType, depth: int) -> tuple[int, int, int]:
        if described.kind == "union" or described.items is not None:
            self.levels += 1
            # A union or a container may be empty here, so enclosing records may recur.
            before, self._open = self._open, dict.fromkeys(self._open, True)
            parts = described.branches if described.items is None else [described.items]
            below = [self.of(part, depth + 1) for part in parts]
            self._open = before
            if described.kind == "array" and below[0][0] == 0:
                self.empty_items = True
            return 1, 1, 1 + max((part[2] for part in below), default=0)
        self.decimals |= described.logical == "decimal"
        if described.kind == "fixed":
            return described.size, 1, 0
        return _FIXED_BYTES.get(described.kind, 1), 1, 0


Skip = Callable[[bytes, int, int], int]
"""`(data, start, depth) -> end of the value`."""


class Walk:
    """Checks payloads of a type without building values. Not thread-safe.

    Args:
        described: the type.
    """

    def __init__(self, described: AvroType) -> None:
        self._skips: dict[int, Skip] = {}
        self._empty = 0
        self._skip = self._made(described)

    def check(self, data: bytes, place: int) -> None:
        """Reject a payload with too deep nesting, a too long decimal, or too many items of zero bytes.

        Raises:
            SerializationError: the payload is rejected, or is truncated.
        """
        self._empty = 0
        try:
            self._skip(data, place, 0)
        except IndexError as cause:
            raise SerializationError("the record is truncated") from cause
        except RecursionError as cause:
            raise SerializationError("records are nested too deeply") from cause

    def _made(self, described: AvroType) -> Skip:
        known = self._skips.get(id(described))
        if known is not None:
            return known
        if described.kind == "record":
            return self._record(described)
        made = self._other(described)
        self._skips[id(described)] = made
        return made

    def _record(self, described: AvroType) -> Skip:
        skips: list[Skip] = []

        def record(data: bytes, place: int, depth: int) -> int:
            _check_level(depth)
            for skip in skips:
                place = skip(data, place, depth + 1)
            return place

        self._skips[id(described)] = record
        skips += [self._made(field.type) for field in described.fields]
        return record

    def _other(self, described: AvroType) -> Skip:
        if described.kind == "union":
            return _union([self._made(branch) for branch in described.branches])
        if described.items is not None:
            return self._blocks(self._made(described.items), keyed=described.kind == "map")
        if described.kind in _NUMBERS:
            return lambda data, place, _depth: _number(data, place)[1]
        if described.kind in {"bytes", "string"}:
            return _decimal if described.logical == "decimal" else _sized
        if described.kind == "fixed" and described.logical == "decimal":
            return _fixed_decimal(described.size)
        width = described.size if described.kind == "fixed" else _FIXED_BYTES[described.kind]
        return lambda _data, place, _depth: place + width

    def _blocks(self, skip: Skip, *, keyed: bool) -> Skip:
        def blocks(data: bytes, place: int, depth: int) -> int:
            _check_level(depth)
            while True:
                count, place = _number(data, place)
                if count == 0:
                    return place
                if count < 0:
                    count, (_size, place) = -count, _number(data, place)
                for _ in range(count):
                    before = place
                    if keyed:
                        place = _sized(data, place, depth)
                    place = skip(data, place, depth + 1)
                    if place > len(data):
                        raise IndexError
                    if place == before:
                        self._count_empty()

        return blocks

    def _count_empty(self) -> None:
        self._empty += 1
        if self._empty > MAX_EMPTY_ITEMS:
            raise SerializationError(f"the record claims more than {MAX_EMPTY_ITEMS:,} items that take no bytes")


def _union(skips: list[Skip]) -> Skip:
    def union(data: bytes, place: int, depth: int) -> int:
        _check_level(depth)
        branch, place = _number(data, place)
        if not 0 <= branch < len(skips):
            raise SerializationError(f"the union has no branch {branch}")
        return skips[branch](data, place, depth + 1)

    return union


def _check_level(depth: int) -> None:
    if depth > MAX_VALUE_DEPTH:
        raise SerializationError(f"the value is nested in more than {MAX_VALUE_DEPTH} levels")


def _sized(data: bytes, place: int, _depth: int) -> int:
    size, place = _number(data, place)
    if not 0 <= size <= len(data) - place:
        raise SerializationError(f"a length of {size} bytes exceeds the {max(len(data) - place, 0)} bytes left")
    return place + size


def _decimal(data: bytes, place: int, depth: int) -> int:
    end = _sized(data, place, depth)
    _check_decimal(end - place)  # including the bytes of the length
    return end


def _fixed_decimal(size: int) -> Skip:
    def decimal(_data: bytes, place: int, _depth: int) -> int:
        _check_decimal(size)
        return place + size

    return decimal


def _check_decimal(size: int) -> None:
    if size > MAX_DECIMAL_BYTES:
        raise SerializationError(f"a decimal has more than {MAX_DECIMAL_BYTES:,} bytes")


def _number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return (value >> 1) ^ -(value & 1), place
        shift += 7
        if shift > 63:  # noqa: PLR2004 - ten bytes
            raise SerializationError("a number has more than ten bytes")


def check_depth(value: Any) -> None:  # noqa: ANN401 - what a user sent
    """Reject a value that is nested too deeply to be encoded, such as a value that contains itself.

    Raises:
        SerializationError: the nesting exceeds `MAX_VALUE_DEPTH`.
    """
    level = [value]
    for _ in range(MAX_VALUE_DEPTH):
        level = [
            below
            for item in level
            if isinstance(item, Mapping | list | tuple)
            for below in (item.values() if isinstance(item, Mapping) else item)
            if isinstance(below, Mapping | list | tuple)
        ]
        if not level:
            return
        if len(level) > 10 * MAX_EMPTY_ITEMS:
            break
    raise SerializationError(f"the value is nested in more than {MAX_VALUE_DEPTH} levels, or contains itself")
