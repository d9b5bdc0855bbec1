"""The format on Sparks of several processes: executors read the files themselves and find everything they need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalike.connect import connect
from kafkalike.model.record_batch import RecordBatch
from tests.tools.children import run
from tests.tools.standalone import standalone

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(500)]

ROWS = 200
CLUSTER_PATIENCE = 400.0
"""Seconds for three JVMs and their Python workers on a machine that others use too."""


@pytest.fixture
def filled(root: str) -> str:
    """Two partitions of 100 records in ten appends."""
    cluster = connect(root)
    cluster.create_topic("t", 2, {})
    log = cluster.log("t")
    for start in range(0, ROWS, 20):
        batch = RecordBatch()
        for number in range(start, start + 20):
            batch.add(number % 2, None, str(number).encode(), number)
        log.append(batch)
    return root


def check(master: str, root: str, scratch: Path) -> None:
    """Both ways read every offset once, in order."""
    orders = {"master": master, "root": root, "scratch": str(scratch)}
    printed = run("tests.spark.workers.read_all", orders, patience=CLUSTER_PATIENCE)

    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert found["tasks"] == 6
    assert found["batch"] == [[p, 100, 100, 0, 99] for p in range(2)]
    for p in range(2):
        assert [offset for partition, offset in found["stream"] if partition == p] == [*range(100)]


def test_executors_of_a_local_cluster_read_a_topic(filled: str, tmp_path: Path) -> None:
    check("local-cluster[2,1,1024]", filled, tmp_path)


def test_workers_of_a_standalone_cluster_read_a_topic(filled: str, tmp_path: Path) -> None:
    with standalone(tmp_path) as master:
        check(master, filled, tmp_path)
