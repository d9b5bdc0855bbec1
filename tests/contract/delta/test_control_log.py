"""What `ControlLog` promises: rows numbered and unique, no change lost; in memory, on Delta and in an object store."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from kafkalike.connect import open_cluster
from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import CHECKPOINT_INTERVAL
from kafkalike.delta.row_table import MERGE_INTERVAL
from kafkalike.errors import LogCorruptError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.works.control_maintenance import compact_control, vacuum_control
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.cluster_state import topic_row
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.memory import MemoryStorage
from tests.tools.clusters import on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from kafkalike.log.cluster.cluster import Cluster


def row(seq: int, offset: int | None, *, group: str = "g", partition: int = 0, metadata: str = "") -> GroupRow:
    return GroupRow(
        seq=seq,
        kind=OFFSET,
        group_id=group,
        topic="orders",
        topic_id="id",
        partition=partition,
        offset=offset,
        metadata=metadata,
        time_ms=1_700_000_000_123,
    )


def commit(cluster: Cluster, *offsets: int, group: str = "g", partition: int = 0) -> None:
    """Commit offsets of one partition, one after the other, in one transaction."""

    def plan(state: GroupsState) -> Sequence[GroupRow]:
        return [row(state.seq + 1 + at, offset, group=group, partition=partition) for at, offset in enumerate(offsets)]

    cluster.groups.transact(plan)


def committed(cluster: Cluster, group: str = "g") -> dict[int, int]:
    offsets = cluster.groups.refresh().group(group).offsets
    return {where.partition: known.position.offset for where, known in offsets.items()}


def create(cluster: Cluster, name: str) -> None:
    """Write the row of a new topic, without a table."""
    info = TopicInfo(name=TopicName(name), topic_id=TopicId(f"id of {name}"), location=name, num_partitions=1)
    cluster.metadata.transact(lambda state: [topic_row(state.seq + 1, 1, info, "created")])


def test_a_new_cluster_has_no_rows(open_control: Callable[[], Cluster]) -> None:
    """Looking makes nothing."""
    state = open_control().groups.refresh()

    assert (state.seq, dict(state.groups)) == (0, {})


def test_rows_are_there_for_the_writer_and_for_others(open_control: Callable[[], Cluster]) -> None:
    """The writer at once, others once they look."""
    writer, reader = open_control(), open_control()
    reader.groups.refresh()

    commit(writer, 5, 7)

    assert committed(writer) == {0: 7}
    assert committed(reader) == {0: 7}
    assert reader.groups.state.seq == 2
    assert committed(open_control()) == {0: 7}


def test_every_column_comes_back(open_control: Callable[[], Cluster]) -> None:
    """Any text, null and the largest numbers; times to the millisecond. The writer knows the same unread."""
    odd = "'; DROP TABLE t -- \n\t`${x}` é漢😀"
    writer = open_control()
    writer.groups.transact(lambda state: [row(state.seq + 1, 2**63 - 1, group=odd, metadata=odd)])

    known = open_control().groups.refresh().group(odd).offsets[TopicPartition("orders", 0)]
    assert writer.groups.state.group(odd).offsets == {TopicPartition("orders", 0): known}

    assert (known.position.offset, known.position.metadata) == (2**63 - 1, odd)
    assert (known.topic_id, known.time_ms, known.position.leader_epoch) == ("id", 1_700_000_000_123, -1)


def test_an_empty_plan_changes_nothing(open_control: Callable[[], Cluster]) -> None:
    """Not even a table is made for it."""
    cluster = open_control()

    cluster.groups.transact(lambda _: [])

    assert cluster.groups.refresh().seq == 0


def test_an_error_of_the_plan_changes_nothing(open_control: Callable[[], Cluster]) -> None:
    """It reaches the caller, and the next transaction works."""
    cluster = open_control()
    commit(cluster, 1)

    def plan(state: GroupsState) -> Sequence[GroupRow]:
        raise LookupError(state.seq)

    with pytest.raises(LookupError):
        cluster.groups.transact(plan)

    commit(cluster, 2)
    assert committed(open_control()) == {0: 2}
    assert cluster.groups.state.seq == 2


def test_a_plan_sees_what_others_wrote(open_control: Callable[[], Cluster]) -> None:
    """A counter that two handles raise in turn."""
    one, two = open_control(), open_control()

    for cluster in (one, two, two, one):
        commit(cluster, committed(cluster).get(0, 0) + 1)

    assert committed(open_control()) == {0: 4}


@pytest.mark.parametrize("threads_per_handle", [1, 2])
def test_counters_in_a_race_lose_no_update(open_control: Callable[[], Cluster], threads_per_handle: int) -> None:
    """Four writers raise one counter five times each; every row has its own number."""
    handles = [open_control() for _ in range(4 // threads_per_handle)] * threads_per_handle
    seen: list[int] = []
    failed: list[BaseException] = []

    def count(cluster: Cluster) -> None:
        def plan(state: GroupsState) -> Sequence[GroupRow]:
            known = state.group("g").offsets.get(TopicPartition("orders", 0))
            return [row(state.seq + 1, (known.position.offset if known else 0) + 1)]

        try:
            for _ in range(5):
                cluster.groups.transact(plan)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failed.append(error)

    threads = [threading.Thread(target=count, args=(cluster,)) for cluster in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    fresh = open_control()
    seen = [r.seq for r in getattr(fresh.groups, "rows", [])]
    assert not failed
    assert committed(fresh) == {0: 20}
    assert seen == list(range(1, 21))


def test_a_state_that_was_handed_out_does_not_change(open_control: Callable[[], Cluster]) -> None:
    """Somebody else may be going through it, in another thread; the topics' state as well as the groups'."""
    cluster = open_control()
    commit(cluster, 5)
    create(cluster, "orders")
    groups, topics = cluster.groups.refresh(), cluster.metadata.refresh()
    offsets = groups.group("g").offsets

    for group, _ in zip("gh", groups.groups.items(), strict=False):
        commit(cluster, 7, group=group)
    for name, _ in zip(["bills"], topics.topics.items(), strict=True):
        create(cluster, name)
    commit(cluster, 8, group="h", partition=3)

    assert [known.position.offset for known in offsets.values()] == [5]
    assert (groups.seq, set(groups.groups), set(topics.topics), set(topics.gone)) == (1, {"g"}, {"orders"}, set())
    assert (set(cluster.groups.state.groups), set(cluster.metadata.state.topics)) == ({"g", "h"}, {"orders", "bills"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "memory"])
def test_merging_files_changes_no_state(root: str, kind: str) -> None:
    """Neither for a handle that ran all the time nor for one that comes later; and few files are left."""

    memory = MemoryStorage()

    def open_cluster() -> Cluster:
        return on_disk(root) if kind == "delta" else Cluster(memory)

    writer, running = open_cluster(), open_cluster()
    running.groups.refresh()

    for n in range(MERGE_INTERVAL + 10):
        commit(writer, n, partition=n % 3)
        if n % 20 == 0:
            running.groups.refresh()

    writer.settle()
    last = MERGE_INTERVAL + 9
    expected = {(last - back) % 3: last - back for back in range(3)}
    assert committed(running) == committed(writer) == committed(open_cluster()) == expected
    fresh = open_cluster()
    assert [r.seq for r in fresh.groups.rows] == list(range(1, MERGE_INTERVAL + 11))
    assert len(fresh.groups.live_files()) < MERGE_INTERVAL
    commit(running, 1_000)
    assert committed(fresh)[0] == committed(writer)[0] == 1_000


@pytest.mark.slow
class ObservedStore(LocalStorage):
    """A folder that notes which files are opened for reading."""

    opened: ClassVar[list[str]] = []

    def at(self, folder: str) -> ObservedStore:
        return ObservedStore(f"{self.uri}/{folder}", self.coordination)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        self.opened.append(name)
        return super().open_input(name, buffer_size)


@pytest.mark.slow
def test_merge_after_own_commits_reads_no_file(root: str) -> None:
    """Opening 64 files took 20 ms within the call of the commit that merges."""
    cluster = Cluster(ObservedStore(root))
    ObservedStore.opened.clear()

    for n in range(2 * MERGE_INTERVAL + 1):
        commit(cluster, n)
    cluster.settle()

    assert len(cluster.groups.live_files()) < MERGE_INTERVAL
    assert ObservedStore.opened == []
    assert [r.offset for r in Cluster(LocalStorage(root)).groups.rows] == list(range(2 * MERGE_INTERVAL + 1))


class MergeStore(LocalStorage):
    """A folder in which the file of a merge is held back, which another thread than the test's must write."""

    begun: ClassVar[threading.Event]
    goes_on: ClassVar[threading.Event]

    def at(self, folder: str) -> MergeStore:
        return MergeStore(f"{self.uri}/{folder}", self.coordination)

    def open_output(self, name: str) -> pa.NativeFile:
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            assert self.goes_on.wait(60)
        return super().open_output(name)


@pytest.mark.slow
def test_commits_do_not_wait_for_the_merge_of_small_files(root: str) -> None:
    MergeStore.begun, MergeStore.goes_on = threading.Event(), threading.Event()
    cluster = Cluster(MergeStore(root))
    numbers = iter(range(10_000))

    while not MergeStore.begun.is_set():
        commit(cluster, next(numbers))
    for _ in range(3):
        commit(cluster, next(numbers))
    before = len(cluster.groups.live_files())
    MergeStore.goes_on.set()
    cluster.settle()

    assert before >= MERGE_INTERVAL
    assert len(cluster.groups.live_files()) < MERGE_INTERVAL
    assert [r.offset for r in Cluster(LocalStorage(root)).groups.rows] == list(range(next(numbers)))


def test_reloading_reads_every_file(root: str) -> None:
    """What is remembered of a file does not hide that it is damaged."""
    cluster = Cluster(ObservedStore(root))
    for n in range(3):
        commit(cluster, n)
    ObservedStore.opened.clear()

    cluster.groups.reload()

    assert sorted(ObservedStore.opened) == sorted(cluster.groups.live_files())


@pytest.mark.slow
def test_a_writer_that_slept_through_log_cleanup_finds_its_version_taken(root: str) -> None:
    """Stopped between its look and its commit, while others made its version and log cleanup took that away."""
    # One that takes no turn is as a writer whose patience has run out.
    sleeper, others = on_disk(root), on_disk(root, queue=False)
    commit(sleeper, 0)
    looked = []

    def plan(state: GroupsState) -> Sequence[GroupRow]:
        looked.append(state.seq)
        if len(looked) == 1:
            for n in range(CHECKPOINT_INTERVAL):
                commit(others, n, partition=1)
            others.settle()
            for version in range(CHECKPOINT_INTERVAL):
                Path(root, "__consumer_offsets", log_name(version)).unlink()
        return [row(state.seq + 1, 7)]

    sleeper.groups.transact(plan)

    assert looked == [1, CHECKPOINT_INTERVAL + 1]
    assert committed(sleeper) == committed(on_disk(root)) == {0: 7, 1: CHECKPOINT_INTERVAL - 1}


class Stopped:
    """The machine's clock; the first one who asks it for the time is stopped there, and something happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile: Callable[[], object] | None = meanwhile

    def now_ms(self) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return SYSTEM_CLOCK.now_ms()

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def sleep(self, seconds: float) -> None:
        SYSTEM_CLOCK.sleep(seconds)


def test_a_writer_stopped_for_hours_before_its_commit_does_not_name_a_file_that_was_cleaned_up(root: str) -> None:
    """It had no patience to wait for the lock, so nothing keeps maintenance from taking its file for a leftover."""
    others = on_disk(root)
    commit(others, 1)
    gone = []

    def hours_later() -> None:
        for path in Path(root, "__consumer_offsets").glob("*.parquet"):
            os.utime(path, (0, 0))
        gone.append(vacuum_control(others, "__consumer_offsets"))

    # It takes no turn, as a writer whose patience has run out.
    sleeper = on_disk(root, queue=False, clock=Stopped(hours_later))

    commit(sleeper, 2)

    assert gone == [1]
    assert committed(on_disk(root)) == committed(sleeper) == committed(others) == {0: 2}


def test_a_holder_that_does_nothing_is_told_of_once(root: str, caplog: pytest.LogCaptureFixture) -> None:
    """A writer whose patience has run out goes on without the lock, and says so when it first does."""
    stopped, writer = (on_disk(root) for _ in range(2))
    commit(stopped, 0)
    writer.groups.refresh()
    writer.groups._turns.patience = 0.01

    with stopped.groups.exclusive(Deadline(SYSTEM_CLOCK, None)):
        for n in range(1, 4):
            commit(writer, n)

    assert committed(stopped) == {0: 3}
    assert [record.message for record in caplog.records if "does nothing" in record.message] == [
        f"{root}/__consumer_offsets: a writer holds the lock and does nothing; going on without it"
    ]


@pytest.mark.parametrize("value", ["{", '{"v": 9}'])
def test_a_row_that_cannot_be_read_stops_every_client_each_time(tmp_path: Path, value: str) -> None:
    """Those that were there and those that come; none goes on as if the row were not there."""
    root = str(tmp_path)
    there = on_disk(root)
    info = there.create_topic("orders", 1, {})
    bad = replace(topic_row(2, 2, info, "changed"), value=value)
    error = UnsupportedVersionError if "v" in value else LogCorruptError
    with pytest.raises(error):
        on_disk(root).metadata.transact(lambda _: [bad])

    for cluster in (there, on_disk(root)):
        for _ in range(3):
            with pytest.raises(error, match="row 2 of __cluster_metadata"):
                cluster.topics()
        with pytest.raises(error, match="row 2 of __cluster_metadata"):
            compact_control(cluster, "__cluster_metadata", dry_run=False)


def test_merge_does_not_land_when_others_have_compacted_meanwhile(tmp_path: Path) -> None:
    """Its file was written before: with it, each row would be there twice."""
    root = str(tmp_path)
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {})
    for ms in range(9):
        cluster.edit_configs("t", lambda _, ms=ms: {"retention.ms": str(1000 + ms)})  # type: ignore[misc]

    cluster.metadata._rows.prepare_merge()
    open_cluster(root).metadata.compact(list)
    cluster.metadata._rows.land_merge(Deadline(SYSTEM_CLOCK, 10_000))

    numbers = [row.seq for row in open_cluster(root).metadata.rows]
    assert len(numbers) == len(set(numbers)) == 10


@pytest.mark.slow
def test_forked_child_leaves_a_prepared_merge_to_its_parent(tmp_path: Path) -> None:
    """Two versions with one file could each remove it from under the other."""
    root = str(tmp_path)
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {})
    for ms in range(9):
        cluster.edit_configs("t", lambda _, ms=ms: {"retention.ms": str(1000 + ms)})  # type: ignore[misc]
    table = cluster.metadata._rows
    table.prepare_merge()

    child = os.fork()
    if child == 0:
        landed = table.land_merge(Deadline(SYSTEM_CLOCK, 10_000))
        os._exit(0 if landed is None and not table.has_merge else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert table.land_merge(Deadline(SYSTEM_CLOCK, 10_000)) is not None
    assert [row.seq for row in open_cluster(root).metadata.rows] == list(range(1, 11))
