"""Recent: values that were used last, as many as there is room for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache that forgets what was not used for longest. Thread-safe.

    Args:
        room: how many values it keeps.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """The value of a key; None when it is not known, or not any more."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._room:
                self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._held.clear()
