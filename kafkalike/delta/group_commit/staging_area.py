"""Staging area: the appends that wait for a group commit, as their process names them and as their table stages them.

They are staged in a folder of the table that no reader of Delta looks into. `Appends` defines an append for one kind of
table; `OpenAppends` keeps the appends of a process that may still land.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

from kafkalike.delta.actions import TableCommit, append_info, log_name, parse_commit
from kafkalike.delta.commit_file import BACKOFF_SECONDS, SETTLE_TRIES
from kafkalike.delta.damage import storage_errors
from kafkalike.delta.log_files import READ_BESIDE
from kafkalike.delta.table_change import Change, Landed, Plan, Unchanged
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaStorageError, LogCorruptError, UnknownOutcomeError
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.group_commit import GIVES_WAY, ForgottenError, Lost
from kafkalike.model.waiting_appends import (
    Placed,
    Room,
    TakenAppends,
    WaitingAppend,
    from_note,
    gives_way,
    parse_name,
    parse_room,
    to_take,
)
from kafkalike.storage.port import NotStoredError, Storage

FOLDER: Final = "_waiting"
"""Of a table: the appends that wait. Delta's readers skip names that begin so."""

WITHDRAWN: Final = b"withdrawn\n"
"""What stands in the place of an append that must not be taken."""

ROOM: Final = b"room\n"
"""What stands in a word that asks for room."""

MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of others' appends that one commit takes at most."""

STALE_MS: Final = 300_000
"""Age, ms, by the storage's clock, of an append that waits after which nobody takes it: its writer is gone."""


MOST_RECALLED: Final = 1024
"""Commits that are read at most to find out what became of one append: minutes of a busy topic."""


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
        """Files that were read and need not be read again: they hold no append, or one that the table does not take."""

    def put(self, part: WaitingAppend, content: bytes) -> float:
        """Put an append beside the table; returns how long the put took, s.

        Raises:
            KafkaStorageError: the storage refused, or gave no answer; it may be there.
        """
        failed: OSError | None = None
        for attempt in range(SETTLE_TRIES):
            begun = self._clock.monotonic()
            try:
                # That there is one means that an earlier try has made it: nobody else has this name.
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
        """Put a word in the place of an append that it must not be taken.

        Raises:
            UnknownOutcomeError: the storage gave no answer.
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

    def note_room(self, room: Room, *, wanted: bool) -> None:
        """Try to put a word that others are to give way, or to take it away: nothing rests on it."""
        if not wanted:
            self._store.remove(f"{FOLDER}/{room.name}", quietly=True)
            return
        with contextlib.suppress(OSError):
            self._store.put_if_absent(f"{FOLDER}/{room.name}", ROOM)

    def found(
        self, taken: TakenAppends, own: WaitingAppend | None, room: Room | None = None
    ) -> list[tuple[WaitingAppend, bytes]] | Literal[Lost.GIVES_WAY]:
        """What waits, and the next commit may take.

        To be called when the version is known on top of which that commit is made: what was read before must not come
        into it.

        Args:
            taken: what commits took up to that version.
            own: an append that is known.
            room: the own word that others are to give way.

        Returns:
            The appends. Or that no version is to be made, as somebody else has asked for room.

        Raises:
            KafkaStorageError: the storage gives no answer.
        """
        with storage_errors(self._store.uri):
            entries = self._store.list(FOLDER)
        # Whoever is alone need not know the storage's time, which a process learns by five requests.
        now_ms = self._store.coordination.now_ns() // 1_000_000 if entries else 0
        rooms = {asked: now_ms - e.modified_ms for e in entries if (asked := parse_room(e.name)) is not None}
        if gives_way(rooms, room):
            return GIVES_WAY
        youngest = now_ms - STALE_MS
        sizes = {
            part: e.size for e in entries if e.modified_ms >= youngest and (part := parse_name(e.name)) is not None
        }
        self._unfit &= sizes.keys()
        dead = self._unfit | {part for part, size in sizes.items() if size == len(WITHDRAWN)}
        chosen, left = list[WaitingAppend](), MOST_BYTES
        for part in to_take(sizes, taken, dead):
            left -= sizes[part]
            if part != own and (left >= 0 or not chosen):
                chosen.append(part)
        contents = self._read_all([f"{FOLDER}/{part.name}" for part in chosen])
        return [(p, c) for p, c in zip(chosen, contents, strict=True) if c is not None and c != WITHDRAWN]

    def skip(self, unfit: Iterable[WaitingAppend]) -> None:
        """Do not read these files again."""
        self._unfit = self._unfit.union(unfit)

    def _read_all(self, names: Sequence[str]) -> list[bytes | None]:
        """Contents of files, read side by side; None for one that is gone or cannot be read now."""
        found: list[bytes | None] = []
        for at in range(0, len(names), READ_BESIDE):
            found += self._store.scheduler.beside([partial(self._read, name) for name in names[at : at + READ_BESIDE]])
        return found

    def _read(self, name: str) -> bytes | None:
        with contextlib.suppress(OSError):
            return self._store.read(name)
        return None

    def recalled(self, part: WaitingAppend, version: int) -> Mapping[str, Placed]:
        """What became of an append by the commits since it was put there, up to a version; empty when none took it.

        Raises:
            ForgottenError: the log no longer says, or it would take too many reads.
            KafkaStorageError: the storage gives no answer.
        """
        wanted = range(part.base + 1, version + 1)
        for at in range(0, min(len(wanted), MOST_RECALLED), READ_BESIDE):
            with storage_errors(self._store.uri):
                found = self._store.scheduler.beside([partial(self._commit, v) for v in wanted[at : at + READ_BESIDE]])
            for commit in found:
                if commit is None:
                    raise self._forgotten(part)
                note = append_info(commit.user_metadata)
                placed = from_note(commit.version, note, commit.timestamp_ms).get(part.writer)
                if placed is not None and placed.sequence == part.sequence:
                    return {part.writer: placed}
        if len(wanted) > MOST_RECALLED:
            raise self._forgotten(part)
        return {}

    def _commit(self, version: int) -> TableCommit | None:
        """A commit; None when it is not in the log any more, or damaged."""
        with contextlib.suppress(FileNotFoundError, LogCorruptError):
            return parse_commit(version, self._store.read(log_name(version)), self._store.uri)
        return None

    def _forgotten(self, part: WaitingAppend) -> ForgottenError:
        return ForgottenError(f"append to {self._store.uri}", part.id)

    def _back_off(self, attempt: int) -> None:
        self._clock.sleep(self._jitter() * BACKOFF_SECONDS * 2**attempt)


A_contra = TypeVar("A_contra", contravariant=True)
"""An append of the table, before it has a place."""


@dataclass(frozen=True, slots=True)
class AtVersion:
    """Nobody has made a version since. So what waits was read after the version before this change was seen."""

    version: int

    def broken(self, state: TableState) -> str:
        """See `Requirement`."""
        return "" if state.version == self.version else f"version {state.version} was made"


@dataclass(frozen=True, slots=True)
class GroupedChange:
    """A change that brings an append, and others with it."""

    change: Change
    ranges: Mapping[int, range]
    """Offsets of the own append, by partition."""
    taken: int
    """How many appends of others."""
    unfit: Sequence[WaitingAppend] = ()
    """What waits and need not be read again here: it is no append, or one that the table does not take."""


class Appends(Protocol[A_contra]):
    """What appends of one kind of table are."""

    def change(self, plan: Plan[Any], deadline: Deadline) -> Landed | Unchanged[Any]:
        """Look at the table and what else counts, and change it."""
        ...

    def look(self) -> None:
        """Look for new versions of the table."""
        ...

    def admit(self, own: A_contra) -> None:
        """Look at the table and what else counts, and refuse an append that will not be taken.

        Raises:
            KafkaError: as `change` and `made` would.
        """
        ...

    def turn(self, deadline: Deadline) -> AbstractContextManager[None]:
        """Have one's turn among the threads of this process."""
        ...

    def storable(self, own: A_contra) -> bool:
        """Whether an append can wait in a file."""
        ...

    def packed(self, own: A_contra) -> bytes:
        """The file of an append that waits."""
        ...

    def made(
        self,
        state: TableState,
        own: A_contra,
        part: WaitingAppend | None,
        others: Sequence[tuple[WaitingAppend, bytes]] | None,
    ) -> GroupedChange | Placed:
        """The next version, with its files written, or where the append is already.

        Others' appends that cannot be read, or that the table does not take, are left out: their writers will be told.

        Args:
            state: on which it is made, and nothing else.
            own: the append.
            part: its name, if it waits, too.
            others: what waits; None where nobody has looked.

        Raises:
            KafkaError: the table does not take the own append; or the storage refused.
        """
        ...


class OpenAppends:
    """Appends of one process to one table that wait beside it. Thread-safe.

    All logs of the table that the process opens, one after the other or at a time, share it: a thread's next append
    may go through another log than the one that is in doubt.

    Args:
        of_process: whether the appends are the process's, which has one at a time; else they are their threads'.
    """

    def __init__(self, *, of_process: bool = False) -> None:
        self._of_process = of_process
        self._mutex = threading.Lock()
        self._free: list[tuple[str, int]] = []
        """Names under which nothing waits, with the last sequence of each."""
        self._open: dict[WaitingAppend, int] = {}
        """Appends that may land still, and the thread whose each is."""
        self._litter: list[WaitingAppend] = []
        """Appends that were taken: their files may go."""

    def open(self, base: int) -> WaitingAppend:
        """A name for an append of this thread. Until `close` it counts as one that may land.

        Args:
            base: version of the table that was seen.
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
        """What is open still before the next append: what this thread has left, or what any has."""
        me = threading.get_ident()
        with self._mutex:
            return [part for part, thread in self._open.items() if self._of_process or thread == me]

    def litter(self) -> WaitingAppend | None:
        """An append that was taken, and whose file may go; each is told once."""
        with self._mutex:
            return self._litter.pop() if self._litter else None


class OpenTables:
    """The open appends of a cluster's tables. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._tables: dict[str, OpenAppends] = {}

    def of(self, table_id: str) -> OpenAppends:
        """Those to one table, for as long as the process lives: few bytes."""
        with self._mutex:
            return self._tables.setdefault(table_id, OpenAppends())
