"""Locks of tables that are gone: their files can be removed, and a lock never has two owners for it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import filelock
import pytest

from kafkalike.errors import KafkaStorageError, KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.storage.table_lock import TableLock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def at_once() -> Deadline:
    return Deadline(SYSTEM_CLOCK, 0)


def test_the_files_of_a_lock_that_nobody_has_are_removed(folder: Path) -> None:
    """Both of them; and again, when there are none."""
    lock = TableLock(str(folder), "orders")
    with lock.held():
        assert {path.name for path in folder.iterdir()} == lock.files

    assert (lock.discard(), list(folder.iterdir())) == (True, [])
    assert (lock.discard(), list(folder.iterdir())) == (True, [])


def test_a_root_without_locks_gets_none(folder: Path) -> None:
    """Nothing is made only to be removed."""
    assert TableLock(str(folder), "orders").discard()
    assert not folder.exists()


def test_a_lock_that_somebody_has_stays(folder: Path) -> None:
    """And keeps others out."""
    lock = TableLock(str(folder), "orders")

    with lock.held():
        assert not TableLock(str(folder), "orders").discard()
        with pytest.raises(KafkaTimeoutError), TableLock(str(folder), "orders").held(at_once()):
            pass

    assert {path.name for path in folder.iterdir()} == lock.files


def test_a_removed_lock_can_be_taken_again_by_one_at_a_time(folder: Path) -> None:
    """By who knew the old file, too."""
    old = TableLock(str(folder), "orders")
    with old.held():
        pass
    TableLock(str(folder), "orders").discard()

    with old.held(), pytest.raises(KafkaTimeoutError), TableLock(str(folder), "orders").held(at_once()):
        pass


@pytest.mark.slow
def test_no_two_have_the_lock_while_others_remove_its_files(folder: Path) -> None:
    """Writers that wait for the file that is being removed take the new one, each after the other."""
    inside: list[int] = []
    crowds: list[list[int]] = []
    failed: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            for _ in range(100):
                with TableLock(str(folder), "orders").held():
                    inside.append(number)
                    crowds.append(list(inside))
                    inside.remove(number)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failed.append(error)

    def remove() -> None:
        while not done.is_set():
            TableLock(str(folder), "orders").discard()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    remover = threading.Thread(target=remove)
    with ExitStack() as end:
        end.callback(remover.join)
        end.callback(done.set)
        for thread in (*writers, remover):
            thread.start()
        for thread in writers:
            thread.join()

    assert not failed
    assert len(crowds) == 300
    assert all(len(crowd) == 1 for crowd in crowds)


def finalizes(frame: FrameType | None) -> bool:
    """Whether an object is being thrown away: what is raised there, Python only tells."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@pytest.mark.slow
def test_an_interrupt_is_an_interrupt_wherever_filelock_is(folder: Path) -> None:
    """Its clean-up may fail too, and what it raises of both is a group that no caller expects."""
    files = str(Path(filelock.__file__).parent)
    left = 0

    def trace(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        del arg
        if event == "call" and frame.f_code.co_filename.startswith(files) and not finalizes(frame):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    before, tried = sys.gettrace(), 0
    with TableLock(str(folder), "orders").held():
        while left <= 0:
            tried += 1
            left = tried
            sys.settrace(trace)
            try:
                with (
                    pytest.raises((KeyboardInterrupt, KafkaTimeoutError)),
                    TableLock(str(folder), "orders").held(at_once()),
                ):
                    pass
            finally:
                sys.settrace(before)

    assert tried > 10


def test_a_try_that_was_given_up_holds_nothing_when_it_ends_late(tmp_path: Path) -> None:
    """A storage that hung carries it out when nobody waits for it any more."""
    late: list[Callable[[], object]] = []

    def hangs(call: Callable[[], object]) -> object:
        late.append(call)
        raise TimeoutError(errno.ETIMEDOUT, "no answer")

    folder = str(tmp_path / "locks")
    with pytest.raises(KafkaStorageError), TableLock(folder, "t", within=hangs).held(Deadline(SYSTEM_CLOCK, 0)):
        pass
    for call in late:
        call()

    with TableLock(folder, "t").held(Deadline(SYSTEM_CLOCK, 0)):
        pass


def forked(work: Callable[[], object]) -> int:
    """A child process that does some work and then sleeps until it is killed, which the pipe tells."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            work()
            os.write(done, b"1")
            signal.pause()
        os._exit(1)
    os.close(done)
    assert os.read(ready, 1) == b"1"
    os.close(ready)
    return pid


@pytest.mark.parametrize("existing", [False, True], ids=["new lock", "existing lock"])
def test_lock_of_a_killed_process_is_free_although_its_child_lives(tmp_path: Path, *, existing: bool) -> None:
    """The child has inherited the descriptor, and with it the lock, unless it closes it."""
    lock, children = TableLock(str(tmp_path), "t"), tmp_path / "child"
    if existing:
        with lock.held():
            pass
    held = ExitStack()

    def hold_and_fork() -> None:
        held.enter_context(lock.held())
        children.write_text(str(forked(lambda: None)))

    parent = forked(hold_and_fork)
    with pytest.raises(KafkaTimeoutError), TableLock(str(tmp_path), "t").held(at_once()):
        pass
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        with TableLock(str(tmp_path), "t").held(at_once()):
            pass
    finally:
        os.kill(int(children.read_text()), signal.SIGKILL)


def test_child_that_leaves_its_parents_turn_does_not_end_it(tmp_path: Path) -> None:
    """A fork inside of the block runs the rest of it twice."""
    lock = TableLock(str(tmp_path), "t")
    with lock.held():
        pass
    turn = ExitStack()
    turn.enter_context(lock.held())

    child = forked(turn.close)

    with pytest.raises(KafkaTimeoutError), TableLock(str(tmp_path), "t").held(at_once()):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    turn.close()
    with TableLock(str(tmp_path), "t").held(at_once()):
        pass


def test_writer_queues_behind_others_although_the_lock_is_free(tmp_path: Path) -> None:
    """Otherwise a writer that has just finished would overtake those that wait."""
    lock = TableLock(str(tmp_path), "t")
    with lock.held():
        pass
    queued = filelock.FileLock(tmp_path / "t.lock.turn")

    with queued, pytest.raises(KafkaTimeoutError), lock.held(at_once()):
        pass


def test_lock_whose_files_were_removed_is_taken_in_new_ones(tmp_path: Path) -> None:
    """By a cleaning job, or by hand."""
    with TableLock(str(tmp_path), "t").held():
        pass
    for file in tmp_path.iterdir():
        file.unlink()

    with TableLock(str(tmp_path), "t").held():
        with pytest.raises(KafkaTimeoutError), TableLock(str(tmp_path), "t").held(at_once()):
            pass
        assert {file.name for file in tmp_path.iterdir()} == {"t.lock", "t.lock.turn"}
