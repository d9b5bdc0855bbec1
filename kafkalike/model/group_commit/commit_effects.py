"""Commit effects: what the group-commit protocol asks its runner to do, one class each, with the answer's type."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kafkalike.errors import UnknownOutcomeError
from kafkalike.model.effects import Effect
from kafkalike.model.group_commit.waiting_appends import Placed, Room, TakenAppends, WaitingAppend


class Lost(Enum):
    """An attempt that made no version."""

    LOST = "lost"
    """Another writer made it."""
    BUSY = "busy"
    """Not tried: another thread of this process has the turn."""
    GIVES_WAY = "gives way"
    """Not tried: somebody has asked for room whose append cannot wait."""


LOST: Final = Lost.LOST
BUSY: Final = Lost.BUSY
GIVES_WAY: Final = Lost.GIVES_WAY


class ForgottenError(UnknownOutcomeError):
    """What became of an append is unknown, and stays so: the log no longer says."""


@dataclass(frozen=True, slots=True)
class Attempt(Effect[Placed | Lost]):
    """Look at the table, and make the next version with the own append. Comes to `Placed`, `LOST` or `BUSY`.

    With `combine`, the appends that wait are listed and read after the look, and the version is made only right after
    the one that was seen.
    """

    part: WaitingAppend | None
    """The own append if it waits beside the table. Then it may have been taken by others: that is found in the look."""
    combine: bool
    leading: bool = False
    """Only if the latest version is this writer's own."""
    room: Room | None = None
    """The own word, where one was put there: whoever has asked later gives way."""


@dataclass(frozen=True, slots=True)
class Look(Effect["Seen"]):
    """Look for new versions. Comes to `Seen`."""

    admit: bool = False
    """Look at all that an append must have seen, too, and refuse one that will not be taken."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A table at a version, at a time."""

    version: int
    taken: TakenAppends
    now: float
    """Seconds, when it was seen."""
    deaf: bool = False
    """Whether the latest version is an append whose writer has not looked for appends that wait."""
    leading: bool = False
    """Whether the latest version is this writer's own."""
    age: float = 0.0
    """Seconds since that version was first seen."""


@dataclass(frozen=True, slots=True)
class Put(Effect[None]):
    """Put the own append beside the table, unless it is there. Comes to nothing."""

    part: WaitingAppend


@dataclass(frozen=True, slots=True)
class AskRoom(Effect[None]):
    """Put a word beside the table that nobody else is to make versions for a while. Comes to nothing."""

    room: Room


@dataclass(frozen=True, slots=True)
class LeaveRoom(Effect[None]):
    """Try to take that word away. Comes to nothing."""

    room: Room


@dataclass(frozen=True, slots=True)
class Withdraw(Effect[None]):
    """Put a word in the place of the own append that it must not be taken. Comes to nothing."""

    part: WaitingAppend


@dataclass(frozen=True, slots=True)
class MoveOn(Effect["Seen"]):
    """See to it that there is a version above one, by an empty commit if nobody makes one. Comes to `Seen`."""

    version: int


@dataclass(frozen=True, slots=True)
class Pause(Effect[None]):
    """Do nothing for a while. Comes to nothing."""

    seconds: float


CommitEffect = Attempt | Look | Put | AskRoom | LeaveRoom | Withdraw | MoveOn | Pause
Appending = Generator[CommitEffect, Any, Placed]
