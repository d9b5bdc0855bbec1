"""Numbers of variable length, of many values at once: whatever their sizes, and beside which others they stand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kafkalike.schemas.arrow.cursor import BAD_NUMBER, ENDS_EARLY, Cursor, number_at
from tests.tools.effort import seeds


def written(bits: int, size: int) -> bytes:
    """A number in so many bytes, also in more than it needs."""
    return bytes((bits >> 7 * nth & 0x7F) | (0x80 if nth < size - 1 else 0) for nth in range(size))


def cursor_at(values: list[bytes]) -> Cursor:
    edges = np.cumsum([0, *map(len, values)])
    return Cursor(np.frombuffer(b"".join(values), np.uint8), edges[:-1], edges[1:])


@pytest.mark.parametrize("size", range(1, 11))
def test_numbers_of_one_size_are_read(size: int) -> None:
    """The smallest and the largest of so many bytes, and one in more bytes than it needs; another one follows."""
    most = min(7 * size, 64)
    bits = [1 << min(7 * (size - 1), 63), (1 << most) - 1, 5]
    cursor = cursor_at([written(number, size) + b"\x07" for number in bits])
    rows = np.arange(len(bits))

    assert cursor.varint(rows).tolist() == bits
    assert cursor.varint(rows).tolist() == [7] * len(bits)
    cursor.finish()
    assert not cursor.problem.any()


@pytest.mark.parametrize("seed", seeds(60, 10))
def test_numbers_of_all_sizes_are_read_side_by_side(seed: int) -> None:
    """As a walk along one value reads them; of some rows and of all."""
    random = Random(seed)
    sizes = random.choice([[1, 2], [2, 3, 8], [8, 9], range(1, 10), [9]])
    values = []
    for _ in range(random.choice([1, 5, 40])):
        numbers = [written(random.getrandbits(63), random.choice(sizes)) for _ in range(2)]
        values.append(b"".join(numbers))
    cursor = cursor_at(values)
    some = np.flatnonzero([random.random() < 0.5 for _ in values])
    rest = np.setdiff1d(np.arange(len(values)), some)

    found = np.zeros((2, len(values)), np.int64)
    for rows in (some, rest):
        found[0, rows] = cursor.zigzag(rows)
    found[1] = cursor.zigzag(np.arange(len(values)))

    cursor.finish()
    assert not cursor.problem.any()
    for nth, value in enumerate(values):
        first, at = number_at(value, 0)
        assert (first, number_at(value, at)[0]) == tuple(found[:, nth])


@pytest.mark.parametrize("size", range(2, 11))
def test_a_number_that_is_cut_off_is_wrong_alone(size: int) -> None:
    """It is not read on in the next value, which is read; nor is one that does not end."""
    good = written(5, size)
    values = [good, good[:-1], good, b"\xff" * 12, b"", good]
    cursor = cursor_at(values)

    found = cursor.varint(np.arange(len(values)))

    cursor.finish()
    assert [cursor.problems[number] for number in cursor.problem] == [
        *(None, ENDS_EARLY, None, BAD_NUMBER, ENDS_EARLY, None)
    ]
    assert [int(found[nth]) for nth in (0, 2, 5)] == [5, 5, 5]
