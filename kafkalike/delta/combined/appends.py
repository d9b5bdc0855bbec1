"""Appends: what appends of one kind of table are, to those who combine them; and the version that one of them makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kafkalike.delta.state import TableState
from kafkalike.delta.table_change import Change, Done, Landed, Plan
from kafkalike.model.clock import Deadline
from kafkalike.model.combining.parts import Placed, Waiting

A_contra = TypeVar("A_contra", contravariant=True)
"""An append of the table, before it has a place."""


@dataclass(frozen=True, slots=True)
class At:
    """Nobody has made a version since. So what waits was read after the version before this change was seen."""

    version: int

    def holds(self, state: TableState) -> bool:
        """See `Requirement`."""
        return state.version == self.version


@dataclass(frozen=True, slots=True)
class Made:
    """A change that brings an append, and others with it."""

    change: Change
    ranges: Mapping[int, range]
    """Offsets of the own append, by partition."""
    taken: int
    """How many appends of others."""
    unfit: Sequence[Waiting] = ()
    """What waits and need not be read again here: it is no append, or one that the table does not take."""


class Appends(Protocol[A_contra]):
    """What appends of one kind of table are."""

    def change(self, plan: Plan[Any], deadline: Deadline) -> Landed | Done[Any]:
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
        self, state: TableState, own: A_contra, part: Waiting | None, others: Sequence[tuple[Waiting, bytes]] | None
    ) -> Made | Placed:
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
