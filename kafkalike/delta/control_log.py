"""ControlLog: a small Delta table whose rows make up a state, changed by compare-and-set.

Rows are numbered (`seq`), so their order survives the merging of files, and appending rows is appending to partition 0.
A state is an immutable value.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kafkalike.delta.actions import APPEND
from kafkalike.delta.layout import CONTROL_TABLE_PROPERTIES
from kafkalike.delta.log_cleaner import Helpers, LogCleaner
from kafkalike.delta.row_files import ROWS, keep_some
from kafkalike.delta.row_table import MERGE_INTERVAL, MERGE_MS, RowTable
from kafkalike.delta.table_change import NEW_SECONDS, Change, EndsAt, Landed, Unchanged, WriteQueue
from kafkalike.delta.table_state import CLOSE, TableState
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.model.clock import Deadline, within
from kafkalike.model.concurrency import OnError
from kafkalike.model.row_value import ControlState
from kafkalike.storage.scheduler import Pace

if TYPE_CHECKING:
    # Loaded lazily, because only object stores use it.
    from kafkalike.delta.group_commit.control_group_commit import ControlGroupCommit, SharedChanges

_log = logging.getLogger(__name__)

MOST_TOGETHER: Final = 64
"""Most changes of `transact_together` in one commit."""

S = TypeVar("S", bound=ControlState)
R = TypeVar("R")


class ControlLog(Generic[S, R]):
    """A control log in a Delta table, which the first write creates.

    Args:
        table: the table, and the state of its rows.
        helpers: threads that keep the table's log short.
        patience: seconds that a writer queues behind others before it proceeds without its turn; None waits. Must be
            None for a table that is changed in several steps per turn.
        longest_pause: most seconds between two looks of a waiting reader, where a look costs money.
        plans_beside: True allows plans on the known state beside a look, to be repeated if the look finds news; see
            `Table.change`. Only for plans that do nothing but make rows.
        properties: configuration of the table that is created.
        before_change: called before each change; may raise to refuse it, and return whether it must survive a power
            failure.
        on_missing: called by each look that finds no table; may raise.
        check_new: called before and after the table is created, and before its first row; may raise to refuse it.
        combined: commits the changes of many processes together, in object stores; None commits each change by itself.
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
        before_change: Callable[[], bool | None] = lambda: None,
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
        """Read the table if it was never read."""
        if self._table.known is None:
            self.refresh()

    def seen_within(self, seconds: float) -> bool:
        """Return True if the table was seen within the last seconds."""
        return self._table.seen_within(seconds)

    @property
    def next_file(self) -> str | None:
        """The file below the root that `refresh` looks for; None if one look does not suffice."""
        name = self._table.next_file
        return None if name is None else f"{self._rows.location}/{name}"

    @property
    def state(self) -> S:
        """The state as of the last `refresh` or `transact`. Only rows change it."""
        return self._rows.state

    def refresh(self, *, waiting: bool = False, since: float = math.inf, surely: bool = False) -> S:
        """Apply the rows of other writers; return the state. Costs one file look-up without news.

        Args:
            waiting: True for a caller that polls for news; see `TopicLog.refresh`.
            since: seconds of the machine's monotonic clock. An answer that this process got from the storage at that
                time or later is reused, unless `waiting`.
            surely: True raises at once if a leader does not answer. False reports no news for as long as the leader may
                lag.
        """
        state = self._rows.refresh(self._waiting if waiting else Pace(since, surely=surely))
        if not state.seq and not self._rows.exists:
            self._on_missing()
        return state

    @property
    def combines(self) -> bool:
        """True if changes that are values may be committed by other processes; see `ControlGroupCommit`."""
        return self._combined is not None

    def questions(self) -> list[Callable[[], object]]:
        """Return the requests of `refresh`; see `TailedTable.questions`."""
        return self._table.questions()

    @property
    def exists(self) -> bool:
        """True if the last look found a table."""
        return self._rows.exists

    @property
    def version(self) -> int:
        """Version of the table as of the last `refresh`; 0 without a table."""
        return self._table.state.version if self._rows.exists else 0

    def look(self) -> tuple[int, S]:
        """Refresh; return the table's version with the state of that version."""
        with self._table.mutex:
            state = self.refresh()
            return self.version, state

    def reload(self) -> S:
        """Read the whole table again, whatever is known of it."""
        return self._rows.reload()

    @property
    def rows(self) -> list[R]:
        """All rows of the table, fresh, in `seq` order. Reads every file: for history, not for the hot path."""
        with self._table.mutex:
            self.refresh()
            return self._rows.rows_of(self._table.state) if self._rows.exists else []

    def state_at(self, version: int) -> S:
        """Return the state as of a version of the last minutes; files of older versions are removed after a merge.

        Raises:
            LogCorruptError: the version was removed.
        """
        return self._rows.state_at(version)

    def known_files(self) -> AbstractSet[str]:
        """Return the paths of the table's data files, as of the last look: a view, which follows later looks.

        Raises:
            LogCorruptError: the newest version is damaged.
        """
        self.look_once()
        if not self._rows.exists:
            return set()
        self._table.check_sound()
        return self._table.state.index.paths

    @property
    def num_rows(self) -> int:
        """Number of rows in the table's data files, as of the last look."""
        self.look_once()
        return sum(map(attrgetter("num_records"), self._table.state.index)) if self._rows.exists else 0

    def live_files(self) -> set[str]:
        """Return the paths of the table's data files, fresh."""
        with self._table.mutex:
            self.refresh()
            # The caller removes all other files, so an older version is refused.
            return set(self.known_files())

    def check_sound(self) -> None:
        """Raise if the newest version of the table is damaged; see `Table.check_sound`."""
        if self._rows.exists:
            self._table.check_sound()

    # --- changing ------------------------------------------------------------------------------

    def transact(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile.

        If another writer was faster, the state is refreshed and `plan` called again. Rows must be numbered from
        `state.seq + 1` on. An error that `plan` raises leaves the table unchanged; so does an empty list.

        Raises:
            KafkaTimeoutError: other writers were faster until the timeout; nothing was written.
            UnknownOutcomeError: the rows may have been written.
        """
        self._transact(plan, Deadline(self._clock, timeout_ms))

    def transact_together(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append rows as `transact`, in one commit with the rows of other threads that wait to call this method.

        Each plan gets the state that the plans before it have made.
        """
        deadline = Deadline(self._clock, timeout_ms)
        if self._combined is None:
            self._shared.bring(plan, deadline)
        else:
            self._transact(plan, deadline)

    @functools.cached_property
    def _shared(self) -> SharedChanges[Callable[[S], Sequence[R]]]:
        from kafkalike.delta.group_commit.control_group_commit import SharedChanges, write_together

        return SharedChanges(
            lambda changes: write_together(changes, self._append_units, lambda: self.state),
            lambda units: min(len(units), MOST_TOGETHER),
        )

    def _append_units(self, units: Sequence[Callable[[S], Sequence[R]]], deadline: Deadline) -> Container[int]:
        from kafkalike.model.appends.waiting_appends import InTurn, in_turn

        done: InTurn[R] = InTurn((), [{}])

        def plan(state: S) -> Sequence[R]:
            nonlocal done
            done = in_turn(state, [units])
            return done.rows

        self._transact(plan, deadline)
        return done.runs[0]

    def _transact(self, plan: Callable[[S], Sequence[R]], deadline: Deadline) -> None:
        seen: int | None = None
        with within(deadline):
            self._prepare()
            if not self._rows.exists:
                seen = self.refresh().seq
            elif not self._plans_beside:
                # Little is left to be read in the turn, where the rows of others were read a moment ago.
                seen = self._rows.state.seq if self._table.seen_within(NEW_SECONDS) else self.refresh().seq
        if self._combined is None:
            self._transact_alone(plan, deadline, seen)
        elif self._rows.exists or self._made_for(plan, deadline):
            self._combined.bring(plan, deadline)

    def _prepare(self) -> None:
        durable = self._before_change()
        if durable is not None:
            self._table.durable = durable

    def _made_for(self, plan: Callable[[S], Sequence[R]], deadline: Deadline) -> bool:
        """Create the table for a plan; return False if the plan writes nothing."""
        with self.exclusive(deadline):
            if not plan(self.refresh()):
                return False
            self._create()
            self.refresh()
        return True

    def _create(self) -> None:
        """Create the table.

        A client that forbids the table announces that first and then looks for a table, while this one creates the
        table and then looks for such an announcement. So at least one client sees the other.
        """
        made = self._rows.create(self._properties)
        with OnError(self._rows.withdraw) if made else contextlib.nullcontext():
            self._check_new()

    def _transact_alone(self, plan: Callable[[S], Sequence[R]], deadline: Deadline, seen: int | None) -> None:
        made: list[Sequence[R]] = []
        with self._turns.awaited(deadline, seen) if self._rows.exists else self.exclusive(deadline):
            if not self._rows.exists:
                # A plan without rows does not create the table.
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
            # Merge in this turn: another turn would queue, and delay the next commit.
            merged = self._rows.land_merge(deadline)
        self._note_commit(landed)
        if merged is not None:
            self._note_commit(merged)
        if landed.version % MERGE_INTERVAL == 0:
            # Beside the commits, which do not wait for it.
            self._helpers.start(self._rows.prepare_merge)

    def _note_commit(self, landed: Landed) -> None:
        if landed.version % self._cleaner.interval:
            return
        with self._table.mutex:
            self._cleaner.after_commit(landed, self._table.known)

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
        """Hold one turn for several calls of `transact` of this thread.

        Raises:
            KafkaTimeoutError: other writers held the turn until the deadline.
        """
        self._prepare()
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
        """Keep only some of the rows, in one file. The state stays equal, and numbering continues after the last row.

        Args:
            keep: returns the rows to keep, of all rows in `seq` order; they must make the same state. The last row is
                always kept.

        Returns:
            Numbers of rows before and after; equal if nothing was written.

        Raises:
            KafkaTimeoutError: other writers held the table for a minute.
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
        """Make a table version without rows: a writer whose last look came before it must look and plan again.

        Raises: see `compact`.
        """
        deadline = Deadline(self._clock, 60_000)
        with self.exclusive(deadline):
            self.refresh()
            if self._rows.exists:
                self._table.fence(deadline)

    def close(self) -> None:
        """Close a table of an earlier release to foreign writers, unless the last look found it closed.

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
        """Shorten the table's log, as of the last look; see `LogCleaner.clean`."""
        self.look_once()
        return self._rows.exists and self._cleaner.clean(self._table.state.table_id, self._table.state)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until the helper threads write to the table no more; `timeout` is in seconds.

        A merge of small files that is ready is committed.
        """
        self._helpers.wait(timeout)
        if not self._rows.has_merge:
            return
        deadline = Deadline(self._clock, MERGE_MS if timeout is None else timeout * 1000)
        try:
            with self._turns.awaited(deadline):
                merged = self._rows.land_merge(deadline)
        except KafkaError as cause:
            # The next commit of this process commits the merge, or maintenance removes its file.
            _log.warning("small files of %s were not merged: %s", self._rows.files.uri, cause)
            return
        if merged is not None:
            self._note_commit(merged)
            self._helpers.wait(timeout)
