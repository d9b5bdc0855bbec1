"""Effects: a protocol without input and output yields what is to be done; a runner does it and sends the answer back.

A protocol is a generator. It asks for each step by an effect, a value that says what is to be done, and is sent the
answer, or gets the error thrown in. So the order of the steps, on which the guarantees rest, stands in one place that
does no input or output: a simulation runs it with any interleaving and any failure, and the log runs it on storage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

A = TypeVar("A")
E = TypeVar("E")
T = TypeVar("T")


class Effect(Generic[A]):
    """A step that a protocol asks for; the type parameter is that of its answer.

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
        """Ask for this step: `answer = yield from Effect(…)`."""
        answer: A = yield self
        return answer


def run(
    protocol: Generator[E, Any, T],
    handle: Callable[[E], object],
    failures: type[Exception] | tuple[type[Exception], ...],
) -> T:
    """Run a protocol to its end.

    Args:
        protocol: what is to be done.
        handle: does one effect, and returns its answer.
        failures: errors of `handle` that the protocol is told of, where it stands. All others end the run.

    Returns:
        What the protocol returns.

    Raises:
        Exception: what the protocol raises, or `handle` besides the failures.
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
