"""A commit beside other processes' is interrupted: it is there once or not at all, never after a later one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.contract.log.test_combined_groups import Place, commit_of, labels, two_busy
from tests.tools.effort import examples
from tests.tools.interrupts import Case, sweep


class OneCommitBesideOthers(Case):
    """By a process that has met another one, which made the latest version."""

    def __init__(self) -> None:
        self.place = Place()
        self.leader, self.other = two_busy(self.place)

    def operate(self) -> None:
        self.other.groups.transact(commit_of("cut"))

    def judge(self) -> Iterable[str]:
        self.other.groups.transact(commit_of("next"), 5000)
        self.leader.groups.transact(commit_of("last"), 5000)
        found = labels(self.place)
        if found not in (["first", "lead", "next", "last"], ["first", "lead", "cut", "next", "last"]):
            yield f"rows are {found}"
        if [row.seq for row in self.place.rows] != list(range(1, len(found) + 1)):
            yield "numbers of rows have gaps"

    def close(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_commit_lands_before_the_next_one_or_never() -> None:
    found = sweep(OneCommitBesideOthers, most=examples(400, 100))

    assert not found.wrong, str(found)
    assert found.raised > 0
