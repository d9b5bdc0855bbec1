"""Every file operation of a write fails or kills the process in turn: no half is seen, a retry succeeds.

An append is killed at each of them in every run; the others at each third one in `make test`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike.connect import connect
from kafkalike.delta.log_files import CHECKPOINT_INTERVAL
from kafkalike.delta.row_table import MERGE_INTERVAL
from tests.tools.children import run
from tests.tools.effort import examples
from tests.tools.groups import commit
from tests.tools.records import batch, make_topic
from tests.tools.shim import preloaded

KILL = "kill_before"
REFUSE = "enospc"
CUT_OFF = pytest.mark.parametrize("do", [KILL, pytest.param(REFUSE, marks=pytest.mark.full)])
STEP = examples(1, 3)
"""How far apart the operations are where `make test` takes some of them and the last, and `make test-all` each."""
OUTSIDE = -1
"""Generation under which a client outside the membership commits."""
OLD = {"0": [[0, "old-0"]], "1": [[0, "old-1"], [1, "old-2"]]}
BOTH = {"0": [[0, "old-0"], [1, "new-0"], [2, "new-2"]], "1": [[0, "old-1"], [1, "old-2"], [2, "new-1"], [3, "new-3"]]}
NEW_OFFSETS = {"0": [1, 2], "1": [2, 3]}

Results = list[dict[str, Any]]
Sweep = Callable[..., Results]


@pytest.fixture
def base(root: str) -> str:
    """A topic with three records in two partitions, and a group that has committed offset 1."""
    make_topic(root, (0, "old-0"), (1, "old-1"), (1, "old-2"))
    commit(connect(root), 1, partition=1)
    return root


@pytest.fixture
def sweep(base: str, tmp_path: Path, faultshim: Path) -> Sweep:
    """Run a fault at file operations of an operation on copies of `base`; `match` keeps to some paths."""

    def go(operation: str, *do: str, match: str = "", step: int = STEP) -> Results:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        orders = {"operation": operation, "base": base, "scratch": str(scratch), "do": do, "match": match, "step": step}
        found: Results = json.loads(run("tests.processes.workers.sweep", orders, preloaded(faultshim, {})))
        return found

    return go


def assert_append_is_whole(result: dict[str, Any]) -> None:
    before, after = result["before"]["topics"]["t"], result["after"]["topics"]["t"]
    assert before in (OLD, BOTH), result
    assert after == BOTH, result
    assert result["retry"] == {"done": NEW_OFFSETS}, result
    assert result["errors"] == [], result


def test_an_append_killed_at_any_file_operation_is_there_once_after_its_retry(sweep: Sweep) -> None:
    """Rows 1 to 3: the retry under the same id gets the old offsets or new ones, and never adds a second copy."""
    results = sweep("append", KILL, step=1)

    # A kill after a call needs a call that succeeds; making a folder that is there does not.
    assert all(result["killed"] for result in results if "kill_before" in result["fault"])
    assert [r for r in results if r["before"]["topics"]["t"] == OLD]
    assert [r for r in results if r["before"]["topics"]["t"] == BOTH]
    for result in results:
        assert_append_is_whole(result)


def test_an_append_on_a_full_or_broken_disk_is_refused_or_done_and_the_next_one_works(sweep: Sweep) -> None:
    """Row 27: no acknowledgement without a commit, no commit without an acknowledgement, the same process goes on."""
    results = [*sweep("append", REFUSE), *sweep("append", "eio", match="/t/")]

    assert {result["first"].get("error") for result in results} == {None, "KafkaStorageError"}
    for result in results:
        assert result["first"].get("done", NEW_OFFSETS) == NEW_OFFSETS, result
        assert result["again"] == {"done": NEW_OFFSETS}, result
        assert_append_is_whole(result)


@CUT_OFF
def test_an_append_that_also_writes_a_checkpoint_is_as_safe(base: str, sweep: Sweep, do: str) -> None:
    """Failing to write a checkpoint costs nothing; a reader never takes half a one for the truth."""
    log = connect(base).log("t")
    for number in range(CHECKPOINT_INTERVAL - 2):
        log.append(batch((0, f"more-{number}")))

    results = sweep("append", do, match="checkpoint")

    assert any("checkpoint" in result["fault"] for result in results)
    for result in results:
        values = [v for _, v in result["after"]["topics"]["t"]["0"]]
        assert len(set(values)) == len(values) == 1 + CHECKPOINT_INTERVAL - 2 + 2, result["fault"]
        assert result["errors"] == [], result["fault"]


@CUT_OFF
def test_a_topic_creation_cut_off_anywhere_can_be_done_again(sweep: Sweep, do: str) -> None:
    """Afterwards the topic exists once, empty and sound, and the other topic is as it was."""
    results = sweep("create", do)

    assert len(results) > 3
    for result in results:
        assert result["retry"] == {"done": 2} or result["retry"]["error"] == "TopicAlreadyExistsError", result
        assert result["before"]["topics"].get("new", {"0": [], "1": []}) == {"0": [], "1": []}, result
        assert result["after"]["topics"] == {"t": OLD, "new": {"0": [], "1": []}}, result
        assert result["errors"] == [], result


@CUT_OFF
def test_a_topic_deletion_cut_off_anywhere_can_be_done_again(sweep: Sweep, do: str) -> None:
    """Before the retry the topic is there as a whole or not at all."""
    results = sweep("delete", do)

    assert len(results) > 3
    for result in results:
        gone = "t" not in result["before"]["topics"]
        assert gone or result["before"]["topics"]["t"] == OLD, result
        # Without a kill the same process has tried again before, so that its attempt is the one that may find nothing.
        again = result["retry"] if result["killed"] else result["again"]
        assert ("error" in again) == gone, result
        assert result["after"]["topics"] == {}, result
        assert result["errors"] == [], result


@CUT_OFF
def test_an_offset_commit_cut_off_anywhere_can_be_done_again(sweep: Sweep, do: str) -> None:
    """The committed offset is the old one or the new one, and the new one after the retry."""
    results = sweep("commit", do)

    for result in results:
        assert result["before"]["committed"] in {1, 2}, result
        if "done" in result.get("first", {}):
            assert result["before"]["committed"] == 2, result
        assert result["retry"] == {"done": OUTSIDE}, result
        assert result["after"]["committed"] == 2, result
        assert result["errors"] == [], result


@CUT_OFF
def test_an_offset_commit_that_merges_the_offsets_table_is_as_safe(base: str, sweep: Sweep, do: str) -> None:
    """Row 10: the merge of small files is one table commit; no row is lost or doubled by half a one."""
    cluster = connect(base)
    for _ in range(MERGE_INTERVAL - 2):
        commit(cluster, 1, partition=1)

    results = sweep("commit", do, match="__consumer_offsets/part")

    for result in results:
        assert result["before"]["committed"] in {1, 2}, result
        assert result["after"]["committed"] == 2, result
        assert result["errors"] == [], result


POINTS = (
    "append.before_files:kill",
    "append.before_commit:kill",
    "commit.before:kill",
    "commit.after:kill",
    "append.after_commit:kill",
)


def test_every_named_fault_point_of_an_append_is_survived(base: str, tmp_path: Path) -> None:
    """The same without a C compiler: the places that the protocol itself names."""
    orders = {"operation": "append", "base": base, "scratch": str(tmp_path), "points": POINTS}

    results = json.loads(run("tests.processes.workers.sweep", orders))

    assert [result["killed"] for result in results] == [True] * len(POINTS)
    assert [result["before"]["topics"]["t"] == BOTH for result in results] == [False, False, False, True, True]
    for result in results:
        assert_append_is_whole(result)
