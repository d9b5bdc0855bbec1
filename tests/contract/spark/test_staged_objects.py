"""Records staged in an object store: one commit for each topic is made of them; what killed jobs leave goes later."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkalike.errors import KafkaStorageError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.runs import run_files as files
from kafkalike.maintenance import staging_folder as scratch
from kafkalike.maintenance.staging_folder import clear_staging, scratch_folder, staging_place
from kafkalike.maintenance.staging_prefix import IDLE_MS, Prefix, StagingFolder, abandoned_jobs
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.spark.writes.commit import StagedCommit, commit_results
from kafkalike.spark.writes.staged_files import StagingTarget, TaskResult, stage_topics
from kafkalike.spark.writes.targets import target_of
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Entry
from tests.tools.clusters import object_store
from tests.tools.fault_proxy import fault_proxy
from tests.tools.object_servers import S3, ObjectServer
from tests.tools.records import everything

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalike.model.record_batch import Appended


@pytest.fixture
def cluster(server: ObjectServer) -> Cluster:
    return Cluster(object_store(server))


def rows(*records: tuple[str, str]) -> pa.RecordBatch:
    """Topic and value of each row, as Spark hands them over."""
    topics, values = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(topics, pa.string()), pa.array(values)], ["topic", "value"])


def staged(target: StagingTarget, folder: StagingFolder, *batches: pa.RecordBatch, task: int = 0) -> TaskResult:
    """The result of a task, whose orders have come from another process."""
    sent, where = pickle.loads(pickle.dumps((target, folder)))  # noqa: S301 - as Spark does it
    result: TaskResult = pickle.loads(pickle.dumps(stage_topics(sent, where, batches, task)))  # noqa: S301
    return result


def commit(cluster: Cluster, folder: StagingFolder, *results: TaskResult) -> Mapping[str, Appended]:
    return commit_results(cluster, None, results, folder.files, StagedCommit(codec="none", timeout_ms=60_000))


def test_records_of_several_tasks_are_numbered_in_their_order_and_nothing_is_left(cluster: Cluster) -> None:
    """Topic by topic; the options of the store go along to the tasks."""
    cluster.create_topic("a", 1, {})
    target = target_of(cluster, None, codec="none")

    with staging_place(cluster.store) as folder:
        first = staged(target, folder, rows(("a", "1"), ("b", "2")), rows(("a", "3")))
        second = staged(target, folder, rows(("a", "4")), task=1)
        between = len(cluster.store.list("__staging", deep=True))
        written = commit(cluster, folder, first, second)

    assert between == 2
    assert {name: dict(done.ranges) for name, done in written.items()} == {"a": {0: range(3)}, "b": {0: range(1)}}
    assert everything(cluster.log("a")) == {0: [(0, "1"), (1, "3"), (2, "4")]}
    assert cluster.store.list("__staging", deep=True) == []
    assert not [found for found in verify(cluster, cluster.topics()).findings if not found.warning]


def test_records_that_wait_for_the_number_of_partitions_are_placed_in_the_store(cluster: Cluster) -> None:
    """The key's partition is 0 of 4 and 2 of 5; nothing that was staged is left."""
    target = target_of(cluster, None, codec="none", names_partitions=True)
    columns = [pa.array(["new"] * 3), pa.array([2, None, 4], pa.int32()), pa.array(["1", "2", "3"])]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array([b"k"] * 3)], ["topic", "partition", "value", "key"])

    with staging_place(cluster.store) as folder:
        commit(cluster, folder, staged(target, folder, batch))

    assert everything(cluster.log("new")) == {0: [], 1: [], 2: [(0, "1"), (1, "2")], 3: [], 4: [(0, "3")]}
    assert cluster.store.list("__staging", deep=True) == []


def test_a_large_task_is_sent_in_parts_and_read_by_ranges(cluster: Cluster) -> None:
    """More than a part, in several streams of one object."""
    cluster.create_topic("a", 3, {})
    values = [f"{n:06}" * 170 for n in range(12_000)]
    target = target_of(cluster, "a", codec="none")
    batch = pa.RecordBatch.from_arrays([pa.array(values)], ["value"])

    with staging_place(cluster.store) as folder:
        result = staged(target, folder, batch)
        written = commit_results(cluster, "a", [result], folder.files, StagedCommit(codec="none", timeout_ms=60_000))

    log = cluster.log("a")
    assert sum(len(run) for run in written["a"].ranges.values()) == len(values)
    assert sorted(value for records in everything(log).values() for _, value in records) == sorted(values)


@pytest.mark.objects
@pytest.mark.slow
def test_what_many_tasks_have_staged_is_fetched_side_by_side(object_server: Callable[[str], ObjectServer]) -> None:
    """One after the other, two hundred small tasks would be two hundred waits for each segment."""
    server = object_server(S3)
    with fault_proxy(server.port) as proxy:
        cluster = Cluster(object_store(server.behind(proxy.port)))
        cluster.create_topic("a", 1, {})
        target = target_of(cluster, "a", codec="none")
        with staging_place(cluster.store) as folder:
            results = [staged(target, folder, rows(("a", str(task))), task=task) for task in range(24)]
            proxy.plan.seconds = {"GET": 0.05}
            proxy.most.clear()
            commit_results(cluster, "a", results, folder.files, StagedCommit(codec="none", timeout_ms=60_000))

        assert proxy.most["GET"] > 8
        assert everything(cluster.log("a")) == {0: [(n, str(n)) for n in range(24)]}


@pytest.mark.parametrize("free", ["room", "none", "one file"])
def test_records_on_the_disk_of_the_machine_are_numbered_as_those_in_the_store(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: str
) -> None:
    """Nothing goes to the store before its segments, unless the disk has no room; and nothing is left in either."""
    cluster.create_topic("a", 3, {})
    monkeypatch.setattr(files, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(files, "HELD_BYTES", 1)
    frees = itertools.chain([free != "none"], itertools.repeat(free == "room"))
    usage = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(path)._replace(free=next(frees) << 60))
    target = target_of(cluster, "a", codec="none")

    with scratch_folder(str(tmp_path), cluster.store) as folder:
        results = [
            staged(target, folder, *[rows(("a", f"{task} {n}")) for n in range(3)], task=task) for task in range(2)
        ]
        near, between = LocalStorage(folder.path).list(), cluster.store.list("__staging", deep=True)
        written = commit_results(cluster, "a", results, folder.files, StagedCommit(codec="none", timeout_ms=60_000))

    assert (len(near), len(between)) == {"room": (6, 0), "none": (1, 6), "one file": (2, 5)}[free]
    assert sum(len(run) for run in written["a"].ranges.values()) == 6
    found = [value for records in everything(cluster.log("a")).values() for _, value in records]
    assert sorted(found) == [f"{task} {n}" for task in range(2) for n in range(3)]
    assert cluster.store.list("__staging", deep=True) == []
    assert list(tmp_path.iterdir()) == []
    assert not [found for found in verify(cluster, cluster.topics()).findings if not found.warning]


@pytest.mark.parametrize("full", [False, True])
def test_a_task_that_outlives_its_job_leaves_nothing_on_the_disk(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    """And what it says is refused: nothing is written of a job whose records are gone."""
    cluster.create_topic("a", 1, {})
    target = target_of(cluster, "a", codec="none")
    if full:
        monkeypatch.setattr(scratch, "ROOM_OF_A_CORE", 1 << 60)
    with scratch_folder(str(tmp_path), cluster.store) as folder:
        early = staged(target, folder, rows(("a", "1")))

    late = staged(target, folder, rows(("a", "2")), task=1)

    assert "FileNotFoundError" in (late.error or "")
    for result in (early, late):
        with pytest.raises(KafkaStorageError):
            commit_results(cluster, "a", [result], folder.files, StagedCommit(codec="none", timeout_ms=60_000))
    assert cluster.log("a").log_end(0) == 0
    assert list(tmp_path.iterdir()) == []
    assert cluster.store.list("__staging", deep=True) == []


def test_a_record_that_is_refused_leaves_no_object(cluster: Cluster) -> None:
    """As its task says so before anything is sent."""
    target = target_of(cluster, None, codec="none")

    with staging_place(cluster.store) as folder:
        result = staged(target, folder, rows(("a", "1"), ("a/b", "2")))
        left = cluster.store.list("__staging", deep=True)

    assert result.refusal == "InvalidTopicError"
    assert left == []


def test_a_job_whose_records_were_removed_has_written_nothing(cluster: Cluster) -> None:
    """It was silent for so long that maintenance took it for dead."""
    cluster.create_topic("a", 1, {})
    place = Prefix.of(cluster.store)
    result = staged(target_of(cluster, None, codec="none"), place, rows(("a", "1")))
    place.remove()

    with pytest.raises(KafkaStorageError, match="there is no such object"):
        commit(cluster, place, result)

    assert cluster.log("a").log_end(0) == 0


@pytest.mark.objects
@pytest.mark.slow
def test_what_a_killed_job_has_left_goes_after_a_week_by_the_clock_of_the_storage(
    object_server: Callable[[str], ObjectServer],
) -> None:
    """And what others stage meanwhile stays; the folder of the server's disk lets a test set the time."""
    server = object_server(S3)
    cluster = Cluster(object_store(server))
    old, new = Prefix.of(cluster.store), Prefix.of(cluster.store)
    for place in (old, new):
        staged(target_of(cluster, None, codec="none"), place, rows(("a", "1")))
    assert server.folder is not None
    (file,) = (server.folder / "data").rglob(f"__staging/{old.files.uri.rpartition('/')[2]}/*")
    week_ago = (SYSTEM_CLOCK.now_ms() - IDLE_MS - 60_000) / 1000

    before = clear_staging(cluster.store, Deadline(SYSTEM_CLOCK, 60_000))
    os.utime(file, (week_ago, week_ago))
    after = clear_staging(cluster.store, Deadline(SYSTEM_CLOCK, 60_000))

    assert (before, after) == (0, 1)
    assert old.files.list() == []
    assert len(new.files.list()) == 1


def test_a_job_is_left_behind_when_none_of_its_files_is_fresh() -> None:
    """A file that was added a moment ago shows that it works, however old the others are."""
    now = 10 * IDLE_MS
    entries = [
        Entry("dead/0", 1, now - IDLE_MS - 2),
        Entry("dead/1", 1, now - IDLE_MS - 1),
        Entry("alive/0", 1, now - 5 * IDLE_MS),
        Entry("alive/1", 1, now - IDLE_MS),
    ]

    assert abandoned_jobs(entries, now) == [["dead/0", "dead/1"]]


def test_a_topic_that_must_exist_is_named(cluster: Cluster) -> None:
    """By the task, in its result."""
    target = StagingTarget(topic=None, known={}, missing=None)

    with staging_place(cluster.store) as folder:
        result = staged(target, folder, rows(("a", "1")))

        with pytest.raises(UnknownTopicOrPartitionError, match="'a' does not exist"):
            commit(cluster, folder, result)
