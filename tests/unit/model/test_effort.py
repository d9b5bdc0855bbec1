"""Effort: `make test` tries more than `make check` and less than `make test-all`."""

import pytest

from tests.tools.effort import LEVELS, examples


@pytest.mark.parametrize(
    ("everything", "quick", "tried"),
    [
        (300, 25, [25, 30, 300]),
        # No fewer than `make check`.
        (120, 60, [60, 60, 120]),
        (7, 7, [7, 7, 7]),
        # The distance between two examples: here the larger number is the lesser effort.
        (1, 25, [25, 10, 1]),
        (1, 7, [7, 7, 1]),
        (4, 6, [6, 6, 4]),
    ],
)
def test_each_level_tries_so_many(everything: int, quick: int, tried: list[int]) -> None:
    assert [examples(everything, quick, level) for level in LEVELS[-3:]] == tried
