"""Condense: a table's log in; a checkpoint that spares readers the single commits, and a shorter log, out.

It costs some 100 ms, which no append shall take: where the table has locks, a thread of its own does it, after the
commit and without the table's lock. A lock of its own sees to it that one does it at a time, so that checkpoints never
go back, and that it is over before a topic's folder goes: a late file would bring the folder back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.errors import KafkaError
from kafkalike.latch import Latch
from kafkalike.log.lock import TableLock
from kafkalike.log.storage import Files
from kafkalike.log.tail import checkpointed

CHECKPOINT_INTERVAL: Final = 100
"""Commits between two checkpoints; the tables' own `delta.checkpointInterval`."""

CLEANUP_INTERVAL: Final = 10 * CHECKPOINT_INTERVAL
"""Commits between two clean-ups of the log by writers: each lists the whole folder for what is an hour or a day old."""

THREAD_NAME: Final = "kafkalike-checkpoint"


class Helpers:
    """Threads that condense the tables of one cluster. Thread-safe.

    They are no daemons: a process that ends waits for them, 100 ms as a rule.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._threads: dict[threading.Thread, Latch] = {}
        """Those at work, with what is opened when they are done."""

    def start(self, work: Callable[[], object]) -> None:
        """Do it in a thread, or at once where no thread can be had (any more)."""
        thread = threading.Thread(target=self._run, args=(work,), name=THREAD_NAME, daemon=False)
        with self._mutex:
            self._threads[thread] = Latch()
        try:
            thread.start()
        except RuntimeError:
            with self._mutex:
                del self._threads[thread]
            work()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        finally:
            with self._mutex:
                self._threads.pop(threading.current_thread()).open()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for what is under way; `seconds` is how long at most, None without end."""
        limit = Deadline(SYSTEM_CLOCK, None if seconds is None else seconds * 1000)
        with self._mutex:
            at_work = [done for thread, done in self._threads.items() if thread.ident is not None]
        # `Thread.join` marks a thread that runs as ended when it is interrupted; the interpreter would not wait for it.
        for done in at_work:
            done.wait(limit.remaining())


class Condenser:
    """Keeps the log of one table short.

    Args:
        files: the table.
        lock: who condenses holds it; None where the root has no locks, and the committing thread does the work.
        helpers: do the work elsewhere.
    """

    def __init__(self, files: Files, lock: TableLock | None, helpers: Helpers) -> None:
        self._files = files
        self._lock = lock
        self._helpers = helpers

    def after_commit(self, version: int, table_id: str) -> None:
        """Condense every `CHECKPOINT_INTERVAL` versions.

        Failing is harmless: the log stays the truth, and the next time is soon.

        Args:
            version: the one just made.
            table_id: id of its table.
        """
        if version % CHECKPOINT_INTERVAL or not version:
            return
        if self._lock is None:
            self._condense(version, table_id)
        else:
            self._helpers.start(lambda: self._condense(version, table_id))

    def tidy(self, table_id: str) -> bool:
        """Condense now, with a checkpoint of the newest version if the last one is far behind.

        Returns:
            Whether it worked. Failing, or another who is at it, is harmless: the next run tries again.
        """
        return self._condense(None, table_id)

    def _condense(self, version: int | None, table_id: str) -> bool:
        if self._lock is None:
            return self._condensed(version, table_id)
        try:
            with self._lock.held(Deadline(SYSTEM_CLOCK, 0)):
                return self._condensed(version, table_id)
        except KafkaError:
            return False

    def _condensed(self, version: int | None, table_id: str) -> bool:
        """A checkpoint of a version that was just made; of the newest one, None, if the last is far behind."""
        last = checkpointed(self._files)
        try:
            if version is not None and last >= version:
                return True
            table = DeltaTable(self._files.uri, version=version)
            if str(table.metadata().id) != table_id:
                # The topic is gone, and another one has its name.
                return False
            if version is not None or table.version() - last >= CHECKPOINT_INTERVAL:
                table.create_checkpoint()
            if version is None or not version % CLEANUP_INTERVAL:
                table.cleanup_metadata()
        except (DeltaError, OSError):
            return False
        return True
