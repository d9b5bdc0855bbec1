"""Signals raise in producers, consumers, an admin client and maintenance beside busy writers; nothing is lost."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.tools.children import Child, started
from tests.tools.findings import errors_of
from tests.tools.records import all_records
from tests.tools.upkeep import AT_ONCE, open_cluster

WORKER = "tests.processes.workers.interrupted"
ROLES = ("append", "produce", "consume", "consume", "admin", "maintain")
STEADY = 2
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 21))]
INTERRUPTS = 102
"""Of one run. More runs find more than longer ones: the more the table has grown, the longer takes each look at it."""


def lived(root: str, interrupts: int, seed: int) -> list[dict[str, Any]]:
    """Let workers be interrupted so often, all of them together; what each one printed."""
    open_cluster(root).create_topic("t", 2, {**AT_ONCE, "retention.ms": "-1"})
    each = -(-interrupts // len(ROLES))

    def child(role: str, number: int, times: int) -> Child:
        orders = {"root": root, "role": role, "name": f"{role}{number}-{seed}", "interrupts": times}
        return Child(WORKER, orders, {})

    patience = 120 + interrupts
    steady = [child("steady", number, 0) for number in range(STEADY)]
    shaken = [child(role, number, each) for number, role in enumerate(ROLES)]
    with started(*steady, *shaken):
        for one in (*steady, *shaken):
            one.go()
        by_role = list(zip(shaken, ROLES, strict=True))
        # The table must stay small as long as others write, and readers must see its end.
        upkeep = [one for one, role in by_role if role == "maintain"]
        readers = [one for one, role in by_role if role == "consume"]
        told = [one.finish(patience=patience) for one in shaken if one not in upkeep + readers]
        for those in (steady, upkeep, readers):
            for one in those:
                one.go()
            told += [one.finish(patience=patience) for one in those]
    return [json.loads(line) for line in told]


def assert_one_log(root: str, told: list[dict[str, Any]]) -> None:
    """What was acknowledged is there once, at its offset; what was attempted at most once; nothing else is there."""
    there = {p: {value: offset for offset, value in found} for p, found in all_records(root).items()}
    twice = {
        p: [v for v, times in Counter(v for _, v in found).items() if times > 1]
        for p, found in all_records(root).items()
    }
    assert twice == {0: [], 1: []}
    acked = [entry for one in told for entry in one["acked"]]
    assert len(acked) > 0
    assert [(p, v, o) for p, v, o in acked if there[p].get(v) != o] == []
    attempted = {(p, v) for one in told for p, v in one["attempted"]}
    assert {(p, v) for p, values in there.items() for v in values} <= attempted


def assert_all_was_read(root: str, told: list[dict[str, Any]]) -> None:
    """Every record was handed out to the group, and nothing was committed that was not."""
    seen = {(p, offset): value for one in told for p, offset, value in one["seen"]}
    for p, records in all_records(root).items():
        assert [(offset, value) for offset, value in records if seen.get((p, offset)) != value] == []
    offsets = open_cluster(root).groups.refresh().group("g").offsets
    for tp, known in offsets.items():
        assert [offset for offset in range(known.position.offset) if (tp.partition, offset) not in seen] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(600)
def test_exceptions_of_signals_leave_clients_right_and_lose_and_double_nothing(
    root: str, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """SIGINT and SIGALRM at random moments, each followed by a look at whether the client sees what is there."""
    told = lived(root, INTERRUPTS, seed)
    for name in ("interrupts", "attempted", "acked", "seen"):
        record_property(name, sum(one[name] if name == "interrupts" else len(one[name]) for one in told))

    assert [wrong for one in told for wrong in one["wrong"]] == []
    assert sum(one["interrupts"] for one in told) >= INTERRUPTS
    assert_one_log(root, told)
    assert_all_was_read(root, told)
    assert errors_of(root) == []
