"""A mapping that never changes: its changed copies are as dictionaries that were changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.frozen_map import Draft, FrozenMap

steps = st.lists(st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(0, 3)), max_size=12), max_size=12)


@given(st.integers(0, 40), steps)
def test_copies_are_as_dictionaries_and_what_they_were_made_of_stays(
    first: int, made: list[list[tuple[int, int | None]]]
) -> None:
    """None takes a key out. Each draft is one copy, of some changes."""
    expected = {number: number for number in range(first)}
    known = FrozenMap(expected)
    held = [(known, dict(expected))]

    for changes in made:
        draft = Draft(known)
        for key, value in changes:
            if value is None:
                draft.drop(key)
                expected.pop(key, None)
            else:
                draft.put(key, value)
                expected[key] = value
            assert (draft.get(key), len(draft)) == (expected.get(key), len(expected))
        known = draft.frozen()
        held.append((known, dict(expected)))

    for copy, content in held:
        assert copy == content
        assert (len(copy), set(copy), dict(copy.items())) == (len(content), set(content), content)
        assert copy.keys() == content.keys()
        assert sorted(copy.values()) == sorted(content.values())
        assert [key in copy for key in range(61)] == [key in content for key in range(61)]
        assert [copy.get(key) for key in range(61)] == [content.get(key) for key in range(61)]


def test_a_key_that_is_not_there_is_an_error() -> None:
    """Also one that was there, before and after the changes were put into the large dictionary."""
    draft = Draft(FrozenMap({"a": 1, "b": 2}))
    draft.drop("a")

    with pytest.raises(KeyError, match="a"):
        draft.frozen()["a"]
    assert repr(draft.frozen()) == "FrozenMap({'b': 2})"

    large = Draft(FrozenMap({number: str(number) for number in range(1_000)}))
    large.drop(5)
    with pytest.raises(KeyError, match="5"):
        large.frozen()[5]
    assert large.frozen()[6] == "6"


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_change_costs_far_less_than_a_copy(size: int) -> None:
    """Counted in entries that are copied: the changes that stand beside the large dictionary."""
    known = FrozenMap(dict.fromkeys(range(size), 0))
    copied = 0

    for number in range(1_000):
        draft = Draft(known)
        draft.put(number, 1)
        after = draft.frozen()
        copied += len(after._late) if after._base is known._base else size
        known = after

    assert copied / 1_000 < 5 * size**0.5
    assert (len(known), sum(known.values())) == (size, 1_000)
