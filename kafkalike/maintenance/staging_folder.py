"""Staging folder: where a Spark write lies before its commit, and the removal of what killed writers left behind.

On a local root, a lock on each folder shows that its writer lives: the kernel releases it when the process ends. A job
that is spread over short-lived processes holds a lease instead (`staging_lease`). An object store needs neither
(`staging_prefix`).

A job for an object store whose tasks share a disk with the committing process stages on that disk (`Scratch`, decision
076). Staged in the store, the records would cross the network three times: up, back to the process that numbers them,
and up again as segments. When the disk is nearly full, the remaining records go to the store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from filelock import FileLock

from kafkalike.delta.layout import LOCKS, STAGING
from kafkalike.errors import KafkaStorageError
from kafkalike.maintenance.staging_lease import DriverProcess, HeldFolder, JobFolder, left_behind, remove_folder
from kafkalike.maintenance.staging_prefix import Prefix, StagingFolder, clear
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.storage.failover import FailoverStorage, FailoverWriter
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage
from kafkalike.storage.table_lock import TableLock

T = TypeVar("T")

ROOM_OF_A_CORE: Final = 512 * 1024 * 1024
"""Bytes per core that must be free on the disk when a task starts a file there, which ends at about half that size
(`SEGMENT_BYTES`)."""

_OVERFLOWN: Final = "overflown"
"""A file that shows that some of the job's records are in the object store."""


class OverflowWriter(FailoverWriter):
    """Writes to a folder of this machine, or to another storage when the disk is nearly full.

    Args:
        local: the folder.
        beyond: the other storage.
    """

    def __init__(self, local: Storage, beyond: Storage) -> None:
        self._local = local
        self._beyond = beyond

    def _chosen(self) -> Storage:
        if shutil.disk_usage(self._local.uri).free >= ROOM_OF_A_CORE * (os.cpu_count() or 1):
            return self._local
        Path(self._local.uri, _OVERFLOWN).touch()
        return self._beyond

    def write(self, write: Callable[[Storage], T]) -> T:
        """Write to the storage that has room."""
        return write(self._chosen())

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file in the storage that has room."""
        return self._chosen().open_output(name)

    def at(self, folder: str) -> OverflowWriter:
        """Return the writer of a folder below."""
        return OverflowWriter(self._local.at(folder), self._beyond.at(folder))


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one job; sent to its tasks."""

    path: str
    beyond: Prefix
    """The storage for records that do not fit on the disk."""

    @classmethod
    def of(cls, above: str, store: Storage, name: str | None = None) -> Scratch:
        """Return the folder of a job; a new one without a name.

        Args:
            above: a folder that all tasks of the job can write to, and that is removed with Spark's JVM.
            store: the cluster's root.
            name: the job's name.
        """
        beyond = Prefix.of(store, name)
        return cls(f"{above}/kafkalike-{beyond.files.uri.rpartition('/')[2]}", beyond)

    @property
    def files(self) -> FailoverStorage:
        """The staged files, on the disk and in the storage behind it."""
        local, beyond = LocalStorage(self.path), self.beyond.files
        return FailoverStorage(
            lambda: [local, beyond] if self.overflown() else [local], writer=OverflowWriter(local, beyond)
        )

    def overflown(self) -> bool:
        """Return whether files may be in the storage behind the disk."""
        return Path(self.path, _OVERFLOWN).exists()

    def make(self) -> None:
        """Create the folder unless it exists: on the driver, before the tasks start.

        Raises:
            KafkaStorageError: it cannot be created.
        """
        try:
            Path(self.path).mkdir(exist_ok=True)
        except OSError as cause:
            raise KafkaStorageError(
                f"{self.path}: the disk refused the records, nothing was written: {cause}"
            ) from cause

    def enter(self) -> Scratch:
        """Start to work in the folder.

        Raises:
            FileNotFoundError: the job is over. A task may outlive it, and its files would never be removed.
        """
        Path(self.path).stat()
        return self

    def renew(self) -> None:
        """Do nothing: the job needs no heartbeat."""

    def remove(self) -> None:
        """Remove all staged files; never fails."""
        if self.overflown():
            self.beyond.remove()
        remove_folder(Path(self.path))


@contextmanager
def scratch_folder(above: str, store: Storage) -> Iterator[Scratch]:
    """Yield a folder for one write, and remove it afterwards; see `Scratch.of`."""
    scratch = Scratch.of(above, store)
    scratch.make()
    try:
        yield scratch
    finally:
        scratch.remove()


JobPlace = JobFolder | Prefix | Scratch
"""The staging place of a job that runs in many processes."""


def job_place(store: Storage, name: str | None = None, scratch: str | None = None) -> JobPlace:
    """Return a staging place for a job of the Spark driver above this process; a new one without a name.

    Args:
        store: the cluster's root.
        name: the job's name.
        scratch: a folder of this machine that all tasks share, if other machines do not need the staged files; see
            `Scratch`.
    """
    if store.coordination.reach != "machine":
        if scratch is not None and Path(scratch).is_dir():
            return Scratch.of(scratch, store, name)
        return Prefix.of(store, name)
    return JobFolder(store.uri, uuid.uuid4().hex if name is None else name, DriverProcess.above())


@contextmanager
def staging_place(store: Storage, clock: Clock = SYSTEM_CLOCK) -> Iterator[StagingFolder]:
    """Yield a staging place for one write, and remove it afterwards.

    Args:
        store: the cluster's root.
        clock: wall-clock time.

    Raises:
        KafkaStorageError: it cannot be created.
    """
    if store.coordination.reach == "machine":
        with staging_folder(store.uri, clock) as folder:
            yield HeldFolder(str(folder))
        return
    place = Prefix.of(store)
    try:
        yield place
    finally:
        place.remove()


@contextmanager
def staging_folder(root: str, clock: Clock = SYSTEM_CLOCK) -> Iterator[Path]:
    """Yield a folder for one append, and remove it afterwards; also remove folders of dead writers.

    Args:
        root: a local root.
        clock: wall-clock time.

    Raises:
        KafkaStorageError: it cannot be created.
    """
    staging = Path(root, STAGING)
    folder = staging / uuid.uuid4().hex
    lock = FileLock(f"{folder}.lock", thread_local=False)
    try:
        with _exclusive(root):
            _clear(staging, clock)
            folder.mkdir(parents=True)
            lock.acquire(timeout=0)
    except OSError as cause:
        raise KafkaStorageError(f"{staging}: the storage refused the records, nothing was written: {cause}") from cause
    try:
        yield folder
    finally:
        _remove(folder, lock)


def clear_staging(store: Storage, deadline: Deadline, clock: Clock = SYSTEM_CLOCK) -> int:
    """Remove the staged files of dead writers.

    Args:
        store: the cluster's root.
        deadline: how long to wait for writers that are just starting.
        clock: wall-clock time.

    Returns:
        The number of removed places.

    Raises:
        KafkaTimeoutError, KafkaStorageError, TopicAuthorizationFailedError: see `TableLock.held`.
    """
    if store.coordination.reach != "machine":
        return clear(store)
    staging = Path(store.uri, STAGING)
    if not staging.is_dir():
        return 0
    with _exclusive(store.uri, deadline):
        return _clear(staging, clock)


def _exclusive(root: str, deadline: Deadline | None = None) -> AbstractContextManager[None]:
    return TableLock(f"{root}/{LOCKS}", STAGING).held(deadline)


def _clear(staging: Path, clock: Clock) -> int:
    """Remove folders of dead writers. Caller: holds the lock of the staging folder."""
    cleared = 0
    for left in staging.glob("*/"):
        over = left_behind(left, clock.now_ms())
        if over is not None:
            if over:
                remove_folder(left)
                cleared += 1
            continue
        lock = FileLock(f"{left}.lock", thread_local=False)
        with contextlib.suppress(OSError):
            lock.acquire(timeout=0)
            _remove(left, lock)
            cleared += 1
    return cleared


def _remove(folder: Path, lock: FileLock) -> None:
    remove_folder(folder)
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
