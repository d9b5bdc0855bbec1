"""DeltaControlLog: a small Delta table whose rows make up a state, changed by compare-and-set.

Rows are numbered (`seq`), so that their order survives the merging of files: a data file of such a table is a run of
row numbers, as a topic's is a run of offsets, and appending rows is appending to a partition 0.
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

from kafkalike.clock import Clock, Deadline
from kafkalike.errors import KafkaError, KafkaStorageError, KafkaTimeoutError, LogCorruptError
from kafkalike.log.store.arrays import binaries
from kafkalike.log.store.parquet import UNREADABLE, is_storage_error, open_parquet, put_parquet
from kafkalike.log.store.port import Store
from kafkalike.log.table.actions import APPEND, Add, TableCommit, creation
from kafkalike.log.table.damage import DamagedFileError
from kafkalike.log.table.layout import CONTROL_TABLE_PROPERTIES, delta_schema
from kafkalike.log.table.log_cleaner import Helpers, LogCleaner
from kafkalike.log.table.state import EndsAt, Live, TableState
from kafkalike.log.table.table import Change, Done, Table
from kafkalike.model.control_rows import files_to_merge
from kafkalike.model.segments import Segment

_log = logging.getLogger(__name__)

MERGE_INTERVAL: Final = 64
"""Commits between two merges of the table's small files: a new client opens at most so many of them."""

SHORT_PATIENCE_SECONDS: Final = 0.05
"""How long an impatient writer queues after its turn could not be had the last time."""

ROWS: Final = 0
"""The partition that all rows belong to; their numbers are its offsets."""


class _MissingFileError(Exception):
    """A data file that the log names is not there."""


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
        root: the cluster's files.
        location: the table's folder below it.
        schema: its columns; `time` holds the row's `time_ms`.
        row_type: dataclass of a row.
        new_state: makes an empty state.
        helpers: threads that keep the table's log short.
        clock: time and waiting.
        jitter: random number from 0 to 1, for the wait after a conflict.
        patience: seconds that a writer queues behind others before it goes on all the same; None waits. Not for a
            table that somebody changes in several steps in one turn.
        durable: whether a row must survive a power failure when it is written.
    """

    def __init__(
        self,
        root: Store,
        location: str,
        schema: pa.Schema,
        row_type: type[R],
        new_state: Callable[[], S],
        *,
        helpers: Helpers,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        patience: float | None = None,
        durable: bool = False,
    ) -> None:
        self._root = root
        self._location = location
        self._files = root.at(location)
        self._schema = schema
        self._row_type = row_type
        self._new_state = new_state
        self._clock = clock
        self._holding = threading.local()
        self._patience = patience
        self._impatient = False
        """Whether the turn could not be had the last time."""
        self._own: tuple[str, Sequence[R]] = "", ()
        """Path and rows of the file written last, which need not be read again."""
        self._state = new_state()
        self._missing_is_damage = False
        """Whether a data file that is not there cannot have been merged away a moment ago."""
        self._exists = False
        """Whether there ever was a table."""
        self._table = Table(self._files, clock, to_segment=seq_segment, follower=self, jitter=jitter, durable=durable)
        self._cleaner = LogCleaner(root, location, helpers, clock)

    # --- following -----------------------------------------------------------------------------

    @property
    def state(self) -> S:
        """The state as of the last `refresh`; read anew when that was interrupted."""
        if self._exists and not self._table.loaded:
            return self.refresh()
        return self._state

    def refresh(self) -> S:
        """Apply rows that others added."""
        with self._table.mutex:
            try:
                self._look()
            except _MissingFileError:
                # Merged away while it was being read: the whole state is there in other files.
                self._missing_is_damage = True
                try:
                    self._look()
                finally:
                    self._missing_is_damage = False
            return self._state

    def reload(self) -> S:
        """Read the whole table anew, whatever is known of it."""
        with self._table.mutex:
            self._table.forget()
            return self.refresh()

    def _look(self) -> None:
        try:
            self._table.refresh()
        except FileNotFoundError as cause:
            if self._exists:
                message = f"the table {self._files.uri} is gone"
                raise LogCorruptError(message) from cause

    def on_load(self, state: TableState) -> None:
        """Caller: the table."""
        fresh = self._new_state()
        rows = [row for segment in state.index for row in self._rows(segment.path)]
        for row in sorted(rows, key=lambda r: r.seq):  # type: ignore[attr-defined]
            fresh.apply(row)
        self._state = fresh
        self._exists = True

    def on_commit(self, commit: TableCommit) -> None:
        """Caller: the table, which has no state until this is through; so the half of a file is never seen."""
        if not commit.data_change:
            return
        for add in commit.adds:
            for row in self._own[1] if add.path == self._own[0] else self._rows(add.path):
                self._state.apply(row)

    @property
    def rows(self) -> list[R]:
        """All rows the table still has, in `seq` order. Reads every file: for checks, not for the hot path."""
        with self._table.mutex:
            self.refresh()
            return self._rows_of(self._table.state) if self._exists else []

    def _rows_of(self, state: TableState) -> list[R]:
        rows = [row for segment in state.index for row in self._rows(segment.path)]
        return sorted(rows, key=lambda row: row.seq)  # type: ignore[attr-defined]

    def live_files(self) -> set[str]:
        """Paths of the table's data files, fresh."""
        with self._table.mutex:
            self.refresh()
            # Whoever removes all other files must not go by an older version.
            self.check_sound()
            return set(self._table.state.index.paths) if self._exists else set()

    def _rows(self, path: str) -> list[R]:
        try:
            return _to_rows(self._read(path), self._row_type)
        except FileNotFoundError as cause:
            if not self._missing_is_damage:
                raise _MissingFileError(path) from cause
            raise DamagedFileError(self._files.uri, path, "it is missing") from cause
        except UNREADABLE as cause:
            if is_storage_error(cause):
                message = f"{self._files.uri}/{path} cannot be read now: {cause}"
                raise KafkaStorageError(message) from cause
            raise DamagedFileError(self._files.uri, path, " ".join(str(cause).split())) from cause

    def check_sound(self) -> None:
        """Refuse a table of which only an older version can be read; see `Table.check_sound`."""
        if self._exists:
            self._table.check_sound()

    def _read(self, path: str) -> pa.Table:
        """A data file. Without pyarrow's threads, which take longer to wake up than a small file takes to be read."""
        with open_parquet(self._files, path) as file:
            return file.read(use_threads=False)

    # --- changing ------------------------------------------------------------------------------

    def transact(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile."""
        deadline = Deadline(self._clock, timeout_ms)
        made: list[Sequence[R]] = []
        with self._in_turn(deadline):
            if not self._exists:
                # No table is made for a plan that has nothing to write.
                made.append(plan(self.refresh()))
                if not made[0]:
                    return
                self._create()

            def rows(state: S) -> Sequence[R]:
                return made.pop() if made and not state.seq else plan(state)

            landed = self._table.change(lambda state: self._appending(state, rows), deadline, self._sound)
            if isinstance(landed, Done):
                return
            if landed.version % MERGE_INTERVAL == 0:
                self._merge(deadline)
        with self._table.mutex:
            state = self._table.state
            self._cleaner.after_commit(landed.version, state.table_id, len(state.index))

    def _sound(self) -> None:
        """Refresh; the state must have all rows that the table's log names.

        Raises:
            LogCorruptError: the files lack rows: nothing may be written under their numbers.
        """
        with self._table.mutex:
            if self.refresh().seq + 1 >= self._table.state.end(ROWS) or self.reload().seq + 1 >= self._table.state.end(
                ROWS
            ):
                return
            message = (
                f"{self._files.uri}: its log names rows up to {self._table.state.end(ROWS) - 1}, its files end at row "
                f"{self._state.seq}: rows are lost, and nothing may be written under their numbers"
            )
            raise LogCorruptError(message)

    def _appending(self, state: TableState, plan: Callable[[S], Sequence[R]]) -> Change | Done[None]:
        rows = plan(self._state)
        if not rows:
            return Done(None)
        first = int(rows[0].seq)  # type: ignore[attr-defined]
        if first < state.end(ROWS):
            message = f"{self._files.uri}: the number of row {first} is taken; nothing was written"
            raise LogCorruptError(message)
        add = self._add_file(_to_table(rows, self._schema), first, rows[-1].seq, data_change=True)  # type: ignore[attr-defined]
        self._own = add.path, rows
        return Change(
            operation=APPEND, time_ms=self._clock.now_ms(), adds=[add], requires=[EndsAt(ROWS, state.end(ROWS))]
        )

    @contextlib.contextmanager
    def _in_turn(self, deadline: Deadline) -> Iterator[None]:
        """Queue behind other writers; but not for ever behind one that was stopped while it had its turn.

        The queue is for fairness: the compare-and-set is that of the version's file, which appears or exists already.
        Without patience's end, a member that is stopped in the middle of a commit would stop its whole group, and
        nobody could write that its session is over.
        """
        # Each writer reads what all others wrote: here and while it waits, so that little is left to do in its turn.
        self.refresh()
        if self._patience is None or not self._exists:
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
        """Have one turn for several calls of `transact` of this thread.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
        """
        if getattr(self._holding, "now", False):
            yield
            return
        if not self._exists:
            self._make_root()
        with self._root.turn(self._location, deadline, self.refresh):
            self._holding.now = True
            try:
                yield
            finally:
                self._holding.now = False

    def _make_root(self) -> None:
        try:
            self._root.make_folder("")
        except OSError as cause:
            message = f"the root {self._root.uri} cannot be made: {cause}"
            raise KafkaStorageError(message) from cause

    def _create(self) -> None:
        """Make the table, unless another writer is faster."""
        schema, table_id = delta_schema(self._schema), str(uuid.uuid4())
        now = self._clock.now_ms()
        self._table.create(
            creation(table_id, schema, partition_by=[], properties=CONTROL_TABLE_PROPERTIES, time_ms=now)
        )

    def _merge(self, deadline: Deadline) -> None:
        """Put the rows of the latest files into one. Failing is harmless: the rows are written."""

        def plan(state: TableState) -> Change | Done[None]:
            every = sorted(state.index, key=lambda segment: segment.start)
            count = files_to_merge([segment.num_records for segment in every])
            if not count:
                return Done(None)
            live = every[-count:]
            return self._replacing(live, pa.concat_tables([self._read(s.path) for s in live]).sort_by("seq"))

        try:
            self._table.change(plan, deadline, self.refresh)
        except (KafkaError, OSError, pa.ArrowException) as cause:
            _log.warning("the files of %s were not merged: %s", self._files.uri, cause)

    def _replacing(self, live: Sequence[Segment], table: pa.Table) -> Change:
        seqs, now = table.column("seq"), self._clock.now_ms()
        add = self._add_file(table, seqs[0].as_py(), seqs[-1].as_py(), data_change=False)
        removes = [
            Add(path=s.path, partition=None, size=s.size_bytes, modification_ms=0, data_change=False, stats={})
            for s in live
        ]
        return Change(
            operation="OPTIMIZE", time_ms=now, adds=[add], removes=removes, requires=[Live([s.path for s in live])]
        )

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
        counts = 0, 0

        def plan(state: TableState) -> Change | Done[None]:
            nonlocal counts
            rows = self._rows_of(state)
            counts = len(rows), len(rows)
            if not rows:
                return Done(None)
            kept = list(keep(rows))
            if not kept or kept[-1].seq != rows[-1].seq:  # type: ignore[attr-defined]
                kept.append(rows[-1])
            live = list(state.index)
            if len(kept) == len(rows) and len(live) == 1:
                return Done(None)
            counts = len(rows), len(kept)
            return self._replacing(live, _to_table(kept, self._schema))

        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._exists:
                self._table.change(plan, deadline, self.refresh)
        return counts

    def fence(self) -> None:
        """Make a table version without rows: a writer that has looked before it must look, and write, anew.

        Raises:
            KafkaTimeoutError: others held the table for a minute.
            KafkaStorageError, UnknownOutcomeError: the write failed, or may have happened.
        """
        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._exists:
                self._table.fence(deadline)

    def clean_log(self) -> bool:
        """Keep the table's log short; see `LogCleaner.clean`."""
        self.refresh()
        return self._exists and self._cleaner.clean(self._table.state.table_id)

    def _add_file(self, table: pa.Table, low: int, high: int, *, data_change: bool) -> Add:
        name = f"part-{low:010d}-{uuid.uuid4().hex}.parquet"
        try:
            size = put_parquet(self._files, name, table, "snappy")
            if self._table.durable:
                self._files.sync(name)
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


def seq_segment(add: Add, files: Store) -> Segment:
    """A data file of a control table: a run of row numbers."""
    try:
        start, stop = int(add.stats["minValues"]["seq"]), int(add.stats["maxValues"]["seq"]) + 1
    except KeyError as cause:
        message = f"{files.uri}/{add.path} has no statistics: a foreign writer wrote it"
        raise LogCorruptError(message) from cause
    return Segment(
        partition=ROWS,
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
    """Texts or whole numbers, or None for null; without `pyarrow.array`, see `kafkalike.log.store.arrays`."""
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
