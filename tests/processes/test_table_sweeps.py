"""Tables of `send_arrow` that share a table commit are killed at every step of it: all of them are there, or none."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalike.connect import connect
from tests.processes.workers.table_sweep import BEFORE, TABLES
from tests.tools.children import run
from tests.tools.effort import examples
from tests.tools.records import make_topic
from tests.tools.shim import preloaded

WORKER = "tests.processes.workers.table_sweep"

STEP = examples(1, 3)
"""How far apart the operations are; `make test-all` takes each."""
OLD = {"0": ["old-0"], "1": ["old-1", "old-2"]}
SENT = {str(p): [value for rows in TABLES for at, value in rows if at == p] for p in (0, 1)}
"""What all calls add, by partition: one call's records behind the other's."""

Results = list[dict[str, Any]]


@pytest.fixture
def base(root: str) -> str:
    """A topic with three records in two partitions, and an empty one."""
    make_topic(root, (0, "old-0"), (1, "old-1"), (1, "old-2"))
    connect(root).create_topic(BEFORE, 1, {})
    return root


def swept(base: str, scratch: Path, env: dict[str, str], **orders: Any) -> Results:
    found: Results = json.loads(
        run(WORKER, {"operation": "tables", "base": base, "scratch": str(scratch), **orders}, env)
    )
    return found


def values(result: dict[str, Any], when: str) -> dict[str, list[str]]:
    """The values of the topic by partition, whose offsets must count up from 0."""
    found = result[when]["topics"]["t"]
    for records in found.values():
        assert [offset for offset, _ in records] == list(range(len(records))), result
    return {partition: [value for _, value in records] for partition, records in found.items()}


def times(count: int) -> dict[str, list[str]]:
    """The topic when all calls were made so often."""
    return {p: OLD[p] + SENT[p] * count for p in OLD}


def offsets(before: int) -> list[dict[str, list[int]]]:
    """What the calls are told when they were made so often before."""
    at = {p: len(found) for p, found in times(before).items()}
    told = []
    for rows in TABLES:
        mine: dict[str, list[int]] = {}
        for partition, _ in rows:
            mine.setdefault(str(partition), []).append(at[str(partition)])
            at[str(partition)] += 1
        told.append(dict(sorted(mine.items())))
    return told


def assert_whole(result: dict[str, Any]) -> None:
    """All calls or none are there, each once, and the next client's calls come behind them."""
    before = values(result, "before")
    done = next((count for count in range(3) if before == times(count)), None)
    assert done is not None, result
    assert result["retry"] == {"done": offsets(done)}, result
    assert values(result, "after") == times(done + 1), result
    assert result["errors"] == [], result


POINTS = ["append.before_files", "append.before_commit", "commit.before", "commit.after", "append.after_commit"]


def test_tables_killed_at_each_named_point_of_their_commit_are_all_there_or_none(base: str, tmp_path: Path) -> None:
    """The second visit: the first one is the record's that holds the sender."""
    results = swept(base, tmp_path, {}, points=[f"{point}:kill@2" for point in POINTS])

    assert [result["killed"] for result in results] == [True] * len(POINTS)
    assert [values(result, "before") == times(1) for result in results] == [False, False, False, True, True]
    for result in results:
        assert_whole(result)


def test_tables_killed_at_any_file_operation_are_all_there_or_none(base: str, tmp_path: Path, faultshim: Path) -> None:
    results = swept(base, tmp_path, preloaded(faultshim, {}), do=["kill_before"], match="/t/", step=STEP)

    assert all(result["killed"] for result in results)
    assert {json.dumps(values(result, "before")) for result in results} == {json.dumps(times(n)) for n in (0, 1)}
    for result in results:
        assert_whole(result)


def test_tables_on_a_full_or_broken_disk_are_all_refused_or_all_there(
    base: str, tmp_path: Path, faultshim: Path
) -> None:
    """No call is told otherwise than it is, and the same process can go on."""
    results = swept(base, tmp_path, preloaded(faultshim, {}), do=["enospc", "eio"], match="/t/", step=STEP)

    assert {result["first"].get("error") for result in results} >= {None, "KafkaStorageError"}
    for result in results:
        there = "done" in result["first"]
        assert values(result, "before") == times(int(there)), result
        assert result["first"].get("done", offsets(0)) == offsets(0), result
        assert result["again"] == {"done": offsets(int(there))}, result
        assert result["retry"] == {"done": offsets(int(there) + 1)}, result
        assert values(result, "after") == times(int(there) + 2), result
        assert result["errors"] == [], result
