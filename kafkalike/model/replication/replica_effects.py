"""Replica effects: the steps that the replica protocols yield, for one root or for the controller.

Any process may stop between any two effects forever, or continue years later. An effect on a replica may raise
`UnreachableError`; a `Put` may then have happened, or may still happen.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.model.effects import Effect
from kafkalike.model.replication.registration import Registration, Replica, TableVersion, View

AHEAD: Final = 1000
"""Most versions to read ahead, because each such look lists a log, whose cost grows with its length."""


@dataclass(frozen=True, slots=True)
class Read(Effect[TableVersion | None]):
    """Read a version's file. The answer is its content, or None."""

    replica: Replica
    version: int


@dataclass(frozen=True, slots=True)
class Ahead(Effect[None]):
    """Read ahead up to `most` versions after `since`, above the newest checkpoint. The answer is None.

    Later effects need not ask for them: cleanup has not removed versions that were read between two looks for
    checkpoints.
    """

    replica: Replica
    since: int
    most: int


@dataclass(frozen=True, slots=True)
class Put(Effect[bool]):
    """Create a version's file if it is absent. The answer tells whether this call created it."""

    replica: Replica
    version: int
    content: TableVersion


@dataclass(frozen=True, slots=True)
class Checkpoint(Effect[int]):
    """Look for the newest checkpoint. The answer is its version, or -1."""

    replica: Replica
    about: int | None = None
    """The version that cleanup may have deleted; it limits the question. No look is needed if the version cannot have
    been made and cleaned up since, because a log is kept for an hour at least."""


@dataclass(frozen=True, slots=True)
class End(Effect[int]):
    """Look for the last version, or a checkpoint above all of them. The answer is its number, or -1."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Load(Effect[View | None]):
    """Load the newest checkpoint. The answer is a `View` at its version, or None."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Supply(Effect[None]):
    """Make sure that a replica has the data files that a version adds, and flush them to disk if the topic requires it.

    Files that maintenance has since removed from the log are left out. The answer is None.
    """

    replica: Replica
    content: TableVersion
    source: Replica | None
    """Replica that has the files; None for this process, which has written them."""
    partly: bool = False
    """Leave out files that the source lacks, because its log may name files that were removed later."""


@dataclass(frozen=True, slots=True)
class MakeCheckpoint(Effect[None]):
    """Write a checkpoint of a published version of the log. The answer is None."""

    replica: Replica
    version: int


@dataclass(frozen=True, slots=True)
class CopyCheckpoint(Effect[int]):
    """Give a replica the newest checkpoint of another one, after the data files that are live in it.

    First a note at the replica records which of its own versions up to the checkpoint may not count, see `Counts`;
    versions that both have are compared afterwards. The answer is the checkpoint's version.
    """

    source: Replica
    replica: Replica
    partly: bool = False
    """Leave out files that the source lacks."""


@dataclass(frozen=True, slots=True)
class Counts(Effect[bool]):
    """Check whether a replica's version is the published one. The answer is a bool.

    Versions below the checkpoint with which the replica came back may be its own: put when it was the head and never
    published, or put by a process that had slept, after cleanup.
    """

    replica: Replica
    version: int
    """A version that was read before. Not asked if this process knows that it was not made (see `Checkpoint`)."""


@dataclass(frozen=True, slots=True)
class Missing(Effect[tuple[Any, ...]]):
    """Look for data files in a replica's log, as of its last version, that it lacks. The answer is a tuple."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class Fill(Effect[None]):
    """Make sure that a replica has the data files that its log names, as of its last version. The answer is None.

    Files that maintenance has since removed from the log are left out. An interrupted `CopyCheckpoint` is finished.
    """

    replica: Replica
    source: Replica


@dataclass(frozen=True, slots=True)
class Discard(Effect[None]):
    """Delete the files of versions that a checkpoint of this replica makes unnecessary, oldest first.

    A note first records that they do not count, see `Counts`. The answer is None.
    """

    replica: Replica
    below: int


@dataclass(frozen=True, slots=True)
class LookAtController(Effect[Registration]):
    """Ask the controller. The answer is a `Registration`."""


@dataclass(frozen=True, slots=True)
class Register(Effect[bool]):
    """Change the registration, if it is still `before`. The answer tells whether it was changed.

    A lost answer is found by asking again, because each epoch is assigned once.
    """

    before: Registration
    after: Registration


@dataclass(frozen=True, slots=True)
class NewSeal(Effect[TableVersion]):
    """Make a version that puts a registration's configuration in force. The answer is a `TableVersion`.

    If several processes make one, the first put decides which is in the log.
    """

    registration: Registration
    lost: tuple[Any, ...] = ()
    """The answer of `Missing`: this version removes these files."""


@dataclass(frozen=True, slots=True)
class NewLife(Effect[int]):
    """Make a number that no other process has. The answer is that number."""


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
