"""Processes that commit offsets into one object store for each other; some are killed, and the network is not sound."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkalike.connect import connect
from tests.tools.children import Child, started
from tests.tools.commits import Told, judge, offset_row
from tests.tools.fault_proxy import BAD, FaultProxy
from tests.tools.findings import errors_of
from tests.tools.object_servers import ObjectServer

WORKER = "tests.processes.workers.commit_offsets"


def run(root: str, folder: Path, proxy: FaultProxy, processes: Sequence[dict[str, Any]]) -> tuple[Told, int, int]:
    """Let processes commit, and judge the rows; returns what they were told, how many rows there are and versions."""
    cluster = connect(root)
    cluster.create_topic("t", 2, {})
    cluster.groups.transact(lambda state: [offset_row(state.seq + 1, "first", "first")])
    children = [
        Child(
            WORKER,
            {
                "root": root,
                "name": f"p{n}",
                "histories": str(folder),
                "threads": 4,
                "commits": 20,
                "pause_ms": 0,
                **more,
            },
            {"KAFKALIKE_FAULT": more.get("fault", "")},
        )
        for n, more in enumerate(processes)
    ]
    with started(*children):
        for child in children:
            child.go()
        for child, more in zip(children, processes, strict=True):
            child.finish(-9 if "fault" in more else 0)
    proxy.plan.faults = {}
    told, begun = Told(), set[str]()
    for file in folder.glob("*.txt"):
        for line in file.read_text().splitlines():
            what, label = line.split(" ", 1)
            if what == "begun":
                begun.add(label)
            else:
                getattr(told, what).append(label)
    told.unknown += sorted(begun - {*told.acked, *told.refused, *told.fenced, *told.unknown})
    after = connect(root)
    rows = after.groups.rows
    judge(rows, [told])
    assert errors_of(root) == []
    return told, len(rows), after.groups.version


@pytest.mark.timeout(300)
@pytest.mark.parametrize("faults", [{}, BAD], ids=["sound", "bad"])
def test_processes_commit_for_each_other(
    server: ObjectServer, proxy: FaultProxy, tmp_path: Path, faults: dict[str, float]
) -> None:
    """Nothing is lost, doubled, torn or reordered, nobody commits who was driven out, and all are told the truth."""
    proxy.plan.seconds = {"GET": 0.005, "PUT": 0.008, "HEAD": 0.005}
    proxy.plan.faults = faults

    told, _, versions = run(server.new_root(), tmp_path, proxy, [{}] * 4)

    every = 4 * 4 * 20
    assert len(told.acked) > (0.4 if faults else 0.7) * every
    assert told.fenced
    assert faults or not (told.refused or told.unknown)
    assert versions < 0.8 * len(told.acked)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "point", ["append.before_waiting", "append.waiting", "rows.before_commit", "commit.after", "rows.after_commit"]
)
def test_a_process_that_is_killed_costs_nobody_else_a_commit(
    server: ObjectServer, proxy: FaultProxy, tmp_path: Path, point: str
) -> None:
    """What it has left beside the table is written once or never, and whole; all others have an outcome."""
    proxy.plan.seconds = {"GET": 0.005, "PUT": 0.008, "HEAD": 0.005}

    # One that pauses seldom makes the latest version, so its changes wait.
    dying = {"fault": f"{point}:kill@1", "pause_ms": 100, "commits": 1000}

    told, _, _ = run(server.new_root(), tmp_path, proxy, [{}, {}, dying])

    assert not told.refused
    assert {label.split(":")[1].split("-")[0] for label in told.unknown} <= {"p2"}
    assert len(told.acked) + len(told.fenced) >= 2 * 4 * 20
