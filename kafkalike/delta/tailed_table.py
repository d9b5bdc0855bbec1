"""Tailed table: a Delta table of a store, whose state is kept up to date commit by commit.

The state is loaded once, from checkpoint and commits. Then each new version costs one small file, so a look for news
costs one look-up however long the table's history is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from itertools import repeat
from typing import Final, Protocol

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.delta.damage import Damage, DamagedFileError, storage_errors, unanswered
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.snapshot import all_damaged, why_damaged
from kafkalike.delta.table_state import REPAIR, TableState, ToSegment, last_good, load_with_base, size_of
from kafkalike.errors import KafkaError, LogCorruptError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import AT_ONCE, NOW, Pace

RECHECK_SECONDS: Final = 10.0
"""Interval at which an idle reader checks that its version was not cleaned out of the log."""

FAR_RECHECK_SECONDS: Final = 600.0
"""That interval in an object store, where the check costs as much as a write. Logs keep an hour of commits at
least."""

BEHIND_MS: Final = 1000
"""Age of a commit from which on a waiting reader looks for the next commit before it reads the records."""


class Follower(Protocol):
    """Derives a state of its own from a table's rows."""

    def on_load(self, state: TableState) -> None:
        """Start again from a whole table.

        Raises:
            DamagedFileError: a data file cannot be read. Then it is called again, with an older version.
        """
        ...

    def on_commit(self, commit: TableCommit) -> None:
        """Apply the next version."""
        ...


class TailedTable:
    """One table of a store, as its log describes it. Thread-safe.

    Args:
        store: the table's files.
        clock: the time.
        to_segment: see `ToSegment`.
        look_back: completes a state that was just loaded with facts that are missing in the checkpoint of the given
            version.
        follower: called for every load and commit, before any reader sees the new state.
        rare: True for a rarely changed table; see `load_snapshot`.
    """

    def __init__(
        self,
        store: Storage,
        clock: Clock,
        *,
        to_segment: ToSegment,
        look_back: Callable[[TableState, int, Storage], None] | None = None,
        follower: Follower | None = None,
        rare: bool = False,
    ) -> None:
        self.store = store
        self.mutex = threading.RLock()
        """Held while the state changes, and by readers of several values that must fit together."""
        self._clock = clock
        self._to_segment = to_segment
        self._look_back = look_back
        self._follower = follower
        self._rare = rare
        self.known: TableState | None = None
        """The state as of the last `refresh`; None before the first load and after an interrupt."""
        self._checked = 0.0
        self._recheck_seconds = FAR_RECHECK_SECONDS if store.scheduler.is_remote else RECHECK_SECONDS
        self._none_at: float | None = None
        """Time at which the whole log was listed and the table did not exist."""
        self._newest = "", -1
        """Id of the table, and its newest version ever seen."""
        self.taken_back: tuple[int, int] | None = None
        """A version that was seen and disappeared, with the newest version found in its place."""
        self._seen_there = -1, 0.0
        """A version whose file was seen, and a time before that look, by the machine's clock."""

    @property
    def state(self) -> TableState:
        """The state as of the last `refresh`; loaded if there is none.

        Raises:
            FileNotFoundError, LogCorruptError: see `refresh`.
        """
        state = self.known
        if state is None:
            with self.mutex:
                if self.known is None:
                    self._load()
                state = self.known
                assert state is not None
        return state

    @property
    def loaded(self) -> bool:
        """True if a state is known."""
        return self.known is not None

    def seen_within(self, seconds: float) -> bool:
        """Return True if the state is known, and the log was listed or a commit read within the last seconds."""
        return self.known is not None and self._clock.monotonic() - self._checked <= seconds

    def forget(self) -> None:
        """Forget the state: the next look loads it."""
        self.known = None

    def refresh(self, pace: Pace = NOW) -> bool:
        """Apply the commits that were made since the last look.

        After an interrupt at any point, the table has no state, and the next look loads it.

        Args:
            pace: age up to which answers of other looks of this process are reused. A waiting reader gets the news
                commit by commit.

        Returns:
            True if there were any.

        Raises:
            FileNotFoundError: the table does not exist.
            LogCorruptError: the log is damaged.
            KafkaStorageError: the storage does not answer.
        """
        with self.mutex:
            state = self.known
            if state is None:
                if self._still_none(pace):
                    raise FileNotFoundError(self.store.uri)
                self._load()
                return True
            if state.damage is not None:
                return self._look_again(state.damage)
            moved, name = False, log_name(state.version + 1)
            try:
                while self._apply_next(name, pace):
                    moved = True
                    if pace.waits and self.store.scheduler.is_remote and self._is_news():
                        break
                    name = log_name((self.known or self.state).version + 1)
            except DamagedFileError:
                self._load()
                return True
            if moved:
                return True
            # The next version may have been cleaned up: recheck after some time, or if the store knows of it.
            late = self._clock.monotonic() - self._checked > self._recheck_seconds
            scheduler = self.store.scheduler
            return (late or (scheduler is not AT_ONCE and scheduler.is_past(name))) and self._recheck()

    def _is_news(self) -> bool:
        """Return True if the last applied commit is so recent that another one is unlikely."""
        return abs(self._clock.now_ms() - self.state.last_commit_ms) < BEHIND_MS

    def check_there(self, pace: Pace = NOW) -> None:
        """Load the table again if its known version left the log, because the table may have been replaced.

        Args:
            pace: skips the look if this version, or an earlier version of the same log, was seen since then.

        Raises:
            FileNotFoundError, LogCorruptError, KafkaStorageError: see `refresh`.
        """
        with self.mutex:
            newest, (version, seen) = (self.known or self.state).version, self._seen_there
            if 0 <= version <= newest and seen >= pace.since:
                return
            try:
                self._see(newest)
            except FileNotFoundError:
                self.known = None
                self._load()
            except OSError as cause:
                raise unanswered(self.store.uri, cause) from cause

    @property
    def next_file(self) -> str | None:
        """The file that a look reads; None if it needs more, or nothing."""
        state = self.known
        return None if state is None or state.damage is not None else log_name(state.version + 1)

    def questions(self) -> list[Callable[[], object]]:
        """Return the requests of a look, to be sent beside another slow call.

        If `refresh` and `check_there` follow with an earlier time as their `pace`, they reuse the answers. Errors are
        ignored here; those methods raise them.
        """
        state = self.known
        if state is None or state.damage is not None:
            return []
        version = state.version
        return [
            lambda: _quietly(lambda: self.store.look(log_name(version + 1))),
            lambda: _quietly(lambda: self._see(version)),
        ]

    def _see(self, version: int) -> None:
        begun = SYSTEM_CLOCK.monotonic()
        self.store.size(log_name(version))
        self._seen_there = version, begun

    def check_sound(self) -> None:
        """Raise if the table's newest version is hidden by damage, so that nothing may be written or removed.

        Raises:
            LogCorruptError: with the damaged file and the repair command.
        """
        damage = (self.known or self.state).damage
        if damage is not None:
            raise damage.refuse()

    # --- one version further -------------------------------------------------------------------

    def _apply_next(self, name: str, pace: Pace = NOW) -> bool:
        """Apply the commit of the next version, whose file has this name; return False if it does not exist."""
        # Most of the time of an idle poll is spent here.
        try:
            content = self.store.look(name, pace)
        except OSError as cause:
            raise unanswered(f"{self.store.uri}/{name}", cause) from cause
        if content is None:
            return False
        following = (self.known or self.state).version + 1
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

    def _apply(self, commit: TableCommit) -> None:
        state, self.known = self.known, None
        assert state is not None
        # From here to the last line nobody has a state.
        state.apply(commit, list(map(self._to_segment, commit.adds, repeat(self.store))))
        if self._follower is not None:
            self._follower.on_commit(commit)
        self._checked = self._clock.monotonic()
        self._newest = state.table_id, state.version
        self.known = state

    def _load(self) -> None:
        begun = self._clock.monotonic()
        try:
            self._load_state()
        except FileNotFoundError:
            self._none_at = begun
            raise
        except OSError as cause:
            raise unanswered(self.store.uri, cause) from cause
        self._none_at = None

    def _still_none(self, pace: Pace) -> bool:
        """Return True if a missing table is still missing: a new one starts with version 0.

        Only for a while, because a table with a later start may be copied there.
        """
        known = self._none_at
        if (
            known is None
            or not self.store.scheduler.is_remote
            or self._clock.monotonic() - known > self._recheck_seconds
        ):
            return False
        with storage_errors(self.store.uri):
            return self.store.look(log_name(0), pace) is None

    def _load_state(self) -> None:
        self.known = None
        begun = SYSTEM_CLOCK.monotonic()
        state, snapshot = load_with_base(self.store, self._to_segment, rare=self._rare)
        if self._look_back is not None:
            self._look_back(state, snapshot.version, self.store)
        if self._follower is not None:
            try:
                self._follower.on_load(state)
            except DamagedFileError as cause:
                state = last_good(self.store, self._to_segment, self._follower.on_load, state, cause)
        state.carried = {}
        if self.store.scheduler.is_remote and state.damage is None:
            quiet_seconds = (self._clock.now_ms() - state.last_commit_ms) / 1000
            self.store.scheduler.note_missing(log_name(state.version + 1), begun, quiet_seconds)
        self._checked = self._clock.monotonic()
        self._note_newest(state)
        self.known = state

    def _note_newest(self, state: TableState) -> None:
        table_id, newest = self._newest
        if state.table_id == table_id and state.version < newest and state.damage is None:
            # Clean-up keeps the newest version, so it cannot have done that.
            self.taken_back = newest, state.version
        elif state.damage is None:
            self._newest = state.table_id, state.version

    def _recheck(self) -> bool:
        """Load the table again if the log continued past a version that was cleaned up."""
        self._checked = self._clock.monotonic()
        with storage_errors(self.store.uri):
            known = LogFiles.listed(self.store, self.state.version).commits
        version = self.state.version
        if known and known[-1] == version:
            return False
        if known and known[-1] > version and self._apply_next(log_name(version + 1)):
            return True
        # The version was cleaned up, or the table was replaced or removed.
        self.known = None
        self._load()
        return True

    # --- damage --------------------------------------------------------------------------------

    def _stay_at(self, damaged: int, cause: LogCorruptError) -> bool:
        """Stay at the version before a damaged commit unless a sound commit follows; return True if it stays."""
        with storage_errors(self.store.uri):
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
        """Load a damaged table again once it has changed, as after a repair."""
        if not self._content_there(log_name(damage.newest + 1)):
            if damage.commit is None:
                waited = self._clock.monotonic() - self._checked > RECHECK_SECONDS
                if not waited and size_of(self.store, damage.file) == damage.size:
                    return False
            else:
                try:
                    parse_commit(damage.commit, self.store.read(log_name(damage.commit)), self.store.uri)
                except (OSError, LogCorruptError):
                    return False
        self._load()
        return True

    def _content_there(self, name: str) -> bool:
        """Return True if a file exists, or if the storage does not answer."""
        try:
            self.store.size(name)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True


def _quietly(ask: Callable[[], object]) -> None:
    """Send a request whose error will be raised later."""
    with contextlib.suppress(OSError, KafkaError):
        ask()
