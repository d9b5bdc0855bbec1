"""Table: a Delta table of a store, and the one loop that changes it.

A change is planned on a state, and lands as the next version of the log or not at all: `Storage.put_if_absent` of the
version's file is the compare-and-set on which offsets rest. What a change was planned on is said by its requirements,
so a version that somebody else has made in between costs a new plan only where it broke one of them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kafkalike.delta.actions import log_name, parse_commit
from kafkalike.delta.commit_file import BACKOFF_SECONDS, CommitFile, CommitPuts
from kafkalike.delta.log_files import HOUR_MS, LOG_STAYS, LogFiles, duration_ms, last_checkpoint
from kafkalike.delta.table_change import Change, Landed, Plan, Unchanged, broken_requirement, planned_commit
from kafkalike.delta.table_state import FENCE, TableState, ToSegment
from kafkalike.delta.tailed_table import Follower, TailedTable
from kafkalike.errors import (
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    PolicyViolationError,
    UnknownOutcomeError,
)
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline, within
from kafkalike.storage.port import NOW, Pace, Storage

MAX_BACKOFF_SECONDS: Final = 2.0
"""Longest wait after a concurrent writer's commit, however often that happens."""

LONG_SECONDS: Final = 600.0
"""A writer that was stopped for so long between its look and the end of its commit may have missed a clean-up: a log
stays for an hour at least."""

SURE_SECONDS: Final = 5.0
"""How long after a look nobody can have made the next version and cleaned it up: that takes an hour."""

T = TypeVar("T")

Refresh = Callable[[Pace], object]
"""Looks for what is new, as `TailedTable.refresh` does."""

Questions = Callable[[], Sequence[Callable[[], object]]]
"""What such a look asks the storage, as calls that can be made side by side."""


class Table(TailedTable):
    """One table of a store. Thread-safe.

    Args:
        store: the table's files.
        clock: time and waiting.
        to_segment: see `ToSegment`.
        look_back: see `TailedTable`.
        follower: see `TailedTable`.
        jitter: random number from 0 to 1, for the wait after a concurrent writer's commit.
        durable: whether changes must survive a power failure.
        rare: see `TailedTable`.
    """

    def __init__(
        self,
        store: Storage,
        clock: Clock,
        *,
        to_segment: ToSegment,
        look_back: Callable[[TableState, int, Storage], None] | None = None,
        follower: Follower | None = None,
        jitter: Callable[[], float] = random.random,
        durable: bool = False,
        rare: bool = False,
    ) -> None:
        super().__init__(store, clock, to_segment=to_segment, look_back=look_back, follower=follower, rare=rare)
        self.durable = durable
        self._jitter = jitter
        self._puts = CommitPuts(store, clock, jitter)

    def create(self, content: bytes) -> bool:
        """Make the table's first version.

        Args:
            content: see `actions.creation`; its id settles whose it is.

        Returns:
            Whether this call made it; False when there is a table.

        Raises:
            KafkaStorageError: the storage refused.
            UnknownOutcomeError: there may be a table or not.
        """
        commit = parse_commit(0, content, self.store.uri)
        try:
            self.store.make_folder("_delta_log")
        except OSError as cause:
            raise KafkaStorageError(f"{self.store.uri} cannot be created: {cause}") from cause
        return self._puts.put(0, content, str(commit.append_id), durable=self.durable)

    def change(
        self,
        plan: Plan[T],
        deadline: Deadline,
        refresh: Refresh | None = None,
        discard: Callable[[Change], None] | None = None,
        questions: Questions | None = None,
    ) -> Landed | Unchanged[T]:
        """Change the table: the only loop that does.

        Look, plan, make the data files durable if need be, put the next version if absent, settle what is in doubt;
        wait and begin again when a concurrent writer was faster, with the same change unless a requirement of it broke.

        Where a look takes long (`Scheduler.is_remote`, `Scheduler.combines`) and `questions` are given, the first plan
        is made of what is known, beside the look; what the look has found must agree with its requirements, or it is
        made anew.

        Args:
            plan: see `Plan`.
            deadline: until when to try.
            refresh: looks for what is new, here and elsewhere; this table's `refresh` when None.
            discard: removes the files of a change that is surely in no version; else its added files are.
            questions: what `refresh` asks, as calls that can be made side by side; see `TailedTable.questions`.

        Returns:
            The version, or what the plan found instead.

        Raises:
            KafkaTimeoutError: concurrent writers were faster until the deadline; nothing was done.
            KafkaStorageError: the storage refused; nothing was done, and nothing will be.
            PolicyViolationError: it takes records out of a table that somebody has made append-only.
            UnknownOutcomeError: the change may be there, or may still come; its files stay.
        """
        with within(deadline):
            return self._change(plan, deadline, refresh or self.refresh, discard or self._discard, questions)

    def _change(
        self,
        plan: Plan[T],
        deadline: Deadline,
        refresh: Refresh,
        throw_away: Callable[[Change], None],
        questions: Questions | None,
    ) -> Landed | Unchanged[T]:
        # Where a look takes long, the first plan is made beside it.
        beside = self.store.scheduler.is_remote and self.store.scheduler.combines
        append_id, attempt = uuid.uuid4().hex, 0
        planned: Change | None = None
        flushed: Change | None = None
        planned_on = -1
        moved = ""
        while True:
            try:
                # Before the look: where others write all the time, what was seen before a wait is old after it.
                self._back_off(attempt, deadline, moved)
                looked = SYSTEM_CLOCK.monotonic()
                if beside:
                    planned, planned_on = self._asked(questions, None if attempt else plan, (planned, planned_on))
                refresh(NOW if questions is None else Pace(since=looked))
                with self.mutex:
                    self.check_sound()
                    state = self.known or self.state
                    broken = "" if planned is None else broken_requirement(planned, planned_on, state)
                    if planned is not None and broken:
                        moved, stale, planned = broken, planned, None
                        throw_away(stale)
                    if planned is None:
                        found = plan(state)
                        if isinstance(found, Unchanged):
                            return found
                        planned, planned_on = found, state.fenced
                    self._check_removes(planned)
                    wanted = planned_commit(planned, state.version + 1, append_id)
                flushed = self._flushed(planned, flushed) if self.durable else flushed
            except (KafkaError, OSError):
                if planned is not None:
                    throw_away(planned)
                raise
            faults.point("commit.before")
            content = wanted.content()
            try:
                landed = self._puts.put(wanted.version, content, append_id, durable=self.durable)
            except KafkaStorageError:
                # Surely not there. The disk may be full: the files must not make that worse.
                throw_away(planned)
                raise
            faults.point("commit.after")
            sure = beside and self._is_sure(looked)
            if landed and (sure or not self._fell_behind(wanted.version, looked, append_id)):
                self._go_on(wanted)
                return Landed(wanted.version, planned, content)
            attempt += 1

    def _asked(
        self, questions: Questions | None, plan: Plan[T] | None, known: tuple[Change | None, int]
    ) -> tuple[Change | None, int]:
        """Ask the storage what is new, and plan a change on what is known meanwhile.

        Args:
            questions: what the storage is asked; None asks nothing.
            plan: see `Plan`; None plans nothing.
            known: what is returned where nothing was planned.

        Returns:
            The change and the fence that was the latest when it was planned. None where it is to be planned when the
            look is over: what refuses it, or shows that it was made before, may be out of date.

        Raises:
            KafkaStorageError: the storage refused its files.
        """
        state = self.known
        if questions is None:
            return known
        if plan is None or state is None:
            self.store.scheduler.beside(questions())
            return known
        made: list[Change] = []

        def first() -> None:
            try:
                with self.mutex:
                    found = plan(state)
            except KafkaStorageError:
                raise
            except KafkaError:
                return
            if isinstance(found, Change):
                made.append(found)

        fenced = state.fenced
        self.store.scheduler.beside([first, *questions()])
        return (made[0], fenced) if made else (None, -1)

    def _is_sure(self, looked: float) -> bool:
        """Whether the place of a version that was put cannot have been emptied by a clean-up since the last look.

        Args:
            looked: when that look began. It must have seen that the version before is there, and none in its place.
        """
        state, (seen, seen_at) = self.known, self._seen_there
        if state is None or not 0 <= seen <= state.version or seen_at < looked:
            return False
        in_time = SYSTEM_CLOCK.monotonic() - looked <= SURE_SECONDS
        return in_time and duration_ms(state.properties, LOG_STAYS) >= HOUR_MS

    def fence(self, deadline: Deadline) -> Landed:
        """Make a version without content: a writer that has planned before it must plan anew.

        After it nobody can commit a data file that was written before: so files that no version names may be removed.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `change`.
        """
        found: Landed | Unchanged[None] = self.change(
            lambda _: Change(operation=FENCE, time_ms=self._clock.now_ms()), deadline
        )
        assert isinstance(found, Landed)
        return found

    def _go_on(self, wanted: CommitFile) -> None:
        """Take in the version that was just made, without reading it."""
        with self.mutex:
            if self.known is not None and self.known.version == wanted.version - 1:
                self._apply(wanted.applied())

    def _fell_behind(self, version: int, looked: float, append_id: str) -> bool:
        """Whether the log went on past a version so long ago that clean-up has taken what stood in its place.

        A writer that was stopped between its look and its commit finds the place empty again. Nobody has seen what it
        put there: whoever loads the table begins at the checkpoint above it. The same holds where the table was removed
        meanwhile, with its topic: then there is nothing below, and no checkpoint either. And where a backup was
        restored meanwhile: then nobody could load the table, as the version before was never made in what it is now.

        The version before may be one that another such writer has put. So after a long stop it proves nothing where a
        checkpoint is at or above the place: the version may count, when it was made before that checkpoint, or not.

        Args:
            version: that was put.
            looked: when the look before it began.
            append_id: what the version carries.

        Raises:
            UnknownOutcomeError: neither can be said.
        """
        if version == 0 or self._content_there(log_name(version - 1)):
            stopped = SYSTEM_CLOCK.monotonic() - looked
            if stopped > LONG_SECONDS and last_checkpoint(self.store) >= version:
                self.known = None
                raise UnknownOutcomeError(
                    f"{self.store.uri}: this process was stopped for {stopped:.0f} s while it wrote version {version}, "
                    "and a checkpoint above it was made meanwhile",
                    append_id,
                )
            return False
        if last_checkpoint(self.store) < version and self._follows_checkpoint(version):
            return False
        self.store.remove(log_name(version), quietly=True)
        self.known = None
        return True

    def _follows_checkpoint(self, version: int) -> bool:
        """Whether the version before one has a checkpoint, so that it is no gap; True when the storage does not say."""
        try:
            return version - 1 in LogFiles.listed(self.store).checkpoints
        except OSError:
            return True

    def _back_off(self, attempt: int, deadline: Deadline, moved: str) -> None:
        """Wait after losing against a concurrent writer: a random time that doubles with each try, from the second.

        Args:
            attempt: how often it has lost.
            deadline: until when to try.
            moved: which requirement broke last, in words; empty where only the version was taken.

        Raises:
            KafkaTimeoutError: the wait would take all the time that is left.
        """
        if not attempt:
            return
        wait = self._jitter() * min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** (attempt - 1))
        if deadline.remaining() <= wait:
            why = f" (at last, {moved})" if moved else ""
            raise KafkaTimeoutError(
                f"{self.store.uri}: nothing was written, as other writers made the next version first, {attempt} "
                f"times{why}. Try again, or raise the timeout of the call: `delivery_timeout_ms` of a producer, "
                "`default_api_timeout_ms` of a consumer"
            )
        self._clock.sleep(wait)

    def check_removable(self) -> None:
        """Refuse a table from which nobody may take records out; `change` does it before each change that would.

        Raises:
            PolicyViolationError: saying which property forbids it.
        """
        refusal = self.state.removal_refusal
        if refusal is not None:
            raise PolicyViolationError(f"nothing is removed from {self.store.uri}: {refusal}")

    def _check_removes(self, change: Change) -> None:
        """Refuse a change that takes records out where nobody may; one that moves them between files is none."""
        if change.removes and any(old.data_change for old in change.removes):
            self.check_removable()

    def _flushed(self, change: Change, before: Change | None) -> Change:
        """Make the data files of a change survive a power failure, before a version names them.

        Args:
            change: to be made.
            before: the change whose files do so already.

        Returns:
            The change whose files do so now.

        Raises:
            KafkaStorageError: the storage refused.
        """
        if change is before:
            return change
        try:
            for add in change.adds:
                self.store.sync(add.path)
        except OSError as cause:
            raise KafkaStorageError(f"{self.store.uri}: the storage could not flush the records: {cause}") from cause
        return change

    def _discard(self, change: Change) -> None:
        for add in change.adds:
            self.store.remove(add.path, quietly=True)
