"""Lock: one writer at a time per table of a local root, across threads and processes.

On a local disk Delta commits by looking whether a file exists and then renaming, and a rename overwrites: two
drivers can lose acknowledged commits. Every writer of a table therefore holds its lock from reading the log end to
the commit. The kernel drops the lock when its holder dies, `kill -9` included.

Two locks make it fair: a writer waits at the turnstile first and lets it go only when it has the table, so one that
has just finished queues behind those that wait, instead of taking the table again.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, TopicAuthorizationFailedError
from kafkalike.log.lock_holder import holder_of

POLL_SECONDS: Final = 0.002
"""Time between two tries; short against the few ms that an append holds the lock."""

LONGEST_NAME: Final = 200
"""Characters of a table's name that its lock's name takes."""


class TableLock:
    """The lock of one table.

    Args:
        folder: where the root keeps its locks; made when missing.
        name: the table's name.
    """

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self._folder = Path(folder)
        self._path = str(self._folder / f"{_file_name(name)}.lock")

    @contextmanager
    def held(self, deadline: Deadline | None = None) -> Iterator[None]:
        """Hold the lock.

        Raises:
            KafkaTimeoutError: others held it until the deadline, which names the one who does; nothing was done.
            TopicAuthorizationFailedError: the root may not be written; nothing was done.
            KafkaStorageError: its file cannot be made or opened; nothing was done.
        """
        limit = deadline or Deadline(SYSTEM_CLOCK, None)
        turnstile = FileLock(self._path + ".turn", thread_local=False)
        table = FileLock(self._path, thread_local=False)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            turnstile.acquire(timeout=_seconds(limit), poll_interval=POLL_SECONDS)
            try:
                table.acquire(timeout=_seconds(limit), poll_interval=POLL_SECONDS)
            finally:
                turnstile.release()
        except Timeout as cause:
            # One that waits at the turnstile may have been stopped there.
            holder = holder_of(self._path) or holder_of(self._path + ".turn")
            message = f"other writers held {self.name!r} until time ran out; nothing was written"
            raise KafkaTimeoutError(message if holder is None else f"{message}; {holder}") from cause
        except PermissionError as cause:
            raise TopicAuthorizationFailedError(f"the lock {self._path} may not be taken: {cause}") from cause
        except OSError as cause:
            if cause.errno == errno.EROFS:
                raise TopicAuthorizationFailedError(f"the root is read-only: {cause}") from cause
            message = f"the lock {self._path} cannot be taken, so nothing was written: {cause}"
            raise KafkaStorageError(message) from cause
        try:
            yield
        finally:
            table.release()


def _file_name(name: str) -> str:
    """The name itself, unless the endings would make it too long for a file; topics may have 249 characters."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def _seconds(deadline: Deadline) -> float:
    left = deadline.remaining()
    return -1 if left == float("inf") else left
