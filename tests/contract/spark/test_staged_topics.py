"""Staged topics: what tasks stage, and the commits that are made of it, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.dead_letter_topic import ensure
from kafkalike.maintenance.staging_lease import HeldFolder
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.spark.writes.commit import StagedCommit, commit_results
from kafkalike.spark.writes.staged_files import StagingTarget, TaskResult, stage_topics
from kafkalike.spark.writes.targets import target_of
from tests.tools.clusters import on_disk
from tests.tools.records import all_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalike.model.record_batch import Appended


@pytest.fixture
def cluster(root: str) -> Cluster:
    return on_disk(root)


def rows(*records: tuple[str | None, str]) -> pa.RecordBatch:
    """Topic and value of each row, as Spark hands them over."""
    topics, values = zip(*records, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(topics, pa.string()), pa.array(values)], ["topic", "value"])


def staged(target: StagingTarget, folder: Path, *batches: pa.RecordBatch, task: int = 0) -> TaskResult:
    """The result of a task, which has come from another process."""
    sent, where = pickle.loads(pickle.dumps((target, HeldFolder(str(folder)))))  # noqa: S301 - as Spark does it
    result: TaskResult = pickle.loads(pickle.dumps(stage_topics(sent, where, batches, task)))  # noqa: S301
    return result


def commit(cluster: Cluster, folder: Path, *results: TaskResult) -> Mapping[str, Appended]:
    return commit_results(
        cluster, None, results, HeldFolder(str(folder)).files, StagedCommit(codec="none", timeout_ms=60_000)
    )


def test_each_topic_gets_its_rows_in_order_and_missing_ones_are_created(
    cluster: Cluster, root: str, tmp_path: Path
) -> None:
    """By the commit: while tasks are at work nothing is created."""
    cluster.create_topic("a", 1, {})
    target = target_of(cluster, None, codec="none")

    first = staged(target, tmp_path, rows(("a", "1"), ("b", "2")), rows(("a", "3")))
    second = staged(target, tmp_path, rows(("b", "4")))
    before = set(cluster.topics())
    written = commit(cluster, tmp_path, first, second)

    assert before == {"a"}
    assert {name: dict(done.ranges) for name, done in written.items()} == {"a": {0: range(2)}, "b": {0: range(2)}}
    assert all_records(root, "a") == {0: [(0, "1"), (1, "3")]}
    assert sorted(value for _, value in all_records(root, "b")[0]) == ["2", "4"]


@pytest.mark.parametrize(("topic", "error"), [(None, IllegalArgumentError), ("a/b", InvalidTopicError)])
def test_a_row_without_a_usable_topic_keeps_all_rows_out(
    cluster: Cluster, tmp_path: Path, topic: str | None, error: type[KafkaError]
) -> None:
    """And no topic is created for the others; the task leaves no file."""
    target = target_of(cluster, None, codec="none")

    for task in "12":
        Path(tmp_path, task).mkdir()

    good = staged(target, tmp_path / "1", rows(("new", "1")))
    bad = staged(target, tmp_path / "2", rows(("new", "1")), rows((topic, "2")))

    with pytest.raises(error):
        commit(cluster, tmp_path, good, bad)
    assert cluster.topics() == {}
    assert list((tmp_path / "2").iterdir()) == []


def test_a_missing_topic_that_must_not_be_created_is_refused(root: str, tmp_path: Path) -> None:
    """By its name."""
    strict = on_disk(root, server=ServerProperties.from_properties({"auto.create.topics.enable": "false"}))

    result = staged(target_of(strict, None, codec="none"), tmp_path, rows(("new", "1")))

    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 'new' does not exist.*auto\.create"):
        commit(strict, tmp_path, result)


@pytest.mark.parametrize("configs", [{"max.message.bytes": "100"}, {"cleanup.policy": "compact"}, None])
def test_a_topic_that_is_created_meanwhile_with_other_settings_is_an_error(
    cluster: Cluster, tmp_path: Path, configs: dict[str, str] | None
) -> None:
    """Its records were checked, and given their partitions, by other rules. The next run knows the topic."""
    result = staged(target_of(cluster, None, codec="none"), tmp_path, rows(("new", "1")))
    cluster.create_topic("new", 3 if configs is None else 1, configs or {})

    with pytest.raises(TopicAlreadyExistsError, match="nothing was written; run it again"):
        commit(cluster, tmp_path, result)

    assert cluster.log("new").log_end(0) == 0


def test_a_topic_that_is_created_meanwhile_as_it_would_have_been_is_taken(
    cluster: Cluster, root: str, tmp_path: Path
) -> None:
    """Two writes may begin with the same new topic at the same time."""
    target = target_of(cluster, None, codec="none")
    ours, theirs = (staged(target, tmp_path, rows(("new", value))) for value in ("a", "b"))

    commit(cluster, tmp_path, theirs)
    commit(cluster, tmp_path, ours)

    assert all_records(root, "new") == {0: [(0, "b"), (1, "a")]}


def test_a_topic_is_created_however_long_the_tasks_took(root: str, tmp_path: Path) -> None:
    """The limits of time move with the clock; that is no other setting."""
    clock = ManualClock(1_700_000_000)
    cluster = on_disk(root, clock=clock)

    result = staged(target_of(cluster, None, codec="none"), tmp_path, rows(("a", "1")))
    clock.sleep(3_600)
    written = commit(cluster, tmp_path, result)

    assert dict(written["a"].ranges) == {0: range(1)}


LETTERS = {"kafkalike.retention.clock": "append", "cleanup.policy": "delete"}


@pytest.mark.parametrize("known", [False, True], ids=["missing", "made meanwhile"])
def test_a_missing_dead_letter_topic_takes_whatever_its_source_took(
    cluster: Cluster, root: str, tmp_path: Path, *, known: bool
) -> None:
    """It is known by its name. A letter is longer than its record, may have no key, and is kept from when it came."""
    cluster.create_topic("t", 3, {"max.message.bytes": "100", "cleanup.policy": "compact"})

    result = staged(target_of(cluster, None, codec="none"), tmp_path, rows(("t.dlq", "x" * 1_000)))
    if known:
        ensure(cluster, "t.dlq", "t")
    commit(cluster, tmp_path, result)

    assert all_records(root, "t.dlq") == {0: [(0, "x" * 1_000)]}
    assert {name: cluster.topic("t.dlq").configs[name] for name in LETTERS} == LETTERS


def test_a_topic_that_is_only_called_like_dead_letters_is_one_as_others(cluster: Cluster, tmp_path: Path) -> None:
    """There was no topic whose letters it could have when the job began."""
    names = ("t", "t.dlq", "t.dlq.dlq")

    result = staged(target_of(cluster, None, codec="none"), tmp_path, rows(*((name, "1") for name in names)))
    commit(cluster, tmp_path, result)

    assert [cluster.topic(name).configs for name in names] == [{}, {}, {}]


def test_records_for_an_earlier_life_of_a_topic_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """It was deleted and created again while the job ran."""
    cluster.create_topic("t", 1, {})
    result = staged(target_of(cluster, None, codec="none"), tmp_path, rows(("t", "1")))
    cluster.delete_topic("t")
    cluster.create_topic("t", 1, {})

    with pytest.raises(TopicDeletedError):
        commit(cluster, tmp_path, result)


def test_a_column_timestamp_is_taken_only_if_it_is_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    """The time of the append otherwise."""
    cluster.create_topic("t", 1, {})
    times = pa.array([1_709_209_800_123_999], pa.timestamp("us", "UTC"))
    batch = rows(("t", "1")).append_column("timestamp", times)
    began = cluster.clock.now_ms()

    for wanted in (False, True):
        commit(cluster, tmp_path, staged(target_of(cluster, None, codec="none", timestamps=wanted), tmp_path, batch))

    found = cluster.log("t").segments(0)
    assert found[0].max_timestamp >= began
    assert found[1].max_timestamp == 1_709_209_800_123


# --- partitions that rows name -----------------------------------------------------------------


def named(*records: tuple[str, int | None, str]) -> pa.RecordBatch:
    """Topic, partition and value of each row; the key of all is `k`."""
    topics, partitions, values = zip(*records, strict=True)
    columns = [pa.array(topics, pa.string()), pa.array(partitions, pa.int32()), pa.array(values)]
    keys = pa.array([b"k"] * len(values))
    return pa.RecordBatch.from_arrays([*columns, keys], ["topic", "partition", "value", "key"])


def naming(cluster: Cluster, topic: str | None = None) -> StagingTarget:
    return target_of(cluster, topic, codec="none", names_partitions=True)


def test_records_of_a_task_keep_their_order_when_some_of_them_wait_for_the_number_of_partitions(
    cluster: Cluster, root: str, tmp_path: Path
) -> None:
    """The key's partition is 0 of 4 and 2 of 5; the number comes from another task."""
    target = naming(cluster)

    first = staged(target, tmp_path, named(("new", 2, "1")), named(("new", None, "2"), ("new", 2, "3")))
    second = staged(target, tmp_path, named(("new", 4, "4"), ("new", 2, "5")), task=1)
    commit(cluster, tmp_path, first, second)

    placed = all_records(root, "new")
    assert [value for _, value in placed.pop(2)] == ["1", "2", "3", "5"]
    assert placed == {0: [], 1: [], 3: [], 4: [(0, "4")]}


@pytest.mark.slow
def test_many_records_that_wait_are_placed_as_well(cluster: Cluster, root: str, tmp_path: Path) -> None:
    """More than a task holds at a time, of which it would make a segment otherwise."""
    long = "x" * 900_000
    batches = [named(("new", None if nth else 1, long), ("new", 1, long)) for nth in range(60)]

    commit(cluster, tmp_path, staged(naming(cluster), tmp_path, *batches))

    assert {p: [offset for offset, _ in found] for p, found in all_records(root, "new").items()} == {
        0: list(range(59)),
        1: list(range(61)),
    }


@pytest.mark.parametrize("partition", [pytest.param(-1, id="negative"), pytest.param(10_000, id="too large")])
def test_partition_that_no_topic_can_have_is_refused_and_creates_nothing(
    cluster: Cluster, tmp_path: Path, partition: int
) -> None:
    result = staged(naming(cluster), tmp_path, named(("good", 1, "1"), ("new", partition, "2")))

    with pytest.raises(UnknownTopicOrPartitionError, match=rf"new: partition {partition} does not exist.*10000"):
        commit(cluster, tmp_path, result)

    assert cluster.topics() == {}


def test_topic_that_is_created_meanwhile_with_enough_partitions_is_taken(
    cluster: Cluster, root: str, tmp_path: Path
) -> None:
    """Records without a partition are placed among those that it has: the key's is 0 of 4 and 2 of 5."""
    result = staged(naming(cluster), tmp_path, named(("new", None, "1"), ("new", 3, "2")))
    cluster.create_topic("new", 5, {})

    commit(cluster, tmp_path, result)

    assert all_records(root, "new") == {0: [], 1: [], 2: [(0, "1")], 3: [(0, "2")], 4: []}


def test_topic_that_is_created_meanwhile_with_too_few_partitions_keeps_all_rows_out(
    cluster: Cluster, root: str, tmp_path: Path
) -> None:
    """As by a second writer whose rows name fewer; no other topic is created."""
    target = naming(cluster)
    theirs = staged(target, tmp_path, named(("new", 1, "a")))
    ours = staged(target, tmp_path, named(("first", 1, "b"), ("new", 2, "c")))
    commit(cluster, tmp_path, theirs)

    with pytest.raises(
        UnknownTopicOrPartitionError, match=r"new: partition 2 .*partitions 0 to 1; nothing was written"
    ):
        commit(cluster, tmp_path, ours)

    assert set(cluster.topics()) == {"new"}
    assert all_records(root, "new") == {0: [], 1: [(0, "a")]}


def test_topic_that_is_created_meanwhile_with_other_settings_refuses_rows_with_partitions_too(
    cluster: Cluster, tmp_path: Path
) -> None:
    result = staged(naming(cluster), tmp_path, named(("new", 1, "1")))
    cluster.create_topic("new", 2, {"cleanup.policy": "compact"})

    with pytest.raises(TopicAlreadyExistsError, match="nothing was written; run it again"):
        commit(cluster, tmp_path, result)


def test_missing_topic_of_rows_with_partitions_needs_leave_to_be_created(root: str, tmp_path: Path) -> None:
    strict = on_disk(root, server=ServerProperties.from_properties({"auto.create.topics.enable": "false"}))

    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 'new' does not exist.*auto\.create"):
        naming(strict, "new")
