"""DeltaControlLog: a small Delta table whose rows make up a state, changed by compare-and-set.

Rows are numbered (`seq`), so that their order survives the merging of files, and appending rows is appending to a
partition 0. The state is a value: one that was handed out stays as it is.
"""

from __future__ import annotations

import contextlib
import logging
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import pyarrow as pa

from kafkalike.clock import Clock, Deadline, within
from kafkalike.errors import KafkaError, KafkaStorageError, LogCorruptError
from kafkalike.log.store.port import NOW, Pace, Store
from kafkalike.log.table.actions import APPEND, TableCommit, creation
from kafkalike.log.table.fewer_files import keep_some, merge_late
from kafkalike.log.table.layout import CONTROL_TABLE_PROPERTIES, delta_schema
from kafkalike.log.table.loading import load_table
from kafkalike.log.table.log_cleaner import Helpers, LogCleaner
from kafkalike.log.table.row_files import ROWS, MissingFileError, RowFiles, seq_segment
from kafkalike.log.table.snapshot import READ_BESIDE
from kafkalike.log.table.state import EndsAt, TableState
from kafkalike.log.table.table import Change, Done, Table
from kafkalike.log.table.turns import Turns
from kafkalike.model.row_value import ControlState

_log = logging.getLogger(__name__)

MERGE_INTERVAL: Final = 64
"""Commits between two merges of the table's small files: a new client opens at most so many of them."""


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
        longest_pause: most seconds between two looks of those who wait for rows of others, where a look costs money.
        plans_beside: whether plans may be made beside a look, of what is known, and again of what it found; see
            `Table.change`. Not where a plan does more than to make rows.
        properties: the table's, when it is made.
        check: called with the table's properties before anything that it says is taken in; it may refuse them.
        before_change: called before anything is written; it may refuse that.
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
        longest_pause: float = 1.0,
        plans_beside: bool = False,
        properties: Mapping[str, str] = CONTROL_TABLE_PROPERTIES,
        check: Callable[[Mapping[str, str]], None] = lambda _: None,
        before_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._root = root
        self._properties = properties
        self._check = check
        self._before_change = before_change
        self._files = root.at(location)
        self._schema = schema
        self._row_files = RowFiles(self._files, schema, row_type, clock)
        self._new_state = new_state
        self._clock = clock
        self._waiting = Pace(longest=longest_pause)
        self._plans_beside = plans_beside
        self._state: S | None = None
        """The rows' state; None as long as no table was seen."""
        self._missing_is_damage = False
        """Whether a data file that is not there cannot have been merged away a moment ago."""
        self._table = Table(self._files, clock, to_segment=seq_segment, follower=self, jitter=jitter, durable=durable)
        self._turns = Turns(root, location, clock, patience, lambda: self.refresh(waiting=plans_beside).seq)
        self._cleaner = LogCleaner(root, location, helpers, clock)

    # --- following -----------------------------------------------------------------------------

    def look_once(self) -> None:
        """Read the table, unless that was done before."""
        if not self._table.loaded:
            self.refresh()

    @property
    def state(self) -> S:
        """The state as of the last `refresh`; read anew when that was interrupted."""
        known = self._state
        if known is None:
            return self._new_state()
        return known if self._table.loaded else self.refresh()

    @property
    def _exists(self) -> bool:
        """Whether there ever was a table."""
        return self._state is not None

    def refresh(self, *, waiting: bool = False) -> S:
        """Apply rows that others added; see `ControlLog.refresh`."""
        return self._refreshed(self._waiting if waiting else NOW)

    def questions(self) -> list[Callable[[], object]]:
        """What `refresh` asks; see `FollowedTable.questions`."""
        return self._table.questions()

    def refreshed_since(self, since: float) -> S:
        """Apply rows that others added, by answers of the storage to what was asked at a time or later."""
        return self._refreshed(Pace(since=since))

    def _refreshed(self, pace: Pace) -> S:
        with self._table.mutex:
            try:
                self._look(pace)
            except MissingFileError:
                # Merged away while it was being read: the whole state is there in other files.
                self._missing_is_damage = True
                try:
                    self._look(NOW)
                finally:
                    self._missing_is_damage = False
            return self._new_state() if self._state is None else self._state

    @property
    def version(self) -> int:
        """Version of the table as of the last `refresh`; 0 when there is none."""
        return self._table.state.version if self._exists else 0

    def look(self) -> tuple[int, S]:
        """Refresh; the table's version and its state, which belong together."""
        with self._table.mutex:
            state = self.refresh()
            return self.version, state

    def reload(self) -> S:
        """Read the whole table anew, whatever is known of it."""
        with self._table.mutex:
            self._table.forget()
            return self.refresh()

    def _look(self, pace: Pace) -> None:
        try:
            self._table.refresh(pace)
        except FileNotFoundError as cause:
            if self._exists:
                raise LogCorruptError(f"the table {self._files.uri} is gone") from cause

    def on_load(self, state: TableState) -> None:
        """Caller: the table."""
        self._check(state.properties)
        self._state = self._new_state().applied(self._rows_of(state))

    def on_commit(self, commit: TableCommit) -> None:
        """Caller: the table, which has no state until this is through: interrupted, both are read anew."""
        if commit.properties is not None:
            self._check(commit.properties)
        if commit.data_change:
            known = self._new_state() if self._state is None else self._state
            self._state = known.applied(row for add in commit.adds for row in self._rows(add.path))

    @property
    def rows(self) -> list[R]:
        """All rows the table still has, in `seq` order. Reads every file: for checks, not for the hot path."""
        with self._table.mutex:
            self.refresh()
            return self._rows_of(self._table.state) if self._exists else []

    def _rows_of(self, state: TableState) -> list[R]:
        paths = [segment.path for segment in state.index]
        rows: list[R] = []
        for at in range(0, len(paths), READ_BESIDE):
            for some in self._files.beside([partial(self._rows, path) for path in paths[at : at + READ_BESIDE]]):
                rows += some
        return sorted(rows, key=lambda row: row.seq)  # type: ignore[attr-defined]

    def _rows(self, path: str) -> Sequence[R]:
        return self._row_files.rows(path, missing_is_damage=self._missing_is_damage)

    def state_at(self, version: int) -> S:
        """The state as of an older version of the table: of the last minutes, as merged files are removed then.

        Raises:
            LogCorruptError: the version is gone.
        """
        try:
            rows = self._rows_of(load_table(self._files, seq_segment, version)) if version or self._exists else []
        except (MissingFileError, FileNotFoundError) as cause:
            raise LogCorruptError(f"{self._files.uri} cannot be read at version {version} any more: {cause}") from cause
        return self._new_state().applied(rows)

    def live_files(self) -> set[str]:
        """Paths of the table's data files, fresh."""
        with self._table.mutex:
            self.refresh()
            if not self._exists:
                return set()
            # Whoever removes all other files must not go by an older version.
            self._table.check_sound()
            return set(self._table.state.index.paths)

    def check_sound(self) -> None:
        """Refuse a table of which only an older version can be read; see `Table.check_sound`."""
        if self._exists:
            self._table.check_sound()

    # --- changing ------------------------------------------------------------------------------

    def transact(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile."""
        deadline = Deadline(self._clock, timeout_ms)
        made: list[Sequence[R]] = []
        with within(deadline):
            self._before_change()
            if not (self._plans_beside and self._exists):
                self.refresh()
        with self._turns.awaited(deadline) if self._exists else self.exclusive(deadline):
            if not self._exists:
                # No table is made for a plan that has nothing to write.
                made.append(plan(self.refresh()))
                if not made[0]:
                    return
                self._create()

            def rows(state: S) -> Sequence[R]:
                return made.pop() if made and not state.seq else plan(state)

            questions = self._table.questions if self._plans_beside else None
            landed = self._table.change(
                lambda state: self._appending(state, rows), deadline, self._sound, questions=questions
            )
            if isinstance(landed, Done):
                return
            if landed.version % MERGE_INTERVAL == 0:
                self._merge(deadline)
        with self._table.mutex:
            state = self._table.state
            self._cleaner.after_commit(landed.version, state.table_id, len(state.index))

    def _sound(self, pace: Pace = NOW) -> None:
        """Refresh; the state must have all rows that the table's log names.

        Raises:
            LogCorruptError: the files lack rows: nothing may be written under their numbers.
        """
        with self._table.mutex:
            if self._refreshed(pace).seq + 1 >= self._table.state.end(ROWS):
                return
            last = self.reload().seq
            end = self._table.state.end(ROWS)
            if last + 1 >= end:
                return
            message = (
                f"{self._files.uri}: its log names rows up to {end - 1}, its files end at row {last}: rows are lost, "
                "and nothing may be written under their numbers"
            )
            raise LogCorruptError(message)

    def _appending(self, state: TableState, plan: Callable[[S], Sequence[R]]) -> Change | Done[None]:
        rows = plan(self.state)
        if not rows:
            return Done(None)
        first = int(rows[0].seq)  # type: ignore[attr-defined]
        if first < state.end(ROWS):
            message = f"{self._files.uri}: the number of row {first} is taken; nothing was written"
            raise LogCorruptError(message)
        add = self._row_files.write_new(rows)
        return Change(
            operation=APPEND, time_ms=self._clock.now_ms(), adds=[add], requires=[EndsAt(ROWS, state.end(ROWS))]
        )

    @contextlib.contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Have one turn for several calls of `transact` of this thread.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
        """
        self._before_change()
        if not self._exists:
            self._make_root()
        with self._turns.held(deadline):
            yield

    def _make_root(self) -> None:
        try:
            self._root.make_folder("")
        except OSError as cause:
            raise KafkaStorageError(f"the root {self._root.uri} cannot be made: {cause}") from cause

    def _create(self) -> None:
        """Make the table, unless another writer is faster."""
        schema, properties = delta_schema(self._schema), self._properties
        now, table_id = self._clock.now_ms(), str(uuid.uuid4())
        self._table.create(creation(table_id, schema, partition_by=[], properties=properties, time_ms=now))

    def _merge(self, deadline: Deadline) -> None:
        """Put the rows of the latest files into one. Failing is harmless: the rows are written."""
        try:
            self._table.change(lambda state: merge_late(self._row_files, state, self._clock), deadline, self._refreshed)
        except (KafkaError, OSError, pa.ArrowException) as cause:
            _log.warning("the files of %s were not merged: %s", self._files.uri, cause)

    def compact(self, keep: Callable[[Sequence[R]], Sequence[R]]) -> tuple[int, int]:
        """Keep only some of the rows, in one file. Readers see the same state, and numbers go on from the last row.

        Args:
            keep: which rows stay, of all in `seq` order; their state must be the same. The last row stays in any case.

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
            made, stay = keep_some(self._row_files, state, rows, keep, self._clock)
            counts = len(rows), stay
            return made

        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._exists:
                self._table.change(plan, deadline, self._refreshed)
        return counts

    def fence(self) -> None:
        """Make a table version without rows: a writer that has looked before it must look, and write, anew.

        Raises: see `compact`.
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
