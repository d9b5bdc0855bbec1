"""Effects: the steps that a protocol without I/O yields; a runner performs each one and sends the answer back.

A protocol is a generator. It yields an effect, a value that describes the next step, and receives the answer or the
error of that step. The order of the steps, on which the guarantees rest, is therefore in one place without I/O: a
simulation runs it with any interleaving and any failure, and the log runs it on storage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

A = TypeVar("A")
E = TypeVar("E")
T = TypeVar("T")


class Effect(Generic[A]):
    """A step of a protocol; the type parameter is the type of its answer.

    Example:
        >>> class Read(Effect[str]):
        ...     pass
        >>> def shouting():
        ...     found = yield from Read()  # a `str`, for the type checker too
        ...     return found.upper()
        >>> run(shouting(), lambda _: "tea", OSError)
        'TEA'
    """

    __slots__ = ()

    def __iter__(self) -> Generator[Self, Any, A]:
        """Yield this step and return its answer: `answer = yield from Effect(…)`."""
        answer: A = yield self
        return answer


def run(
    protocol: Generator[E, Any, T],
    handle: Callable[[E], object],
    failures: type[Exception] | tuple[type[Exception], ...],
) -> T:
    """Run a protocol to its end.

    Args:
        protocol: generator of effects.
        handle: performs one effect and returns its answer.
        failures: errors of `handle` that are thrown into the protocol at its current step. All others end the run.

    Returns:
        The protocol's return value.

    Raises:
        Exception: any error of the protocol, and any error of `handle` that is not in `failures`.
    """
    answer: object = None
    failure: Exception | None = None
    while True:
        try:
            effect = protocol.send(answer) if failure is None else protocol.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, failure = None, None
        try:
            answer = handle(effect)
        except failures as cause:
            failure = cause
