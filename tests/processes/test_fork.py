"""D1: a child that was forked after kafkalike was used in the parent makes clients of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalike.connect import connect
from kafkalike.model.transactions.transactional_id import Why
from tests.tools.records import all_records

WORKER = Path(__file__).parent / "workers" / "fork.py"
IMPORTS = WORKER.with_name("fork_imports.py")
TRANSACTIONS = WORKER.with_name("fork_transactions.py")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


# A fork in the middle of other threads' work copies whatever locks Arrow's allocators hold; a child then hung once in a
# while. It is no promise, and tried in the soak only.
@pytest.mark.parametrize("how", ["fork", "pool", pytest.param("busy", marks=pytest.mark.soak)])
def test_a_forked_child_produces_consumes_commits_and_creates_topics(root: str, how: str) -> None:
    """With `os.fork`, with multiprocessing, and while threads of the parent are in the middle of their work."""
    done = subprocess.run(
        [sys.executable, str(WORKER), root, how], capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stderr[-4000:]
    told = dict(line.split("=") for line in done.stdout.split())
    children = int(told["children"])
    assert children >= 2
    assert told["read"] == ",".join(["100"] * children)
    assert {f"made-{number}" for number in range(children)} <= set(connect(root).topics())
    assert [offset for offset, _ in all_records(root)[0]] == list(range(int(told["sent"])))


@pytest.mark.parametrize("what", ["before", "meanwhile", "interrupted"])
def test_a_child_that_is_forked_during_an_import_of_the_producers_thread_sends_its_record(what: str, root: str) -> None:
    """It would wait for ever for a module that a thread of its parent was importing."""
    connect(root).create_topic("t", 1, {})

    done = subprocess.run(
        [sys.executable, str(IMPORTS), root, what], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) in {0, 1}
    assert sorted(value for _, value in all_records(root)[0]) == ["child", "parent"]


@pytest.mark.parametrize(
    ("how", "child", "parent", "there"),
    [
        ("copies", ["IllegalStateError"] * 5, ["-", "-"], ["parent", "last"]),
        ("exits", ["-"], ["-", "-"], ["parent", "last"]),
        ("taken", ["-"] * 5, ["-", "ProducerFencedError"], ["child"]),
    ],
)
def test_a_fork_in_the_middle_of_a_transaction_adds_and_takes_nothing(
    root: str, how: str, child: list[str], parent: list[str], there: list[str]
) -> None:
    """A copy of the producer can neither add to the parent's transaction nor end it, nor does its own end; a producer
    of the child's own with the same id fences the parent's, whose records nobody sees."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {})

    done = subprocess.run(
        [sys.executable, str(TRANSACTIONS), root, how], capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == {"child": child, "parent": parent, "close": ["-"]}
    assert [value for _, value in all_records(root).get(0, [])] == there
    standing = cluster.groups.refresh().transactions["id"]
    assert (standing.why, standing.unsettled is None or len(standing.unsettled.parts)) == (Why.COMMIT, 1)
    assert cluster.groups.state.groups == {}
