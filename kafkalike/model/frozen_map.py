"""FrozenMap: a dictionary that never changes; a changed copy of it shares nearly everything with it.

So a state that has been handed out stays as it is, whatever other threads do meanwhile. Changing one key of `n` costs
some square roots of `n`, spread over many changes.
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
"""So many square roots of its size stand beside the large dictionary: copying that touches each key and value, which
are far apart in memory, so it costs several times as much an entry."""

LATE_AT_LEAST: Final = 16
"""So many changed keys stand beside the large dictionary before they are put into it, however small that is."""


class Gone(enum.Enum):
    """Stands in the place of a value that is not there any more."""

    GONE = enum.auto()


GONE: Final = Gone.GONE


class FrozenMap(Mapping[K, V]):
    """A mapping that never changes; in order as a `dict`, and equal to one with the same content.

    Args:
        content: is copied.
    """

    __slots__ = ("_base", "_late", "_size")

    def __init__(self, content: Mapping[K, V] = MappingProxyType({})) -> None:
        self._base: dict[K, V] = dict(content)
        self._late: dict[K, V | Gone] = _NOTHING
        """What is different from `_base`."""
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
        """The value of a key; unlike `Mapping.get` without an exception on the way."""
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
        """The keys, as a set."""
        return self._whole().keys()

    def values(self) -> ValuesView[V]:
        """The values."""
        return self._whole().values()

    def items(self) -> ItemsView[K, V]:
        """Keys and values."""
        return self._whole().items()

    @classmethod
    def of(cls, base: dict[K, V], late: dict[K, V | Gone], size: int) -> FrozenMap[K, V]:
        """Made of its `parts`, which nobody changes any more: nothing is copied."""
        made: FrozenMap[K, V] = cls.__new__(cls)
        made._base, made._late, made._size = base, late, size
        return made

    @property
    def parts(self) -> tuple[dict[K, V], dict[K, V | Gone], int]:
        """The large dictionary, what is different from it, and the size. Caller: `Draft`, which changes neither."""
        return self._base, self._late, self._size

    def _whole(self) -> dict[K, V]:
        """All of it in one dictionary, which nobody may change."""
        return _together(self._base, self._late) if self._late else self._base


_NOTHING: Final[dict[Any, Any]] = {}
"""No changes; stays empty."""


def _together(base: dict[K, V], late: dict[K, V | Gone]) -> dict[K, V]:
    """A new dictionary. Python copies one as a block, and only what is different is looked at."""
    whole: dict[K, V | Gone] = {**base, **late}
    for key, value in late.items():
        if value is GONE:
            del whole[key]
    return whole  # type: ignore[return-value]


class Draft(Generic[K, V]):
    """Changes to a `FrozenMap` that are being made; nobody else sees them.

    Args:
        base: stays as it is.
    """

    __slots__ = ("_base", "_from", "_late", "_own", "_size")

    def __init__(self, base: FrozenMap[K, V]) -> None:
        self._from = base
        self._base, self._late, self._size = base.parts
        self._own = False
        """Whether anything was changed: then `_late` is a copy."""

    def get(self, key: K) -> V | None:
        """The value of a key, None without one."""
        found = self._late.get(key)
        if found is None:
            return self._base.get(key)
        return None if found is GONE else found

    def put(self, key: K, value: V) -> None:
        """Give a key a value, which is not None."""
        if not self._own:
            self._late, self._own = self._late.copy(), True
        late = self._late
        found = late.get(key)
        if found is GONE or (found is None and key not in self._base):
            self._size += 1
        late[key] = value

    def drop(self, key: K) -> None:
        """Take a key out, if it is there."""
        if self.get(key) is None:
            return
        if not self._own:
            self._late, self._own = self._late.copy(), True
        self._late[key] = GONE
        self._size -= 1

    def __len__(self) -> int:
        return self._size

    def frozen(self) -> FrozenMap[K, V]:
        """What it is now."""
        if self._own:
            base, late = self._base, self._late
            if len(late) > LATE_AT_LEAST and len(late) > LATE_ROOTS * math.isqrt(len(base)):
                base, late = _together(base, late), _NOTHING
            self._from = FrozenMap.of(base, late, self._size)
            self._base, self._late, self._own = base, late, False
        return self._from
