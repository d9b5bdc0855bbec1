"""Quorum protocol: decide each version of the metadata by a majority of voters, and publish it to reachable voters.

Each voter is a replica of the metadata table: versions, their data files, checkpoints. Registers decide which content a
version has. The version is then published: put at each voter that answers, after the version before it and after its
data files. A version is acknowledged when a majority has it. Any version that a client was shown or told of is
therefore found by asking a majority, and every single voter is a readable table, if not always the newest one.

The registers of a version may be deleted once a checkpoint has it. A proposer that slept meanwhile notices after its
put.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from kafkalike.model.effects import Effect
from kafkalike.model.replication import registers
from kafkalike.model.replication.registers import (
    NoMajorityError,
    SlotClosedError,
    UnreachableVoterError,
    Voter,
    majority,
    proposing,
)


@dataclass(frozen=True, slots=True)
class ReadVersion(Effect[Any]):
    """Read a version. Comes to its content; None when the voter is open and does not have it."""

    voter: Voter
    version: int


@dataclass(frozen=True, slots=True)
class PutVersion(Effect[None]):
    """Put a version that was decided, if none is there. Comes to nothing."""

    voter: Voter
    version: int
    content: Hashable


@dataclass(frozen=True, slots=True)
class LastVersion(Effect[int]):
    """Ask for the last version that a voter has, as a file or in a checkpoint. -1 when there is none."""

    voter: Voter


@dataclass(frozen=True, slots=True)
class SupplyVersion(Effect[None]):
    """Give a voter the data files of a version, from any that has them. Comes to nothing."""

    voter: Voter
    content: Hashable
    sources: tuple[Voter, ...]


@dataclass(frozen=True, slots=True)
class CopyVoterCheckpoint(Effect[int]):
    """Give a voter another one's newest checkpoint, with all its data files. Comes to its version; -1 without one."""

    voter: Voter
    source: Voter


@dataclass(frozen=True, slots=True)
class NewProposer(Effect[str]):
    """An id that nobody else has."""


QuorumEffect = (
    registers.RegisterEffect
    | ReadVersion
    | PutVersion
    | LastVersion
    | SupplyVersion
    | CopyVoterCheckpoint
    | NewProposer
)

UNDECIDED = "undecided"
"""What nobody wants to be decided."""


class VoterFellBehindError(Exception):
    """The version was decided long ago, and what it was is gone from the log: look anew."""


def looking(version: int, voters: Sequence[Voter]) -> Generator[QuorumEffect, Any, Hashable | None]:
    """The content of a version, which a majority has then; None when it is not there yet.

    Raises:
        NoMajorityError: too few answer to say that it is not there, or to have it.
    """
    having: list[Voter] = []
    lacking: list[Voter] = []
    content: Hashable | None = None
    for voter in voters:
        try:
            found = yield from ReadVersion(voter, version)
        except UnreachableVoterError:
            continue
        if found is None:
            lacking.append(voter)
        else:
            having.append(voter)
            content = found
        if majority(len(voters)) in {len(having), len(lacking)}:
            break
    if content is None and len(lacking) < majority(len(voters)):
        raise NoMajorityError
    if content is not None and len(having) < majority(len(voters)):
        # Who looks next may ask others.
        yield from publishing(version, content, voters)
    return content


def confirming(version: int, voters: Sequence[Voter]) -> Generator[QuorumEffect, Any, None]:
    """See to it that a version which somebody has is at a majority, so that it may be shown.

    Raises:
        NoMajorityError: too few have it.
    """
    having = 0
    for voter in voters:
        try:
            having += (yield from LastVersion(voter)) >= version
        except UnreachableVoterError:
            continue
    if having < majority(len(voters)):
        content = yield from published(version, voters)
        yield from publishing(version, content, voters)


def putting(version: int, content: Hashable, voters: Sequence[Voter]) -> Generator[QuorumEffect, Any, Any]:
    """Have a content decided for a version, whose predecessor is known to be decided, or learn which one is.

    Its data files must be at a majority.

    Returns:
        The content that the version has, for ever; it is published.

    Raises:
        NoMajorityError, VotersReplacedError: unknown: it may still be decided.
        FellBehindError: it may have been, long ago.
    """
    found = yield from published(version, voters)
    if found is None:
        try:
            found = yield from proposing(version, voters, (yield from NewProposer()), content)
        except SlotClosedError:
            found = yield from published(version, voters)
            if found is None:
                raise VoterFellBehindError from None
    yield from publishing(version, found, voters)
    return found


def published(version: int, voters: Sequence[Voter]) -> Generator[QuorumEffect, Any, Any]:
    """What any voter in reach has as a version."""
    for voter in voters:
        try:
            found = yield from ReadVersion(voter, version)
        except UnreachableVoterError:
            continue
        if found is not None:
            return found
    return None


def publishing(version: int, content: Hashable, voters: Sequence[Voter]) -> Generator[QuorumEffect, Any, None]:
    """Put a decided version at all voters in reach, those before it first.

    Raises:
        NoMajorityError: too few of them have it then.
    """
    has = 0
    for voter in voters:
        try:
            has += yield from bringing(voter, version, content, voters, voters)
        except UnreachableVoterError:
            continue
    if has < majority(len(voters)):
        raise NoMajorityError


def bringing(
    voter: Voter, version: int, content: Hashable | None, sources: Sequence[Voter], deciders: Sequence[Voter]
) -> Generator[QuorumEffect, Any, bool]:
    """Bring a voter up to a version.

    Args:
        voter: the one.
        version: which it is to have.
        content: of that version, where it is known.
        sources: who may have what it lacks.
        deciders: whose registers say the rest.

    Returns:
        Whether it has it.

    Raises:
        UnreachableVoterError: it gives no answer.
    """
    others = tuple(source for source in sources if source != voter)
    while (last := (yield from LastVersion(voter))) < version:
        wanted = content if last + 1 == version else None
        if wanted is None:
            wanted = yield from published(last + 1, others)
        if wanted is None:
            copied = yield from _copied(voter, last, others)
            if copied:
                continue
            wanted = yield from _learned(last + 1, deciders)
            if wanted is None:
                return False
        yield from SupplyVersion(voter, wanted, others)
        yield from PutVersion(voter, last + 1, wanted)
    return True


def _copied(voter: Voter, last: int, sources: Sequence[Voter]) -> Generator[QuorumEffect, Any, bool]:
    """Give a voter a checkpoint that is newer than what it has."""
    for source in sources:
        try:
            if (yield from CopyVoterCheckpoint(voter, source)) > last:
                return True
        except UnreachableVoterError:
            continue
    return False


def _learned(version: int, voters: Sequence[Voter]) -> Generator[QuorumEffect, Any, Any]:
    """What was decided and is published nowhere in reach; None when that cannot be said now."""
    try:
        found = yield from proposing(version, voters, (yield from NewProposer()), UNDECIDED)
    except (NoMajorityError, SlotClosedError, registers.VotersReplacedError):
        return None
    assert found != UNDECIDED, f"version {version} is decided by nobody, and one above it is"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMember:
    """A root that votes, or has a copy of what was decided."""

    broker: int
    uri: str
    """Where the root was when it was named."""
    id: str
    """Its name among these voters."""
    votes: bool
    version: int | None
    """The last version of the metadata that it has; None: it gives no answer."""
    time_ms: int | None
    """When that was written there, ms since the epoch, by the root's own clock."""

    @property
    def log_end(self) -> int:
        """Kafka's `LogEndOffset`: the version after the last one; -1: it gives no answer."""
        return -1 if self.version is None else self.version + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataQuorum:
    """Who decides."""

    cluster_id: str
    epoch: int
    """How many times others have taken over."""
    members: Sequence[QuorumMember]

    @property
    def version(self) -> int:
        """The newest version that anybody in reach has; -1 when there is none."""
        return max((m.version for m in self.members if m.version is not None), default=-1)

    def caught_up_ms(self, member: QuorumMember) -> int | None:
        """When a member got the newest version, ms since the epoch; None: it has not, or nobody knows."""
        return member.time_ms if member.version == self.version else None

    @property
    def majority(self) -> bool:
        """Whether so many voters answer that something can be decided."""
        voters = [member for member in self.members if member.votes]
        return sum(member.version is not None for member in voters) > len(voters) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a recovery would do, or has done."""

    lost: Sequence[int]
    """Brokers that voted, and give no answer."""
    voters: Sequence[int]
    """Brokers that vote from then on."""
    version: int
    """The newest version of the metadata that is left."""
    sure: bool
    """Whether nothing that was decided can be missing: a majority of the voters answers."""
    adopted: Sequence[int] = ()
    """Versions that were decided, or about to be, and that no voter had published."""
    findings: Sequence[str] = ()
    """What is, or may be, lost; a sentence each."""
    done: bool = False
