"""FrozenMap: an immutable dictionary; a changed copy of it shares nearly everything with it.

A state that a caller holds therefore stays as it is, whatever other threads do. Changing one key of `n` costs a few
square roots of `n`, amortized over many changes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

LATE_ROOTS: Final = 4
"""The number of changed keys kept beside the large dictionary, in square roots of its size. Copying the changed ones
touches each key and value, which are far apart in memory, so it costs several times as much per entry."""

LATE_AT_LEAST: Final = 16
"""The number of changed keys kept beside the large dictionary, however small that is, before they are put into it."""


class Gone(enum.Enum):
    """Marks a deleted value."""

    GONE = enum.auto()


GONE: Final = Gone.GONE


class FrozenMap(Mapping[K, V]):
    """An immutable mapping, with the order of a `dict` and equal to a mapping with the same content.

    Args:
        content: mapping to copy.
    """

    __slots__ = ("_base", "_late", "_size")

    def __init__(self, content: Mapping[K, V] = MappingProxyType({})) -> None:
        self._base: dict[K, V] = dict(content)
        self._late: dict[K, V | Gone] = _NOTHING
        """The changes to `_base`."""
        self._size = len(self._base)

    def __getitem__(self, key: K) -> V:
        found = self._late.get(key) if self._late else None
        if found is None:
            return self._base[key]
        if isinstance(found, Gone):
            raise KeyError(key)
        return found

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: T | None = None, /) -> V | T | None:
        """Return the value of a key; unlike `Mapping.get` without an internal exception."""
        found = self._late.get(key) if self._late else None
        if found is None:
            return self._base.get(key, default)
        return default if found is GONE else found

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return iter(self._whole())

    def __contains__(self, key: object) -> bool:
        if key in self._late:
            return self._late[key] is not GONE
        return key in self._base

    def __repr__(self) -> str:
        return f"FrozenMap({self._whole()!r})"

    def keys(self) -> KeysView[K]:
        """Return the keys, as a set."""
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        """Return the values, in order."""
        return self._whole().values()

    def items(self) -> ItemsView[K, V]:
        """Return keys and values."""
        return self._whole().items()

    @classmethod
    def of(cls, base: dict[K, V], late: dict[K, V | Gone], size: int) -> FrozenMap[K, V]:
        """Build a map from its `parts` without copying them; the caller must not change them afterwards."""
        made: FrozenMap[K, V] = cls.__new__(cls)
        made._base, made._late, made._size = base, late, size
        return made

    @property
    def parts(self) -> tuple[dict[K, V], dict[K, V | Gone], int]:
        """The large dictionary, the changes to it, and the size, for `Draft`, which changes none of them."""
        return self._base, self._late, self._size

    def _whole(self) -> dict[K, V]:
        """Return all entries in one dictionary, which the caller must not change."""
        return _together(self._base, self._late) if self._late else self._base


_NOTHING: Final[dict[Any, Any]] = {}
"""No changes; stays empty."""


def _together(base: dict[K, V], late: dict[K, V | Gone]) -> dict[K, V]:
    """Return a new dictionary. Python copies `base` as a block, so only the changes are visited."""
    whole: dict[K, V | Gone] = {**base, **late}
    for key, value in late.items():
        if value is GONE:
            del whole[key]
    return whole  # type: ignore[return-value]


class Draft(Generic[K, V]):
    """Changes to a `FrozenMap` in preparation, invisible to other threads.

    Args:
        base: map to start from; it stays as it is.
    """

    __slots__ = ("_base", "_from", "_late", "_own", "_size")

    def __init__(self, base: FrozenMap[K, V]) -> None:
        self._from = base
        self._base, self._late, self._size = base.parts
        self._own = False
        """True after the first change: `_late` is then a copy."""

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        found = self._late.get(key)
        if found is None:
            return self._base.get(key)
        return None if found is GONE else found

    def put(self, key: K, value: V) -> None:
        """Set the value of a key; the value must not be None."""
        if not self._own:
            self._late, self._own = self._late.copy(), True
        late = self._late
        found = late.get(key)
        if found is GONE or (found is None and key not in self._base):
            self._size += 1
        late[key] = value

    def drop(self, key: K) -> None:
        """Delete a key, if it exists."""
        if self.get(key) is None:
            return
        if not self._own:
            self._late, self._own = self._late.copy(), True
        self._late[key] = GONE
        self._size -= 1

    def __len__(self) -> int:
        return self._size

    def frozen(self) -> FrozenMap[K, V]:
        """Return the map with all changes so far."""
        if self._own:
            base, late = self._base, self._late
            if len(late) > LATE_AT_LEAST and len(late) > LATE_ROOTS * math.isqrt(len(base)):
                base, late = _together(base, late), _NOTHING
            self._from = FrozenMap.of(base, late, self._size)
            self._base, self._late, self._own = base, late, False
        return self._from
