"""Row 8 to 10: maintenance is killed, or the disk refuses, at every file operation; the next run finishes the work."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.children import run as run_worker
from tests.tools.effort import examples
from tests.tools.records import batch
from tests.tools.shim import preloaded
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, keyed, topic

STEP = examples(1, 3)
"""How far apart the operations are; `make test-all` takes each."""
OLD, YOUNG = 1, 4
"""Appends of each age in the topic that retention cuts."""
TABLES = ("/k/", "/t/", "/__cluster_metadata/")
"""Folders whose files are swept in every test run; the rest are locks."""
ALL = [[n, f"v{n}"] for n in range(OLD + YOUNG)]
KEPT = ALL[OLD:]
PAIRS = [("a", "0"), ("b", "1")], [("a", "2")], [("c", "3")]
LATEST = [[1, "1"], [2, "2"], [3, "3"]]
"""Of the compacted topic: the last value of each key, and the active segment."""


@pytest.fixture
def base(root: str) -> str:
    """A topic past retention, a compacted one, and nothing that waits."""
    now = SYSTEM_CLOCK.now_ms()
    # What was merged stays on the disk here: the compacted topic shows how such files go.
    delays = {name: text for name, text in AT_ONCE.items() if "replaced" not in name}
    log = topic(root, "t", 1, {**delays, "retention.ms": str(HOUR_MS)})
    for number, value in ALL:
        log.append(batch((0, str(value)), at_ms=now - (2 * HOUR_MS if int(str(number)) < OLD else 0)))
    log = topic(root, "k", 1, EAGER)
    for number, pairs in enumerate(PAIRS):
        log.append(keyed(*pairs, at_ms=now - 1000 + 10 * number))
    return root


def swept(base: str, tmp_path: Path, faultshim: Path, do: str, *matches: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, match in enumerate(matches or ("",)):
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        orders = {
            "operation": "maintain",
            "base": base,
            "scratch": str(scratch),
            "do": [do],
            "match": match,
            "step": STEP,
        }
        found += json.loads(run_worker("tests.processes.workers.upkeep_sweep", orders, preloaded(faultshim, {})))
    return found


def assert_nothing_is_lost(result: dict[str, Any]) -> None:
    before, after = result["before"]["topics"], result["after"]["topics"]
    # Log start moves before anything leaves the table: what is dead is never readable again, what lives always is.
    assert before["t"]["0"] in (ALL, KEPT), result
    survivors = before["k"]["0"]
    assert [r for r in LATEST if r not in survivors] == [], result
    assert [offset for offset, _ in survivors] == sorted({offset for offset, _ in survivors}), result
    assert after["t"]["0"] == KEPT, result
    assert after["k"]["0"] == LATEST, result
    assert result["errors"] == [], result


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", [TABLES, pytest.param((), marks=pytest.mark.soak, id="locks and all")])
def test_a_run_killed_at_any_file_operation_is_finished_by_the_next(
    base: str, tmp_path: Path, faultshim: Path, where: tuple[str, ...]
) -> None:
    """At every link, unlink, open for writing and new folder: nothing live lost, nothing dead readable."""
    results = swept(base, tmp_path, faultshim, "kill_before", *where)

    assert len(results) > 20 // STEP
    assert all(result["killed"] for result in results)
    states = {json.dumps(result["before"]["topics"]) for result in results}
    assert len(states) == 3
    for result in results:
        assert result["retry"]["done"] == {"failed": [], "problems": []}, result
        assert_nothing_is_lost(result)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("do", ["enospc", "eio"])
def test_a_run_on_a_full_or_broken_disk_says_so_and_the_next_one_works(
    base: str, tmp_path: Path, faultshim: Path, do: str
) -> None:
    """Row 27: no half of a step is seen."""
    results = swept(base, tmp_path, faultshim, do)

    assert len(results) > 40
    for result in results:
        assert_nothing_is_lost(result)
