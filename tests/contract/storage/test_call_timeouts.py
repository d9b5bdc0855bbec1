"""Calls of a storage that may hang for ever: their callers wait for a while, and few threads hang."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalike.errors import KafkaConnectionError
from kafkalike.replication.cluster.broker_storage import BrokerStorage, FolderRoot
from kafkalike.replication.cluster.root_sign import Founding
from kafkalike.storage import timeouts
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.memory import MemoryStorage
from kafkalike.storage.timeouts import MAX_HUNG_CALLS, Handle, TimedCalls, TimedFile, calls_of, extend_timeout


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Set when the storage answers again."""
    event = threading.Event()
    yield event
    event.set()


def hang(calls: TimedCalls, until: threading.Event) -> None:
    with pytest.raises(TimeoutError, match="no answer"):
        calls.call(until.wait)


def test_what_a_call_returns_and_raises_comes_to_its_caller() -> None:
    calls = TimedCalls("/x")

    assert calls.call(lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        calls.call(lambda: open("/there/is/no/such/file"))  # noqa: PTH123, SIM115
    assert not calls.hangs


def test_one_that_hangs_is_given_up_and_others_are_refused_at_once(stuck: threading.Event) -> None:
    calls = TimedCalls("/x", 0.05)
    hang(calls, stuck)
    asked: list[int] = []

    for _ in range(50):
        with pytest.raises(TimeoutError):
            calls.call(lambda: asked.append(1))

    assert calls.hangs
    assert not asked


def test_it_is_asked_again_when_what_hung_has_ended(stuck: threading.Event) -> None:
    calls = TimedCalls("/x", 0.05)
    ended = threading.Event()

    def hang() -> None:
        stuck.wait()
        ended.set()

    with pytest.raises(TimeoutError):
        calls.call(hang)
    stuck.set()
    ended.wait()

    while calls.hangs:
        threading.Event().wait(0.001)

    assert calls.call(lambda: 7) == 7


def test_one_that_hangs_for_ever_keeps_nobody_out_once_others_are_answered(
    stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "RETRY_SECONDS", 0.0)
    calls = TimedCalls("/x", 0.05)
    hang(calls, stuck)

    assert calls.call(lambda: 7) == 7
    assert not calls.hangs


def test_few_threads_hang(stuck: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "RETRY_SECONDS", 0.0)
    calls = TimedCalls("/of few threads", 0.01)

    for _ in range(5 * MAX_HUNG_CALLS):
        hang(calls, stuck)

    assert len([thread for thread in threading.enumerate() if thread.name.endswith(calls.uri)]) <= MAX_HUNG_CALLS


@pytest.mark.slow
def test_what_nobody_has_open_is_not_asked_when_another_one_hangs(stuck: threading.Event) -> None:
    """A process that opened many clusters, one after another, starts no thread for each of them."""
    closed = [calls_of(f"/closed/{n}") for n in range(20)]
    opened = calls_of("/open")
    del closed

    hang(TimedCalls("/x", timeouts.SUSPECT_SECONDS), stuck)

    names = {thread.name for thread in threading.enumerate()}
    assert f"kafkalike calls of {opened.uri}" in names
    assert not [name for name in names if "/closed/" in name]


def test_threads_of_a_root_that_nobody_has_open_end_at_once() -> None:
    """Their idle time is a minute, in which a process can open and close many clusters."""
    calls, both = TimedCalls("/dropped", 30.0), threading.Barrier(2)
    callers = [threading.Thread(target=calls.call, args=(both.wait,)) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    workers = [thread for thread in threading.enumerate() if thread.name == "kafkalike calls of /dropped"]
    del calls, caller, callers

    for worker in workers:
        worker.join(timeouts.IDLE_SECONDS / 2)

    assert [worker.is_alive() for worker in workers] == [False, False]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_makes_its_calls_in_threads_of_its_own() -> None:
    calls = calls_of("/forked")
    assert calls.call(lambda: 7) == 7

    child = os.fork()
    if child == 0:
        answer = 0
        try:
            answer = calls.call(lambda: 7)
        finally:
            os._exit(answer)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.slow
def test_one_that_goes_on_part_by_part_is_waited_for() -> None:
    calls = TimedCalls("/x", 1.0)

    def long() -> int:
        for _ in range(13):
            threading.Event().wait(0.1)
            extend_timeout()
        return 7

    assert calls.call(long) == 7


def test_calls_of_a_call_are_made_at_once() -> None:
    calls = TimedCalls("/x", 5)

    assert calls.call(lambda: calls.call(threading.get_ident) == threading.get_ident())


@pytest.mark.slow
def test_roots_that_hang_are_all_known_after_one_wait(stuck: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one is asked while the first one is waited for, and nobody waits for it again."""
    first, second = calls_of("/hangs/first"), calls_of("/hangs/second")
    first.seconds = second.seconds = timeouts.SUSPECT_SECONDS + 0.2
    monkeypatch.setattr(os.path, "lexists", lambda path: "second" in str(path) and stuck.wait())

    hang(first, stuck)
    asked: list[str] = []
    while not second.hangs:
        threading.Event().wait(0.001)
    with pytest.raises(TimeoutError):
        second.call(lambda: asked.append("second"))

    assert not asked


def test_only_the_root_that_hangs_is_taken_for_one_that_does(stuck: threading.Event) -> None:
    first, second = TimedCalls("/first", 0.05), TimedCalls("/second", 0.05)

    hang(first, stuck)

    assert [first.hangs, second.hangs] == [True, False]
    assert second.call(lambda: 7) == 7


def test_call_of_another_root_within_a_call_counts_for_that_root(stuck: threading.Event) -> None:
    first, second = TimedCalls("/first", 60), TimedCalls("/second", 0.05)

    with pytest.raises(TimeoutError, match="no answer"):
        first.call(lambda: second.call(stuck.wait))

    assert [first.hangs, second.hangs] == [False, True]


def test_calls_one_after_the_other_are_made_by_one_thread() -> None:
    calls = TimedCalls("/one thread")

    made = {calls.call(threading.get_ident) for _ in range(50)}

    assert len(made) == 1
    assert made != {threading.get_ident()}


def test_calls_side_by_side_do_not_wait_for_each_other() -> None:
    calls, meeting = TimedCalls("/side by side", 60), threading.Barrier(3)
    callers = [threading.Thread(target=lambda: calls.call(meeting.wait)) for _ in range(3)]

    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)

    assert not meeting.broken
    assert not any(caller.is_alive() for caller in callers)


def test_file_that_opens_too_late_is_closed(tmp_path: Path, stuck: threading.Event) -> None:
    """Nobody else would ever close it."""
    calls, path = TimedCalls("/late", 0.05), tmp_path / "file"
    path.write_bytes(b"content")
    opened = os.open

    def slowly(name: str, flags: int) -> int:
        stuck.wait()
        return opened(name, flags)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "open", slowly)
        with pytest.raises(TimeoutError):
            TimedFile(calls, str(path))
        stuck.set()
        while calls.hangs:
            threading.Event().wait(0.001)

    assert str(path) not in {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if exists(fd)}  # noqa: PTH115, PTH208


def test_abandoned_file_is_closed_at_once_when_its_root_is_collected_first(tmp_path: Path) -> None:
    """Both are in one cycle, and the garbage collector ends the root's threads before it closes the file."""
    (tmp_path / "f").write_bytes(b"x")
    calls = TimedCalls(str(tmp_path), 0.05)
    file = TimedFile(calls, str(tmp_path / "f"))
    descriptor = file._file.descriptor
    vars(calls)["file"] = file

    del calls, file
    gc.collect()

    assert not exists(str(descriptor))


def exists(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def test_deferred_call_is_made_when_the_call_that_hangs_ends(stuck: threading.Event) -> None:
    calls, made = TimedCalls("/deferred", 0.05), threading.Event()
    hang(calls, stuck)

    calls.defer(made.set)
    assert not made.is_set()
    stuck.set()

    assert made.wait(60)


def test_interrupt_before_a_call_is_handed_over_loses_no_later_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = TimedCalls("/interrupted", 60)
    assert calls.call(lambda: 7) == 7

    class Interrupted:
        def put(self, _: object) -> None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(calls, "_waiting", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            calls.call(lambda: 8)

    assert [calls.call(lambda n=n: n) for n in range(5)] == [0, 1, 2, 3, 4]  # type: ignore[misc]
    assert not calls.hangs


def test_handle_that_is_released_twice_is_closed_once(tmp_path: Path) -> None:
    calls, closed = TimedCalls("/handle"), list[int]()
    path = tmp_path / "file"
    path.touch()

    def close(descriptor: int) -> None:
        os.close(descriptor)
        closed.append(descriptor)

    handle = Handle(calls, lambda: os.open(path, os.O_RDONLY), close)
    assert handle.take()
    handle.release()
    handle.release()

    assert len(closed) == 1


def test_file_whose_size_cannot_be_had_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"x")
    calls = TimedCalls(str(tmp_path))

    def refused(_: int) -> os.stat_result:
        raise OSError(5, "no size")

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    monkeypatch.setattr(os, "fstat", refused)
    with pytest.raises(OSError, match="no size"):
        TimedFile(calls, str(tmp_path / "f"))
    monkeypatch.undo()

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def folder_root(path: Path) -> BrokerStorage:
    path.mkdir()
    return BrokerStorage(FolderRoot(LocalStorage(str(path)), Founding(False)))  # noqa: FBT003


def test_one_hung_folder_does_not_refuse_the_writes_of_a_cluster(tmp_path: Path, stuck: threading.Event) -> None:
    root = folder_root(tmp_path / "hung")
    root.root.calls.seconds = 0.05  # type: ignore[attr-defined]
    hang(root.root.calls, stuck)  # type: ignore[attr-defined]

    with pytest.raises(KafkaConnectionError, match="gives no answer"):
        root.coordination.check_writable()


def test_copy_of_a_missing_file_to_another_kind_of_storage_leaves_nothing(tmp_path: Path) -> None:
    target = MemoryStorage()

    with pytest.raises(FileNotFoundError):
        LocalStorage(str(tmp_path)).copy("gone", target, "x")

    assert target.list() == []
