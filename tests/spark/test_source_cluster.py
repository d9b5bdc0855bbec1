"""The format on Sparks of several processes: executors read the files themselves and find everything they need."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from kafkalike.log.connect import connect
from kafkalike.model.batch import RecordBatch
from tests.tools.children import run

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(500)]

ROWS = 200
PATIENCE = 60.0
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


@contextlib.contextmanager
def standalone(scratch: Path) -> Iterator[str]:
    """A master and two workers of Spark's own cluster manager, each one a process; the address of the master."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    deploy = "org.apache.spark.deploy"
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *(
            [
                *(f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"),
                *("--memory", "1g", "--work-dir", str(scratch / f"worker-{number}"), master),
            ]
            for number in range(2)
        ),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with Path(scratch, f"daemon-{number}.log").open("wb") as log:
                # `exec`: the shell script becomes Java itself, so that ending the process ends it.
                started = [str(home / "bin" / "spark-class"), *command]
                processes.append(subprocess.Popen(started, env=environment, stdout=log, stderr=log))
            if number == 0:
                _wait_for_port(port)
        yield master
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(PATIENCE)


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline, "the master does not listen"
        time.sleep(0.1)


def test_workers_of_a_standalone_cluster_read_a_topic(filled: str, tmp_path: Path) -> None:
    with standalone(tmp_path) as master:
        check(master, filled, tmp_path)
