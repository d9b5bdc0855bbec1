"""Ownership: which histories of two members are a clash, and which are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.jepsen.ownership import NS_PER_MS, overlaps, reread, spans

Story = list[tuple[float, str, str, Any, dict[str, Any]]]


def member(folder: Path, name: str, story: Story) -> None:
    """Write a member's history; times in ms."""
    lines = [
        {"process": name, "group": "g", "time": int(ms * NS_PER_MS), "type": fact, "f": f, "value": value, **more}
        for ms, fact, f, value, more in story
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def assigned(ms: float, how: str, generation: int | None = None) -> Story:
    told: Story = [] if generation is None else [(ms, "ok", "assignment", ["t-0"], {"generation": generation})]
    return [(ms, "ok", "assign", [], {"how": how, "which": ["t-0"]}), *told]


def committed(begun_ms: float, done_ms: float, *, ok: bool = True, generation: int | None = None) -> Story:
    """`generation` is the one that it was accepted in."""
    more = {} if generation is None else {"generation": generation}
    return [
        (begun_ms, "invoke", "commit", {"t-0": 5}, {}),
        (done_ms, "ok" if ok else "fail", "commit", {"t-0": 5}, more),
    ]


@pytest.mark.parametrize(
    ("first", "clash"),
    [
        ([*committed(900, 990), *assigned(995, "revoked")], False),
        ([*committed(900, 1050), *assigned(1060, "revoked")], True),
        ([*committed(900, 7000), *assigned(7001, "revoked")], False),
        ([*committed(1100, 7000), *assigned(7001, "revoked")], True),
        ([*committed(900, 7000, ok=False), *assigned(7001, "revoked")], False),
        ([*committed(900, 990), *assigned(7000, "lost")], False),
        ([*committed(1100, 1200), *assigned(7000, "lost")], True),
    ],
)
def test_a_partition_is_one_members_until_it_was_last_used_or_given_up(
    tmp_path: Path, first: Story, *, clash: bool
) -> None:
    """The other member has it from 1,000 ms on. A commit whose answer came very late was done at its begin, at best."""
    member(tmp_path, "a", [*assigned(0, "assigned"), *first])
    member(tmp_path, "b", [*assigned(1000, "assigned"), *committed(8000, 8100), *assigned(8200, "revoked")])

    assert bool(overlaps(spans(tmp_path, "g", {}))) == clash


@pytest.mark.parametrize(
    ("first", "clash"),
    [
        ([*committed(900, 7000, generation=1), *assigned(7001, "revoked")], False),
        ([*committed(900, 7000, generation=2), *assigned(7001, "revoked")], True),
        ([*committed(900, 7000, generation=3), *assigned(7001, "revoked")], True),
        ([*committed(900, 7000, generation=2), *assigned(7001, "lost")], True),
        ([*committed(900, 7000, ok=False, generation=2), *assigned(7001, "lost")], False),
        ([*committed(100, 900, generation=1), *committed(950, 7000, ok=False), *assigned(7001, "lost")], False),
        ([*committed(900, 990, generation=2), *assigned(995, "revoked")], False),
    ],
)
def test_a_commit_that_was_on_its_way_is_judged_by_the_generation_that_accepted_it(
    tmp_path: Path, first: Story, *, clash: bool
) -> None:
    """The other member has the partition from 1,000 ms on, in generation 2: a group that takes the first one's commits
    then, however early they were begun, has two owners. In the last case it has one: the first had given it up."""
    member(tmp_path, "a", [*assigned(0, "assigned", 1), *first])
    member(tmp_path, "b", [*assigned(1000, "assigned", 2), *committed(8000, 8100), *assigned(8200, "revoked")])

    assert bool(overlaps(spans(tmp_path, "g", {}))) == clash


def test_a_partition_that_comes_back_is_judged_by_what_was_committed_since(tmp_path: Path) -> None:
    """What its first ownership has committed says nothing of the second one."""
    first = [*assigned(0, "assigned", 1), *committed(100, 200, generation=1), *assigned(300, "revoked")]
    again = [*assigned(2000, "assigned", 3), *committed(2900, 9000, ok=False), *assigned(9001, "lost")]
    member(tmp_path, "a", [*first, *again])
    member(tmp_path, "b", [*assigned(1000, "assigned", 2), *assigned(1500, "revoked"), *assigned(3000, "assigned", 4)])

    assert overlaps(spans(tmp_path, "g", {})) == []


def polled(ms: float, *offsets: int) -> Story:
    return [(ms, "ok", "poll", [["poll", {"t-0": [[offset, str(offset)] for offset in offsets]}]], {})]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ([*assigned(9, "assigned"), *polled(10, 3, 4, 5)], (2, ["b read t-0 from 3 on after 5"])),
        ([*assigned(9, "assigned"), *polled(10, 5)], (0, [])),
        ([*assigned(7, "assigned"), *polled(10, 3, 4)], (2, [])),
    ],
    ids=["below a commit before it", "from the commit on", "below a commit after it"],
)
def test_records_are_read_again_only_above_what_was_committed_before(
    tmp_path: Path, second: Story, found: tuple[int, list[str]]
) -> None:
    member(tmp_path, "a", [*assigned(1, "assigned"), *polled(2, 0, 1, 2, 3, 4), *committed(5, 8)])
    member(tmp_path, "b", second)
    assert reread(tmp_path, "g") == found
