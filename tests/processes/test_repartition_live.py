"""Producers and a group run while their topic is repartitioned, by a command that is killed and then repeated."""

import json
import os
import subprocess
import sys
from collections import defaultdict

import pytest

from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.children import Child, started
from tests.tools.findings import errors_of
from tests.tools.upkeep import AT_ONCE, open_cluster

WORKER = "tests.processes.workers.upkeep"


def command(root: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    arguments = ("topics", "--repartition", "--topic", "k", "--partitions", "4", "--bootstrap-server", root)
    return subprocess.run(
        [sys.executable, "-m", "kafkalike", *arguments],
        env={**os.environ, "KAFKALIKE_FAULT": fault},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_producers_and_a_group_go_on_through_a_killed_and_repeated_repartition(root: str) -> None:
    """Nothing acknowledged is lost, and each key's records come in order; what was not committed may come twice."""
    cluster = open_cluster(root)
    cluster.create_topic("t", 2, AT_ONCE)
    cluster.create_topic("k", 1, AT_ONCE)
    writers = [
        Child(WORKER, {"root": root, "role": "produce", "name": f"w{n}", "doomed": False, "by_key": True}, {})
        for n in range(2)
    ]
    reader = Child(WORKER, {"root": root, "role": "read", "name": "g", "doomed": False}, {})
    with started(*writers, reader):
        for child in (*writers, reader):
            child.go()
        while cluster.log("k").log_end(0) < 50:
            SYSTEM_CLOCK.sleep(0.05)
        assert command(root, "repartition.after_seal:kill").returncode == -9
        done = command(root)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Topic k has 4 partitions instead of 1;")
        log = cluster.log("k")
        before = sum(log.log_end(p) for p in range(4))
        while sum(log.log_end(p) for p in range(4)) < before + 50:
            SYSTEM_CLOCK.sleep(0.05)
            log.refresh()
        for writer in writers:
            writer.go()
        acked = [entry for writer in writers for entry in json.loads(writer.finish())["acked"]]
        reader.go()
        seen = json.loads(reader.finish())["seen"]

    assert {(topic, value) for topic, _, _, value in acked} == {(topic, value) for topic, _, _, _, value in seen}
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, _, _, key, value in seen:
        if topic == "k" and (number := int(value.partition("-")[2])) not in numbers[key]:
            numbers[key].append(number)
    assert len(numbers) == 14
    assert all(found == sorted(found) for found in numbers.values())
    assert errors_of(root) == []
