"""Staging area: the appends that wait for a group commit, as their process names them and as their table stages them.

They are staged in a folder of the table that readers of Delta ignore. `Appends` defines an append for one kind of
table; `OpenAppends` keeps the appends of a process that may still land.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

from kafkalike.delta.actions import TableCommit, log_name, parse_commit
from kafkalike.delta.commit_file import BACKOFF_SECONDS, SETTLE_TRIES
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.log_files import READ_BESIDE
from kafkalike.delta.table_change import Change, Landed, Plan, Unchanged
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaStorageError, LogCorruptError, UnknownOutcomeError
from kafkalike.model.appends import waiting_appends
from kafkalike.model.appends.taken_appends import Placed, TakenAppends, WaitingAppend, from_note
from kafkalike.model.clock import Clock, Deadline
from kafkalike.storage.port import NotStoredError, Storage

FOLDER: Final = "_waiting"
"""Folder of a table with its waiting appends; Delta's readers skip names with this prefix."""

WITHDRAWN: Final = b"withdrawn\n"
"""Content that replaces an append which must not be taken."""

ROOM: Final = b"room\n"
"""Content of a file that asks other writers for room."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of others' appends in one commit."""

STALE_MS: Final = 300_000
"""Age, ms, by the storage's clock, from which on a waiting append is ignored, because its writer is presumed dead."""


MOST_RECALLED: Final = 1024
"""Most commits to read in order to settle one append: minutes of a busy topic."""


class StagingArea:
    """The files of the appends that wait beside one table.

    Args:
        store: the table's files.
        clock: time and waiting.
        jitter: random number from 0 to 1, for the wait after a failed call.
    """

    def __init__(self, store: Storage, clock: Clock, jitter: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._jitter = jitter
        self._unfit: frozenset[WaitingAppend] = frozenset()
        """Appends not to be read again: invalid files, and appends that the table refuses."""

    def put(self, part: WaitingAppend, content: bytes) -> float:
        """Stage an append; return the duration of the put, s.

        Raises:
            KafkaStorageError: the storage refused or did not answer; the append may be staged.
        """
        failed: OSError | None = None
        for attempt in range(SETTLE_TRIES):
            begun = self._clock.monotonic()
            try:
                # If the file exists, an earlier try has made it, because the name is unique.
                self._store.put_if_absent(f"{FOLDER}/{part.name}", content)
            except NotStoredError as cause:
                failed = cause
                break
            except OSError as cause:
                failed = cause
            else:
                return self._clock.monotonic() - begun
            self._back_off(attempt)
        assert failed is not None
        raise KafkaStorageError(f"{self._store.uri}: the storage refused the records: {failed}") from failed

    def withdraw(self, part: WaitingAppend) -> None:
        """Replace an append by a mark that it must not be taken.

        Raises:
            UnknownOutcomeError: the storage did not answer.
        """
        failed: OSError | None = None
        for attempt in range(SETTLE_TRIES):
            try:
                self._store.replace(f"{FOLDER}/{part.name}", WITHDRAWN)
            except OSError as cause:
                failed = cause
            else:
                return
            self._back_off(attempt)
        raise UnknownOutcomeError(f"append to {self._store.uri}", part.id) from failed

    def discard(self, part: WaitingAppend) -> None:
        """Try to remove the file of an append that was taken."""
        self._store.remove(f"{FOLDER}/{part.name}", quietly=True)

    def note_room(self, room: waiting_appends.Room, *, wanted: bool) -> None:
        """Try to ask other writers for room, or to end that request. Failing is harmless."""
        if not wanted:
            self._store.remove(f"{FOLDER}/{room.name}", quietly=True)
            return
        with contextlib.suppress(OSError):
            self._store.put_if_absent(f"{FOLDER}/{room.name}", ROOM)

    def found(
        self,
        taken: TakenAppends,
        own: WaitingAppend | None,
        room: waiting_appends.Room | None = None,
    ) -> list[tuple[WaitingAppend, bytes]] | Literal[waiting_appends.Lost.GIVES_WAY]:
        """Return the waiting appends for the next commit, with their contents.

        Call it when the version below that commit is known: appends that were read earlier must not be taken.

        Args:
            taken: appends that commits took up to that version.
            own: the caller's own append, which is left out.
            room: the caller's own request for room.

        Returns:
            The appends; or `GIVES_WAY` if another writer has asked for room: then the caller must not
            make a version.

        Raises:
            KafkaStorageError: the storage does not answer.
        """
        with storage_errors(self._store.uri):
            entries = self._store.list(FOLDER)
        # A lone writer does not need the storage's clock, which costs a process five requests.
        now_ms = self._store.coordination.now_ns() // 1_000_000 if entries else 0
        rooms = {
            asked: now_ms - e.modified_ms for e in entries if (asked := waiting_appends.parse_room(e.name)) is not None
        }
        if waiting_appends.gives_way(rooms, room):
            return waiting_appends.GIVES_WAY
        youngest = now_ms - STALE_MS
        sizes = {
            part: e.size
            for e in entries
            if e.modified_ms >= youngest and (part := waiting_appends.parse_name(e.name)) is not None
        }
        self._unfit &= sizes.keys()
        dead = self._unfit | {part for part, size in sizes.items() if size == len(WITHDRAWN)}
        chosen, left = list[WaitingAppend](), MOST_BYTES
        for part in waiting_appends.to_take(sizes, taken, dead):
            left -= sizes[part]
            if part != own and (left >= 0 or not chosen):
                chosen.append(part)
        contents = self._read_all([f"{FOLDER}/{part.name}" for part in chosen])
        return [(p, c) for p, c in zip(chosen, contents, strict=True) if c is not None and c != WITHDRAWN]

    def skip(self, unfit: Iterable[WaitingAppend]) -> None:
        """Do not read these appends again."""
        self._unfit = self._unfit.union(unfit)

    def _read_all(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the contents of files, read side by side; None for a missing or unreadable file."""
        found: list[bytes | None] = []
        for at in range(0, len(names), READ_BESIDE):
            found += self._store.scheduler.beside([partial(self._read, name) for name in names[at : at + READ_BESIDE]])
        return found

    def _read(self, name: str) -> bytes | None:
        with contextlib.suppress(OSError):
            return self._store.read(name)
        return None

    def recalled(self, part: WaitingAppend, version: int) -> Mapping[str, Placed]:
        """Return the place of an append by its writer; empty if no commit up to a version took it.

        Raises:
            ForgottenError: the log does not reach back so far, or too many commits would have to be read.
            KafkaStorageError: the storage does not answer.
        """
        wanted = range(part.base + 1, version + 1)
        for at in range(0, min(len(wanted), MOST_RECALLED), READ_BESIDE):
            with storage_errors(self._store.uri):
                found = self._store.scheduler.beside([partial(self._commit, v) for v in wanted[at : at + READ_BESIDE]])
            for commit in found:
                if commit is None:
                    raise self._forgotten(part)
                placed = from_note(commit.version, commit.note, commit.timestamp_ms).get(part.writer)
                if placed is not None and placed.sequence == part.sequence:
                    return {part.writer: placed}
        if len(wanted) > MOST_RECALLED:
            raise self._forgotten(part)
        return {}

    def _commit(self, version: int) -> TableCommit | None:
        """Return a commit; None if it was cleaned out of the log or is damaged."""
        with contextlib.suppress(FileNotFoundError, LogCorruptError):
            return parse_commit(version, self._store.read(log_name(version)), self._store.uri)
        return None

    def _forgotten(self, part: WaitingAppend) -> waiting_appends.ForgottenError:
        return waiting_appends.ForgottenError(f"append to {self._store.uri}", part.id)

    def _back_off(self, attempt: int) -> None:
        self._clock.sleep(self._jitter() * BACKOFF_SECONDS * 2**attempt)


A_contra = TypeVar("A_contra", contravariant=True)
"""An append of the table, before it has offsets."""


@dataclass(frozen=True, slots=True)
class AtVersion:
    """The table's version is unchanged, so the waiting appends were read after that version was seen."""

    version: int

    def broken(self, state: TableState) -> str:
        """Compare the table's version with the expected one."""
        return "" if state.version == self.version else f"version {state.version} was made"


@dataclass(frozen=True, slots=True)
class GroupedChange:
    """A change with an own append, and appends of others."""

    change: Change
    ranges: Mapping[int, range]
    """Offsets of the own append, by partition."""
    taken: int
    """Number of appends of others."""
    unfit: Sequence[WaitingAppend] = ()
    """Waiting appends not to be read again: invalid files, and appends that the table refuses."""


class Appends(Protocol[A_contra]):
    """Defines the appends of one kind of table."""

    def change(self, plan: Plan[Any], deadline: Deadline) -> Landed | Unchanged[Any]:
        """Look at the table and everything else that the change depends on, and change it."""
        ...

    def look(self) -> None:
        """Look for new versions of the table."""
        ...

    def admit(self, own: A_contra) -> None:
        """Look at the table and everything else that the append depends on, and refuse an append that would fail.

        Raises:
            KafkaError: the error that `change` and `made` would raise.
        """
        ...

    def turn(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Hold the turn among the threads of this process."""
        ...

    def storable(self, own: A_contra) -> bool:
        """Return True if an append can be staged."""
        ...

    def packed(self, own: A_contra) -> bytes:
        """Return the staged file of an append."""
        ...

    def made(
        self,
        state: TableState,
        own: A_contra,
        part: WaitingAppend | None,
        others: Sequence[tuple[WaitingAppend, bytes]] | None,
    ) -> GroupedChange | Placed:
        """Make the next version, with its files written, or return the place of an append that has landed.

        Unreadable appends of others, and appends that the table refuses, are left out: their writers get an error.

        Args:
            state: the only state on which the version may be made.
            own: the append.
            part: its name, if it is staged, too.
            others: staged appends with their contents; None if nobody has looked.

        Raises:
            KafkaError: the table refuses the own append, or the storage refused.
        """
        ...


class OpenAppends:
    """Staged appends of one process to one table. Thread-safe.

    All logs of the table in a process share it, because a thread's next append may use another log than the append in
    doubt.

    Args:
        of_process: True if the process makes one append at a time; False if each thread does.
    """

    def __init__(self, *, of_process: bool = False) -> None:
        self._of_process = of_process
        self._mutex = threading.Lock()
        self._free: list[tuple[str, int]] = []
        """Names without a staged append, with the last sequence of each."""
        self._open: dict[WaitingAppend, int] = {}
        """Appends that may still land, with their threads' ids."""
        self._litter: list[WaitingAppend] = []
        """Appends that were taken: their files may be removed."""

    def open(self, base: int) -> WaitingAppend:
        """Return a name for an append of this thread. Until `close`, the append counts as possibly landing.

        Args:
            base: the latest known version of the table.
        """
        with self._mutex:
            writer, sequence = self._free.pop() if self._free else (uuid.uuid4().hex, 0)
            part = WaitingAppend(base, writer, sequence + 1)
            self._open[part] = threading.get_ident()
            return part

    def close(self, part: WaitingAppend, *, landed: bool) -> None:
        """Note that an append is settled."""
        with self._mutex:
            if self._open.pop(part, None) is None:
                return
            if landed:
                self._litter.append(part)
            self._free.append((part.writer, part.sequence))

    def left(self) -> list[WaitingAppend]:
        """Return the appends to settle before the next one: this thread's, or all of the process's."""
        me = threading.get_ident()
        with self._mutex:
            return [part for part, thread in self._open.items() if self._of_process or thread == me]

    def litter(self) -> WaitingAppend | None:
        """Return an append that was taken and whose file may be removed, each once; None without one."""
        with self._mutex:
            return self._litter.pop() if self._litter else None


@dataclass(slots=True)
class OpenTables:
    """The open appends of a cluster's tables. Thread-safe."""

    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _tables: dict[str, OpenAppends] = field(default_factory=dict)

    def of(self, table_id: str) -> OpenAppends:
        """Return the open appends of one table. They are kept until the process ends, which takes few bytes."""
        with self._mutex:
            return self._tables.setdefault(table_id, OpenAppends())
