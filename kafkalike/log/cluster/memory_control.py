"""MemoryControlLog: rows of a control table in a list."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kafkalike.model.row_value import ControlState

R = TypeVar("R")
S = TypeVar("S", bound=ControlState)


class MemoryControlLog(Generic[S, R]):
    """A control log whose rows are a list."""

    def __init__(self, state: S) -> None:
        self._empty = state
        self._written: list[R] = []
        self._now = state, 0
        """The state, and how many rows it is made of: there may be one more where a transaction was interrupted."""
        self._lock = threading.RLock()

    @property
    def state(self) -> S:
        """The state."""
        return self._now[0]

    @property
    def rows(self) -> list[R]:
        """All rows."""
        return self._written[: self._now[1]]

    def refresh(self, *, waiting: bool = False, since: float = math.inf) -> S:
        """The state."""
        del waiting, since
        return self.state

    def state_at(self, version: int) -> S:
        """The state as of an older version, which is the number of its last row."""
        empty = self._empty
        return empty.applied(row for row in self.rows if row.seq <= version)  # type: ignore[attr-defined]

    def transact(self, plan: Callable[[S], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append what `plan` makes; the lock stands in for the compare-and-set."""
        del timeout_ms
        with self._lock:
            rows = plan(self.state)
            state, count = self._now
            after = state.applied(rows)
            self._written[count:] = rows
            self._now = after, count + len(rows)
