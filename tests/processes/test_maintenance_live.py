"""Producers and a group run while maintenance deletes, compacts, merges and vacuums; one of its runs is killed."""

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import pytest

from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.children import Child, started
from tests.tools.findings import errors_of
from tests.tools.records import batch
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, open_cluster, run

WORKER = "tests.processes.workers.upkeep"
WRITERS = 2


def lived(root: str, seconds: float) -> dict[str, Any]:
    """Let all of them run for a time; what each one printed."""
    cluster = open_cluster(root)
    cluster.create_topic("t", 2, {**AT_ONCE, "retention.ms": "1500"})
    cluster.create_topic("k", 1, {**EAGER, "segment.ms": "300"})

    def child(role: str, name: str, fault: str = "") -> Child:
        return Child(
            WORKER, {"root": root, "role": role, "name": name, "doomed": bool(fault)}, {"KAFKALIKE_FAULT": fault}
        )

    writers = [child("produce", f"w{number}") for number in range(WRITERS)]
    reader, keeper = child("read", "g"), child("upkeep", "steady")
    doomed = [
        child("upkeep", f"doomed-{at}", f"{at}:kill") for at in ("retention.after_log_start", "merge.after_commit")
    ]
    with started(*writers, reader, keeper, *doomed):
        for started_child in (*writers, reader, *doomed):
            started_child.go()
        for killed in doomed:
            killed.finish(-9)
        # From here on another process has to finish what the killed ones have begun.
        keeper.go()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            SYSTEM_CLOCK.sleep(0.2)
        for writer in writers:
            writer.go()
        acked = [entry for writer in writers for entry in json.loads(writer.finish())["acked"]]
        reader.go()
        seen = json.loads(reader.finish())["seen"]
        keeper.go()
        return {"acked": acked, "seen": seen, "kept": json.loads(keeper.finish())}


def assert_one_log(told: dict[str, Any]) -> None:
    acked = {(topic, p, offset): value for topic, p, offset, value in told["acked"]}
    assert len(acked) == len(told["acked"])
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, p, offset, _, value in told["seen"]:
        assert acked[topic, p, offset] == value
        seen[topic, p].append(offset)
    assert set(seen) == {("t", 0), ("t", 1), ("k", 0)}
    for (topic, p), offsets in seen.items():
        assert offsets == sorted(set(offsets))
        if topic == "t":
            # It was at the tail all the time, so retention has taken nothing that it had still to read.
            assert offsets == list(range(offsets[0], offsets[-1] + 1))
        assert offsets[-1] == max(o for t, q, o in acked if (t, q) == (topic, p))


def assert_keys_are_right(root: str, told: dict[str, Any]) -> None:
    """A reader that comes new finds the last acknowledged value of each key."""
    last: dict[str, tuple[int, str]] = {}
    for topic, _, offset, key, value in told["seen"]:
        if topic == "k":
            last[key] = (offset, value)
    log = open_cluster(root).log("k")
    reader = log.reader(0, 0)
    found: dict[str, tuple[int, str]] = {}
    while (chunk := reader.read(1 << 20)) is not None:
        columns = chunk.columns()
        for offset, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True):
            found[(key or b"").decode()] = (offset, (value or b"").decode())
    assert found == last


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, pytest.param(180, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_producers_and_a_group_see_one_log_while_maintenance_runs_and_is_killed(root: str, seconds: float) -> None:
    """Nothing acknowledged is lost, doubled or moved; what a killed run has begun, another one finishes."""
    told = lived(root, seconds)

    kept = told["kept"]
    assert kept["problems"] == []
    assert min(kept[name] for name in ("deleted_records", "compacted_records", "merged_segments", "vacuumed_files")) > 0
    assert_one_log(told)
    assert errors_of(root) == []
    run(root)
    assert_keys_are_right(root, told)
    assert errors_of(root) == []


@pytest.mark.slow
def test_the_embedded_scheduler_ends_cleanly_when_it_is_told_to(root: str) -> None:
    """SIGTERM lets a run that is under way finish."""
    # Two of eight appends are past `retention.ms`.
    cluster, now = open_cluster(root), SYSTEM_CLOCK.now_ms()
    cluster.create_topic("orders", 1, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    orders = cluster.log("orders")
    for number in range(8):
        orders.append(batch((0, f"v{number}"), at_ms=now - (2 * HOUR_MS if number < 2 else 0)))

    command = [sys.executable, "-c", "import sys; from kafkalike.cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*command, "maintain", "--bootstrap-server", root, "--every", "50ms", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    second = json.loads(process.stdout.readline())

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == 0
    assert [run["topics"][0]["deleted_records"] for run in (first, second)] == [2, 0]
