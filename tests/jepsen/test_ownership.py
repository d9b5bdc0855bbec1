"""Ownership: which histories of two members are a clash, and which are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.jepsen.ownership import NS_PER_MS, overlaps, spans

Story = list[tuple[float, str, str, Any, dict[str, Any]]]


def member(folder: Path, name: str, story: Story) -> None:
    """Write a member's history; times in ms."""
    lines = [
        {"process": name, "group": "g", "time": int(ms * NS_PER_MS), "type": fact, "f": f, "value": value, **more}
        for ms, fact, f, value, more in story
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def assigned(ms: float, how: str) -> Story:
    return [(ms, "ok", "assign", [], {"how": how, "which": ["t-0"]})]


def committed(begun_ms: float, done_ms: float, *, ok: bool = True) -> Story:
    return [
        (begun_ms, "invoke", "commit", {"t-0": 5}, {}),
        (done_ms, "ok" if ok else "fail", "commit", {"t-0": 5}, {}),
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
