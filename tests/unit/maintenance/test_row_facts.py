"""Facts of a control row's JSON: each is of its type, or the error says which one is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kafkalike.model.row_value import as_text, as_whole, flag, row_value, text, whole


@dataclass(frozen=True)
class Row:
    value: str
    seq: int = 7
    kind: str = "topic"


def test_a_value_is_an_object_in_a_known_format() -> None:
    """Without a version it is in the first one, and an empty text is an object without facts."""
    assert row_value("t", Row('{"a": 1}'), {"topic": 1}) == {"a": 1}
    assert row_value("t", Row('{"v": 2}'), {"topic": 2}) == {"v": 2}
    assert row_value("t", Row(""), {"topic": 1}) == {}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (f'["{"x" * 100}"]', f"""'["{"x" * 78}' is not an object"""),
        ('{"v": 0}', "'v' is 0, not a whole number from 1"),
        ('{"v": "1"}', "'v' is '1', not a whole number from 1"),
    ],
)
def test_a_value_that_is_no_such_object_is_told(value: str, error: str) -> None:
    """By its first 80 characters."""
    with pytest.raises(TypeError) as refused:
        row_value("t", Row(value), {"topic": 1})

    assert str(refused.value) == error


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None])
def test_a_whole_number_is_an_int_from_its_bound_on(value: object) -> None:
    """Not a truth value, which Python takes for one."""
    assert (whole({"n": 0}, "n"), whole({"n": 3}, "n", at_least=3), as_whole(0, "n")) == (0, 3, 0)

    with pytest.raises(TypeError) as refused:
        whole({"n": value}, "n")
    assert str(refused.value) == f"'n' is {value!r}, not a whole number from 0"
    with pytest.raises(TypeError, match="not a whole number from 0"):
        as_whole(value, "n")
    with pytest.raises(TypeError, match="'n' is 2, not a whole number from 3"):
        whole({"n": 2}, "n", at_least=3)


def test_texts_and_truth_values_are_of_their_types() -> None:
    """The error names the fact."""
    assert (text({"n": "a"}, "n"), as_text("", "n")) == ("a", "")
    assert (flag({"n": True}, "n"), flag({"n": False}, "n")) == (True, False)

    with pytest.raises(TypeError, match="'n' is 1, not a text"):
        text({"n": 1}, "n")
    with pytest.raises(TypeError, match="'n' is 1, not true or false"):
        flag({"n": 1}, "n")
