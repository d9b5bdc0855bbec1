"""Producers, a group and maintenance on an object store, through a network that is not sound: nothing is lost.

All that maintenance does is done: retention, compaction, merging, the removal of files that no commit names, shorter
logs, shorter control tables. Its clock is seven hours ahead, so that the files of those who are just writing, and the
rows of those who are just committing, look old.
"""

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kafkalike.model.clock import SYSTEM_CLOCK
from tests.processes.conftest import ObjectRoot
from tests.processes.test_maintenance_live import assert_keys_are_right
from tests.tools.children import Child, started
from tests.tools.fault_proxy import BAD, FAULTS
from tests.tools.findings import errors_of
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, open_cluster, run

WORKER = "tests.processes.workers.upkeep"
AHEAD_MS = 7 * HOUR_MS
WORKS = ("deleted_records", "compacted_records", "merged_segments", "vacuumed_files", "control_rows")
PATIENCE = 240.0
"""Seconds until each kind of work must have been done; only broken maintenance needs them."""


def did_all(progress: Path) -> bool:
    """Whether maintenance has done each kind of its work."""
    try:
        counts = json.loads(progress.read_text())
    except (FileNotFoundError, ValueError):
        return False
    return all(counts[name] > 0 for name in WORKS)


def lived(place: ObjectRoot, folder: Path, seconds: float) -> dict[str, Any]:
    """Let all of them run for a time, one run of maintenance be killed, and say what each one printed."""
    root, progress = place.root, folder / "progress"
    cluster = open_cluster(root)
    waiting = {"retention.ms": str(AHEAD_MS + 1_500), "kafkalike.retention.wait.groups": "g"}
    cluster.create_topic("t", 2, {**AT_ONCE, **waiting})
    cluster.create_topic("k", 1, {**EAGER, "segment.ms": "300"})

    def child(role: str, name: str, fault: str = "") -> Child:
        orders: dict[str, Any] = {"root": root, "role": role, "name": name, "doomed": bool(fault), "ahead_ms": AHEAD_MS}
        if name == "steady":
            orders["progress"] = str(progress)
        return Child(WORKER, {**orders, "patient": True}, {"KAFKALIKE_FAULT": fault})

    writers = [child("produce", f"w{number}") for number in range(2)]
    killed = [child("produce", "killed", "append.before_commit:kill@20"), child("upkeep", "doomed", MERGED)]
    reader, keeper = child("read", "g"), child("upkeep", "steady")
    with started(*writers, *killed, reader, keeper):
        place.proxy.plan.faults = BAD
        for begun in (*writers, *killed, reader):
            begun.go()
        for each in killed:
            each.finish(-9)
        # From here on another process has to finish what the killed one has begun.
        keeper.go()
        begun_at = time.monotonic()
        while time.monotonic() < begun_at + seconds or not did_all(progress):
            assert time.monotonic() < begun_at + seconds + PATIENCE, progress.read_text()
            SYSTEM_CLOCK.sleep(0.2)
        sent = [json.loads(finished(writer)) for writer in writers]
        seen = json.loads(finished(reader))["seen"]
        kept = json.loads(finished(keeper))
    place.proxy.plan.faults = {}
    return {"sent": sent, "seen": seen, "kept": kept}


MERGED = "merge.after_commit:kill"


def finished(child: Child) -> str:
    child.go()
    return child.finish()


def assert_one_log(told: dict[str, Any]) -> None:
    """What was acknowledged is where it was said to be; what was refused is nowhere; nothing came twice."""
    acked = {(topic, p, offset): value for sent in told["sent"] for topic, p, offset, value in sent["acked"]}
    refused = {(topic, value) for sent in told["sent"] for topic, value in sent["refused"]}
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    values: dict[str, list[str]] = defaultdict(list)
    for topic, p, offset, _, value in told["seen"]:
        assert acked.get((topic, p, offset), value) == value
        seen[topic, p].append(offset)
        values[topic].append(value)
    for topic, found in values.items():
        assert len(found) == len(set(found))
        assert refused.isdisjoint((topic, value) for value in found)
    for (topic, p), offsets in seen.items():
        assert offsets == sorted(set(offsets))
        if topic == "t":
            # Retention waits for its group, so it got every record.
            assert offsets == list(range(offsets[-1] + 1))
        assert offsets[-1] >= max(o for t, q, o in acked if (t, q) == (topic, p))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [10, pytest.param(300, marks=pytest.mark.soak)])
def test_maintenance_beside_writers_through_a_bad_network_loses_nothing(
    object_root: ObjectRoot, tmp_path: Path, seconds: float
) -> None:
    told = lived(object_root, tmp_path, seconds)

    kept, root = told["kept"], object_root.root
    assert sum(object_root.proxy.done[fault] for fault in FAULTS) > 50
    assert [problem for problem in kept["problems"] if "Storage" not in problem and "Outcome" not in problem] == []
    assert sum(len(sent["acked"]) for sent in told["sent"]) > 50
    assert_one_log(told)
    assert errors_of(root) == []
    run(root)
    assert_keys_are_right(root, told)
    assert errors_of(root) == []
