"""Counting: what was noted at a replica in; which versions of its own log count, out.

A head may have versions that nobody else got. It is taken out, the log goes on without them, and a checkpoint brings it
back; they stay below it, or land there much later. And who has slept since before clean-up may put a version where that
has been. So it is noted first which own versions do not count.

A replica puts each version after the one before. So what it has between two checkpoints that it came back with begins
with right versions, and those that nobody else got come last: where one is right, all before it are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Own versions of a replica that do not count."""

    first: int
    last: int
    """The checkpoint that it came back with; or the last version that clean-up took."""
    final: bool = True
    """Whether the first one was found by comparing; else it may be a later one."""

    def has(self, version: int) -> bool:
        """Whether a version is one of them."""
        return self.first <= version <= self.last


def holding(spans: Collection[Span], newest: int) -> list[Span]:
    """The spans that hold.

    Args:
        spans: all that were noted.
        newest: the replica's newest checkpoint. Who noted a span up to a later one was killed before that was there:
            what the replica has is needed then.
    """
    final = {span.last for span in spans if span.final}
    return [span for span in spans if span.last <= newest and (span.final or span.last not in final)]


def counts(version: int, spans: Collection[Span], newest: int) -> bool:
    """Whether an own version of a replica that is in sync is what was published in its place. See `holding`."""
    return not any(span.has(version) for span in holding(spans, newest))


def begun(spans: Collection[Span], newest: int, checkpoint: int) -> Span:
    """The span to be noted before a replica gets a checkpoint: all since what was right for sure.

    Args:
        spans: noted before.
        newest: its newest checkpoint so far, or -1: it was made of versions that it had when they were published.
        checkpoint: a later one, which it is to get.
    """
    first = max([newest, *(span.last for span in holding(spans, newest))]) + 1
    return Span(first, checkpoint, final=False)


def compared(span: Span, own: Sequence[int], is_same: Callable[[int], bool | None]) -> Span:
    """Find out where own versions cease to count.

    Args:
        span: as it was begun.
        own: versions that the replica has, in order.
        is_same: whether one is that of another replica, where that is right; None: that has none there.

    Returns:
        The span, final.
    """
    inside = [version for version in own if span.has(version)]
    # What stands after a hole has landed late.
    run = [version for at, version in enumerate(inside) if version == span.first + at]
    right = next((version for version in reversed(run) if is_same(version)), span.first - 1)
    return Span(right + 1, span.last)
