"""Groups: what the rules of transactions ask of the groups' table; `kafkalike.model.group_state` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafkalike.model.groups.roster import Roster
from kafkalike.model.transactions.unsettled import Dues
from kafkalike.model.transactions.values import Standing


class RosterOwner(Protocol):
    """A group."""

    @property
    def roster(self) -> Roster:
        """Its members."""
        ...


class Groups(Protocol):
    """The groups' table at a row; `GroupsState` is one."""

    @property
    def seq(self) -> int:
        """Number of its last row."""
        ...

    @property
    def transactions(self) -> Mapping[str, Standing]:
        """Transactional ids that are not forgotten."""
        ...

    @property
    def unsettled(self) -> Mapping[str, Dues]:
        """Decisions that are not known to be in all topics, by the id of a topic that they bring records into."""
        ...

    def group(self, group_id: str) -> RosterOwner:
        """A group; an empty one when it is not known."""
        ...
