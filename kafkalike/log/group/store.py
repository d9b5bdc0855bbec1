"""GroupStore: a change of one group's roster in, one row of `__consumer_offsets` out, by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafkalike.model.group_state import GroupRow, GroupsState, Roster, roster_row

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import GroupsLog

Change = Callable[[Roster], Roster]
"""The roster now; the next one, or the same object when nothing is to be changed. May be called several times."""


class RosterStore(Protocol):
    """Where the roster of one group is."""

    def read(self) -> Roster:
        """The roster now."""
        ...

    def change(self, change: Change, by: str, why: str, timeout_ms: float | None = 60_000) -> Roster:
        """Write what `change` makes of the roster, unless it changed meanwhile; then `change` is asked again.

        Args:
            change: makes the next roster. What it raises leaves everything as it was.
            by: id of the member whose doing it is.
            why: for people.
            timeout_ms: how long concurrent writers may hold it up; None without end.

        Returns:
            The roster after it.

        Raises:
            KafkaTimeoutError, KafkaStorageError: nothing was written.
            UnknownOutcomeError: it may have been written.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroupStore:
    """The roster of one group in the table of groups. Thread-safe, as the table is."""

    groups: GroupsLog
    group_id: str

    def read(self) -> Roster:
        """The roster now; costs a file look-up when nothing changed. A member comes again with each poll."""
        return self.groups.refresh(waiting=True).group(self.group_id).roster

    def change(self, change: Change, by: str, why: str, timeout_ms: float | None = 60_000) -> Roster:
        """Write what `change` makes of the roster; see `RosterStore`."""
        after = Roster()

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal after
            before = state.group(self.group_id).roster
            after = change(before)
            return [] if after is before else [roster_row(state.seq + 1, self.group_id, after, by, why)]

        self.groups.transact(plan, timeout_ms)
        return after
