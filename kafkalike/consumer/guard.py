"""Guard: keeps a second thread, and everybody after the end, out of an object that belongs to one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kafkalike.errors import IllegalStateError

P = ParamSpec("P")
R = TypeVar("R")


class Guard:
    """Who is inside an object; a `with` block is one visit. One thread may nest its visits.

    Args:
        name: the object's class, for messages.
    """

    __slots__ = ("_lock", "closed", "name")

    def __init__(self, name: str) -> None:
        self.closed = False
        self.name = name
        self._lock = threading.RLock()

    def enter(self) -> None:
        """Begin a visit, open or closed.

        Raises:
            IllegalStateError: another thread is inside.
        """
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError(f"{self.name} is not thread-safe, and another thread is using it")

    def __enter__(self) -> None:
        self.enter()
        if self.closed:
            self._lock.release()
            raise IllegalStateError(f"{self.name} is closed")

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()


class Guarded(Protocol):
    """What has a guard."""

    _guard: Guard


S = TypeVar("S", bound=Guarded)


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method one visit of its object's guard."""

    @wraps(method)
    def visit(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._guard:
            return method(self, *args, **kwargs)

    return visit
