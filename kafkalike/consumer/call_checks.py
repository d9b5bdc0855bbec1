"""Call checks: each call of a client belongs to its thread and its process, and has arguments of the right types."""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from kafkalike.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError
from kafkalike.schemas.serialization import DeserializeFunction, as_deserializer

P = ParamSpec("P")
R = TypeVar("R")


class ThreadGuard:
    """Admits one thread at a time to an object for the time of a `with` block. Reentrant for its thread.

    Args:
        name: the object's class, for messages.
    """

    __slots__ = ("_lock", "_pid", "closed", "name")

    def __init__(self, name: str) -> None:
        self.closed = False
        self.name = name
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """True in a forked child: threads, descriptors and group membership belong to the parent."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Reject calls after `close` or from another process; for methods that any thread may call.

        Raises:
            IllegalStateError: closed, or used after a fork.
        """
        if self.forked:
            raise IllegalStateError(
                f"the {self.name} was made before a fork, and it belongs to the parent process; make one here"
            )
        if self.closed:
            raise IllegalStateError(f"{self.name} is closed")

    def enter(self) -> None:
        """Enter, even if the object is closed.

        Raises:
            IllegalStateError: another thread is inside.
        """
        if not self._lock.acquire(blocking=False):
            raise IllegalStateError(f"{self.name} is not thread-safe, and another thread is using it")

    def __enter__(self) -> None:
        # Without calls: each call of a client comes here.
        if self.closed or os.getpid() != self._pid:
            self.check()
        if not self._lock.acquire(blocking=False):
            self.enter()
        if self.closed:  # by another thread meanwhile
            self._lock.release()
            self.check()

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()


class Guarded(Protocol):
    """An object with a guard."""

    _guard: ThreadGuard


S = TypeVar("S", bound=Guarded)


def readable(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let any thread call a method that only reads values which are replaced as a whole."""

    @wraps(method)
    def read(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._guard.check()
        return method(self, *args, **kwargs)

    return read


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run a method inside its object's guard."""

    @wraps(method)
    def visit(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._guard:
            return method(self, *args, **kwargs)

    return visit


def check_timeout(timeout_ms: object) -> float:
    """Return a time in ms from 0 to infinity.

    Raises:
        TypeError: not a number.
        IllegalArgumentError: negative or NaN (a ValueError).
    """
    if isinstance(timeout_ms, bool) or not (hasattr(timeout_ms, "__float__") or hasattr(timeout_ms, "__index__")):
        raise TypeError(f"timeout_ms must be a number, not {timeout_ms!r}")
    number = float(timeout_ms)  # type: ignore[arg-type]
    if math.isnan(number) or number < 0:
        raise IllegalArgumentError(f"timeout_ms must not be negative: {timeout_ms!r}")
    return number


def check_no_effect(timeout_ms: float | None) -> None:
    """Check a timeout that has no effect."""
    if timeout_ms is not None:
        check_timeout(timeout_ms)


def check_max(max_records: object) -> int:
    """Return a number of records of at least 1.

    Raises:
        TypeError: not an int.
        IllegalArgumentError: below 1 (a ValueError).
    """
    if isinstance(max_records, bool) or not hasattr(max_records, "__index__"):
        raise TypeError(f"max_records must be an int, not {max_records!r}")
    number = operator.index(max_records)
    if number < 1:
        raise IllegalArgumentError(f"max_records must be positive, not {number}")
    return number


def check_deserializer(obj: object, setting: str) -> DeserializeFunction | None:
    """Return a deserializer as a function; None if there is nothing to do.

    Raises:
        KafkaConfigurationError: not a deserializer.
    """
    if obj is None:
        return None
    try:
        return as_deserializer(obj, "key" if setting.startswith("key") else "value")
    except IllegalArgumentError as cause:
        raise KafkaConfigurationError(f"invalid value for setting {setting!r}: {cause}") from cause
