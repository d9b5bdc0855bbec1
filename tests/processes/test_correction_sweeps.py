"""Forgetting, undoing and forking are killed at every file operation; the next run finishes the work."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.processes.workers.correct_sweep import KEYS
from tests.tools.children import run as run_worker
from tests.tools.shim import preloaded
from tests.tools.upkeep import open_cluster, topic

ALL = {"0": [[0, "0"], [1, "gone"], [2, "1"], [3, "gone"]], "1": [[0, "gone"], [1, "0"], [2, "gone"], [3, "1"]]}
FORGOTTEN = {"0": [[0, "0"], [2, "1"]], "1": [[1, "0"], [3, "1"]]}
SHORTER = {"0": ALL["0"][2:], "1": ALL["1"]}
"""With the first records of partition 0 deleted."""
UNDONE = {"0": [[0, "0"], [1, "gone"]], "1": [[0, "gone"], [1, "0"]]}


@pytest.fixture
def base(root: str) -> str:
    """Two appends to two partitions, each with both keys."""
    log = topic(root, "t", 2, {})
    for turn in range(2):
        made = RecordBatch()
        for partition, key, value in ((0, b"k", b"%d" % turn), (0, KEYS[0], b"gone"), (1, KEYS[1], b"gone")):
            made.add(partition, key, value, SYSTEM_CLOCK.now_ms())
        made.add(1, b"k", b"%d" % turn, SYSTEM_CLOCK.now_ms())
        log.append(made)
    return root


POINTS = {
    "forget": [
        "rewrite.before_file",
        "remove.after_file",
        "remove.after_file@2",
        "forget.before_commit",
        "commit.before",
        "commit.after",
        "forget.after_commit",
        "forget.after_commit@2",
        "remove.before_files",
        "vacuum.before_unlink",
        "vacuum.before_unlink@3",
    ],
    "undo": ["remove.after_file", "undo.before_commit", "commit.after", "undo.after_commit"],
    "fork": [
        "forked.before_commit",
        "forked.after_commit",
        "copy.before_files",
        "fork.before_commit",
        "fork.after_commit",
        *(f"commit.{when}@{nth}" for nth in range(1, 4) for when in ("before", "after")),
    ],
    "repartition": [
        "repartition.before_begin",
        "repartition.after_begin",
        "repartition.before_pass",
        "repartition.before_commit",
        "repartition.after_offsets",
        "repartition.after_seal",
        "repartition.after_copy",
        "repartition.before_end",
        "delete.after_forget",
        *(f"commit.{when}@{nth}" for nth in range(1, 7) for when in ("before", "after")),
    ],
}
"""Named places in the code."""
FILES = {
    "forget": ("/t/", ".json"),
    "undo": ("/t/",),
    "fork": ("/t/", "/u/"),
    "repartition": ("/t", "__consumer_offsets"),
}
"""Files whose operations are the places of a longer trial; the rest are locks, and metadata of which others tell."""


def swept(base: str, tmp_path: Path, faultshim: Path, operation: str, *, each: str) -> list[dict[str, Any]]:
    """Kill it at each place of a kind."""
    orders: dict[str, Any] = {"operation": operation, "base": base}
    if each == "point":
        points = [f"{point.partition('@')[0]}:kill{''.join(point.partition('@')[1:])}" for point in POINTS[operation]]
        tried = [{**orders, "scratch": str(tmp_path), "points": points}]
    else:
        tried = [
            {**orders, "scratch": str(tmp_path / f"scratch-{number}"), "do": ["kill_before"], "match": match}
            for number, match in enumerate(FILES[operation])
        ]
    found: list[dict[str, Any]] = []
    for one in tried:
        # Certificates lie there, too: each sweep has its own.
        Path(one["scratch"]).mkdir(exist_ok=True)
        found += json.loads(run_worker("tests.processes.workers.correct_sweep", one, preloaded(faultshim, {})))
    assert len(found) >= len(POINTS[operation])
    assert [result["fault"] for result in found if not result["killed"]] == []
    return found


EACH = pytest.mark.parametrize("each", ["point", pytest.param("file", marks=pytest.mark.soak)])


@EACH
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_forgetting_run_that_is_killed_anywhere_is_finished_by_the_next(
    base: str, tmp_path: Path, faultshim: Path, each: str
) -> None:
    """Nothing else is lost, and the certificate has all that went, however much of it the killed run had written."""
    results = swept(base, tmp_path, faultshim, "forget", each=each)

    for result in results:
        seen, after = result["before"]["topics"]["t"], result["after"]["topics"]["t"]
        assert all(seen[p] in (ALL[p], FORGOTTEN[p]) for p in "01"), result
        assert after == FORGOTTEN, result
        assert result["errors"] == [], result
        done = result["retry"]
        if "error" in done:
            # It was killed when all was done and written down.
            assert "finished" in done["message"], result
        else:
            assert done["done"] == {"records": 4, "wrong": []}, result


@EACH
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_undo_that_is_killed_anywhere_took_all_or_nothing(
    base: str, tmp_path: Path, faultshim: Path, each: str
) -> None:
    results = swept(base, tmp_path, faultshim, "undo", each=each)

    for result in results:
        assert result["before"]["topics"]["t"] in (ALL, UNDONE), result
        assert result["after"]["topics"]["t"] == UNDONE, result
        assert result["errors"] == [], result


@EACH
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_fork_that_is_killed_anywhere_has_all_records_or_none(
    base: str, tmp_path: Path, faultshim: Path, each: str
) -> None:
    """Never those that were deleted in the source, whose files the fork has."""
    open_cluster(base).move_log_start("t", {0: 2}, "delete_records", "test")
    results = swept(base, tmp_path, faultshim, "fork", each=each)

    for result in results:
        assert result["before"]["topics"].get("u", SHORTER) in (SHORTER, {"0": [], "1": []}), result
        assert result["after"]["topics"] == {"t": SHORTER, "u": SHORTER}, result
        assert result["errors"] == [], result


MOVED = {
    "0": ALL["0"],
    "1": [[1, "0"], [3, "1"]],
    "2": [],
    "3": [[0, "gone"], [2, "gone"]],
}
"""With twice as many partitions: the records of one key have moved, at their offsets."""


@EACH
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_repartition_that_is_killed_anywhere_is_finished_by_the_next_call(
    base: str, tmp_path: Path, faultshim: Path, each: str
) -> None:
    """Until then readers see the topic as it was, and its group where it was."""
    cluster = open_cluster(base)
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    ids = {"t": str(cluster.topic("t").topic_id)}
    offsets.commit(Membership(group_id="g"), {TopicPartition("t", 1): OffsetAndMetadata(1)}, ids)
    results = swept(base, tmp_path, faultshim, "repartition", each=each)

    for result in results:
        assert result["before"] in ({"topics": {"t": ALL}, "committed": 1}, {"topics": {"t": MOVED}, "committed": 1})
        assert result["retry"] == {"done": 4}, result
        assert result["after"] == {"topics": {"t": MOVED}, "committed": 1}, result
        assert result["errors"] == [], result
