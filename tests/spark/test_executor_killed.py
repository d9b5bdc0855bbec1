"""Row 14: an executor dies while it writes; its tasks run again elsewhere, and every record gets one offset."""

import os
import signal
import time
from pathlib import Path

import pytest

from kafkalike import snapshot
from tests.spark.workers.cluster_write import ROWS
from tests.tools.children import Child, started
from tests.tools.findings import errors_of
from tests.tools.records import all_records, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

BACKEND = b"CoarseGrainedExecutorBackend"
PATIENCE = 120.0


def descendants(pid: int) -> list[int]:
    """Processes below one, by /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: list[int] = []
    layer = {pid}
    while layer:
        layer = {child for child, parent in parents.items() if parent in layer}
        found += layer
    return found


def executors(pid: int) -> list[int]:
    """Executor JVMs that a driver has started."""
    found = []
    for child in descendants(pid):
        try:
            if BACKEND in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:
            continue
    return sorted(found)


def wait_for(place: Path, pattern: str) -> None:
    """Until there is such a file."""
    deadline = time.monotonic() + PATIENCE
    while not list(place.glob(pattern)):
        assert time.monotonic() < deadline, f"nobody made {pattern}"
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the executors through /proc")
@pytest.mark.parametrize(
    ("topics", "by"),
    [
        pytest.param(["t"], "write", marks=pytest.mark.full),
        pytest.param(["t"], "format", marks=pytest.mark.soak),
        pytest.param(["a", "b", "c"], "write", marks=pytest.mark.soak),
        pytest.param(["a", "b", "c"], "format", marks=pytest.mark.soak),
    ],
)
def test_an_executor_killed_in_the_middle_of_a_write_costs_no_record_and_no_offset(
    root: str, tmp_path: Path, topics: list[str], by: str
) -> None:
    """While records are staged, by the function or the format, for one topic or several: these get all or nothing."""
    for topic in topics:
        make_topic(root, (0, "old"), partitions=3, topic=topic)

    orders = {
        "root": root,
        "by_format": by == "format",
        "topics": topics if len(topics) > 1 else None,
        "pause_ms": 1500,
        "begun": str(tmp_path / "begun"),
    }
    with started(Child("tests.spark.workers.cluster_write", orders, {})) as (driver,):
        running = executors(driver.pid)
        assert len(running) == 2
        driver.go()
        wait_for(tmp_path, "begun")
        os.kill(running[0], signal.SIGKILL)
        while not driver.ended:
            taken = snapshot(topics, root)
            assert {sum(taken.topics[topic].ends.values()) for topic in topics} in ({1}, {1 + ROWS})
            time.sleep(0.05)
        driver.finish()

    for topic in topics:
        found = all_records(root, topic)
        assert sorted(int(v) for records in found.values() for _, v in records if v != "old") == list(range(ROWS))
        assert all([o for o, _ in records] == list(range(len(records))) for records in found.values())
    assert list(Path(root, "__staging").glob("*")) == []
    assert errors_of(root) == []
