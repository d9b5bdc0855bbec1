"""Control group commit: one commit for the rows that threads of many processes add to a control table.

The threads of a process hand their changes over to each other (`SharedChanges`): one thread writes all waiting changes
while the others wait. The processes make versions for each other (`GroupCommit`) where every machine may write. A
change that is a value can be staged beside the table, for the process that makes the next version. Any other change
competes for the version, and takes the staged ones with it. Each change makes its rows from the state right before them
(`in_turn`), and its rows stay together.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

from kafkalike.delta.actions import APPEND
from kafkalike.delta.damage import opened, sealed
from kafkalike.delta.group_commit.group_commit import GroupCommit
from kafkalike.delta.group_commit.staging_area import AtVersion, GroupedChange, OpenAppends
from kafkalike.delta.log_cleaner import Helpers, LogCleaner
from kafkalike.delta.row_table import MERGE_INTERVAL, MERGE_MS, RowTable
from kafkalike.delta.table_change import Change, Landed, Plan, Unchanged, WriteQueue
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaError, KafkaTimeoutError, UnknownOutcomeError
from kafkalike.model import faults
from kafkalike.model.appends import waiting_appends
from kafkalike.model.appends.taken_appends import PARTS_KEY, Placed, WaitingAppend
from kafkalike.model.clock import Deadline, within
from kafkalike.model.row_value import UNREADABLE, ControlState, checked_list

_log = logging.getLogger(__name__)

MOST_STORED: Final = 1024 * 1024
"""About the most bytes of changes in a staged file. A larger change is not staged, and only competes for versions."""

S = TypeVar("S", bound=ControlState)
R = TypeVar("R")


@runtime_checkable
class Storable(Protocol):
    """A unit that can be staged in a file."""

    def dumped(self) -> dict[str, Any]:
        """Return the unit as JSON."""
        ...


def _can_wait(unit: object) -> bool:
    return isinstance(unit, Storable)


def _json_of(unit: object) -> dict[str, Any]:
    """Return a storable unit as JSON."""
    assert isinstance(unit, Storable)
    return unit.dumped()


@dataclass(frozen=True, slots=True)
class Bundle(Generic[S, R]):
    """Units that are written together."""

    units: Sequence[waiting_appends.Unit[S, R]]

    @property
    def packed(self) -> bytes | None:
        """The units as bytes; None if one cannot be staged."""
        found = [_json_of(unit) for unit in self.units if _can_wait(unit)]
        return json.dumps(found, separators=(",", ":")).encode() if len(found) == len(self.units) else None


class ControlGroupCommit(Generic[S, R]):
    """The changes of one process to one control table. Thread-safe.

    Args:
        table: the table.
        load: makes a staged unit from its JSON; raises an error of `UNREADABLE` for invalid JSON.
        helpers: threads that keep the table's log short.
    """

    def __init__(
        self, table: RowTable[S, R], load: Callable[[Mapping[str, Any]], waiting_appends.Unit[S, R]], helpers: Helpers
    ) -> None:
        self.rows = table
        self.helpers = helpers
        self._load = load
        self._turns = WriteQueue(table.root, table.location, table.clock, None, lambda: table.state.seq)
        self._cleaner = LogCleaner(table.root, table.location, helpers, table.clock)
        self.combined: GroupCommit[Bundle[S, R]] = GroupCommit(
            table.table, self, table.clock, table.jitter, OpenAppends(of_process=True)
        )
        self._shared: SharedChanges[waiting_appends.Unit[S, R]] = SharedChanges(self._write, _together)

    def bring(self, unit: waiting_appends.Unit[S, R], deadline: Deadline) -> None:
        """Write a unit's rows, unless it refuses the state.

        Raises:
            KafkaTimeoutError: other writers were faster until the deadline; nothing was written.
            UnknownOutcomeError: the rows may have been written.
            Exception: raised by the unit; nothing was written.
        """
        self._shared.bring(unit, deadline)

    def _write(self, changes: Sequence[PendingChange[waiting_appends.Unit[S, R]]]) -> None:
        write_together(changes, self._append, lambda: self.rows.state)

    def _append(self, units: Sequence[waiting_appends.Unit[S, R]], deadline: Deadline) -> Container[int]:
        placed = self.combined.append(Bundle(units), deadline)
        faults.point("rows.after_commit")
        return placed.ranges

    # --- what appends to the table are: see `Appends` ------------------------------------------

    def change(self, plan: Plan[Any], deadline: Deadline) -> Landed | Unchanged[Any]:
        """Change the table, and shorten its log."""
        table = self.rows.table
        questions = table.questions if table.store.scheduler.is_remote else None
        landed = table.change(plan, deadline, self.rows.sound, questions=questions)
        if isinstance(landed, Landed):
            if landed.version % MERGE_INTERVAL == 0:
                # Beside the commits, which do not wait for it.
                self.helpers.start(self._merge)
            with table.mutex:
                self._cleaner.after_commit(landed, table.known)
        return landed

    def _merge(self) -> None:
        self.rows.prepare_merge()
        merged = self.rows.land_merge(Deadline(self.rows.clock, MERGE_MS))
        if merged is not None:
            self.combined.led = max(self.combined.led, merged.version)

    def look(self) -> None:
        """Refresh the state."""
        self.rows.refresh()

    def admit(self, own: Bundle[S, R]) -> None:
        """Look at the table; `made` asks the units themselves, and a refused one leaves no row."""
        del own
        self.rows.sound()

    def turn(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Hold the turn among this process's threads."""
        return self._turns.held(deadline)

    def storable(self, own: Bundle[S, R]) -> bool:
        """Return True if the units fit into a staged file."""
        packed = own.packed
        return packed is not None and len(packed) <= 2 * MOST_STORED

    def packed(self, own: Bundle[S, R]) -> bytes:
        """Return the staged file of the units."""
        packed = own.packed
        assert packed is not None
        return sealed(packed)

    def unpacked(self, content: bytes) -> Bundle[S, R]:
        """Return the units of a staged file.

        Raises:
            ValueError, TypeError, LookupError, RecursionError: the units cannot be read.
        """
        found = checked_list(json.loads(opened(content)))
        if len(found) > waiting_appends.MOST_UNITS:
            raise ValueError("too many units")
        return Bundle([self._load(each) for each in found])

    def made(
        self,
        state: TableState,
        own: Bundle[S, R],
        part: WaitingAppend | None,
        others: Sequence[tuple[WaitingAppend, bytes]] | None,
    ) -> GroupedChange | Placed:
        """Make the next version. It decides all readable staged units, including units that refuse the state."""
        sequence = 0 if part is None else part.sequence
        bundles, unfit = self._readable(others or ())
        # Own units that are not staged come last, because the others began to wait before them.
        bundles = sorted(
            [*bundles, (part or waiting_appends.OWN, own)],
            key=lambda found: (found[0] is waiting_appends.OWN, found[0]),
        )
        done = waiting_appends.in_turn(self.rows.state, [bundle.units for _, bundle in bundles])
        mine = next(
            run for (found, _), run in zip(bundles, done.runs, strict=True) if found is (part or waiting_appends.OWN)
        )
        if not done.rows and part is None:
            return Placed(sequence, state.version, mine)
        now = self.rows.clock.now_ms()
        note: dict[str, Any] = {"time": now}
        if others is not None:
            named = zip(bundles, done.runs, strict=True)
            note[PARTS_KEY] = waiting_appends.to_note([(found, run, None) for (found, _), run in named])
        adds = []
        if done.rows:
            self.rows.check_free(int(done.rows[0].seq), state)
            adds = [self.rows.row_files.write_new(done.rows)]
        faults.point("rows.before_commit")
        change = Change(operation=APPEND, time_ms=now, adds=adds, note=note, requires=[AtVersion(state.version)])
        return GroupedChange(change, mine, len(bundles) - 1, unfit)

    def _readable(
        self, others: Sequence[tuple[WaitingAppend, bytes]]
    ) -> tuple[list[tuple[WaitingAppend, Bundle[S, R]]], list[WaitingAppend]]:
        found, unfit = list[tuple[WaitingAppend, Bundle[S, R]]](), list[WaitingAppend]()
        for part, content in others:
            try:
                found.append((part, self.unpacked(content)))
            except (*UNREADABLE, KafkaError) as cause:
                _log.debug("%s: %s is left out: %r", self.rows.files.uri, part.name, cause)
                unfit.append(part)
        return found, unfit


def _together(units: Sequence[waiting_appends.Unit[Any, Any]]) -> int:
    """Return the number of waiting units to write together; a unit that cannot be staged is written alone."""
    count, size = 0, 0
    for unit in units[: waiting_appends.MOST_UNITS]:
        if not _can_wait(unit):
            break
        size += len(json.dumps(_json_of(unit)))
        if count and size > MOST_STORED:
            break
        count += 1
    return max(1, count)


def write_together(
    changes: Sequence[PendingChange[waiting_appends.Unit[S, R]]],
    append: Callable[[Sequence[waiting_appends.Unit[S, R]], Deadline], Container[int]],
    state: Callable[[], S],
) -> None:
    """Write the units that accept the state, and settle each change.

    Args:
        changes: the changes.
        append: writes units; returns the places of the accepted ones.
        state: returns the state after that.
    """
    deadline = min((each.deadline for each in changes), key=lambda found: found.remaining())
    try:
        with within(deadline):
            accepted = append([each.unit for each in changes], deadline)
    except KafkaTimeoutError as cause:
        # Nothing was written. Units with time left are written again.
        for each in changes:
            if each.deadline.expired() or len(changes) == 1:
                each.settle(cause)
        return
    # First those whose rows are there: an error of what follows is not theirs.
    for nth, each in enumerate(changes):
        if nth in accepted:
            each.settle()
    refused = [each for each in changes if not each.settled]
    if not refused:
        return
    found = state()
    for each in refused:
        try:
            found.applied(each.unit(found))
        except Exception as cause:  # noqa: BLE001 - its own caller is told
            each.settle(cause)


LOOK_SECONDS: Final = 1.0
"""Interval at which a waiting thread checks that another one is writing, because an interrupted thread may have woken
nobody."""

U = TypeVar("U")


class PendingChange(Generic[U]):
    """A change of one thread."""

    __slots__ = ("_told", "deadline", "error", "settled", "unit")

    def __init__(self, unit: U, deadline: Deadline) -> None:
        self.unit = unit
        self.deadline = deadline
        self.settled = False
        self.error: BaseException | None = None
        """Reason why nothing was written, or why the outcome is unknown; None if the change was written."""
        self._told: SimpleQueue[None] = SimpleQueue()

    def settle(self, error: BaseException | None = None) -> None:
        """Set the outcome, and wake the change's thread."""
        self.error, self.settled = error, True
        self.tell()

    def tell(self) -> None:
        """Wake the change's thread."""
        self._told.put(None)

    def wait(self) -> None:
        """Wait until woken, until the deadline, or until it is time to check that another thread is writing."""
        left = min(LOOK_SECONDS, self.deadline.remaining()) or LOOK_SECONDS
        with suppress(Empty):
            self._told.get(timeout=left)


class SharedChanges(Generic[U]):
    """The changes of one process to one table. Thread-safe.

    The writing thread holds a lock, which an interrupt releases. The next thread with the lock finds all other
    unfinished work of an interrupted thread, and any waiting thread can be the next one.

    Args:
        write: writes changes, and settles them; changes that it does not settle are written again.
        choose: returns how many of the waiting changes to write together, from the first one on; at least one.
    """

    def __init__(
        self, write: Callable[[Sequence[PendingChange[U]]], None], choose: Callable[[Sequence[U]], int]
    ) -> None:
        self._write = write
        self._choose = choose
        self._at_work = threading.Lock()
        self._mutex = threading.Lock()
        self._waiting: list[PendingChange[U]] = []
        self._in_hand: list[PendingChange[U]] = []
        """Changes that are being written. A change that is also waiting was not started."""

    def bring(self, unit: U, deadline: Deadline) -> None:
        """Write a change together with changes of other threads.

        Raises:
            KafkaTimeoutError: the deadline expired; nothing was written.
            UnknownOutcomeError: the change may have been written.
            Exception: the refusal of the change; nothing was written.
        """
        mine = PendingChange(unit, deadline)
        try:
            with self._mutex:
                self._waiting.append(mine)
            while not mine.settled:
                if not self._at_work.locked():
                    with self._at_work:
                        self._go(mine)
                elif deadline.expired() and self._leave(mine):
                    raise KafkaTimeoutError(
                        "other threads of this process were writing until the timeout; nothing was written. Try again, "
                        "or raise the timeout of the call"
                    )
                else:
                    mine.wait()
        finally:
            self._leave(mine)
            self._wake_next()
        if mine.error is not None:
            raise mine.error

    def _leave(self, mine: PendingChange[U]) -> bool:
        """Stop waiting; return True if no thread had started on the change."""
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return True
            return False

    def _wake_next(self) -> None:
        """Wake the next thread to write, or to find the work of an interrupted one."""
        with self._mutex:
            # A writing thread wakes them itself.
            for each in () if self._at_work.locked() else (*self._waiting[:1], *self._in_hand):
                each.tell()

    def _go(self, mine: PendingChange[U]) -> None:
        """Write waiting changes until the own one is settled. Caller: the thread with the lock."""
        self._give_up()
        while not mine.settled:
            taken = self._take()
            try:
                self._write(taken)
            except Exception as cause:  # noqa: BLE001 - each of them is told
                for each in taken:
                    if not each.settled:
                        each.settle(cause)
            self._put_back(taken)

    def _take(self) -> list[PendingChange[U]]:
        with self._mutex:
            taken = self._waiting[: self._choose([each.unit for each in self._waiting])]
            self._in_hand = taken
            del self._waiting[: len(taken)]
            return taken

    def _put_back(self, taken: Sequence[PendingChange[U]]) -> None:
        """Queue the unsettled changes again, before later ones."""
        with self._mutex:
            again = [each for each in taken if not each.settled]
            self._waiting[:0] = again
            self._in_hand = []
            for each in again:
                # Its deadline may have expired.
                each.tell()

    def _give_up(self) -> None:
        """Settle the changes that an interrupted thread was writing."""
        with self._mutex:
            for each in self._in_hand:
                if not each.settled and each not in self._waiting:
                    each.settle(UnknownOutcomeError("change of a control table", "of an interrupted thread"))
            self._in_hand = []
