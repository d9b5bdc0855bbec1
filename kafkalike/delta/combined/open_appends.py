"""Open appends: those of a process that may land still, and whose each is; the names under which it appends."""

from __future__ import annotations

import threading
import uuid

from kafkalike.model.combining.parts import Waiting


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
        self._open: dict[Waiting, int] = {}
        """Appends that may land still, and the thread whose each is."""
        self._litter: list[Waiting] = []
        """Appends that were taken: their files may go."""

    def open(self, base: int) -> Waiting:
        """A name for an append of this thread. Until `close` it counts as one that may land.

        Args:
            base: version of the table that was seen.
        """
        with self._mutex:
            writer, sequence = self._free.pop() if self._free else (uuid.uuid4().hex, 0)
            part = Waiting(base, writer, sequence + 1)
            self._open[part] = threading.get_ident()
            return part

    def close(self, part: Waiting, *, landed: bool) -> None:
        """Note that an append is settled."""
        with self._mutex:
            if self._open.pop(part, None) is None:
                return
            if landed:
                self._litter.append(part)
            self._free.append((part.writer, part.sequence))

    def left(self) -> list[Waiting]:
        """What is open still before the next append: what this thread has left, or what any has."""
        me = threading.get_ident()
        with self._mutex:
            return [part for part, thread in self._open.items() if self._of_process or thread == me]

    def litter(self) -> Waiting | None:
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
