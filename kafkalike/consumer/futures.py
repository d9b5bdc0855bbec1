"""CommitFuture: the outcome of `commit_async`, in the form of kafka-python's futures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from kafkalike.errors import KafkaError

log = logging.getLogger(__name__)


class Settable(Protocol):
    """What `chain` passes an outcome on to."""

    def success(self, value: Any) -> object:  # noqa: ANN401
        """Take a value."""
        ...

    def failure(self, e: Exception) -> object:
        """Take an error."""
        ...


class CommitFuture:
    """An outcome that is known already: `commit_async` writes before it returns.

    Args:
        exception: what went wrong; None for success, whose value is None.
    """

    __slots__ = ("exception", "is_done", "value")

    def __init__(self, exception: KafkaError | None = None) -> None:
        self.exception = exception
        self.value = None
        self.is_done = True

    def get(self, timeout: float | None = None) -> None:
        """The value, which is None; raises the error. Never waits, whatever `timeout` (seconds) says."""
        del timeout
        if self.exception is not None:
            raise self.exception

    def succeeded(self) -> bool:
        """Whether the offsets are committed."""
        return self.exception is None

    def failed(self) -> bool:
        """Whether they are not."""
        return self.exception is not None

    def retriable(self) -> bool:
        """Whether committing again may help."""
        return self.exception is not None and self.exception.retriable

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> CommitFuture:  # noqa: ANN401
        """Call `f(*args, None, **kwargs)` now if it succeeded. An error of `f` is logged."""
        if self.exception is None:
            _call(f, *args, None, **kwargs)
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> CommitFuture:  # noqa: ANN401
        """Call `f(*args, exception, **kwargs)` now if it failed. An error of `f` is logged."""
        if self.exception is not None:
            _call(f, *args, self.exception, **kwargs)
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> CommitFuture:  # noqa: ANN401
        """Call `f` now, with the value or the exception."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Settable) -> CommitFuture:
        """Pass the outcome on to another future."""
        if self.exception is None:
            future.success(self.value)
        else:
            future.failure(self.exception)
        return self


def _call(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    try:
        f(*args, **kwargs)
    except Exception:
        log.exception("a callback of commit_async failed")
