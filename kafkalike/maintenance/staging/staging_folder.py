"""Staging folder: where a Spark write lies before its commit; also removes what killed writers have left.

On a local root each folder has a lock that says that its writer lives: the kernel drops it with the process. A job that
is spread over processes of which none lives long enough has a lease instead (`staging_lease`). In an object store there
is nothing to hold (`staging_prefix`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock

from kafkalike.delta.layout import LOCKS, STAGING
from kafkalike.errors import KafkaStorageError
from kafkalike.maintenance.staging.scratch import Scratch
from kafkalike.maintenance.staging.staging_lease import DriverProcess, HeldFolder, JobFolder, left_behind, remove_folder
from kafkalike.maintenance.staging.staging_prefix import Prefix, StagingFolder, clear
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.storage.port import Storage
from kafkalike.storage.table_lock import TableLock

JobPlace = JobFolder | Prefix | Scratch
"""Where a job that runs in many processes stages its records."""


def job_place(store: Storage, name: str | None = None, scratch: str | None = None) -> JobPlace:
    """A place for a job of the Spark driver that this process belongs to; a new one without a name.

    Args:
        store: the cluster's root.
        name: that of the job.
        scratch: a folder of this machine that all of its tasks share, if they do and other machines need not see what
            is staged; see `Scratch`.
    """
    if store.coordination.reach != "machine":
        if scratch is not None and Path(scratch).is_dir():
            return Scratch.of(scratch, store, name)
        return Prefix.of(store, name)
    return JobFolder(store.uri, uuid.uuid4().hex if name is None else name, DriverProcess.above())


@contextmanager
def staging_place(store: Storage, clock: Clock = SYSTEM_CLOCK) -> Iterator[StagingFolder]:
    """A place of this write's own, gone afterwards.

    Args:
        store: the cluster's root.
        clock: wall-clock time.

    Raises:
        KafkaStorageError: it cannot be made.
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
    """A folder of this append's own, gone afterwards; folders of writers that have died go as well.

    Args:
        root: a local root.
        clock: wall-clock time.

    Raises:
        KafkaStorageError: it cannot be made.
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
    """Remove what writers that have died left behind; those that live are left alone.

    Args:
        store: the cluster's root.
        deadline: how long to wait for writers that are just beginning.
        clock: wall-clock time.

    Returns:
        How many there were.

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
    """Remove folders whose writers have died. Caller: holds the lock of the staging folder."""
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
