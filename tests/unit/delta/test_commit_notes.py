"""What a commit says of the appends that it took: each of them finds its own offsets in it."""

from typing import Any

from kafkalike.model.appends.taken_appends import PARTS_KEY, WaitingAppend, ids_of, parts_of, ranges_of_write
from kafkalike.model.appends.waiting_appends import OWN, to_note
from kafkalike.model.record_batch import TRANSACTIONS


def note() -> dict[str, Any]:
    """What a commit says that brings its writer's own append and two others."""
    own, named = (
        (OWN, {0: range(3)}, ("job", 7)),
        (WaitingAppend(4, "ab", 1), {0: range(3, 5), 1: range(2)}, ("job", 8)),
    )
    return {PARTS_KEY: to_note([own, named, (WaitingAppend(4, "cd", 9), {0: range(5, 6)}, None)])}


def test_a_named_write_finds_its_own_offsets() -> None:
    assert ranges_of_write(note(), "job", 7) == {0: range(3)}
    assert ranges_of_write(note(), "job", 8) == {0: range(3, 5), 1: range(2)}


def test_a_write_that_is_not_named_has_none() -> None:
    """Another version, another application, and a commit that took nobody."""
    assert ranges_of_write(note(), "job", 9) is None
    assert ranges_of_write(note(), "work", 7) is None
    assert ranges_of_write({}, "job", 7) is None


def test_people_are_told_of_those_that_waited() -> None:
    assert ids_of(note()) == ("ab-1", "cd-9")


def test_people_are_told_what_each_append_has_brought() -> None:
    """The commit's own writer has no name; a transaction its number, another named write none."""
    decided = {PARTS_KEY: to_note([(WaitingAppend(1, "ef", 2), {1: range(4, 6)}, (TRANSACTIONS, 12))])}

    assert parts_of(note()) == [
        ("", {0: range(3)}, None),
        ("ab-1", {0: range(3, 5), 1: range(2)}, None),
        ("cd-9", {0: range(5, 6)}, None),
    ]
    assert parts_of(decided) == [("ef-2", {1: range(4, 6)}, 12)]
    assert parts_of({}) == []
