"""Table: a Delta table of a store: its state, kept up commit by commit, and the one loop that changes it.

The state is loaded once (checkpoint and commits) and then kept up by reading one small file per new table version, so
that looking for something new costs one look-up however long the table's history is.

A change is planned on a state, and lands as the next version of the log or not at all: `Store.put_if_absent` of the
version's file is the compare-and-set on which offsets rest. What a change was planned on is said by its requirements,
so a version that somebody else has made in between costs a new plan only where it broke one of them.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkalike import faults
from kafkalike.clock import Clock, Deadline
from kafkalike.errors import (
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    LogCorruptError,
    PolicyViolationError,
    UnknownOutcomeError,
)
from kafkalike.log.store.port import NotStoredError, Store
from kafkalike.log.table.actions import (
    FENCES_KEY,
    Add,
    Commit,
    TableCommit,
    check_protocol,
    log_name,
    parse_add,
    parse_commit,
)
from kafkalike.log.table.damage import Damage, DamagedFileError
from kafkalike.log.table.snapshot import LogFiles, all_damaged, last_checkpoint, load_snapshot, why_damaged
from kafkalike.log.table.state import FENCE, REPAIR, Requirement, TableState
from kafkalike.model.segments import Segment, SegmentIndex

RECHECK_SECONDS: Final = 10.0
"""How often a reader that sees nothing new makes sure that its version was not cleaned out of the log."""

BACKOFF_SECONDS: Final = 0.05
"""Longest first wait after a concurrent writer's commit; doubles with each try up to `MAX_BACKOFF_SECONDS`."""

MAX_BACKOFF_SECONDS: Final = 2.0

APPEND_ONLY: Final = "delta.appendOnly"
"""Property of a table from which no record may be taken out."""

SETTLE_TRIES: Final = 5
"""How often a storage that does not answer is asked what became of a commit."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One table version that is to be made, with its data files written already, under names that nobody sees yet."""

    operation: str
    """What the table's history calls it."""
    time_ms: int
    """Time of the change, ms."""
    requires: Sequence[Requirement] = ()
    """What it was planned on."""
    adds: Sequence[Add] = ()
    removes: Sequence[Add] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)
    """Goes into the commit's user metadata, beside its id."""


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A plan that needs no table version: what it found instead."""

    value: T


@dataclass(frozen=True, slots=True)
class Landed:
    """A change that is a table version."""

    version: int
    change: Change


Plan = Callable[[TableState], "Change | Done[T]"]
"""Makes a change of a state, with its files; called again when a requirement of the last one broke. It may raise: then
nothing is done."""


class Follower(Protocol):
    """Somebody who makes a state of their own of a table's rows."""

    def on_load(self, state: TableState) -> None:
        """Begin anew from a whole table.

        Raises:
            DamagedFileError: a data file cannot be read. Then it is asked again, with an older version.
        """
        ...

    def on_commit(self, commit: TableCommit) -> None:
        """Take in the next version."""
        ...


class Table:
    """One table of a store. Thread-safe.

    Args:
        store: the table's files.
        clock: time and waiting.
        to_segment: what a data file of this table covers; reads the file where the log does not say it.
        look_back: completes a state that was just loaded, from a checkpoint of the version that it is given, with what
            that checkpoint does not tell.
        follower: told of every load and commit before anyone sees the new state.
        jitter: random number from 0 to 1, for the wait after a concurrent writer's commit.
        durable: whether commits must survive a power failure.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        to_segment: Callable[[Add, Store], Segment],
        look_back: Callable[[TableState, int, Store], None] | None = None,
        follower: Follower | None = None,
        jitter: Callable[[], float] = random.random,
        durable: bool = False,
    ) -> None:
        self.store = store
        self.mutex = threading.RLock()
        """Held while the state moves; whoever reads several things that belong together holds it too."""
        self.durable = durable
        self._clock = clock
        self._to_segment = to_segment
        self._look_back = look_back
        self._follower = follower
        self._jitter = jitter
        self._state: TableState | None = None
        self._checked = 0.0

    # --- following the log ---------------------------------------------------------------------

    @property
    def state(self) -> TableState:
        """The state as of the last `refresh`; loaded when there is none.

        Raises:
            FileNotFoundError, LogCorruptError: see `refresh`.
        """
        state = self._state
        if state is None:
            with self.mutex:
                if self._state is None:
                    self._load()
                state = self._state
                assert state is not None
        return state

    @property
    def loaded(self) -> bool:
        """Whether there is a state to go on from."""
        return self._state is not None

    def forget(self) -> None:
        """Begin from nothing at the next look."""
        self._state = None

    def refresh(self) -> bool:
        """Apply the commits that were made since the last look.

        Interrupted at any point, the table forgets its state, and the next look loads it anew.

        Returns:
            Whether there were any.

        Raises:
            FileNotFoundError: there is no table.
            LogCorruptError: the log is damaged.
            KafkaStorageError: the storage does not answer.
        """
        with self.mutex:
            if self._state is None:
                self._load()
                return True
            if self._state.damage is not None:
                return self._look_again(self._state.damage)
            moved = False
            try:
                while self._apply_next():
                    moved = True
            except DamagedFileError:
                self._load()
                return True
            if not moved and self._clock.monotonic() - self._checked > RECHECK_SECONDS:
                return self._recheck()
            return moved

    def _apply_next(self) -> bool:
        following = self.state.version + 1
        try:
            content = self.store.read(log_name(following))
        except FileNotFoundError:
            return False
        except OSError as cause:
            message = f"{self.store.uri}/{log_name(following)} cannot be read: {cause}"
            raise KafkaStorageError(message) from cause
        try:
            commit = parse_commit(following, content, self.store.uri)
        except LogCorruptError as cause:
            if not self._stay_at(following, cause):
                raise
            return False
        if commit.operation == REPAIR:
            self._load()
        else:
            self._apply(commit)
        return True

    def _stay_at(self, damaged: int, cause: LogCorruptError) -> bool:
        """Stay at the version before a damaged commit, if no sound one follows it; returns whether that is so."""
        later = [v for v in LogFiles.listed(self.store).commits if v > damaged]
        if not all_damaged(self.store, later):
            return False
        damage = Damage(
            where=self.store.uri,
            file=log_name(damaged),
            why=why_damaged(cause),
            commit=damaged,
            good=damaged - 1,
            newest=later[-1] if later else damaged,
        )
        damage.warn()
        self.state.damage = damage
        return True

    def _look_again(self, damage: Damage) -> bool:
        """Load a damaged table anew once something has happened to it, such as a repair."""
        if not self._content_there(log_name(damage.newest + 1)):
            if damage.commit is None:
                waited = self._clock.monotonic() - self._checked > RECHECK_SECONDS
                if not waited and self._size_of(damage.file) == damage.size:
                    return False
            else:
                try:
                    parse_commit(damage.commit, self.store.read(log_name(damage.commit)), self.store.uri)
                except (OSError, LogCorruptError):
                    return False
        self._load()
        return True

    def _size_of(self, name: str) -> int:
        try:
            return self.store.size(name)
        except OSError:
            return -1

    def check_sound(self) -> None:
        """Refuse a table that is not seen at its newest version: nothing may be written to it, or removed.

        Raises:
            LogCorruptError: a file of it is damaged, and what to do.
        """
        damage = self.state.damage
        if damage is not None:
            raise damage.refuse()

    def _apply(self, commit: TableCommit) -> None:
        state, self._state = self._state, None
        assert state is not None
        # From here to the last line nobody has a state.
        state.apply(commit, lambda add: self._to_segment(add, self.store))
        if self._follower is not None:
            self._follower.on_commit(commit)
        self._checked = self._clock.monotonic()
        self._state = state

    def _recheck(self) -> bool:
        """Load anew when the log has moved on past a version that is gone."""
        self._checked = self._clock.monotonic()
        known = LogFiles.listed(self.store).commits
        version = self.state.version
        if known and known[-1] == version:
            return False
        if known and known[-1] > version and self._apply_next():
            return True
        # Cleaned up below us, replaced by another table, or gone.
        self._state = None
        self._load()
        return True

    def check_there(self) -> None:
        """Load anew when the version that is known is not in the log any more: someone may have replaced the table.

        Raises:
            FileNotFoundError, LogCorruptError: see `refresh`.
        """
        with self.mutex:
            try:
                self.store.size(log_name(self.state.version))
            except FileNotFoundError:
                self._state = None
                self._load()

    def _load(self) -> None:
        self._state = None
        state, checkpoint = _loaded(self.store, self._to_segment, None)
        if self._look_back is not None:
            self._look_back(state, checkpoint, self.store)
        if self._follower is not None:
            try:
                self._follower.on_load(state)
            except DamagedFileError as cause:
                state = self._last_good(self._follower, state, cause)
        self._checked = self._clock.monotonic()
        self._state = state

    def _last_good(self, follower: Follower, state: TableState, cause: DamagedFileError) -> TableState:
        """The newest version that names no damaged data file.

        Raises:
            DamagedFileError: the log does not reach back so far.
        """
        newest, older, found = state.damage, state, cause
        while True:
            version = self._added_at(found.path, older.version) - 1
            if version < 0:
                raise cause
            try:
                older = load_table(self.store, self._to_segment, version)
            except LogCorruptError:
                raise cause from None
            if not len(older.index):
                # An empty table is no better than an error: it looks like one that was never written to.
                raise cause
            try:
                follower.on_load(older)
            except DamagedFileError as another:
                found = another
                continue
            older.damage = newest or Damage(
                where=self.store.uri,
                file=cause.path,
                why=cause.why,
                commit=None,
                good=version,
                newest=state.version,
                size=self._size_of(cause.path),
            )
            older.damage.warn()
            return older

    def _added_at(self, path: str, version: int) -> int:
        """The version that added a data file, from a version on downwards; 0 when the log does not tell it any more."""
        for at in range(version, -1, -1):
            try:
                commit = parse_commit(at, self.store.read(log_name(at)), self.store.uri)
            except (FileNotFoundError, LogCorruptError):
                return 0
            if any(add.path == path for add in commit.adds):
                return at
        return 0

    # --- changing it ---------------------------------------------------------------------------

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
            message = f"{self.store.uri} cannot be created: {cause}"
            raise KafkaStorageError(message) from cause
        return self._put(0, content, str(commit.append_id))

    def change(
        self,
        plan: Plan[T],
        deadline: Deadline,
        refresh: Callable[[], object] | None = None,
        discard: Callable[[Change], None] | None = None,
    ) -> Landed | Done[T]:
        """Change the table: the only loop that does.

        Look, plan, put the next version if absent, settle what is in doubt; wait and begin again when a concurrent
        writer was faster, with the same change unless a requirement of it broke.

        Args:
            plan: see `Plan`.
            deadline: until when to try.
            refresh: looks for what is new, here and elsewhere; this table's `refresh` when None.
            discard: removes the files of a change that is surely in no version; else its added files are.

        Returns:
            The version, or what the plan found instead.

        Raises:
            KafkaTimeoutError: concurrent writers were faster until the deadline; nothing was done.
            KafkaStorageError: the storage refused; nothing was done, and nothing will be.
            PolicyViolationError: it takes records out of a table that somebody has made append-only.
            UnknownOutcomeError: the change may be there, or may still come; its files stay.
        """
        throw_away = discard or self._discard
        append_id, attempt = uuid.uuid4().hex, 0
        planned: Change | None = None
        planned_on = -1
        while True:
            try:
                (refresh or self.refresh)()
                with self.mutex:
                    self.check_sound()
                    state = self.state
                    if planned is not None and not (
                        state.fenced == planned_on and all(r.holds(state) for r in planned.requires)
                    ):
                        stale, planned = planned, None
                        throw_away(stale)
                    if planned is None:
                        found = plan(state)
                        if isinstance(found, Done):
                            return found
                        planned, planned_on = found, state.fenced
                        _check_append_only(planned, state, self.store.uri)
                    wanted = _commit(planned, state.version + 1, append_id)
                if attempt:
                    self._back_off(attempt, deadline)
            except (KafkaError, OSError):
                if planned is not None:
                    throw_away(planned)
                raise
            faults.point("commit.before")
            try:
                landed = self._put(wanted.version, wanted.content(), append_id)
            except KafkaStorageError:
                # Surely not there. The disk may be full: the files must not make that worse.
                throw_away(planned)
                raise
            faults.point("commit.after")
            if landed and not self._fell_behind(wanted.version):
                self._go_on(wanted)
                return Landed(wanted.version, planned)
            attempt += 1

    def _go_on(self, wanted: Commit) -> None:
        """Take in the version that was just made, without reading it."""
        with self.mutex:
            if self._state is not None and self._state.version == wanted.version - 1:
                self._apply(wanted.applied())

    def _put(self, version: int, content: bytes, append_id: str) -> bool:
        """Put a version's file if absent, and settle by its id what is in doubt.

        A put that failed may be under way still, and one that says "exists" may have met itself: storages retry. So it
        is put again, which is harmless, until the storage gives an answer; and if it gives none, the version is given
        to an empty commit: then no other one can have it any more.

        Returns:
            True when it is there; False when another one is, so that it can never land.

        Raises:
            KafkaStorageError: it is not there, and will not be.
            UnknownOutcomeError: the storage does not say.
        """
        name = log_name(version)
        failed: OSError | None = None
        for attempt in range(SETTLE_TRIES):
            try:
                if self.store.put_if_absent(name, content, durable=self.durable):
                    return True
                made_by = self._maker(name)
            except NotStoredError as refused:
                if failed is not None:
                    # Of an earlier try of this put nothing is known.
                    continue
                message = f"{self.store.uri}: the storage refused the commit: {refused}"
                raise KafkaStorageError(message) from refused
            except OSError as cause:
                failed = cause
            else:
                if made_by == append_id:
                    return self._made_durable(name, append_id)
                if made_by is not None:
                    return False
                failed = failed or FileExistsError(f"{name} exists, and cannot be found")
            self._clock.sleep(self._jitter() * BACKOFF_SECONDS * 2**attempt)
        assert failed is not None
        return self._fenced(version, append_id, failed)

    def _made_durable(self, name: str, append_id: str) -> bool:
        """A commit that landed by a try that failed may not have reached the disk."""
        if self.durable:
            try:
                self.store.sync(name)
            except OSError as cause:
                raise UnknownOutcomeError(f"commit to {self.store.uri}", append_id) from cause
        return True

    def _fenced(self, version: int, append_id: str, cause: OSError) -> bool:
        """Give a version to an empty commit, unless it has been given already.

        Returns:
            True when the commit in doubt has it, False when another one does.

        Raises:
            KafkaStorageError: the empty one has it.
            UnknownOutcomeError: the storage does not say. The first version of a table cannot be fenced.
        """
        name, fence_id = log_name(version), uuid.uuid4().hex
        fence = Commit(
            version=version,
            time_ms=self._clock.now_ms(),
            operation=FENCE,
            append_id=fence_id,
            note={FENCES_KEY: append_id},
        )
        for attempt in range(SETTLE_TRIES):
            try:
                fenced = version > 0 and self.store.put_if_absent(name, fence.content(), durable=self.durable)
                made_by = fence_id if fenced else self._maker(name)
            except OSError as second:
                cause, made_by = second, None
            if made_by == fence_id:
                message = f"{self.store.uri}: the storage refused the commit: {cause}"
                raise KafkaStorageError(message) from cause
            if made_by is not None:
                return made_by == append_id and self._made_durable(name, append_id)
            self._clock.sleep(self._jitter() * BACKOFF_SECONDS * 2**attempt)
        raise UnknownOutcomeError(f"commit to {self.store.uri}", append_id) from cause

    def _maker(self, name: str) -> str | None:
        """Id of the change that made a version, "" for a foreign writer's; None when there is none to be seen.

        Raises:
            OSError: the storage does not say.
        """
        try:
            content = self.store.read(name)
        except FileNotFoundError:
            return None
        try:
            return parse_commit(0, content, self.store.uri).append_id or ""
        except KafkaError as cause:
            # Of our own file only a part may have come.
            message = f"{name} cannot be read: {cause}"
            raise OSError(message) from cause

    def _fell_behind(self, version: int) -> bool:
        """Whether the log went on past a version so long ago that clean-up has taken what stood in its place.

        A writer that was stopped between its look and its commit finds the place empty again. Nobody has seen what it
        put there: whoever loads the table begins at the checkpoint above it.
        """
        if version == 0 or self._content_there(log_name(version - 1)):
            return False
        if last_checkpoint(self.store) < version:
            return False
        self.store.discard(log_name(version))
        self._state = None
        return True

    def _content_there(self, name: str) -> bool:
        try:
            self.store.size(name)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def _back_off(self, attempt: int, deadline: Deadline) -> None:
        """Wait after losing against a concurrent writer: a random time that doubles with each try."""
        wait = self._jitter() * min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** (attempt - 1))
        if deadline.remaining() <= wait:
            raise KafkaTimeoutError(
                f"{self.store.uri}: others were faster {attempt} times until time ran out; nothing was written"
            )
        self._clock.sleep(wait)

    def fence(self, deadline: Deadline) -> Landed:
        """Make a version without content: a writer that has planned before it must plan anew.

        After it nobody can commit a data file that was written before: so files that no version names may be removed.

        Raises:
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `change`.
        """
        found: Landed | Done[None] = self.change(
            lambda _: Change(operation=FENCE, time_ms=self._clock.now_ms()), deadline
        )
        assert isinstance(found, Landed)
        return found

    def _discard(self, change: Change) -> None:
        for add in change.adds:
            self.store.discard(add.path)


def _check_append_only(change: Change, state: TableState, where: str) -> None:
    """Heed a property that every Delta writer of our protocol version has to heed.

    Raises:
        PolicyViolationError: the change takes records out.
    """
    if state.properties.get(APPEND_ONLY, "").lower() == "true" and any(old.data_change for old in change.removes):
        message = f"{where} has the property {APPEND_ONLY}=true, which somebody has set: no record may be taken out"
        raise PolicyViolationError(message)


def _commit(change: Change, version: int, append_id: str) -> Commit:
    return Commit(
        version=version,
        time_ms=change.time_ms,
        operation=change.operation,
        append_id=append_id,
        adds=change.adds,
        removes=change.removes,
        txns=change.txns,
        note=change.note,
    )


def load_table(store: Store, to_segment: Callable[[Add, Store], Segment], version: int | None = None) -> TableState:
    """The state of a table at a version; None for the newest one.

    Raises:
        FileNotFoundError: there is no table.
        LogCorruptError: its log is damaged, or has no such version (any more, or yet).
    """
    return _loaded(store, to_segment, version)[0]


def _loaded(store: Store, to_segment: Callable[[Add, Store], Segment], version: int | None) -> tuple[TableState, int]:
    """A table's state, and the version of the checkpoint that it was made from; -1 for none."""
    snapshot = load_snapshot(store, version)
    try:
        for protocol in snapshot.of_kind("protocol"):
            check_protocol(protocol, store.uri)
        metadata = next(snapshot.of_kind("metaData"), {})
        adds = [parse_add(add) for add in snapshot.of_kind("add")]
        txns = {str(txn["appId"]): int(txn["version"]) for txn in snapshot.of_kind("txn")}
    except (ValueError, KeyError, TypeError) as cause:
        message = f"the checkpoint {snapshot.version} of {store.uri} is damaged: {type(cause).__name__}: {cause}"
        raise LogCorruptError(message) from cause
    state = TableState(
        version=snapshot.version,
        fenced=snapshot.version,
        table_id=str(metadata.get("id", "")),
        index=SegmentIndex([to_segment(add, store) for add in adds]),
        txns=txns,
        properties=metadata.get("configuration") or {},
        schema=str(metadata.get("schemaString", "")),
        damage=snapshot.damage,
    )
    for commit in snapshot.committed(store.uri):
        state.apply(commit, lambda add: to_segment(add, store))
    return state, snapshot.version
