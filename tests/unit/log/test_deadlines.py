"""The deadline that a thread works within."""

import contextlib
import sys
from types import FrameType
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.model.clock import Deadline, time_left, within


def test_there_is_none_but_inside() -> None:
    clock = ManualClock()

    before = time_left()
    with within(Deadline(clock, 5_000)):
        clock.sleep(2)
        inside = time_left()

    assert (before, inside, time_left()) == (float("inf"), 3.0, float("inf"))


def test_the_nearer_one_counts() -> None:
    clock = ManualClock()
    near, far = Deadline(clock, 1_000), Deadline(clock, 9_000)
    seen = []

    for outer, inner in ((near, far), (far, near)):
        with within(outer):
            with within(inner):
                seen.append(time_left())
            seen.append(time_left())

    assert seen == [1.0, 1.0, 1.0, 9.0]


@pytest.mark.parametrize("nth", range(1, 12))
def test_an_interrupt_at_any_line_leaves_none_behind(nth: int) -> None:
    """Ctrl-C in a call would make all later calls of this thread fail for want of time."""
    left = [nth]

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        if frame.f_code.co_name != "within":
            return trace
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    with contextlib.suppress(KeyboardInterrupt):
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with within(Deadline(ManualClock(), 5_000)):
                pass
        finally:
            sys.settrace(before)

    assert time_left() == float("inf")


def test_it_ends_with_an_error_too() -> None:
    with pytest.raises(KeyError), within(Deadline(ManualClock(), 5_000)):
        dict[str, int]()["missing"]

    assert time_left() == float("inf")
