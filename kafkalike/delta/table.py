"""Table: a Delta table of a store, and the only loop that changes it.

A change is planned on a state, and lands as the next version of the log or not at all: `Storage.put_if_absent` of the
version's file is the compare-and-set on which offsets rest. A change carries requirements, the facts that it was
planned on. So another writer's version forces a new plan only if it broke a requirement.
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
from kafkalike.errors import KafkaError, KafkaStorageError, KafkaTimeoutError, PolicyViolationError, UnknownOutcomeError
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline, within
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, Pace

MAX_BACKOFF_SECONDS: Final = 2.0
"""Longest wait after losing to a concurrent writer."""

LONG_SECONDS: Final = 600.0
"""A writer that was stopped for longer between its look and the end of its commit may have missed a clean-up, because a
log keeps an hour at least."""

SURE_SECONDS: Final = 5.0
"""Time after a look in which nobody can have made the next version and cleaned it up, because clean-up takes an
hour."""

T = TypeVar("T")

Refresh = Callable[[Pace], object]
"""Looks for new versions, as `TailedTable.refresh` does."""

Questions = Callable[[], Sequence[Callable[[], object]]]
"""Requests of such a look, as calls that can run side by side."""


class Table(TailedTable):
    """One table of a store. Thread-safe.

    Args:
        store: the table's files.
        clock: time and waiting.
        to_segment: see `ToSegment`.
        look_back: see `TailedTable`.
        follower: see `TailedTable`.
        jitter: random number from 0 to 1, for the wait after losing to a concurrent writer.
        durable: True if changes must survive a power failure.
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
        """Create the table's first version.

        Args:
            content: from `commit_file.creation`; the id in it settles whose version it is.

        Returns:
            True if this call created it; False if the table exists.

        Raises:
            KafkaStorageError: the storage refused.
            UnknownOutcomeError: the table may exist or not.
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
        """Change the table. No other loop does.

        Look, plan, make the data files durable if required, put the next version if absent, settle an ambiguous
        outcome. If a concurrent writer was faster, wait and repeat, with the same change unless a requirement broke.

        If a look takes long (`Scheduler.is_remote`, `Scheduler.combines`) and `questions` are given, the first plan is
        made on the known state, beside the look. If the look breaks a requirement, the change is planned
        again.

        Args:
            plan: see `Plan`.
            deadline: until when to try.
            refresh: looks for news, here and elsewhere; this table's `refresh` if None.
            discard: removes the files of a change that is surely in no version; its added files if None.
            questions: requests of `refresh`, as calls that can run side by side; see `TailedTable.questions`.

        Returns:
            The version, or the plan's `Unchanged`.

        Raises:
            KafkaTimeoutError: concurrent writers were faster until the deadline; nothing was changed.
            KafkaStorageError: the storage refused; nothing was changed, and nothing will be.
            PolicyViolationError: the change removes records from an append-only table.
            UnknownOutcomeError: the change may have landed, or may still do so; its files stay.
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
        # If a look takes long, make the first plan beside it.
        beside = self.store.scheduler.is_remote and self.store.scheduler.combines
        append_id, attempt = uuid.uuid4().hex, 0
        planned: Change | None = None
        flushed: Change | None = None
        planned_on = -1
        moved = ""
        while True:
            try:
                # Wait before the look: with constant writers, a look before the wait is outdated.
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
                # The version surely failed. Remove the files, because the disk may be full.
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
        """Send the requests of a look, and plan a change on the known state meanwhile.

        Args:
            questions: requests to send; None sends none.
            plan: see `Plan`; None plans nothing.
            known: result without a new plan.

        Returns:
            The change, and the latest fence when it was planned. None instead of a change if it must be planned after
            the look: a refusal, or the finding that it was made before, may rest on an outdated state.

        Raises:
            KafkaStorageError: the storage refused the change's files.
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
        """Return True if no clean-up can have emptied the place of a version since the last look.

        Args:
            looked: start of that look. It must have seen the version before, and an empty place.
        """
        state, (seen, seen_at) = self.known, self._seen_there
        if state is None or not 0 <= seen <= state.version or seen_at < looked:
            return False
        in_time = SYSTEM_CLOCK.monotonic() - looked <= SURE_SECONDS
        return in_time and duration_ms(state.properties, LOG_STAYS) >= HOUR_MS

    def fence(self, deadline: Deadline) -> Landed:
        """Make a version without content, so that writers with an older plan must plan again.

        After it, no data file written before it can be committed. So unnamed files may be removed.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `change`.
        """
        found: Landed | Unchanged[None] = self.change(
            lambda _: Change(operation=FENCE, time_ms=self._clock.now_ms()), deadline
        )
        assert isinstance(found, Landed)
        return found

    def _go_on(self, wanted: CommitFile) -> None:
        """Apply the version that this client just made, without reading it."""
        with self.mutex:
            if self.known is not None and self.known.version == wanted.version - 1:
                self._apply(wanted.applied())

    def _fell_behind(self, version: int, looked: float, append_id: str) -> bool:
        """Return True if a version was put into a place that clean-up had emptied long ago.

        A writer that was stopped between its look and its commit finds the place empty again. Nobody sees its version,
        because readers start at the checkpoint above it. The same holds if the table was deleted meanwhile: then the
        version before and the checkpoint are both missing. And if a backup was restored meanwhile: then nobody could
        load the table, because the version before was never made in the restored one.

        The version before may come from another such writer. So after a long stop it proves nothing if a checkpoint is
        at or above the place: the version counts only if it was made before that checkpoint.

        Args:
            version: that was put.
            looked: start of the look before.
            append_id: id in the version.

        Raises:
            UnknownOutcomeError: the log does not show which case it is.
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
        """Return True if the version before has a checkpoint, so that nothing is missing, or it is unknown."""
        try:
            return version - 1 in LogFiles.listed(self.store).checkpoints
        except OSError:
            return True

    def _back_off(self, attempt: int, deadline: Deadline, moved: str) -> None:
        """Wait after losing to a concurrent writer: a random time that doubles with each try, from the second on.

        Args:
            attempt: number of lost tries.
            deadline: until when to try.
            moved: reason of the last broken requirement; empty if only the version was taken.

        Raises:
            KafkaTimeoutError: the wait would outlast the deadline.
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
        """Raise if the table is append-only; `change` calls it before each change that removes records.

        Raises:
            PolicyViolationError: with the property that forbids it.
        """
        refusal = self.state.removal_refusal
        if refusal is not None:
            raise PolicyViolationError(f"nothing is removed from {self.store.uri}: {refusal}")

    def _check_removes(self, change: Change) -> None:
        """Raise if a change removes records from an append-only table; moving them between files is allowed."""
        if change.removes and any(old.data_change for old in change.removes):
            self.check_removable()

    def _flushed(self, change: Change, before: Change | None) -> Change:
        """Make the data files of a change survive a power failure, before a version names them.

        Args:
            change: the change to commit.
            before: the change whose files were flushed last.

        Returns:
            The change whose files are flushed.

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
