"""Row 14: Spark runs slow tasks twice at a time, on two machines; every record gets one offset all the same."""

import socket
from pathlib import Path

import pytest

from tests.spark.workers.speculation import BESIDE, LATE, ROWS, TASKS, WOKE
from tests.tools.children import run
from tests.tools.findings import errors_of
from tests.tools.records import all_records, make_topic
from tests.tools.standalone import standalone

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(500)]

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark starts no second attempt on the machine of the first one, and knows machines by their addresses."""
CLUSTER_PATIENCE = 400.0


def two_addresses() -> bool:
    """Whether this machine answers to all of `HOSTS`."""
    try:
        for host in HOSTS:
            with socket.socket() as probe:
                probe.bind((host, 0))
    except OSError:
        return False
    return Path("/proc/self").exists()


@pytest.mark.skipif(not two_addresses(), reason="needs two addresses of its own, and /proc")
@pytest.mark.parametrize("by", ["write", "write_stream", "format", "format of a stream"])
def test_a_task_that_runs_twice_at_a_time_writes_its_records_once(root: str, tmp_path: Path, by: str) -> None:
    """The attempts of one task end side by side; of another one, the first goes on when the whole write is over."""
    make_topic(root, partitions=3)
    share = ROWS // TASKS
    make_topic(root, *((n // share, str(n)) for n in range(ROWS)), partitions=TASKS, topic="in")
    marks = tmp_path / "marks"
    marks.mkdir()

    with standalone(tmp_path, HOSTS, cores=2) as master:
        orders = {"root": root, "by": by, "master": master, "marks": str(marks), "checkpoint": str(tmp_path / "ck")}
        run("tests.spark.workers.speculation", orders, patience=CLUSTER_PATIENCE)

    seen = {mark.name for mark in marks.iterdir()}
    assert {f"{task}-{attempt}" for task in (BESIDE, LATE) for attempt in range(2)} <= seen
    assert WOKE in seen
    found = all_records(root)
    assert all([o for o, _ in records] == [*range(len(records))] for records in found.values())
    values = {p: [int(v) for _, v in records] for p, records in found.items()}
    assert values == {p: [*range(p, ROWS, 3)] for p in range(3)}
    assert list(Path(root, "__staging").glob("*")) == []
    assert errors_of(root) == []
