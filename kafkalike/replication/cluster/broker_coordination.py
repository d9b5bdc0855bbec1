"""Broker coordination: locks, heartbeats and clocks at the roots of brokers, whose calls may time out."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalike.errors import KafkaConnectionError, KafkaStorageError
from kafkalike.model.groups.sessions import Leases
from kafkalike.replication.cluster.root_sign import Founding, opened_root
from kafkalike.storage.local import LOCKS, LocalStorage
from kafkalike.storage.port import Coordination, Reach
from kafkalike.storage.table_lock import TURN, TableLock, file_of_lock
from kafkalike.storage.timeouts import Handle, TimedCalls

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")

OPEN_FILES: Final = "/proc/self/fd"
"""Linux lists the descriptors of this process here, by number."""

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder."""

LOCK_FLAGS: Final = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a lock's files, which are not created here: without `flock` the existence of a file is the lock."""

LONG: Final = 3.0
"""Factor on the timeout of calls that write, or that force data to the disk."""

MOST_LEASES: Final = 3
"""Number of roots that get each heartbeat; a writer and a reader must share at least one root."""


class BucketRootCoordination(Coordination):
    """Coordinates processes that use a bucket, which may not answer when it is opened.

    Args:
        plain: the bucket's coordination.
    """

    def __init__(self, plain: Coordination) -> None:
        self._plain = plain

    @property
    def reach(self) -> Reach:
        """Return which processes can see the root."""
        return self._plain.reach

    def check_writable(self, *, required: bool = True) -> None:
        """Raise if the root does not isolate concurrent writers."""
        try:
            self._plain.check_writable(required=required)
        except KafkaConnectionError:
            # The first write checks it.
            if required:
                raise

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Wait for this client's turn among other writers."""
        return self._plain.turn(name, deadline, meanwhile)

    def leases(self) -> Leases:
        """Return the heartbeats of group members."""
        return self._plain.leases()

    def now_ns(self) -> int:
        """Return the time by the root's clock, ns."""
        return self._plain.now_ns()


class FolderRootCoordination(Coordination):
    """Coordinates processes that use a folder that may hang.

    Args:
        plain: the folder without timeouts.
        calls: makes calls with timeouts.
        founding: the state of the cluster.
        check: raises `OSError` unless the folder is a root of the cluster.
    """

    def __init__(self, plain: LocalStorage, calls: TimedCalls, founding: Founding, check: Callable[[], object]) -> None:
        self._uri = plain.uri
        self._plain = plain.coordination
        self._calls = calls
        self._founding = founding
        self._check = check

    @property
    def reach(self) -> Reach:
        """Return which processes can see the root."""
        return "machine"

    def check_writable(self, *, required: bool = True) -> None:
        """Raise if the root does not isolate concurrent writers.

        Raises:
            KafkaConnectionError: the root does not answer.
        """
        try:
            self._calls.call(lambda: self._plain.check_writable(required=required), LONG)
        except OSError as cause:
            raise KafkaConnectionError(f"{self._uri} gives no answer: {cause}") from cause

    @contextlib.contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Hold the named lock; one call takes it if it is free."""
        lock, taken = try_lock(self._calls, name, self._open_locks), False
        try:
            try:
                taken = self._founding.done and lock.take()
                # Python leaves out a `finally` if an interrupt hits a `return` in its block.
                if taken:
                    yield
            finally:
                lock.release()
        finally:
            # An interrupt may have prevented the release above.
            lock.release()
        if taken:
            return
        with self._queued(name, deadline, meanwhile):
            yield

    @contextlib.contextmanager
    def _queued(self, name: str, deadline: Deadline, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Queue for the named lock and hold it.

        The lock's folder stays open meanwhile, so the lock is never made in another folder mounted in its place.
        """
        if not self._founding.done or not os.path.isdir(OPEN_FILES):  # noqa: PTH112
            self._check()
            with self._plain.turn(name, deadline, meanwhile):
                yield
            return
        opened = Handle(self._calls, self._open_locks)
        try:
            try:
                opened.take()
                folder = f"{OPEN_FILES}/{opened.descriptor}"
                called = f"{self._uri}/{LOCKS}"
                with TableLock(folder, name, called, self._calls.call).held(deadline, meanwhile):
                    yield
            finally:
                opened.release()
        finally:
            # See `turn`.
            opened.release()

    def _open_locks(self) -> int:
        """Open the folder of locks; create it if it is missing. Caller: a call of the root."""
        self._check()
        with opened_root(self._uri) as root:
            try:
                return os.open(LOCKS, FOLDER, dir_fd=root)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(LOCKS, 0o700, dir_fd=root)
                return os.open(LOCKS, FOLDER, dir_fd=root)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove leftovers of queues."""
        wanted = list(names)
        try:
            return self._calls.call(lambda: self._plain.forget_turns(wanted))
        except OSError:
            return 0

    def leases(self) -> Leases:
        """Return the heartbeats of group members."""
        return TimedLeases(self._plain.leases(), self._calls)

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """Watch a folder for changes."""
        with contextlib.suppress(OSError):
            self._calls.call(lambda: self._plain.watch(folder, add))


class TimedLeases:
    """Leases at a root that may hang. Thread-safe.

    Args:
        leases: the leases at the root.
        calls: makes calls with timeouts.
    """

    def __init__(self, leases: Leases, calls: TimedCalls) -> None:
        self._leases = leases
        self._calls = calls

    def renew(self, group_id: str, member_id: str) -> None:
        """Write a member's heartbeat."""
        self._call(lambda: self._leases.renew(group_id, member_id))

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """Return the time of the last heartbeat by member, ms."""
        wanted = list(member_ids)
        return self._call(lambda: self._leases.read(group_id, wanted))

    def drop(self, group_id: str, member_id: str) -> None:
        """Remove a member's heartbeat."""
        with contextlib.suppress(KafkaStorageError):
            self._call(lambda: self._leases.drop(group_id, member_id))

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return self._calls.call(work)
        except OSError as cause:
            raise KafkaStorageError(f"heartbeats: {cause}") from cause


class SeveralLeases:
    """Heartbeats of group members at several roots; the latest counts. Thread-safe.

    Args:
        alive: returns the brokers whose roots answer, in order.
        leases_at: maps a broker id to the heartbeats at its root.
    """

    def __init__(self, alive: Callable[[], Sequence[int]], leases_at: Callable[[int], Leases]) -> None:
        self._alive = alive
        self._leases_at = leases_at
        self._leases: dict[int, Leases] = {}

    def _asked(self) -> list[Leases]:
        found = []
        for broker in self._alive()[:MOST_LEASES]:
            if broker not in self._leases:
                self._leases[broker] = self._leases_at(broker)
            found.append(self._leases[broker])
        if not found:
            raise KafkaStorageError("heartbeats: no root of the cluster answers")
        return found

    def renew(self, group_id: str, member_id: str) -> None:
        """Write a member's heartbeat."""
        failed: KafkaStorageError | None = None
        done = False
        for leases in self._asked():
            try:
                leases.renew(group_id, member_id)
                done = True
            except KafkaStorageError as cause:
                failed = cause
        if failed is not None and not done:
            raise failed

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """Return the time of the last heartbeat by member, ms."""
        wanted = list(member_ids)
        latest: dict[str, int] = {}
        for leases in self._asked():
            for member, seen in leases.read(group_id, wanted).items():
                latest[member] = max(seen, latest.get(member, 0))
        return latest

    def drop(self, group_id: str, member_id: str) -> None:
        """Remove a member's heartbeat."""
        with contextlib.suppress(KafkaStorageError):
            for leases in self._asked():
                leases.drop(group_id, member_id)


def try_lock(calls: TimedCalls, name: str, open_folder: Callable[[], int]) -> Handle:
    """Return a handle that takes a lock if that is possible at once.

    Args:
        calls: the root's calls.
        name: the table's name.
        open_folder: opens the folder of locks; only within a call.
    """
    file = file_of_lock(name)

    def taken() -> int | None:
        folder = open_folder()
        try:
            queue = _locked(folder, file + TURN)
            if queue is None:
                return None
            try:
                return _locked(folder, file)
            finally:
                # Unlock instead of only closing: a child forked meanwhile has the file open, too.
                _unlock(queue)
        finally:
            os.close(folder)

    return Handle(calls, taken, _unlock)


def _locked(folder: int, name: str) -> int | None:
    """Open and lock a file of a folder; None if that is not possible at once."""
    try:
        descriptor = os.open(name, LOCK_FLAGS, dir_fd=folder)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        # A file that was unlinked before it was locked excludes nobody.
    os.close(descriptor)
    return None


def _unlock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
