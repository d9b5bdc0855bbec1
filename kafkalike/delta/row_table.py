"""RowTable: a small Delta table whose rows make up a state, followed commit by commit.

A state is an immutable value.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import pyarrow as pa

from kafkalike.delta.actions import TableCommit, log_name
from kafkalike.delta.commit_file import creation
from kafkalike.delta.layout import delta_schema
from kafkalike.delta.log_files import READ_BESIDE
from kafkalike.delta.row_files import ROWS, MissingFileError, RowFiles, late_segments, merged, seq_segment
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import Change, Landed, Unchanged, broken_requirement
from kafkalike.delta.table_state import REPLICAS, SEAL, TableState, load_table
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.row_value import ControlState
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, Pace

_log = logging.getLogger(__name__)

MERGE_INTERVAL: Final = 64
"""Commits between two merges of the table's small files; about as many files must a new client open at most."""

MERGE_MS: Final = 10_000.0
"""Time limit for committing a merge of small files beside other commits, ms."""

S = TypeVar("S", bound=ControlState)
R = TypeVar("R")


class RowTable(Generic[S, R]):
    """The table of a control log, and the state that its rows make up. Thread-safe.

    Args:
        root: the cluster's files.
        location: the table's folder below it.
        schema: its columns; `time` holds the row's `time_ms`.
        row_type: dataclass of a row.
        new_state: makes an empty state.
        clock: time and waiting.
        jitter: random number from 0 to 1, for the wait after a conflict.
        durable: True if written rows must survive a power failure.
        rare: True for a rarely changed table, whose rows and commits are bundled; see `CommitBundler`.
        check: called with the table's properties before anything else of the table is used; may raise.
        on_seal: called if the table has replicas; may raise.
    """

    def __init__(
        self,
        root: Storage,
        location: str,
        schema: pa.Schema,
        row_type: type[R],
        new_state: Callable[[], S],
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        durable: bool = False,
        rare: bool = False,
        check: Callable[[Mapping[str, str]], None] = lambda _: None,
        on_seal: Callable[[], None] = lambda: None,
    ) -> None:
        self.root = root
        self.location = location
        self.files = root.at(location)
        self.row_files = RowFiles(self.files, schema, row_type, clock)
        self.clock = clock
        self.jitter = jitter
        self._schema = schema
        self._empty = new_state()
        self._check = check
        self._on_seal = on_seal
        self._state: S | None = None
        """State of the rows; None until a table was seen."""
        self.rare = rare
        self._prepared: tuple[Change, int, int] | None = None
        """A merge whose file is written and that waits for its commit; the latest fence at its start, and the process
        id."""
        self._missing_is_damage = False
        """False if a merge may have removed a missing data file a moment ago."""
        self.table = Table(
            self.files, clock, to_segment=seq_segment, follower=self, jitter=jitter, durable=durable, rare=rare
        )

    @property
    def state(self) -> S:
        """The state as of the last `refresh`; read again if an interrupt cut that off."""
        known = self._state
        if known is None:
            return self._empty
        return self.refresh() if self.table.known is None else known

    @property
    def exists(self) -> bool:
        """True if a table was ever seen."""
        return self._state is not None

    def create(self, properties: Mapping[str, str]) -> bool:
        """Create the table unless another writer is faster; return True if this call created it."""
        schema = delta_schema(self._schema)
        now, table_id = self.clock.now_ms(), str(uuid.uuid4())
        return self.table.create(creation(table_id, schema, partition_by=[], properties=properties, time_ms=now))

    def withdraw(self) -> None:
        """Try to remove the table that this client has just created, unless it has rows."""
        with contextlib.suppress(OSError):
            if self.files.look(log_name(1)) is None:
                self.files.remove(log_name(0), quietly=True)

    # --- following -----------------------------------------------------------------------------

    def refresh(self, pace: Pace = NOW) -> S:
        """Apply the rows of other writers."""
        with self.table.mutex:
            try:
                self.table.refresh(pace)
            except MissingFileError:
                # Merged away during the read: other files hold the whole state.
                self._missing_is_damage = True
                try:
                    self.table.refresh()
                except FileNotFoundError as cause:
                    self._refuse_loss(cause)
                finally:
                    self._missing_is_damage = False
            except FileNotFoundError as cause:
                self._refuse_loss(cause)
            return self._empty if self._state is None else self._state

    def _refuse_loss(self, cause: FileNotFoundError) -> None:
        """Raise if a table that was seen was removed; a table that was never created has no rows."""
        if self.exists:
            raise LogCorruptError(f"the table {self.files.uri} is gone") from cause

    def state_at(self, version: int) -> S:
        """Return the state as of a version of the last minutes; files of older versions are removed after a merge.

        Raises:
            LogCorruptError: the version was removed.
        """
        try:
            rows = self.rows_of(load_table(self.files, seq_segment, version)) if version or self.exists else []
        except (MissingFileError, FileNotFoundError) as cause:
            raise LogCorruptError(f"{self.files.uri} cannot be read at version {version} any more: {cause}") from cause
        return self._empty.applied(rows)

    def reload(self) -> S:
        """Read the whole table again, whatever is known of it."""
        with self.table.mutex:
            self.table.forget()
            self.row_files.forget()
            return self.refresh()

    def sound(self, pace: Pace = NOW) -> None:
        """Refresh, and raise unless the state has all rows and the table all versions that it ever had.

        Raises:
            LogCorruptError: the files lack rows that the log names, whose numbers must not be given again. Or a version
                that this client has seen disappeared, because a backup was restored: its plans rest on lost rows.
        """
        with self.table.mutex:
            self.refresh(pace)
            self.table.check_there(pace)
            if self.table.taken_back is not None:
                seen, found = self.table.taken_back
                raise LogCorruptError(
                    f"{self.files.uri}: version {seen}, which this client has seen, is gone, and version {found} is "
                    "the newest: a backup was restored below open clients. Nothing was written. Restart this client"
                )
            if self.state.seq + 1 >= self.table.state.end(ROWS):
                return
            last = self.reload().seq
            end = self.table.state.end(ROWS)
            if last + 1 >= end:
                return
            raise LogCorruptError(
                f"{self.files.uri}: its log names rows up to {end - 1}, its files end at row {last}: rows are lost, "
                "and nothing may be written under their numbers"
            )

    def check_free(self, first: int, state: TableState) -> None:
        """Refuse a number for a new row that another row has.

        Raises:
            LogCorruptError: the number is taken.
        """
        if first < state.end(ROWS):
            raise LogCorruptError(f"{self.files.uri}: the number of row {first} is taken; nothing was written")

    def on_load(self, state: TableState) -> None:
        """Make the state from a whole table. Caller: the table."""
        self._check(state.properties)
        if any(name.startswith(REPLICAS) for name in state.txns):
            self._on_seal()
        self._state = self._empty.applied(self.rows_of(state))

    def on_commit(self, commit: TableCommit) -> None:
        """Apply a commit. Caller: the table. It has no state meanwhile, so after an interrupt both are loaded again."""
        if commit.properties is not None:
            self._check(commit.properties)
        if commit.operation == SEAL:
            self._on_seal()
        if commit.data_change:
            known = self._empty if self._state is None else self._state
            self._state = known.applied(row for add in commit.adds for row in self._rows(add.path))

    def rows_of(self, state: TableState) -> list[R]:
        """Return all rows of a table, in `seq` order. Reads every file."""
        rows: list[R] = []
        paths: list[str] = []
        for segment in state.index:
            carried = state.carried.get(segment.path)
            found = None
            if carried is not None and len(carried) == segment.size_bytes:
                found = self.row_files.rows_in(carried)
            if found is None:
                paths.append(segment.path)
            else:
                rows += found
        for at in range(0, len(paths), READ_BESIDE):
            for some in self.files.scheduler.beside(
                [partial(self._rows, path) for path in paths[at : at + READ_BESIDE]]
            ):
                rows += some
        return sorted(rows, key=lambda row: row.seq)  # type: ignore[attr-defined]

    def _rows(self, path: str) -> Sequence[R]:
        return self.row_files.rows(path, missing_is_damage=self._missing_is_damage)

    # --- its files -----------------------------------------------------------------------------

    def prepare_merge(self) -> None:
        """Merge the rows of the latest files into one file, for `land_merge`. Failing is harmless.

        This takes long, and holds no turn of the table's writers.
        """
        try:
            with self.table.mutex:
                live, fenced = late_segments(self.table.state), self.table.state.fenced
            if not live:
                return
            change = merged(self.row_files, live, self.clock)
        except (KafkaError, OSError, pa.ArrowException) as cause:
            self._log_merge(cause)
            return
        with self.table.mutex:
            before, self._prepared = self._prepared, (change, fenced, os.getpid())
        if before is not None:
            self._drop(before)

    def land_merge(self, deadline: Deadline) -> Landed | None:
        """Commit the prepared merge unless its files were replaced meanwhile. Failing is harmless.

        Args:
            deadline: until when to try.

        Returns:
            The merge's version; None without one.
        """
        with self.table.mutex:
            prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[2] != os.getpid():
            # The merge belongs to the parent of this forked child.
            return None
        change, fenced, _ = prepared
        unused = [change]

        def plan(state: TableState) -> Change | Unchanged[None]:
            # Others may have merged, compacted or fenced since the merge was prepared.
            if unused and not broken_requirement(change, fenced, state):
                return unused.pop()
            return Unchanged(None)

        try:
            landed = self.table.change(plan, deadline, self.refresh)
        except (KafkaError, OSError, pa.ArrowException) as cause:
            self._log_merge(cause)
            return None
        finally:
            if unused:
                self._drop(prepared)
        return landed if isinstance(landed, Landed) else None

    @property
    def has_merge(self) -> bool:
        """True if a prepared merge waits for its commit."""
        return self._prepared is not None

    def _drop(self, prepared: tuple[Change, int, int]) -> None:
        """Remove the file of a merge that is not committed; a forked child keeps its parent's file."""
        change, _, process = prepared
        if process == os.getpid():
            self.files.remove(change.adds[0].path, quietly=True)

    def _log_merge(self, cause: Exception) -> None:
        _log.warning("the files of %s were not merged: %s", self.files.uri, cause)
