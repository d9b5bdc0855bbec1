"""Producers, maintenance and administrators killed with SIGKILL at every point of a transaction: one outcome, whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.config.server_config import SERVER_PROPERTIES_VARIABLE
from kafkalike.model.structs import TopicPartition
from kafkalike.model.transactions.transaction_views import TransactionState
from tests.processes.conftest import ObjectRoot
from tests.processes.workers.transact import work
from tests.tools.children import run
from tests.tools.clusters import on_disk
from tests.tools.partitions import partition_values
from tests.tools.shim import fault, preloaded

WORKER = "tests.processes.workers.transact"
KILLED = -9
OLD = [b"old.0", b"old.1"]
NEW = [b"new.0", b"new.1"]


def worker(root: str, do: str, value: str, *, point: str = "", offset: int = 0, **orders: Any) -> str:
    """Let another client do something; with a point, it is a process of its own and is killed there."""
    asked = {"root": root, "do": do, "value": value, "offset": offset, "id": "id", **orders}
    if not point:
        return work(asked, on_disk(root))
    place, _, visit = point.partition("@")
    return run(WORKER, asked, {"KAFKALIKE_FAULT": f"{place}:kill@{visit or 1}"}, expected=KILLED).strip()


def values(cluster: Cluster) -> list[bytes | None]:
    """What both topics hold, which is the same."""
    found = [partition_values(cluster.log(topic)) for topic in "ab"]
    assert found[0] == found[1]
    return found[0]


def offset(cluster: Cluster) -> int:
    return cluster.groups.refresh().group("g").offsets[TopicPartition("a", 0)].position.offset


def assert_whole(root: str, committed: list[list[bytes]], *, maintained: bool = True) -> None:
    """After maintenance topics hold what was committed, once; no file is left, and the id works."""
    cluster = connect(root)
    deadline = Deadline(SYSTEM_CLOCK, 60_000)
    if maintained:
        assert cluster.transactions.maintain(deadline) == []
    assert values(cluster) == [value for some in committed for value in some]
    assert verify(cluster, ["a", "b"]).errors() == 0
    assert worker(root, "commit", "last", offset=9) == "committed"
    assert values(cluster) == [*(value for some in committed for value in some), b"last.0", b"last.1"]
    assert offset(cluster) == 9
    assert cluster.transactions.maintain(deadline) == []
    assert cluster.transactions._staging.folders() == []


@pytest.fixture
def prepared(root: str) -> str:
    """Two topics with a transaction in them."""
    return prepare(root)


def prepare(root: str) -> str:
    cluster = connect(root)
    for topic in "ab":
        cluster.create_topic(topic, 1, {})
    assert worker(root, "commit", "old", offset=1) == "committed"
    return root


def killed_in_a_commit(root: str, point: str, *, decided: bool) -> None:
    worker(root, "commit", "new", offset=2, point=point)

    cluster = connect(root)
    assert offset(cluster) == (2 if decided else 1)
    assert_whole(root, [OLD, NEW] if decided else [OLD])


BEFORE = [
    "transaction.before_begin",
    "transaction.after_begin",
    "transaction.staged@1",
    "transaction.staged@4",
    "transaction.before_commit",
]


@pytest.mark.parametrize("point", BEFORE)
def test_a_producer_killed_before_its_decision_has_committed_nothing(prepared: str, point: str) -> None:
    killed_in_a_commit(prepared, point, decided=False)


AFTER = [
    "transaction.after_commit",
    *(f"transaction.{when}_apply@{topic}" for topic in (1, 2) for when in ("before", "after")),
    "append.before_files@1",
    "append.before_commit@1",
    "append.after_commit@1",
    "append.before_commit@2",
    # Two removals come before: what was decided last, and what was open.
    "transaction.before_remove@3",
    "transaction.after_remove@3",
]


@pytest.mark.parametrize("point", AFTER)
def test_a_producer_killed_after_its_decision_has_committed_everything(prepared: str, point: str) -> None:
    killed_in_a_commit(prepared, point, decided=True)


def test_a_disk_that_is_full_after_the_decision_keeps_nothing_from_it(prepared: str, faultshim: Path) -> None:
    """It stays decided, whoever comes says why it is not through, and there is no other outcome when there is room."""
    full = preloaded(faultshim, fault("write", "enospc", f"{prepared}/b/"))
    producer = {"root": prepared, "do": "commit", "value": "new", "offset": 2, "id": "id"}
    assert "KafkaStorageError" in run(WORKER, producer, full)
    assert "No space left on device" in run(WORKER, {**producer, "do": "maintain"}, full)
    assert "KafkaStorageError" in run(WORKER, {**producer, "do": "begin"}, full)

    cluster = connect(prepared)
    assert offset(cluster) == 2
    assert cluster.transactions.described(["id"])["id"].state is TransactionState.PREPARE_COMMIT
    assert [partition_values(cluster.log(topic)) for topic in "a"] == [[*OLD, *NEW]]
    assert_whole(prepared, [OLD, NEW])


def killed_twice(root: str, point: str) -> None:
    worker(root, "commit", "new", offset=2, point=point)
    worker(root, "begin", "", point="transaction.before_begin")

    assert values(connect(root)) == [*OLD, *NEW]
    assert_whole(root, [OLD, NEW], maintained=False)


TWICE = [p for p in AFTER if "remove" not in p and "after_apply@2" not in p][:6]


@pytest.mark.parametrize("point", TWICE)
def test_the_next_producer_of_the_id_finishes_what_was_decided(prepared: str, point: str) -> None:
    """Killed at the same places itself, so that a third one does it."""
    killed_twice(prepared, point)


def killed_in_an_abort(root: str, point: str) -> None:
    worker(root, "abort", "new", point=point)

    assert_whole(root, [OLD])


ABORT = [
    "transaction.before_abort",
    "transaction.after_abort",
    "transaction.before_remove@3",
    "transaction.after_remove@3",
]


@pytest.mark.parametrize("point", ABORT)
def test_an_abort_killed_anywhere_leaves_nothing(prepared: str, point: str) -> None:
    killed_in_an_abort(prepared, point)


def killed_taking_over(root: str, do: str, when: str) -> None:
    assert worker(root, "stage", "new") == "staged"
    point = f"transaction.{when}" if "remove" in when else f"transaction.{when}{do}"
    worker(root, do, "", point=point)

    assert_whole(root, [OLD])


TAKE_OVER = [(do, when) for do in ("begin", "fence") for when in ("before_", "after_", "before_remove", "after_remove")]


@pytest.mark.parametrize(("do", "when"), TAKE_OVER)
def test_who_takes_over_is_killed_and_nothing_of_the_open_transaction_is_seen(
    prepared: str, do: str, when: str
) -> None:
    killed_taking_over(prepared, do, when)


def killed_in_maintenance(root: str, point: str) -> None:
    """One transaction is decided and in no topic, one hangs, one id was not used for long."""
    worker(root, "begin", "", id="unused")
    worker(root, "stage", "hanging", id="hangs", timeout_ms=1)
    worker(root, "commit", "new", offset=2, point="transaction.after_commit")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        settings = Path(folder, "server.properties")
        settings.write_text("transactional.id.expiration.ms=1\n")
        patch.setenv(SERVER_PROPERTIES_VARIABLE, str(settings))
        worker(root, "maintain", "", point=point)

        assert_whole(root, [OLD, NEW])
        assert [known.transactional_id for known in connect(root).transactions.listed()] in ([], ["id"])


MAINTENANCE = [
    "transaction.before_apply",
    "transaction.after_apply",
    "transaction.before_fence",
    "transaction.after_fence",
    "transaction.before_remove@1",
    "transaction.after_remove@1",
    "transaction.before_remove@2",
    "transaction.before_forget",
    "transaction.after_forget",
]


@pytest.mark.parametrize("point", MAINTENANCE)
def test_maintenance_killed_anywhere_is_finished_by_the_next_run(prepared: str, point: str) -> None:
    killed_in_maintenance(prepared, point)


@pytest.mark.parametrize(
    ("point", "decided"),
    [
        ("transaction.staged@4", False),
        ("transaction.before_commit", False),
        ("transaction.after_commit", True),
        ("append.before_commit@1", True),
        ("transaction.after_apply@1", True),
        ("transaction.before_remove@3", True),
    ],
)
def test_in_object_stores_the_same_holds(object_root: ObjectRoot, point: str, decided: bool) -> None:  # noqa: FBT001
    killed_in_a_commit(prepare(object_root.root), point, decided=decided)


EVERYWHERE: list[tuple[Callable[..., None], dict[str, Any]]] = [
    *((killed_in_a_commit, {"point": point, "decided": False}) for point in BEFORE),
    *((killed_in_a_commit, {"point": point, "decided": True}) for point in AFTER),
    *((killed_twice, {"point": point}) for point in TWICE),
    *((killed_in_an_abort, {"point": point}) for point in ABORT),
    *((killed_taking_over, {"do": do, "when": when}) for do, when in TAKE_OVER),
    *((killed_in_maintenance, {"point": point}) for point in MAINTENANCE),
]


NAMES = ["-".join([scene.__name__, *map(str, how.values())]) for scene, how in EVERYWHERE]


@pytest.mark.soak
@pytest.mark.parametrize(("scene", "how"), EVERYWHERE, ids=NAMES)
def test_in_object_stores_the_same_holds_at_every_point(
    object_root: ObjectRoot, scene: Callable[..., None], how: dict[str, Any]
) -> None:
    """All that is tried on a disk."""
    scene(prepare(object_root.root), **how)
