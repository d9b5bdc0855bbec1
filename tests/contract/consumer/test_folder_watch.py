"""A waiting poll is woken by a commit, and looks by itself wherever the kernel does not report one."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer, poll_loop
from kafkalike.consumer.poll_loop import FolderWatch
from kafkalike.errors import IllegalStateError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import GroupStore
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from kafkalike.storage import root_uri as roots
from kafkalike.storage.memory import MemoryStorage
from tests.tools.clusters import on_three_disks
from tests.tools.interrupts import interrupted_at

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

LONG_SECONDS = 60.0
"""A wait that nothing ends fails its test."""


def write(cluster: Cluster, topic: str = "orders") -> None:
    batch = RecordBatch()
    batch.add(0, None, b"v", 1000)
    cluster.log(topic).append(batch)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


@pytest.fixture
def cluster(root: str) -> Cluster:
    cluster = connect(root)
    cluster.create_topic("orders", 1, {})
    cluster.create_topic("bills", 1, {})
    return cluster


@pytest.fixture
def watch() -> Iterator[FolderWatch]:
    watch = FolderWatch()
    yield watch
    watch.close()


def armed(watch: FolderWatch, *logs: TopicLog) -> list[TopicLog]:
    """Have the folders of some logs watched, which has the caller look once more."""
    assert watch.wait(logs, 0)
    assert watch.complete
    return list(logs)


def inotify_descriptors() -> int:
    folder = Path("/proc/self/fd")
    links = []
    for name in list(folder.iterdir()):
        try:
            links.append(str(name.readlink()))
        except FileNotFoundError:
            continue
    return links.count("anon_inode:inotify")


# --- what wakes --------------------------------------------------------------------------------


def test_commit_of_any_watched_topic_ends_the_wait(cluster: Cluster, watch: FolderWatch) -> None:
    logs = armed(watch, cluster.log("orders"), cluster.log("bills"))

    for topic in ("bills", "orders", "bills"):
        writer = threading.Thread(target=write, args=(cluster, topic))
        writer.start()
        assert watch.wait(logs, LONG_SECONDS)
        writer.join()


def test_commit_before_the_wait_is_not_missed(cluster: Cluster, watch: FolderWatch) -> None:
    """It may come between a look and the wait that follows."""
    logs = armed(watch, cluster.log("orders"))

    write(cluster)

    assert watch.wait(logs, LONG_SECONDS)
    assert not watch.wait(logs, 0.01)


def test_commit_of_one_of_three_roots_ends_the_wait(root: str, watch: FolderWatch) -> None:
    """It is published at the leader last."""
    cluster = on_three_disks(root)
    cluster.create_topic("orders", 1, {})
    log = cluster.log("orders")
    logs = armed(watch, log)
    log.refresh()
    version = log.version

    write(cluster)

    assert watch.wait(logs, LONG_SECONDS)
    log.refresh()
    assert log.version == version + 1


def test_files_that_are_no_commits_do_not_wake(cluster: Cluster, root: str, watch: FolderWatch) -> None:
    """A writer's temporary file comes a moment before the commit; a checkpoint says nothing new."""
    logs = armed(watch, cluster.log("orders"))
    folder = Path(root, "orders", "_delta_log")

    for name in (".00000000000000000009.json.1f.tmp", "00000000000000000008.checkpoint.parquet", "_last_checkpoint"):
        (folder / name).write_bytes(b"")

    assert not watch.wait(logs, 0.05)


def test_renamed_commit_wakes(cluster: Cluster, root: str, watch: FolderWatch) -> None:
    """Spark and other engines write a commit under another name first."""
    logs = armed(watch, cluster.log("orders"))
    folder = Path(root, "orders", "_delta_log")
    (folder / "other.tmp").write_bytes(b"{}")

    (folder / "other.tmp").rename(folder / "00000000000000000009.json")

    assert watch.wait(logs, LONG_SECONDS)


def test_poll_returns_a_record_that_comes_while_it_waits(cluster: Cluster, root: str) -> None:
    """Without the kernel's report it would look again after an hour."""
    cluster.tail_interval = 3600.0
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0), TopicPartition("bills", 0)])
        for topic in ("orders", "bills"):
            writer = threading.Timer(0.05, write, args=(connect(root), topic))
            writer.start()
            polled = consumer.poll(timeout_ms=LONG_SECONDS * 1000)
            writer.join()
            assert [tp.topic for tp in polled] == [topic]


# --- where the kernel reports nothing ----------------------------------------------------------


def test_without_a_free_descriptor_the_wait_is_a_sleep(cluster: Cluster, watch: FolderWatch) -> None:
    """As where the user's limit of inotify instances is used up; after some time it is tried again."""
    logs = [cluster.log("orders")]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        woken = watch.wait(logs, 0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (woken, watch.complete) == (False, False)
    watch._named_at -= poll_loop.RENEW_SECONDS
    armed(watch, *logs)


def test_topic_whose_folder_cannot_be_watched_leaves_the_others_watched(
    cluster: Cluster, root: str, watch: FolderWatch
) -> None:
    """As where the user's limit of watches is used up."""
    logs = [cluster.log("orders"), cluster.log("bills")]
    shutil.move(f"{root}/bills", f"{root}/moved")

    watch.wait(logs, 0)
    assert not watch.complete
    write(cluster)

    assert watch.wait(logs, LONG_SECONDS)


def test_network_file_system_is_not_watched(
    cluster: Cluster, root: str, watch: FolderWatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel does not see what other machines write."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {tmp_path.resolve()} rw - nfs4 host:/a rw\n")
    monkeypatch.setattr(roots, "_MOUNTS", mounts)
    monkeypatch.setenv(roots.NETWORK_VARIABLE, "1")
    logs = [cluster.log("orders")]

    before = inotify_descriptors()
    woken = watch.wait(logs, 0.01)

    assert (woken, watch.complete, inotify_descriptors()) == (False, False, before)


def test_cluster_without_folders_costs_no_descriptor(watch: FolderWatch) -> None:
    """In memory and in object stores there is nothing to watch."""
    cluster = Cluster(MemoryStorage())
    cluster.create_topic("orders", 1, {})
    before = inotify_descriptors()

    assert not watch.wait([cluster.log("orders")], 0.01)
    assert inotify_descriptors() == before


def test_folder_that_was_replaced_is_watched_again(
    cluster: Cluster, root: str, watch: FolderWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel watches a folder, and not a name."""
    logs = armed(watch, cluster.log("orders"))
    shutil.copytree(f"{root}/orders", f"{root}/copy")
    shutil.rmtree(f"{root}/orders")
    Path(root, "copy").rename(f"{root}/orders")

    monkeypatch.setattr(poll_loop, "RENEW_SECONDS", 0.0)
    armed(watch, *logs)
    monkeypatch.undo()
    write(connect(root))

    assert watch.wait(logs, LONG_SECONDS)


# --- ends --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_closed_consumer_has_no_descriptor(cluster: Cluster) -> None:
    before = inotify_descriptors()
    consumer = KafkaConsumer("orders", bootstrap_servers=cluster)
    consumer.poll(timeout_ms=20)
    assert inotify_descriptors() == before + 1

    consumer.close()

    assert inotify_descriptors() == before


def test_forked_child_closes_its_copy_and_the_parent_is_woken(cluster: Cluster, watch: FolderWatch) -> None:
    """A child that lived longer would keep the instance, of which a user has 128 as a rule."""
    logs = armed(watch, cluster.log("orders"))
    handle = Path(f"/proc/self/fd/{watch._handle}")
    assert str(handle.readlink()) == "anon_inode:inotify"
    child = os.fork()
    if child == 0:
        os._exit(handle.is_symlink())

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    write(cluster)
    assert watch.wait(logs, LONG_SECONDS)


def test_other_programs_do_not_inherit_the_descriptor(cluster: Cluster, watch: FolderWatch) -> None:
    armed(watch, cluster.log("orders"))

    assert fcntl.fcntl(watch._handle, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


class AlarmError(Exception):
    """What the handler below raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[], object]]:
    def handle(*_: object) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, handle)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.05)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_interrupted_poll_can_be_called_again(cluster: Cluster, alarm: Callable[[], object]) -> None:
    """An exception of a signal's handler ends the wait at once."""
    with KafkaConsumer("orders", bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        alarm()
        with pytest.raises(AlarmError):
            consumer.poll(timeout_ms=LONG_SECONDS * 1000)

        write(cluster)
        assert consumer.poll(timeout_ms=LONG_SECONDS * 1000)


@pytest.mark.slow
def test_watch_that_was_interrupted_anywhere_still_wakes(cluster: Cluster, root: str) -> None:
    """Whether the folders are being named to the kernel, or events are being read."""
    codes = [vars(FolderWatch)[name].__code__ for name in ("wait", "_is_due", "_name", "_open", "_has_commit")]
    logs, folder = [cluster.log("orders")], Path(root, "orders", "_delta_log")
    for instruction in range(2_000):
        watch = FolderWatch()

        def use(watch: FolderWatch = watch) -> None:
            watch.wait(logs, 0)
            (folder / f"{uuid.uuid4()}.json").touch()
            watch.wait(logs, LONG_SECONDS)

        interrupt = interrupted_at(codes, instruction, use)
        if interrupt is not None:
            # Named anew, it may return at once without a commit: that has the caller look.
            watch.wait(logs, 0)
            (folder / f"{uuid.uuid4()}.json").touch()
            assert watch.wait(logs, LONG_SECONDS)
            assert watch.complete
        watch.close()
        if interrupt is None:
            break
    else:
        pytest.fail("it has more instructions than were tried")

    assert instruction > 100


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "in a group"])
def test_poll_whose_consumer_a_signal_handler_closes_ends(cluster: Cluster, root: str, group: str | None) -> None:
    """It neither waits until its time is up nor joins the group again."""
    write(cluster)
    descriptors = inotify_descriptors()
    consumer = KafkaConsumer("orders", bootstrap_servers=root, group_id=group, auto_offset_reset="earliest")
    assert len(consumer.poll(LONG_SECONDS * 1000)) == 1
    before = signal.signal(signal.SIGALRM, lambda *_: consumer.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert consumer.poll(LONG_SECONDS * 1000) == {}
    finally:
        signal.signal(signal.SIGALRM, before)

    assert inotify_descriptors() == descriptors
    with pytest.raises(IllegalStateError, match="KafkaConsumer is closed"):
        consumer.poll(0)


def test_iteration_whose_consumer_a_signal_handler_closes_ends(cluster: Cluster, root: str) -> None:
    write(cluster)
    consumer = KafkaConsumer("orders", bootstrap_servers=root, auto_offset_reset="earliest")
    before = signal.signal(signal.SIGALRM, lambda *_: consumer.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        assert [record.value for record in consumer] == [b"v"]
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
def test_consumer_that_a_signal_handler_closes_while_it_joins_is_no_member(cluster: Cluster, root: str) -> None:
    """The handler's call comes half way into the group, where there is nothing to leave yet."""
    for instruction in range(0, 100, 20):
        group = f"g{instruction}"
        consumer = KafkaConsumer("orders", bootstrap_servers=root, group_id=group)

        def poll(consumer: KafkaConsumer = consumer) -> None:
            assert consumer.poll(LONG_SECONDS * 1000) == {}

        closed: list[bool] = []

        def close(consumer: KafkaConsumer = consumer, closed: list[bool] = closed) -> None:
            consumer.close()
            closed.append(True)

        interrupted_at([GroupMember.join.__code__], instruction, poll, close)

        assert closed == [True]
        assert GroupStore(cluster.groups, group).read().members == {}
