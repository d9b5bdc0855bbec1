"""Replica effects: what the protocols of replicas ask of one root, or of the controller, with the answer's type.

Any process may stop between any two effects for ever, or go on years later. An effect on a replica may end in
`UnreachableError`; then a `Put` may have happened, or may still happen.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.model.effects import Effect
from kafkalike.model.replication.registration import Registration, Replica, TableVersion, View

AHEAD: Final = 1000
"""Versions that are read ahead at most: each such look lists a log, which takes the longer the more it has."""


@dataclass(frozen=True, slots=True)
class Read(Effect[TableVersion | None]):
    """Read a version's file. Comes to its content, or None."""

    replica: Replica
    version: int


@dataclass(frozen=True, slots=True)
class Ahead(Effect[None]):
    """Read the versions after one ahead, up to so many, above the newest checkpoint. Comes to nothing.

    Later effects need not ask for them: what was read between two looks for checkpoints was not cleaned up.
    """

    replica: Replica
    since: int
    most: int


@dataclass(frozen=True, slots=True)
class Put(Effect[bool]):
    """Create a version's file if there is none. Comes to whether this call did."""

    replica: Replica
    version: int
    content: TableVersion


@dataclass(frozen=True, slots=True)
class Checkpoint(Effect[int]):
    """Look for the newest checkpoint. Comes to its version, or -1."""

    replica: Replica
    about: int | None = None
    """The version whose place clean-up may have emptied: nothing else is asked then. Whoever knows that nobody can have
    made it and cleaned it up again, as a log stays for an hour at least, need not look."""


@dataclass(frozen=True, slots=True)
class End(Effect[int]):
    """Look for the last version, or a checkpoint above all of them. Comes to its number, or -1."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Load(Effect[View | None]):
    """Load the newest checkpoint. Comes to a `View` at its version, or None."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Supply(Effect[None]):
    """See that a replica has the data files that a version adds, and force them to the disk if the topic wants that.

    Files that maintenance has removed from the log since are left out. Comes to nothing.
    """

    replica: Replica
    content: TableVersion
    source: Replica | None
    """Who has them; None: this process, which has made them."""
    partly: bool = False
    """Whether what the source lacks is left out: its log may name files that were removed where it went on."""


@dataclass(frozen=True, slots=True)
class MakeCheckpoint(Effect[None]):
    """Write a checkpoint of a published version of the log. Comes to nothing."""

    replica: Replica
    version: int


@dataclass(frozen=True, slots=True)
class CopyCheckpoint(Effect[int]):
    """Give a replica another one's newest checkpoint, and before it the data files that are live in it.

    It is noted at the replica first which of its own versions up to that one may not count, see `Counts`; where both
    have a version, it is found out afterwards. Comes to the checkpoint's version.
    """

    source: Replica
    replica: Replica
    partly: bool = False
    """As of `Supply`."""


@dataclass(frozen=True, slots=True)
class Counts(Effect[bool]):
    """Look whether a version that a replica has is what was published in its place. Comes to that.

    What it has below a checkpoint that it came back with may be its own: put when it was the head, and never published;
    or put by somebody who had slept, where clean-up had been.
    """

    replica: Replica
    version: int
    """That was read before: nothing is asked where this process has seen that it was not made, as for `Checkpoint`."""


@dataclass(frozen=True, slots=True)
class Missing(Effect[tuple[Any, ...]]):
    """Look for data files that a replica's log names, as of its last version, and that it lacks. Comes to a tuple."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Fill(Effect[None]):
    """See that a replica has the data files that its log names, as of its last version. Comes to nothing.

    Files that maintenance has removed from the log since are left out. What `CopyCheckpoint` has begun is ended.
    """

    replica: Replica
    source: Replica


@dataclass(frozen=True, slots=True)
class Discard(Effect[None]):
    """Remove the versions' files that a checkpoint of this replica makes unnecessary, from the oldest on.

    It is noted first that they do not count, see `Counts`. Comes to nothing.
    """

    replica: Replica
    below: int


@dataclass(frozen=True, slots=True)
class LookAtController(Effect[Registration]):
    """Ask the controller. Comes to a `Registration`."""


@dataclass(frozen=True, slots=True)
class Register(Effect[bool]):
    """Change what the controller says, if it is still what was seen. Comes to whether it was changed.

    An answer that got lost is found by asking again: an epoch is given out once.
    """

    before: Registration
    after: Registration


@dataclass(frozen=True, slots=True)
class NewSeal(Effect[TableVersion]):
    """Make the content of a version that puts a registration's configuration in force. Comes to a `TableVersion`.

    Which of several is in the log is decided by who puts one first.
    """

    registration: Registration
    lost: tuple[Any, ...] = ()
    """What `Missing` came to: this version takes them out."""


@dataclass(frozen=True, slots=True)
class NewLife(Effect[int]):
    """Make a number that nobody else has. Comes to it."""


ReplicaEffect = (
    Read
    | Ahead
    | Put
    | Checkpoint
    | End
    | Load
    | Supply
    | MakeCheckpoint
    | CopyCheckpoint
    | Counts
    | Missing
    | Fill
    | Discard
    | LookAtController
    | Register
    | NewSeal
    | NewLife
)
Steps = Generator[ReplicaEffect, Any, Any]
