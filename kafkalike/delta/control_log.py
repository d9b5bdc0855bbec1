"""ControlLog: a small Delta table whose rows make up a state, changed by compare-and-set.

Rows are numbered (`seq`), so that their order survives the merging of files, and appending rows is appending to a
partition 0. The state is a value: one that was handed out stays as it is.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkalike.delta.actions import APPEND
from kafkalike.delta.layout import CONTROL_TABLE_PROPERTIES
from kafkalike.delta.log_cleaner import Helpers, LogCleaner
from kafkalike.delta.row_files import ROWS, keep_some
from kafkalike.delta.row_table import MERGE_INTERVAL, MERGE_MS, RowTable
from kafkalike.delta.table_change import Change, EndsAt, Landed, Unchanged, WriteQueue
from kafkalike.delta.table_state import CLOSE, TableState
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.model.clock import Deadline, within
from kafkalike.model.concurrency import OnError
from kafkalike.model.row_value import ControlState
from kafkalike.storage.port import Pace

if TYPE_CHECKING:
    # Loaded by who has one: object stores alone.
    from kafkalike.delta.group_commit.control_group_commit import ControlGroupCommit

_log = logging.getLogger(__name__)

S = TypeVar("S", bound=ControlState)
R = TypeVar("R")


class ControlLog(Generic[S, R]):
    """A control log in a Delta table, which is made at the first write.

    Args:
        table: the table, and the state of its rows.
        helpers: threads that keep the table's log short.
        patience: seconds that a writer queues behind others before it goes on all the same; None waits. Not for a
            table that somebody changes in several steps in one turn.
        longest_pause: most seconds between two looks of those who wait for rows of others, where a look costs money.
        plans_beside: whether plans may be made beside a look, of what is known, and again of what it found; see
            `Table.change`. Not where a plan does more than to make rows.
        properties: the table's, when it is made.
        before_change: called before anything is written; it may refuse that.
        on_missing: called by each look that finds no table; it may refuse that.
        check_new: called before the table is made and after it, and before the first row; it may refuse that.
        combined: makes the versions for all who wait, where every machine may write; None makes one for each change.
    """

    def __init__(
        self,
        table: RowTable[S, R],
        *,
        helpers: Helpers,
        patience: float | None = None,
        longest_pause: float = 1.0,
        plans_beside: bool = False,
        properties: Mapping[str, str] = CONTROL_TABLE_PROPERTIES,
        before_change: Callable[[], object] = lambda: None,
        on_missing: Callable[[], object] = lambda: None,
        check_new: Callable[[], object] = lambda: None,
        combined: ControlGroupCommit[S, R] | None = None,
    ) -> None:
        self._rows = table
        self._table = table.table
        self._clock = table.clock
        self._properties = properties
        self._before_change = before_change
        self._on_missing = on_missing
        self._check_new = check_new
        self._combined = combined
        self._waiting = Pace(longest=longest_pause)
        self._plans_beside = plans_beside
        self._turns = WriteQueue(
            table.root, table.location, table.clock, patience, lambda: self.refresh(waiting=plans_beside).seq
        )
        self._helpers = helpers
        self._cleaner = LogCleaner(table.root, table.location, helpers, table.clock, rare=table.rare)

    # --- following -----------------------------------------------------------------------------

    def look_once(self) -> None:
        """Read the table, unless that was done before."""
        if self._table.known is None:
            self.refresh()

    def seen_within(self, seconds: float) -> bool:
        """Whether the table was seen to be there so short a time ago."""
        return self._table.seen_within(seconds)

    @property
    def state(self) -> S:
        """The state as of the last `refresh` or `transact`. Read it; only rows change it."""
        return self._rows.state

    def refresh(self, *, waiting: bool = False, since: float = math.inf, surely: bool = False) -> S:
        """Apply rows that others added; returns the state. Costs a file look-up when there is nothing new.

        Args:
            waiting: the caller comes again until there is something new; see `TopicLog.refresh`.
            since: an answer of the storage to a look of this process will do that was made at this time or later,
                seconds of the machine's monotonic clock; unless `waiting`.
            surely: what is not seen is taken for not there, so that a leader that gives no answer is an error at once.
                Without it there is nothing new for as long as it may lag.
        """
        state = self._rows.refresh(self._waiting if waiting else Pace(since, surely=surely))
        if not state.seq and not self._rows.exists:
            self._on_missing()
        return state

    def questions(self) -> list[Callable[[], object]]:
        """What `refresh` asks; see `TailedTable.questions`."""
        return self._table.questions()

    @property
    def exists(self) -> bool:
        """Whether the last look has seen a table."""
        return self._rows.exists

    @property
    def version(self) -> int:
        """Version of the table as of the last `refresh`; 0 when there is none."""
        return self._table.state.version if self._rows.exists else 0

    @property
    def durable(self) -> bool:
        """Whether rows must survive a power failure when they are written; may be set before each change."""
        return self._table.durable

    @durable.setter
    def durable(self, durable: bool) -> None:
        self._table.durable = durable

    def look(self) -> tuple[int, S]:
        """Refresh; the table's version and its state, which belong together."""
        with self._table.mutex:
            state = self.refresh()
            return self.version, state

    def reload(self) -> S:
        """Read the whole table anew, whatever is known of it."""
        return self._rows.reload()

    @property
    def rows(self) -> list[R]:
        """All rows the table still has, fresh, in `seq` order. Reads everything: for history, not for the hot path."""
        with self._table.mutex:
            self.refresh()
            return self._rows.rows_of(self._table.state) if self._rows.exists else []

    def state_at(self, version: int) -> S:
        """The state as of an older version of the table: of the last minutes, as merged files are removed then.

        Raises:
            LogCorruptError: the version is gone.
        """
        return self._rows.state_at(version)

    def known_files(self) -> set[str]:
        """Paths of the table's data files, as of the last look.

        Raises:
            LogCorruptError: only an older version is known.
        """
        self.look_once()
        if not self._rows.exists:
            return set()
        self._table.check_sound()
        return set(self._table.state.index.paths)

    @property
    def num_rows(self) -> int:
        """How many rows the table's data files have, as of the last look."""
        self.look_once()
        return sum(file.num_records for file in self._table.state.index) if self._rows.exists else 0

    def live_files(self) -> set[str]:
        """Paths of the table's data files, fresh."""
        with self._table.mutex:
            self.refresh()
            # Whoever removes all other files must not go by an older version: that is refused.
            return self.known_files()

    def check_sound(self) -> None:
        """Refuse a table of which only an older version can be read; see `Table.check_sound`."""
        if self._rows.exists:
            self._table.check_sound()

    # --- changing ------------------------------------------------------------------------------

    def transact(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile.

        When another writer was faster, the state is refreshed and `plan` is called again. Rows must be numbered from
        `state.seq + 1` on. An error that `plan` raises leaves the table unchanged; so does an empty list.

        Raises:
            KafkaTimeoutError: others were faster until time ran out; nothing was written.
            UnknownOutcomeError: the write may have happened.
        """
        deadline = Deadline(self._clock, timeout_ms)
        seen: int | None = None
        with within(deadline):
            self._before_change()
            if not (self._plans_beside and self._rows.exists):
                seen = self.refresh().seq
        if self._combined is None:
            self._transact_alone(plan, deadline, seen)
        elif self._rows.exists or self._made_for(plan, deadline):
            self._combined.bring(plan, deadline)

    def _made_for(self, plan: Callable[[S], Sequence[R]], deadline: Deadline) -> bool:
        """Make the table for a plan; False when it has nothing to write."""
        with self.exclusive(deadline):
            if not plan(self.refresh()):
                return False
            self._create()
            self.refresh()
        return True

    def _create(self) -> None:
        """Make the table. Whoever forbids that says so, and looks for it then: so one of the two sees the other."""
        made = self._rows.create(self._properties)
        with OnError(self._rows.withdraw) if made else contextlib.nullcontext():
            self._check_new()

    def _transact_alone(self, plan: Callable[[S], Sequence[R]], deadline: Deadline, seen: int | None) -> None:
        made: list[Sequence[R]] = []
        with self._turns.awaited(deadline, seen) if self._rows.exists else self.exclusive(deadline):
            if not self._rows.exists:
                # No table is made for a plan that has nothing to write.
                made.append(plan(self.refresh()))
                if not made[0]:
                    return
                self._create()
            elif not self._table.state.version:
                self._check_new()

            def rows(state: S) -> Sequence[R]:
                return made.pop() if made and not state.seq else plan(state)

            questions = self._table.questions if self._plans_beside else None
            landed = self._table.change(
                lambda state: self._appending(state, rows), deadline, self._rows.sound, questions=questions
            )
            if isinstance(landed, Unchanged):
                return
            # In this turn: another one would have to queue, and the next commit behind it.
            merged = self._rows.land_merge(deadline)
        self._note_commit(landed)
        if merged is not None:
            self._note_commit(merged)
        if landed.version % MERGE_INTERVAL == 0:
            # Beside the commits, which do not wait for it.
            self._helpers.start(self._rows.prepare_merge)

    def _note_commit(self, landed: Landed) -> None:
        with self._table.mutex:
            state = self._table.state
            self._cleaner.after_commit(landed, state.table_id, state.index.paths)

    def _appending(self, state: TableState, plan: Callable[[S], Sequence[R]]) -> Change | Unchanged[None]:
        rows = plan(self.state)
        if not rows:
            return Unchanged(None)
        self._rows.check_free(int(rows[0].seq), state)  # type: ignore[attr-defined]
        add = self._rows.row_files.write_new(rows)
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
        if not self._rows.exists:
            self._check_new()
            self._make_root()
        with self._turns.held(deadline):
            yield

    def _make_root(self) -> None:
        root = self._rows.root
        try:
            root.make_folder("")
        except OSError as cause:
            raise KafkaStorageError(f"the root {root.uri} cannot be made: {cause}") from cause

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

        def plan(state: TableState) -> Change | Unchanged[None]:
            nonlocal counts
            rows = self._rows.rows_of(state)
            made, stay = keep_some(self._rows.row_files, state, rows, keep, self._clock)
            counts = len(rows), stay
            return made

        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._rows.exists:
                self._table.change(plan, deadline, self._rows.sound)
        return counts

    def fence(self) -> None:
        """Make a table version without rows: a writer that has looked before it must look, and write, anew.

        Raises: see `compact`.
        """
        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._rows.exists:
                self._table.fence(deadline)

    def close(self) -> None:
        """Close the table to foreign writers, unless the last look has seen it closed: an earlier release made it.

        Raises: see `compact`.
        """
        self.look_once()
        if self._rows.exists and self._table.state.closed:
            return

        def plan(state: TableState) -> Change | Unchanged[None]:
            if state.closed:
                return Unchanged(None)
            return Change(operation=CLOSE, time_ms=self._clock.now_ms(), closes=True)

        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._rows.exists:
                self._table.change(plan, deadline)

    def clean_log(self) -> bool:
        """Keep the table's log short, as the last look has seen it; see `LogCleaner.clean`."""
        self.look_once()
        return self._rows.exists and self._cleaner.clean(self._table.state.table_id, self._table.state)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of those who share the table writes to it any more, for so many seconds at most.

        A merge of small files that waits for a commit is committed.
        """
        self._helpers.wait(timeout)
        if not self._rows.has_merge:
            return
        deadline = Deadline(self._clock, MERGE_MS if timeout is None else timeout * 1000)
        try:
            with self._turns.awaited(deadline):
                merged = self._rows.land_merge(deadline)
        except KafkaError as cause:
            # The next commit of this process takes it along, or maintenance removes its file.
            _log.warning("small files of %s were not merged: %s", self._rows.files.uri, cause)
            return
        if merged is not None:
            self._note_commit(merged)
            self._helpers.wait(timeout)
