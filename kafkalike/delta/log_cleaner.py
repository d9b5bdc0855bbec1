"""Log cleaner: writes a table's checkpoints and bundles after commits, and removes expired files of its log.

A checkpoint costs 10 ms and more, so a thread of its own writes it after the commit. One process at a time does so:
then checkpoints never go back, and none is written into the folder of a deleted topic, which a late file would restore.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkalike.delta.actions import log_name
from kafkalike.delta.log_files import (
    CHECKPOINT_INTERVAL,
    FAR_SHARE,
    SHARE,
    checkpoint_name,
    clean_log,
    is_clean,
    is_due,
    last_checkpoint,
    named_checkpoint,
)
from kafkalike.delta.snapshot import LogSnapshot, load_snapshot
from kafkalike.delta.table_change import Landed, cleaning_turn
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.concurrency import Latch, inherited
from kafkalike.storage.port import Storage, copies_of

if TYPE_CHECKING:
    from kafkalike.delta.commit_bundles import CommitBundler

CLEANUP_INTERVAL: Final = 10 * CHECKPOINT_INTERVAL
"""Commits between two clean-ups by writers, because each clean-up lists the whole log."""

THREAD_NAME: Final = "kafkalike-checkpoint"


class Helpers:
    """Threads that keep the logs of one cluster's tables short. Thread-safe.

    They are not daemons: a process that ends waits for them, usually 100 ms.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._threads: dict[threading.Thread, Latch] = {}
        """Running threads, each with the latch that opens at its end."""
        inherited.add(self)

    def in_child(self) -> None:
        """Forget the threads of the parent, which a forked child does not have."""
        self._mutex, self._threads = threading.Lock(), {}

    def start(self, work: Callable[[], object]) -> None:
        """Run `work` in a thread; run it here if no thread can be started, as at the interpreter's shutdown."""
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
        """Wait for the threads and their own threads; `seconds` is the longest wait, None waits without end."""
        limit = Deadline(SYSTEM_CLOCK, None if seconds is None else seconds * 1000)
        while not limit.expired():
            with self._mutex:
                at_work = [done for thread, done in self._threads.items() if thread.ident is not None]
            if not at_work:
                return
            # Not `Thread.join`: interrupted, it marks a running thread as ended, and the interpreter would not wait.
            for done in at_work:
                done.wait(limit.remaining())


class LogCleaner:
    """Keeps the log of one table short.

    Args:
        root: the cluster's files.
        location: the table's folder below it.
        helpers: threads that do the work.
        clock: the time.
        rare: True for a rarely changed table: each commit is bundled at once, with the data files.
    """

    def __init__(self, root: Storage, location: str, helpers: Helpers, clock: Clock, *, rare: bool = False) -> None:
        self._root = root
        self._location = location
        self._files = root.at(location)
        self._helpers = helpers
        self._clock = clock
        self._rare = rare
        scheduler = self._files.scheduler
        self._joining = self._bundler() if scheduler.combines and scheduler.is_remote else None
        """None on a disk, where a request is cheap and bundles are not written."""
        self.interval = CHECKPOINT_INTERVAL if self._joining is None else 1
        """`after_commit` has work only for versions that are multiples of this."""

    def _bundler(self) -> CommitBundler:
        from kafkalike.delta.commit_bundles import EACH, EVERY, CommitBundler

        return CommitBundler(self._files, EACH if self._rare else EVERY)

    def after_commit(self, landed: Landed, known: TableState | None) -> None:
        """Bundle commits and write a checkpoint if either is due, in a thread beside the caller.

        Failing is harmless: the log stays the truth, and the next attempt is soon.

        Args:
            landed: the version just made.
            known: the known state of its table; None if another thread has just lost its state. It is not read again
                here, because a failure would look like a failed commit.
        """
        version, joining = landed.version, self._joining
        if joining is not None:
            joining.note(version, landed.content)
        if known is None or version % (self.interval if joining is None else joining.every):
            return
        table_id, paths = known.table_id, known.index.paths
        files, carried = len(paths), tuple(paths) if self._rare else ()

        def due() -> bool:
            said, entries = named_checkpoint(self._files)
            last = _made(self._files, said, version)
            # Of a topic that is merged, most entries are removed files.
            return is_due(version, last, max(files, entries), SHARE if joining is None else FAR_SHARE)

        # In an object store, bundle, checkpoint and even `due` are requests, for which an append must not wait.
        if joining is not None:
            self._helpers.start(
                lambda: _join(joining, version, table_id, carried) and due() and self._clean(version, table_id)
            )
        elif due():
            self._helpers.start(lambda: self._clean(version, table_id))

    def clean(self, table_id: str, seen: TableState | None = None) -> bool:
        """Shorten the log now, with a checkpoint of the newest version if the last one is far behind.

        In an object store a single commit is far behind.

        Args:
            table_id: id of the table.
            seen: the table as the caller has just read it. If nothing is due by that state, the log is not read again.

        Returns:
            True if it worked. A failure, or another process at work, is harmless: the next run tries again.
        """
        return (seen is not None and self._is_short(table_id, seen)) or self._clean(None, table_id)

    def _is_short(self, table_id: str, seen: TableState) -> bool:
        """Return True if the log needs no checkpoint and has no expired file, judged without reading it.

        False for a table with replicas, because each replica has a log of its own.
        """
        if seen.table_id != table_id or seen.damage is not None or self._files.tasks.has_replicas:
            return False
        try:
            # If others have made a later checkpoint, the log is merely read once more.
            if seen.version - seen.checkpoint >= self._fewest():
                return False
            # The table may have been deleted since.
            self._files.size(log_name(seen.version))
            # Without a checkpoint every commit is needed.
            return seen.checkpoint < 0 or is_clean(self._files, self._clock.now_ms(), seen.properties)
        except (KafkaError, OSError):
            return False

    def _fewest(self) -> int:
        """Return the number of commits after which a clean-up writes a checkpoint.

        In an object store each commit above the checkpoint costs a reader a request, so a quiet table gets a checkpoint
        of its last version.
        """
        return 1 if self._files.scheduler.is_remote else CHECKPOINT_INTERVAL

    def _clean(self, version: int | None, table_id: str) -> bool:
        try:
            with self._root.coordination.turn(cleaning_turn(self._location), Deadline(SYSTEM_CLOCK, 0)):
                return self._cleaned(version, table_id)
        except (KafkaError, OSError, pa.ArrowException):
            return False
        finally:
            # Arrow keeps freed memory: 2 KB for each file of the table, until the next checkpoint.
            pa.default_memory_pool().release_unused()

    def _cleaned(self, version: int | None, table_id: str) -> bool:
        known: list[LogSnapshot] = []
        done = [self._cleaned_copy(files, version, table_id, known) for files in copies_of(self._files)]
        return all(done)

    def _cleaned_copy(self, files: Storage, version: int | None, table_id: str, known: list[LogSnapshot]) -> bool:
        """Clean up one replica's log, or the only one.

        Args:
            files: the replica's folder, or the table's.
            version: see `_clean`.
            table_id: id of the table.
            known: the published snapshot at that version, once it was read.
        """
        said, now = last_checkpoint(files), self._clock.now_ms()
        if version is not None and _made(files, said, version) >= version:
            return True
        from kafkalike.delta.checkpoint import fold, make_checkpoint  # most processes never write one

        if not known:
            known.append(load_snapshot(self._files, version, fold=fold))
        snapshot = known[0]
        metadata = snapshot.metadata()
        if metadata.get("id") != table_id:
            # The topic was deleted, and another one has its name.
            return False
        if snapshot.damage is not None:
            return False
        if version is not None or snapshot.newest - _made(files, said, snapshot.newest) >= self._fewest():
            if files is not self._files:
                # A replica's checkpoint may only hold what the replica itself has, because it may have left the chain.
                name = log_name(snapshot.newest)
                if files.look(name) != self._files.look(name):
                    return False
            make_checkpoint(files, snapshot, now)
        if version is None or not version % CLEANUP_INTERVAL:
            note = None if files is self._files else partial(_note_cleaned, files)
            clean_log(files, now, metadata.get("configuration") or {}, note)
        return True


def _join(joining: CommitBundler, version: int, table_id: str, paths: Sequence[str]) -> bool:
    """Bundle the commits up to a version; return True if a checkpoint may be due."""
    with contextlib.suppress(KafkaError, OSError):
        joining.join(version, table_id, paths)
    return version % CHECKPOINT_INTERVAL == 0


def _note_cleaned(replica: Storage, below: int) -> None:
    # Loaded lazily: a process of a single root does not need it.
    from kafkalike.delta.replica_files import note_cleaned

    note_cleaned(replica, below)


def _made(files: Storage, said: int, newest: int) -> int:
    """Return the version of the last checkpoint, -1 without one.

    Another process may have written one above the newest version known here. But a log whose end was lost, such as a
    restored copy, may name a checkpoint that does not exist. It counts as none, or no client would ever write another
    one.

    Args:
        files: the table.
        said: version of the checkpoint that the log names as the last.
        newest: the newest version that is known.
    """
    if said <= newest:
        return said
    try:
        files.size(checkpoint_name(said))
    except FileNotFoundError:
        return -1
    except OSError:
        return said
    return said
