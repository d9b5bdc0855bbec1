"""Group appends: the appends that a group commit brings together, and the names under which a process makes them.

`Appends` says of one kind of table what an append of it is; `OpenAppends` keeps those of a process that may still land.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kafkalike.delta.table_change import Change, Landed, Plan, Unchanged
from kafkalike.delta.table_state import TableState
from kafkalike.model.clock import Deadline
from kafkalike.model.group_commit.waiting_appends import Placed, WaitingAppend

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
