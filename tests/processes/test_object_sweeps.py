"""A process is killed after each request that a write makes of an object store: no half is seen, a retry succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafkalike.connect import connect
from tests.processes.test_crash_sweeps import OLD, OUTSIDE, assert_append_is_whole
from tests.processes.workers import one_operation
from tests.processes.workers.sweep import recover
from tests.tools.children import Child, started
from tests.tools.fault_proxy import FaultProxy
from tests.tools.groups import commit
from tests.tools.object_servers import ObjectServer
from tests.tools.records import make_topic

WORKER = one_operation.__name__
KILLED = -9
MOST_REQUESTS = 300
"""No operation here makes so many."""

Sweep = Callable[..., list[dict[str, Any]]]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def sweep(server: ObjectServer, proxy: FaultProxy) -> Sweep:
    """Do an operation on a new root again and again, and kill who does it after none, `each`, twice that … requests."""

    def one(operation: str, requests: int) -> dict[str, Any] | None:
        root = server.new_root()
        make_topic(root, (0, "old-0"), (1, "old-1"), (1, "old-2"))
        commit(connect(root), 1, partition=1)
        child = Child(WORKER, {"operation": operation, "root": root}, {})
        with started(child):
            proxy.plan.stop, proxy.plan.last = child.shoot, requests
            child.go()
            child.wait_end()
            cut_off, proxy.plan.last = (proxy.plan.last or 0) < 0, None
            printed = child.finish(KILLED if cut_off else 0)
        if not cut_off:
            assert "done" in json.loads(printed), printed
            return None
        return {"requests": requests, **recover(operation, root)}

    def go(operation: str, each: int = 1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for requests in range(0, MOST_REQUESTS, each):
            result = one(operation, requests)
            if result is None:
                return found
            found.append(result)
        raise AssertionError(f"{operation} does not end")

    return go


def as_json(result: Any) -> Any:
    """With texts for numbers of partitions and lists for pairs."""
    return json.loads(json.dumps(result))


def test_an_append_killed_after_any_request_is_there_once_after_its_retry(sweep: Sweep) -> None:
    """The retry under the same id gets the old offsets or new ones, and never adds a second copy."""
    results = as_json(sweep("append"))

    assert len(results) >= 5
    assert [r for r in results if r["before"]["topics"]["t"] == OLD]
    for result in results:
        assert_append_is_whole(result)


def test_a_topic_creation_killed_after_any_request_can_be_done_again(sweep: Sweep) -> None:
    """Afterwards the topic exists once, empty and sound, and the other topic is as it was."""
    results = as_json(sweep("create"))

    assert len(results) > 3
    for result in results:
        empty: dict[str, list[Any]] = {"0": [], "1": []}
        assert result["retry"] == {"done": 2} or result["retry"]["error"] == "TopicAlreadyExistsError", result
        assert result["before"]["topics"].get("new", empty) == empty, result
        assert result["after"]["topics"] == {"t": OLD, "new": empty}, result
        assert result["errors"] == [], result


def test_a_topic_deletion_killed_after_any_request_can_be_done_again(sweep: Sweep) -> None:
    """Before the retry the topic is there as a whole or not at all."""
    results = as_json(sweep("delete"))

    assert len(results) > 3
    for result in results:
        gone = "t" not in result["before"]["topics"]
        assert gone or result["before"]["topics"]["t"] == OLD, result
        assert ("error" in result["retry"]) == gone, result
        assert result["after"]["topics"] == {}, result
        assert result["errors"] == [], result


def test_an_offset_commit_killed_after_any_request_can_be_done_again(sweep: Sweep) -> None:
    """The committed offset is the old one or the new one, and the new one after the retry."""
    results = sweep("commit")

    assert {result["before"]["committed"] for result in results} >= {1}
    for result in results:
        assert result["before"]["committed"] in {1, 2}, result
        assert result["retry"] == {"done": OUTSIDE}, result
        assert result["after"]["committed"] == 2, result
        assert result["errors"] == [], result


@pytest.mark.parametrize("each", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_maintenance_killed_after_any_request_is_finished_by_the_next(sweep: Sweep, each: int) -> None:
    """The records are too old to stay; they are all there, or all gone, in each partition."""
    results = as_json(sweep("maintain", each))

    assert len(results) > 3
    for result in results:
        for partition, records in result["before"]["topics"]["t"].items():
            assert records in (OLD[partition], []), result
        assert result["retry"] == {"done": {"failed": [], "problems": []}}, result
        assert result["after"] == {"topics": {"t": {"0": [], "1": []}}, "committed": 1}, result
        assert result["errors"] == [], result
