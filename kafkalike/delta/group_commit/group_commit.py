"""Group commit: one table commit for the appends of many writers, where every machine may write.

`kafkalike.model.appends.group_commit` decides the steps and their order; this module executes them. A waiting append is
staged in a folder of the table that readers of Delta ignore. `Table.change` makes the versions, as for every change.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from kafkalike import errors
from kafkalike.delta.actions import APPEND
from kafkalike.delta.group_commit.staging_area import Appends, GroupedChange, OpenAppends, StagingArea
from kafkalike.delta.table_change import Change, Landed, Unchanged
from kafkalike.delta.table_state import FENCE, TableState
from kafkalike.delta.tailed_table import TailedTable
from kafkalike.model import faults
from kafkalike.model.appends import group_commit, waiting_appends
from kafkalike.model.appends.taken_appends import Placed, WaitingAppend
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.effects import run

GRACE_MS: Final = 10_000.0
"""Time limit for finding out the outcome of a withdrawn append, ms."""

T = TypeVar("T")
A = TypeVar("A")
"""An append of the table, before it has offsets."""


class GroupCommit(Generic[A]):
    """Appends of one process to one table. Thread-safe.

    Args:
        table: the table.
        appends: defines the table's appends.
        clock: time and waiting.
        jitter: random number from 0 to 1.
        opened: the table's open appends in this process.
    """

    def __init__(
        self,
        table: TailedTable,
        appends: Appends[A],
        clock: Clock,
        jitter: Callable[[], float],
        opened: OpenAppends,
    ) -> None:
        self.table = table
        self.appends = appends
        self.clock = clock
        self.jitter = jitter
        self.open = opened
        self.files = StagingArea(table.store, clock, jitter)
        self.company = group_commit.Contention()
        self.led = -1
        """Latest version made by this process."""
        self._id = uuid.uuid4().hex
        self._own: str | None = None
        """Id of the latest append made by this process."""
        self._version, self._moved = -1, 0.0
        """Latest known version, and the time at which it appeared, s."""

    def append(self, own: A, deadline: Deadline) -> Placed:
        """Write an append into the table.

        Raises:
            KafkaTimeoutError: other writers were faster until the deadline; nothing was written.
            UnknownOutcomeError: the append may be in the table, or may land until this thread's next append.
            KafkaError: nothing was written.
        """
        self._settle_own()
        if self.table.loaded:
            self.note(self.table.state)
        runner = _EffectRunner(self, own, deadline)
        steps = group_commit.appending(
            runner.make,
            lambda base, seconds: waiting_appends.Room(base, self._id, int(seconds * 1000)),
            alone=self.company.alone(self.clock.monotonic()),
            leading=self.table.loaded and self.led == self.table.state.version,
            storable=self.appends.storable(own),
            pace=lambda: self.company.pace,
            jitter=self.jitter,
            deadline=self.clock.monotonic() + deadline.remaining(),
        )
        try:
            placed: Placed = runner.run(steps)
        except errors.UnknownOutcomeError:
            raise
        except errors.KafkaError:
            if runner.part is not None:
                self.open.close(runner.part, landed=False)
            raise
        if runner.part is not None:
            self.meet()
            self.open.close(runner.part, landed=True)
        return placed

    def meet(self) -> None:
        """Note that there are other writers."""
        self.company = self.company.seen(self.clock.monotonic())

    def note(self, state: TableState) -> float:
        """Note the writer of a state's latest append; return the age of the state's version, s."""
        now = self.clock.monotonic()
        if state.version != self._version:
            known = self._version >= 0
            # The load of a newly opened table is judged by its own times.
            age = 0.0 if known else max(0.0, (self.clock.now_ms() - state.last_commit_ms) / 1000)
            self._version, self._moved = state.version, now - age
            if state.appended is not None and state.appended != self._own and age < group_commit.RIVALS_SECONDS:
                self.meet()
        return now - self._moved

    def made(self, landed: Landed) -> None:
        """Note a version made by this process."""
        with self.table.mutex:
            self.led = max(self.led, landed.version)
            if landed.change.operation == APPEND and self.table.loaded and self.table.state.version == landed.version:
                self._own = self.table.state.appended
                self._version, self._moved = landed.version, self.clock.monotonic()

    def _settle_own(self) -> None:
        """Withdraw open appends, or find them in the table, so that none lands after a later append."""
        for part in self.open.left():
            try:
                landed = self._settled(part)
            except errors.UnknownOutcomeError as cause:
                if isinstance(cause.__cause__, errors.UnsupportedVersionError):
                    # A client that may not settle the append may not write anything else.
                    raise cause.__cause__ from cause
                raise errors.KafkaStorageError(
                    f"{self.table.store.uri}: nothing was written, as an earlier append is in doubt: {cause}"
                ) from cause
            self.open.close(part, landed=landed)

    def _settled(self, part: WaitingAppend) -> bool:
        """Return True if an append is known to have landed. It cannot land after this call."""
        deadline = Deadline(self.clock, GRACE_MS)
        try:
            return _EffectRunner[A](self, None, deadline, part).run(group_commit.withdrawing(part)) is not None
        except waiting_appends.ForgottenError:
            # Its caller got the error "unknown outcome", and the log does not show the outcome any more.
            _EffectRunner[A](self, None, deadline).run(group_commit.sealing(part))
            return False

    def discard_one(self) -> bool:
        """Remove the file of an append that was taken; return False if there is none."""
        part = self.open.litter()
        if part is not None:
            self.files.discard(part)
        return part is not None


class _EffectRunner(Generic[A]):
    """Executes the effects of one append."""

    def __init__(
        self,
        shared: GroupCommit[A],
        own: A | None,
        deadline: Deadline,
        part: WaitingAppend | None = None,
    ) -> None:
        self._shared = shared
        self._own = own
        self._deadline = deadline
        self._table = shared.table
        self._files = shared.files
        self._clock = shared.clock
        self.part = part

    def make(self, base: int) -> WaitingAppend:
        """Open a name for the append; see `appending`."""
        self.part = self._shared.open.open(base)
        return self.part

    def run(self, protocol: Generator[group_commit.CommitEffect, Any, T]) -> T:
        """Run a protocol to its end, with `KafkaError`s passed to it."""
        return run(protocol, self._do, errors.KafkaError)

    def _do(self, act: group_commit.CommitEffect) -> Placed | waiting_appends.Lost | group_commit.Seen | None:
        match act:
            case group_commit.Look(admit):
                return self._look(admit=admit)
            case group_commit.Pause(seconds):
                if not self._shared.discard_one():
                    self._clock.sleep(seconds)
            case group_commit.Put(part):
                self._put(part)
            case group_commit.AskRoom(room) | group_commit.LeaveRoom(room):
                self._files.note_room(room, wanted=isinstance(act, group_commit.AskRoom))
            case group_commit.Withdraw(part):
                self._files.withdraw(part)
            case group_commit.MoveOn(version):
                return self._move_on(version)
            case group_commit.Attempt():
                return self._attempt(act)
        return None

    # --- looking -------------------------------------------------------------------------------

    def _look(self, *, admit: bool) -> group_commit.Seen:
        if admit:
            assert self._own is not None
            self._shared.appends.admit(self._own)
        else:
            self._shared.appends.look()
        return self._seen()

    def _seen(self) -> group_commit.Seen:
        with self._table.mutex:
            state = self._table.state
            version, taken, deaf = state.version, state.taken, state.deaf
            age = self._shared.note(state)
        if self.part is not None and not taken.knows(self.part):
            taken = replace(taken, since=self.part.base, latest=self._files.recalled(self.part, version))
        return group_commit.Seen(version, taken, self._clock.monotonic(), deaf, self._shared.led == version, age)

    def _put(self, part: WaitingAppend) -> None:
        assert self._own is not None
        content = self._shared.appends.packed(self._own)
        faults.point("append.before_waiting")
        seconds = self._files.put(part, content)
        self._shared.company = self._shared.company.took(seconds)
        faults.point("append.waiting")

    # --- versions ------------------------------------------------------------------------------

    def _move_on(self, version: int) -> group_commit.Seen:
        def plan(state: TableState) -> Change | Unchanged[None]:
            if state.version > version:
                return Unchanged(None)
            return Change(operation=FENCE, time_ms=self._clock.now_ms())

        # Usually the caller's deadline is the limit; only to settle a withdrawn append the call may take longer.
        waits = self._deadline.remaining() * 1000 > GRACE_MS
        landed = self._shared.appends.change(plan, self._deadline if waits else Deadline(self._clock, GRACE_MS))
        if isinstance(landed, Landed):
            self._shared.made(landed)
        return self._seen()

    def _attempt(self, act: group_commit.Attempt) -> Placed | waiting_appends.Lost:
        own, made, shared = self._own, list[GroupedChange](), self._shared
        assert own is not None

        def plan(state: TableState) -> Change | Unchanged[Placed | waiting_appends.Lost]:
            # Called beside the look, and again if that found news; errors of the first call are not raised.
            found = self._made(act, own, state, tried=bool(made))
            if not isinstance(found, GroupedChange):
                return Unchanged(found)
            made.append(found)
            return found.change

        with contextlib.ExitStack() as stack:
            if not self._have_turn(stack, own):
                shared.meet()
                return waiting_appends.BUSY
            begun = self._clock.monotonic()
            landed = shared.appends.change(plan, self._deadline)
            if made:
                shared.company = shared.company.attempted(self._clock.monotonic() - begun)
            if isinstance(landed, Landed):
                shared.made(landed)
        if isinstance(landed, Unchanged):
            done: Placed | waiting_appends.Lost = landed.value
            if act.part is not None or not isinstance(done, Placed):
                shared.meet()
            return done
        if act.combine:
            shared.company = shared.company.crowded(made[0].taken + 1)
        if made[0].taken:
            shared.meet()
        sequence = 0 if act.part is None else act.part.sequence
        return Placed(sequence, landed.version, made[0].ranges, landed.change.time_ms)

    def _made(
        self, act: group_commit.Attempt, own: A, state: TableState, *, tried: bool
    ) -> GroupedChange | Placed | waiting_appends.Lost:
        """Make the version of an attempt on a state, with its files; or return the reason why none is made."""
        placed = None if act.part is None else self._placed(act.part, state)
        if placed is not None:
            return placed
        if tried or (act.leading and state.version != self._shared.led):
            return waiting_appends.LOST
        others = self._files.found(state.taken, self.part, act.room) if act.combine else None
        if others is waiting_appends.GIVES_WAY:
            return waiting_appends.GIVES_WAY
        found = self._shared.appends.made(state, own, act.part, others)
        if isinstance(found, GroupedChange):
            self._files.skip(found.unfit)
        return found

    def _have_turn(self, stack: contextlib.ExitStack, own: A) -> bool:
        """Take the turn among this process's threads; a writer that can stage its append does not wait for it."""
        patience = Deadline(self._clock, 0.0) if self._shared.appends.storable(own) else self._deadline
        try:
            stack.enter_context(self._shared.appends.turn(patience))
        except errors.KafkaTimeoutError:
            if self._deadline.expired():
                raise
            return False
        return True

    def _placed(self, part: WaitingAppend, state: TableState) -> Placed | None:
        if state.taken.knows(part):
            return state.taken.of(part)
        return self._files.recalled(part, state.version).get(part.writer)
