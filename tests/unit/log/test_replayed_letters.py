"""Which letters went back: a set of offsets as one offset and a note."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.dead_letter import Replayed
from kafkalike.model.structs import OffsetAndMetadata

offsets = st.integers(0, 30)
runs = st.lists(st.tuples(offsets, st.integers(0, 4)).map(lambda pair: range(pair[0], pair[0] + pair[1])), max_size=8)


@given(st.lists(runs, max_size=4), offsets)
def test_it_is_a_set_that_a_group_can_keep(steps: list[list[range]], start: int) -> None:
    """Step by step, through what a group commits each time."""
    known, expected = Replayed.of(None, start), set(range(start))
    for more in steps:
        known = known.with_these(more)
        expected |= {offset for run in more for offset in run}
        known = Replayed.of(known.position(), start)

        assert {offset for offset in range(50) if offset in known} == expected
        assert known.position().offset == next(offset for offset in range(60) if offset not in expected)


def test_a_note_is_short_and_counts_from_the_offset() -> None:
    assert Replayed(5).with_these([range(5, 7), range(9, 10), range(12, 20)]).position() == OffsetAndMetadata(
        7, "replayed 2+1,5+8"
    )


def test_nothing_above_the_offset_needs_no_note() -> None:
    assert Replayed(5).position() == OffsetAndMetadata(5, "")


@given(runs, offsets)
def test_what_retention_has_taken_is_done(more: list[range], start: int) -> None:
    known = Replayed.of(Replayed(3).with_these(more).position(), start)

    assert all(offset in known for offset in range(max(3, start)))


@pytest.mark.parametrize(
    "note",
    [
        "",
        "mine",
        "replayed ",
        "replayed 1",
        "replayed 0+1",
        "replayed 2+0",
        "replayed 5+2,3+1",
        "replayed a+b",
        "replayed 2+1+3",
    ],
)
def test_a_note_of_somebody_else_says_nothing(note: str) -> None:
    assert Replayed.of(OffsetAndMetadata(4, note), 0) == Replayed(4)
