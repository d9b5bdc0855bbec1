"""OpenFiles: the files that readers hold open between two reads in; the least used of them closed."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Protocol

LIMIT: Final = 256
"""Data files that a process keeps open between two reads; many systems allow a process 1,024 open files."""


class Holder(Protocol):
    """Who may hold a file open."""

    @property
    def is_open(self) -> bool:
        """Whether it does."""
        ...

    def close(self) -> None:
        """Close it; the next read opens it again."""
        ...


class OpenFiles:
    """The open files of a process. Thread-safe.

    Args:
        limit: most of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Begin with none. Caller: a process that was forked, whose parent may have held the lock."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[weakref.ref[Holder], None] = OrderedDict()

    @contextlib.contextmanager
    def using(self, holder: Holder) -> Iterator[None]:
        """Keep a file from being closed; afterwards close those whose last use is the longest ago."""
        key = weakref.ref(holder)
        with self._lock:
            self._idle.pop(key, None)
        try:
            yield
        finally:
            with self._lock:
                if holder.is_open:
                    self._idle[key] = None
                while len(self._idle) > self._limit:
                    oldest = self._idle.popitem(last=False)[0]()
                    if oldest is not None:
                        oldest.close()


open_files: Final = OpenFiles(LIMIT)

os.register_at_fork(after_in_child=open_files.forget)
