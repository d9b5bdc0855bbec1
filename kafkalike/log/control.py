"""DeltaControlLog: a small Delta table whose rows make up a state, changed by compare-and-set.

Rows are numbered (`seq`), so that their order survives the merging of files. The table is written in-process only.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from kafkalike.clock import Clock, Deadline
from kafkalike.errors import KafkaError, KafkaStorageError, KafkaTimeoutError, LogCorruptError
from kafkalike.log.arrays import binaries
from kafkalike.log.commits import APPEND_KEY, Add, TableCommit, log_name
from kafkalike.log.condense import Condenser
from kafkalike.log.layout import CONTROL_TABLE_PROPERTIES
from kafkalike.log.lock import TableLock
from kafkalike.log.storage import Files, LocalFiles
from kafkalike.log.tail import TableTail, checkpointed
from kafkalike.log.writer import Commit, as_applied, commit
from kafkalike.model.control_rows import files_to_merge
from kafkalike.model.segments import Segment

_log = logging.getLogger(__name__)

MERGE_INTERVAL: Final = 64
"""Commits between two merges of the table's small files: a new client opens at most so many of them."""

BACKOFF_SECONDS: Final = 0.05
"""Longest random wait before trying again after another writer was faster."""


SHORT_PATIENCE_SECONDS: Final = 0.05
"""How long an impatient writer queues after the lock could not be had the last time."""


class _MissingFileError(FileNotFoundError):
    """A data file that the log names is not there; a table that is not there is a plain `FileNotFoundError`."""


class ControlState(Protocol):
    """A state made of rows."""

    seq: int

    def apply(self, row: Any) -> None:  # noqa: ANN401 - the row type belongs to the state
        """Take in one row; rows that were applied before change nothing."""
        ...


S = TypeVar("S", bound=ControlState)
R = TypeVar("R")


class DeltaControlLog(Generic[S, R]):
    """A control log in a Delta table, which is made at the first write.

    Args:
        files: the table's files.
        schema: its columns; `time` holds the row's `time_ms`.
        row_type: dataclass of a row.
        new_state: makes an empty state.
        lock: the table's lock on a local root; None elsewhere.
        condenser: keeps the table's log short.
        clock: time and waiting.
        jitter: random number from 0 to 1, for the wait after a conflict.
        patience: seconds that a writer queues behind others before it goes on without the lock; None waits. Not for a
            table that somebody changes in several steps under the lock.
    """

    def __init__(
        self,
        files: Files,
        schema: pa.Schema,
        row_type: type[R],
        new_state: Callable[[], S],
        *,
        lock: TableLock | None,
        condenser: Condenser,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        patience: float | None = None,
    ) -> None:
        self.state = new_state()
        self._files = files
        self._schema = schema
        self._row_type = row_type
        self._new_state = new_state
        self._lock = lock
        self._condenser = condenser
        self._clock = clock
        self._jitter = jitter
        self._mutex = threading.RLock()
        self._holding = threading.local()
        self._patience = patience
        self._impatient = False
        """Whether the lock could not be had the last time."""
        self._own: tuple[str, Sequence[R]] = "", ()
        """Path and rows of the file written last, which need not be read again."""
        self._tail = TableTail(files, clock, self._take, self._reload, to_segment=_seq_segment)

    def refresh(self) -> S:
        """Apply rows that others added."""
        with self._mutex:
            self._catch_up()
            return self.state

    def reload(self) -> S:
        """Read the whole table anew, whatever is known of it."""
        with self._mutex:
            self._tail.forget()
            return self.refresh()

    def _catch_up(self) -> None:
        known = self._tail.version >= 0
        try:
            self._tail.refresh()
        except _MissingFileError:
            # Merged away while it was being read: the whole state is there in other files.
            try:
                self._tail.load()
            except _MissingFileError as cause:
                message = f"a file that the log of {self._files.uri} names is missing: {cause}"
                raise LogCorruptError(message) from cause
        except FileNotFoundError as cause:
            if known:
                message = f"the table {self._files.uri} is gone"
                raise LogCorruptError(message) from cause

    def _take(self, change: TableCommit) -> None:
        if not change.data_change:
            return
        for add in change.adds:
            if add.path == self._own[0]:
                for row in self._own[1]:
                    self.state.apply(row)
            else:
                self._apply_file(add.path)

    def _reload(self) -> None:
        fresh = self._new_state()
        rows = [row for segment in self._live_files() for row in self._rows(segment)]
        for row in sorted(rows, key=lambda r: r.seq):  # type: ignore[attr-defined]
            fresh.apply(row)
        self.state = fresh

    @property
    def rows(self) -> list[R]:
        """All rows the table still has, in `seq` order. Reads every file: for checks, not for the hot path."""
        with self._mutex:
            self.refresh()
            rows = [row for path in self._live_files() for row in self._rows(path)]
        return sorted(rows, key=lambda row: row.seq)  # type: ignore[attr-defined]

    def _live_files(self) -> list[str]:
        return [segment.path for segment in self._tail.index]

    def _apply_file(self, path: str) -> None:
        for row in self._rows(path):
            self.state.apply(row)

    def _rows(self, path: str) -> list[R]:
        try:
            table = self._read(path)
        except FileNotFoundError as cause:
            raise _MissingFileError(path) from cause
        except (OSError, pa.ArrowException) as cause:
            message = f"{self._files.uri}/{path} cannot be read: {cause}"
            raise LogCorruptError(message) from cause
        return _to_rows(table, self._row_type)

    def _read(self, path: str) -> pa.Table:
        """A data file. Without pyarrow's threads, which take longer to wake up than a small file takes to be read."""
        return self._files.parquet(path).read(use_threads=False)

    def transact(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile."""
        deadline = Deadline(self._clock, timeout_ms)
        while True:
            with self._in_turn(deadline):
                done = self._attempt(plan)
            if done:
                return
            if deadline.expired():
                message = f"others changed {self._files.uri} faster until time ran out; nothing was written"
                raise KafkaTimeoutError(message)
            self._clock.sleep(self._jitter() * BACKOFF_SECONDS)

    @contextlib.contextmanager
    def _in_turn(self, deadline: Deadline) -> Iterator[None]:
        """Queue behind other writers; but not for ever behind one that was stopped while it held the lock.

        The lock only orders the queue: the compare-and-set is that of the version's file, which appears or exists
        already. Without it, a member that is stopped in the middle of a commit would stop its whole group, and nobody
        could write that its session is over.
        """
        # Each writer reads what all others wrote: here and while it waits, so that little is left to do under the lock.
        self.refresh()
        if self._patience is None or not self._tail.loaded:
            with self.exclusive(deadline):
                yield
            return
        wait = SHORT_PATIENCE_SECONDS if self._impatient else self._patience
        before = self.state.seq
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.exclusive(Deadline(self._clock, min(wait, deadline.remaining()) * 1000)))
                self._impatient = False
            except KafkaTimeoutError:
                if deadline.expired():
                    raise
                # Where rows have come meanwhile, the queue may only be long; after a short wait it says nothing.
                told = self._impatient or self.refresh().seq != before
                self._impatient = True
                if not told:
                    _log.warning("%s: a writer holds the lock and does nothing; going on without it", self._files.uri)
            yield

    @contextlib.contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Keep other writers out over several calls of `transact` of this thread, where the table has a lock.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
        """
        if self._lock is None or getattr(self._holding, "now", False):
            yield
            return
        if isinstance(self._files, LocalFiles):
            self._files.make_root()
        with self._lock.held(deadline, self.refresh):
            try:
                self._holding.now = True
                yield
            finally:
                self._holding.now = False

    def _attempt(self, plan: Callable[[S], Sequence[R]]) -> bool:
        with self._mutex:
            state = self._sound_state()
            rows = plan(state)
            if not rows:
                return True
            if not self._tail.loaded:
                planned_on = state.seq
                self._create()
                if self.state.seq != planned_on:
                    # Another writer made the table and wrote to it: the plan is not about what is there now.
                    return False
            # What another writer may have added between the refresh and here is caught by the commit.
            return self._write(rows)

    def _sound_state(self) -> S:
        """The fresh state, which must have all rows that the log names.

        Raises:
            LogCorruptError: the files lack rows.
        """
        if self.refresh().seq + 1 < self._tail.index.end(0) and self.reload().seq + 1 < self._tail.index.end(0):
            message = (
                f"{self._files.uri}: its log names rows up to {self._tail.index.end(0) - 1}, its files end at row "
                f"{self.state.seq}: rows are lost, and nothing may be written under their numbers"
            )
            raise LogCorruptError(message)
        return self.state

    def _create(self) -> None:
        try:
            if isinstance(self._files, LocalFiles):
                self._files.make_root()
            DeltaTable.create(
                self._files.uri,
                self._schema,
                mode="ignore",
                configuration=dict(CONTROL_TABLE_PROPERTIES),
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except (DeltaError, OSError) as cause:
            # Where there is no lock, another writer may have been faster.
            with contextlib.suppress(FileNotFoundError):
                self._tail.load()
            if not self._tail.loaded:
                message = f"{self._files.uri} cannot be created: {cause}"
                raise KafkaStorageError(message) from cause
        else:
            self._tail.load()

    def _write(self, rows: Sequence[R]) -> bool:
        first = rows[0].seq  # type: ignore[attr-defined]
        if first < self._tail.index.end(0):
            message = f"{self._files.uri}: the number of row {first} is taken; nothing was written"
            raise LogCorruptError(message)
        add = self._add_file(_to_table(rows, self._schema), first, rows[-1].seq, data_change=True)  # type: ignore[attr-defined]
        wanted = self._commit(adds=[add], operation="WRITE")
        if not self._landed(wanted):
            self._files.discard(add.path)
            return False
        self._own = add.path, rows
        self._tail.apply(as_applied(wanted))
        if self._tail.version % MERGE_INTERVAL == 0:
            try:
                if self._lock is None:
                    self._merge_beside_others()
                else:
                    self._merge()
            except (KafkaError, DeltaError, OSError, pa.ArrowException) as cause:
                # The rows are written; merging can wait for the next turn.
                _log.warning("the files of %s were not merged: %s", self._files.uri, cause)
        self._condenser.after_commit(self._tail.version, self._tail.table_id)
        return True

    def _landed(self, wanted: Commit) -> bool:
        """Make a table version; False when another writer was faster.

        Also when that is so long ago that log cleanup has taken his version away: a writer that was stopped between its
        look and its commit, and waited for by nobody, finds the place empty again.
        """
        if not commit(self._files, wanted):
            return False
        if isinstance(self._files, LocalFiles) and self._cleaned_up(wanted.version):
            # Nobody has seen it: who loads the table begins at the checkpoint above it.
            self._files.discard(log_name(wanted.version))
            self._tail.forget()
            return False
        return True

    def _cleaned_up(self, version: int) -> bool:
        """Whether the log is beyond a version, and the one before it is gone."""
        try:
            self._files.size(log_name(version - 1))
        except FileNotFoundError:
            return checkpointed(self._files) >= version
        return False

    def _merge(self) -> None:
        """Put the rows of the latest files into one. Caller: a writer that holds the lock."""
        every = sorted(self._tail.index, key=lambda segment: segment.start)
        count = files_to_merge([segment.num_records for segment in every])
        if not count:
            return
        live = every[-count:]
        table = pa.concat_tables([self._read(s.path) for s in live]).sort_by("seq")
        self._replace_files(live, table)

    def _replace_files(self, live: Sequence[Segment], table: pa.Table) -> bool:
        seqs = table.column("seq")
        add = self._add_file(table, seqs[0].as_py(), seqs[-1].as_py(), data_change=False)
        removes = [
            Add(path=s.path, partition=None, size=s.size_bytes, modification_ms=0, data_change=False, stats={})
            for s in live
        ]
        wanted = self._commit(adds=[add], removes=removes, operation="OPTIMIZE")
        if not self._landed(wanted):
            self._files.discard(add.path)
            return False
        self._tail.apply(as_applied(wanted))
        return True

    def compact(self, keep: Callable[[Sequence[R]], Sequence[R]]) -> tuple[int, int]:
        """Keep only some of the rows, in one file. Readers see the same state, and numbers go on from the last row.

        Args:
            keep: which rows stay, of all in `seq` order; their state must be the same. The last row stays in any case,
                since the next one is numbered from it.

        Returns:
            How many rows there were, and how many stay; equal when nothing was written.

        Raises:
            KafkaTimeoutError: others held the table for a minute.
            KafkaStorageError, UnknownOutcomeError: the write failed, or may have happened.
        """
        with self.exclusive(Deadline(self._clock, 60_000)), self._mutex:
            rows = self.rows
            if not rows:
                return 0, 0
            last = rows[-1]
            kept = list(keep(rows))
            if not kept or kept[-1].seq != last.seq:  # type: ignore[attr-defined]
                kept.append(last)
            live = list(self._tail.index)
            if len(kept) == len(rows) and len(live) == 1:
                return len(rows), len(rows)
            landed = self._replace_files(live, _to_table(kept, self._schema))
            return len(rows), len(kept) if landed else len(rows)

    def fence(self) -> None:
        """Make a table version without rows: a writer that has looked before it must look, and write, anew.

        Raises:
            KafkaTimeoutError: others held the table for a minute.
            KafkaStorageError, UnknownOutcomeError: the write failed, or may have happened.
        """
        with self.exclusive(Deadline(self._clock, 60_000)), self._mutex:
            self.refresh()
            wanted = self._commit(adds=[], operation="WRITE")
            # One that is faster has made that version instead, which does the same.
            if self._tail.loaded and self._landed(wanted):
                self._tail.apply(as_applied(wanted))

    def tidy(self) -> bool:
        """Keep the table's log short; see `Condenser.tidy`."""
        return self._condenser.tidy(self._tail.table_id)

    def live_files(self) -> set[str]:
        """Paths of the table's data files, fresh."""
        with self._mutex:
            self.refresh()
            return set(self._live_files())

    def _merge_beside_others(self) -> None:
        """The same where no lock keeps others out: an append that was faster stays beside the merged file."""
        DeltaTable(self._files.uri).optimize.compact()

    def _commit(self, *, adds: Sequence[Add], operation: str, removes: Sequence[Add] = ()) -> Commit:
        append_id = uuid.uuid4().hex
        return Commit(
            version=self._tail.version + 1,
            time_ms=self._clock.now_ms(),
            operation=operation,
            append_id=append_id,
            adds=adds,
            removes=removes,
            user_metadata=f'{{"{APPEND_KEY}":"{append_id}"}}',
        )

    def _add_file(self, table: pa.Table, low: int, high: int, *, data_change: bool) -> Add:
        name = f"part-{low:010d}-{uuid.uuid4().hex}.parquet"
        try:
            size = self._files.write(name, table, "snappy")
        except (OSError, pa.ArrowException) as cause:
            self._files.discard(name)
            message = f"{self._files.uri}/{name} cannot be written: {cause}"
            raise KafkaStorageError(message) from cause
        stats = {"numRecords": table.num_rows, "minValues": {"seq": low}, "maxValues": {"seq": high}, "nullCount": {}}
        return Add(
            path=name,
            partition=None,
            size=size,
            modification_ms=self._clock.now_ms(),
            data_change=data_change,
            stats=stats,
        )


def _seq_segment(add: Add, files: Files) -> Segment:
    """A data file of a control table: a run of row numbers."""
    try:
        start, stop = int(add.stats["minValues"]["seq"]), int(add.stats["maxValues"]["seq"]) + 1
    except KeyError as cause:
        message = f"{files.uri}/{add.path} has no statistics: an outsider wrote it"
        raise LogCorruptError(message) from cause
    return Segment(
        partition=0,
        start=start,
        stop=stop,
        num_records=int(add.stats["numRecords"]),
        min_timestamp=0,
        max_timestamp=0,
        size_bytes=add.size,
        path=add.path,
    )


def _to_table(rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    columns = []
    for column in schema:
        if column.name == "time":
            columns.append(_column([row.time_ms * 1000 for row in rows], column.type))
        else:
            columns.append(_column([getattr(row, column.name) for row in rows], column.type))
    return pa.table(columns, schema=schema)


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Texts or whole numbers, or None for null; without `pyarrow.array`, see `kafkalike.log.arrays`."""
    if pa.types.is_string(kind):
        return binaries([None if v is None else v.encode() for v in values]).cast(kind)
    held = np.array([0 if v is None else v for v in values], np.dtype(f"int{kind.bit_width}"))
    present = np.array([v is not None for v in values], np.bool_)
    valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(held)])


def _to_rows(table: pa.Table, row_type: type[R]) -> list[R]:
    names = [f.name for f in fields(row_type)]  # type: ignore[arg-type]
    lists = []
    for name in names:
        if name == "time_ms":
            lists.append([t // 1000 for t in table.column("time").cast(pa.int64()).to_pylist()])
        else:
            lists.append(table.column(name).to_pylist())
    return [row_type(**dict(zip(names, row, strict=True))) for row in zip(*lists, strict=True)]
