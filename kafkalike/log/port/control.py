"""What may be asked of a control log."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R")


class ControlLog(Protocol, Generic[S_co, R]):
    """A small append-only table whose rows make up a state, changed by compare-and-set. Thread-safe."""

    @property
    def state(self) -> S_co:
        """The state as of the last `refresh` or `transact`. Read it; only rows change it."""
        ...

    def refresh(self, *, waiting: bool = False, since: float = math.inf, surely: bool = False) -> S_co:
        """Apply rows that others added; returns the state. Costs a file look-up when there is nothing new.

        Args:
            waiting: the caller comes again until there is something new; see `TopicLog.refresh`.
            since: an answer of the storage to a look of this process will do that was made at this time or later,
                seconds of the machine's monotonic clock; unless `waiting`.
            surely: what is not seen is taken for not there, so that a leader that gives no answer is an error at once.
                Without it there is nothing new for as long as it may lag.
        """
        ...

    @property
    def rows(self) -> Sequence[R]:
        """All rows the table still has, fresh, in `seq` order. Reads everything: for history, not for the hot path."""
        ...

    def state_at(self, version: int) -> S_co:
        """The state as of an older version of the table, of the last minutes; see `Cut.groups_version`.

        Raises:
            LogCorruptError: the version is gone.
        """
        ...

    def transact(self, plan: Callable[[S_co], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile.

        When another writer was faster, the state is refreshed and `plan` is called again. Rows must be numbered from
        `state.seq + 1` on. An error that `plan` raises leaves the table unchanged; so does an empty list.

        Raises:
            KafkaTimeoutError: others were faster until time ran out; nothing was written.
            UnknownOutcomeError: the write may have happened.
        """
        ...
