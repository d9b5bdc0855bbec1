"""Staging folder: a root in, a folder for one Spark write out, and what writers that were killed have left removed.

Each folder has a lock that says that its writer lives: the kernel drops it with the process. A job that is spread over
processes of which none lives long enough has a lease instead (`staging_lease`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock

from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.errors import KafkaStorageError
from kafkalike.log.staged.lease import left_behind, remove_folder
from kafkalike.log.store.lock import TableLock
from kafkalike.log.table.layout import LOCKS, STAGING


@contextmanager
def staging_folder(root: str, clock: Clock = SYSTEM_CLOCK) -> Iterator[Path]:
    """A folder of this append's own, gone afterwards; folders of writers that have died go as well.

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
        message = f"{staging}: the storage refused the records, nothing was written: {cause}"
        raise KafkaStorageError(message) from cause
    try:
        yield folder
    finally:
        _remove(folder, lock)


def clear_staging(root: str, deadline: Deadline, clock: Clock = SYSTEM_CLOCK) -> int:
    """Remove what writers that have died left behind; those that live are left alone.

    Args:
        root: a local root.
        deadline: how long to wait for writers that are just beginning.
        clock: wall-clock time.

    Returns:
        How many there were.

    Raises:
        KafkaTimeoutError, KafkaStorageError, TopicAuthorizationFailedError: see `TableLock.held`.
    """
    staging = Path(root, STAGING)
    if not staging.is_dir():
        return 0
    with _exclusive(root, deadline):
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
