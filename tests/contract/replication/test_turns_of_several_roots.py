"""The turn at a root that is one of several: had by one call where it is free, and let go whatever happens."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kafkalike.errors import KafkaError, KafkaTimeoutError, UnknownOutcomeError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.replication.cluster.broker_coordination import try_lock
from kafkalike.replication.cluster.broker_storage import BrokerStorage
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import NotStoredError
from kafkalike.storage.scheduler import Pace
from kafkalike.storage.table_lock import TableLock
from kafkalike.storage.timeouts import Handle, TimedCalls, calls_of
from tests.tools.clusters import on_three_disks
from tests.tools.effort import examples
from tests.tools.interrupt_copies import Replicated
from tests.tools.interrupts import sweep
from tests.tools.records import batch_now

PLACES = examples(400, 20)
"""Interrupts in the files that have to do with threads and locks."""


def at_once() -> Deadline:
    return Deadline(SYSTEM_CLOCK, 0)


@pytest.fixture
def root(tmp_path: Path) -> BrokerStorage:
    """The first root of a cluster."""
    cluster = on_three_disks(tmp_path)
    cluster.create_topic("t", 1, {})
    cluster.settle()
    root = cluster.store.root_of(1)
    with root.coordination.turn("t", at_once()):
        """Its files are there."""
    return root


def plain(root: BrokerStorage) -> TableLock:
    """The same lock as processes of other releases take it."""
    return TableLock(f"{root.uri}/__locks", "t")


def opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def test_it_keeps_others_out_until_it_is_let_go(root: BrokerStorage) -> None:
    with root.coordination.turn("t", at_once()):
        with pytest.raises(KafkaTimeoutError), root.coordination.turn("t", at_once()):
            pass
        with pytest.raises(KafkaTimeoutError, match="another thread of this process"), plain(root).held(at_once()):
            pass

    with plain(root).held(at_once()), pytest.raises(KafkaTimeoutError), root.coordination.turn("t", at_once()):
        pass
    with root.coordination.turn("t", at_once()):
        pass


def test_nobody_is_overtaken_who_queues(root: BrokerStorage) -> None:
    """Who queues has the lock of the queue's file."""
    with Path(root.uri, "__locks", "t.lock.turn").open("rb+") as queue:
        fcntl.flock(queue, fcntl.LOCK_EX)

        with pytest.raises(KafkaTimeoutError), root.coordination.turn("t", at_once()):
            pass


def test_files_of_it_that_were_removed_are_made_again(root: BrokerStorage) -> None:
    with root.coordination.turn("t", at_once()):
        assert not plain(root).discard()
    assert plain(root).discard()
    assert not list(Path(root.uri, "__locks").glob("t.lock*"))

    with root.coordination.turn("t", at_once()), pytest.raises(KafkaTimeoutError), plain(root).held(at_once()):
        pass


def test_nothing_is_made_where_the_root_is_gone(root: BrokerStorage) -> None:
    Path(root.uri).rename(f"{root.uri}.away")

    with pytest.raises(OSError, match="not there"), root.coordination.turn("t", at_once()):
        pass

    assert not Path(root.uri).exists()


def test_one_that_comes_too_late_is_let_go(tmp_path: Path) -> None:
    """Whoever wanted it has gone on meanwhile."""
    calls, go_on = TimedCalls("/slow", 0.05), threading.Event()
    with TableLock(str(tmp_path), "t").held(at_once()):
        """Its files are there."""

    def slowly() -> int:
        go_on.wait()
        return opened(tmp_path)

    lock = try_lock(calls, "t", slowly)
    with pytest.raises(TimeoutError):
        lock.take()
    lock.release()
    go_on.set()
    while calls.hangs:
        threading.Event().wait(0.001)

    with TableLock(str(tmp_path), "t").held(at_once()):
        pass


def test_one_that_cannot_be_let_go_is_when_the_root_answers_again(tmp_path: Path) -> None:
    calls, stuck = TimedCalls("/stuck", 0.05), threading.Event()
    with TableLock(str(tmp_path), "t").held(at_once()):
        """Its files are there."""
    lock = try_lock(calls, "t", lambda: opened(tmp_path))
    assert lock.take()
    with pytest.raises(TimeoutError):
        calls.call(stuck.wait)

    lock.release()
    with pytest.raises(KafkaTimeoutError), TableLock(str(tmp_path), "t").held(at_once()):
        pass
    stuck.set()

    with TableLock(str(tmp_path), "t").held(Deadline(SYSTEM_CLOCK, 60_000)):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_hold_it(root: BrokerStorage) -> None:
    """The child lives on when the turn is over, and does not let its parent's go when it ends."""
    ended, end = os.pipe()
    with root.coordination.turn("t", at_once()):
        child = os.fork()
        if child == 0:
            os.close(end)
            os.read(ended, 1)
            os._exit(0)
        with pytest.raises(KafkaTimeoutError), plain(root).held(at_once()):
            pass

    with plain(root).held(at_once()):
        pass
    os.close(end)
    os.close(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_is_forked_while_it_is_taken_keeps_nobody_out(tmp_path: Path) -> None:
    """The child has the queue's file open that is closed a moment later."""
    calls = TimedCalls("/forks")
    with TableLock(str(tmp_path), "t").held(at_once()):
        """Its files are there."""
    ended, end = os.pipe()
    children: list[int] = []

    def traced(frame: FrameType, _event: str, _: Any) -> None:
        if frame.f_code.co_name == "_locked" and frame.f_locals["name"] == "t.lock" and not children:
            child = os.fork()
            if child == 0:
                os.close(end)
                os.read(ended, 1)
                os._exit(0)
            children.append(child)

    lock = try_lock(calls, "t", lambda: opened(tmp_path))
    threading.settrace(traced)
    try:
        assert lock.take()
    finally:
        threading.settrace(None)
    lock.release()

    try:
        with TableLock(str(tmp_path), "t").held(at_once()):
            pass
    finally:
        os.close(end)
        os.close(ended)
        os.waitpid(children[0], 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_root_that_hangs(
    root: BrokerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To close a file of it may hang, too; in a child, filelock closes the locks that other tests have left."""
    parent, close, calls = os.getpid(), os.close, calls_of(root.uri)
    monkeypatch.setattr(calls, "seconds", 0.05)

    def close_or_hang(handle: int) -> None:
        if os.getpid() != parent and root.uri in os.readlink(f"/proc/self/fd/{handle}"):  # noqa: PTH115
            signal.pause()
        close(handle)

    monkeypatch.setattr(os, "close", close_or_hang)

    with root.coordination.turn("t", Deadline(SYSTEM_CLOCK, 10_000)):
        child = os.fork()
        if child == 0:
            os._exit(7)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def stuck_with_lock(folder: Path, error: OSError | None = None) -> tuple[TimedCalls, Handle, threading.Event]:
    """Calls of which one hangs until an event, and then fails; and a lock that is had."""
    calls, stuck = TimedCalls("/stuck", 0.05), threading.Event()
    with TableLock(str(folder), "t").held(at_once()):
        """Its files are there."""
    lock = try_lock(calls, "t", lambda: opened(folder))
    assert lock.take()

    def hang() -> None:
        stuck.wait()
        if error is not None:
            raise error

    with pytest.raises(TimeoutError):
        calls.call(hang)
    return calls, lock, stuck


def test_one_that_cannot_be_let_go_is_when_what_hung_ends_at_that_moment(tmp_path: Path) -> None:
    """Nothing else is asked of the root afterwards."""
    calls, lock, stuck = stuck_with_lock(tmp_path)

    def traced(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        name, caller = frame.f_code.co_name, frame.f_back
        if name == "hangs" and event == "return" and caller and caller.f_code.co_name == "defer":
            stuck.set()
            while calls.hangs:
                threading.Event().wait(0.001)
        return traced if name in {"defer", "hangs"} else None

    sys.settrace(traced)
    try:
        lock.release()
    finally:
        sys.settrace(None)

    with TableLock(str(tmp_path), "t").held(Deadline(SYSTEM_CLOCK, 10_000)):
        pass


def test_one_that_cannot_be_let_go_is_when_what_hung_fails(tmp_path: Path) -> None:
    """As it does where a mount that hung is taken away."""
    _, lock, stuck = stuck_with_lock(tmp_path, OSError(errno.EIO, "gone"))
    lock.release()
    stuck.set()

    with TableLock(str(tmp_path), "t").held(Deadline(SYSTEM_CLOCK, 10_000)):
        pass


def test_earlier_look_does_not_count_for_those_who_ask_later(tmp_path: Path) -> None:
    """The table goes after one thread has looked, and before another one begins."""
    log = on_three_disks(tmp_path)
    log.create_topic("t", 1, {})
    topic = log.log("t")
    topic.append(batch_now("a"))
    table = topic._table
    table.refresh()
    table.check_there()
    for version in tmp_path.glob(f"*/{topic.info.location}/_delta_log/*.json"):
        version.unlink()

    with pytest.raises((KafkaError, OSError)):
        table.check_there(Pace(since=SYSTEM_CLOCK.monotonic()))


@pytest.mark.slow
def test_a_put_that_was_given_up_and_lands_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though all disks are full when it is tried again: who is told that nothing was written sends again."""
    cluster = on_three_disks(tmp_path, **{"replica.lag.time.max.ms": "100"})
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    log.append(batch_now("before"))
    puts: list[str] = []
    given_up, landed = threading.Event(), threading.Event()
    real_put, real_error = LocalStorage.put_if_absent, TimedCalls.timed_out

    def put(self: LocalStorage, name: str, content: bytes, *, durable: bool = False) -> bool:
        if not self.uri.endswith(log.info.location) or not name.endswith(".json"):
            return real_put(self, name, content, durable=durable)
        puts.append(self.uri)
        if len(puts) > 1:
            raise NotStoredError(errno.ENOSPC, "no room", name)
        given_up.wait()
        made = real_put(self, name, content, durable=durable)
        landed.set()
        return made

    def error(self: TimedCalls) -> OSError:
        given_up.set()
        landed.wait()
        return real_error(self)

    for folder in cluster.store.roots.values():
        monkeypatch.setattr(calls_of(folder.uri), "seconds", 0.1)
    monkeypatch.setattr(LocalStorage, "put_if_absent", put)
    monkeypatch.setattr(TimedCalls, "timed_out", error)

    with pytest.raises(UnknownOutcomeError):
        log.append(batch_now("in doubt"))

    assert len(puts) > 1


class Strict(Replicated):
    """An append after which the turn is free, at once, and no descriptor is left."""

    def judge(self) -> Iterator[str]:
        lock = TableLock(str(self.roots / "1" / "__locks"), self.cluster.topic("t").location)
        with contextlib.ExitStack() as held:
            try:
                # A thread may be about to let it go.
                held.enter_context(lock.held(Deadline(SYSTEM_CLOCK, 10_000)))
            except KafkaTimeoutError as cause:
                yield str(cause)
        yield from super().judge()
        if left := [link for link in _open_files() if str(self.roots) in link and "__locks" in link]:
            yield f"open are {left}"


def _open_files() -> Iterator[str]:
    for handle in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115


@pytest.mark.slow
@pytest.mark.parametrize(
    "within",
    ["storage/timeouts.py", "cluster/broker_coordination.py", "cluster/broker_storage.py", "tables/protocol_runner.py"],
)
def test_an_append_that_is_interrupted_lets_its_turn_go(tmp_path: Path, within: str) -> None:
    """Without the garbage collector, which would do it some time."""
    gc.disable()
    try:
        found = sweep(lambda: Strict(tmp_path), most=PLACES, within=within)
    finally:
        gc.enable()

    assert not found.wrong, str(found)
    assert found.raised > 0
