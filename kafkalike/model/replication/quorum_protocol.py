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


@dataclass(frozen=True, slots=True)
class ReadVersion(Effect[Any]):
    """Read a version. The answer is its content; None if the voter is open and does not have it."""

    voter: registers.Voter
    version: int


@dataclass(frozen=True, slots=True)
class PutVersion(Effect[None]):
    """Put a decided version, if it is absent. The answer is None."""

    voter: registers.Voter
    version: int
    content: Hashable


@dataclass(frozen=True, slots=True)
class LastVersion(Effect[int]):
    """Ask for the last version of a voter, as a file or in a checkpoint. The answer is -1 if it has none."""

    voter: registers.Voter


@dataclass(frozen=True, slots=True)
class SupplyVersion(Effect[None]):
    """Give a voter the data files of a version, from any source that has them. The answer is None."""

    voter: registers.Voter
    content: Hashable
    sources: tuple[registers.Voter, ...]


@dataclass(frozen=True, slots=True)
class CopyVoterCheckpoint(Effect[int]):
    """Give a voter the newest checkpoint of another one with all its data files. The answer is its version, or -1."""

    voter: registers.Voter
    source: registers.Voter


@dataclass(frozen=True, slots=True)
class NewProposer(Effect[str]):
    """Make an id that no other process has. The answer is that id."""


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
"""Content for a vote that only finds out an earlier decision."""


class VoterFellBehindError(Exception):
    """The version was decided long ago, and its content is deleted from the log: load the table again."""


def looking(version: int, voters: Sequence[registers.Voter]) -> Generator[QuorumEffect, Any, Hashable | None]:
    """Return the content of a version after making sure that a majority has it; None if it does not exist yet.

    Raises:
        NoMajorityError: too few voters answer to prove that it does not exist, or too few have it.
    """
    having: list[registers.Voter] = []
    lacking: list[registers.Voter] = []
    content: Hashable | None = None
    for voter in voters:
        try:
            found = yield from ReadVersion(voter, version)
        except registers.UnreachableVoterError:
            continue
        if found is None:
            lacking.append(voter)
        else:
            having.append(voter)
            content = found
        if registers.majority(len(voters)) in {len(having), len(lacking)}:
            break
    if content is None and len(lacking) < registers.majority(len(voters)):
        raise registers.NoMajorityError
    if content is not None and len(having) < registers.majority(len(voters)):
        # The next reader may ask other voters.
        yield from publishing(version, content, voters)
    return content


def confirming(version: int, voters: Sequence[registers.Voter]) -> Generator[QuorumEffect, Any, None]:
    """Make sure that a majority has a version that one voter has, so that it may be shown.

    Raises:
        NoMajorityError: too few have it.
    """
    having = 0
    for voter in voters:
        try:
            having += (yield from LastVersion(voter)) >= version
        except registers.UnreachableVoterError:
            continue
    if having < registers.majority(len(voters)):
        content = yield from published(version, voters)
        yield from publishing(version, content, voters)


def putting(version: int, content: Hashable, voters: Sequence[registers.Voter]) -> Generator[QuorumEffect, Any, Any]:
    """Have a content decided for a version whose predecessor is decided, or learn the decided one.

    A majority must have its data files.

    Returns:
        The final content of the version, which is published.

    Raises:
        NoMajorityError, VotersReplacedError: the outcome is unknown: it may be decided later.
        VoterFellBehindError: it may have been decided long ago.
    """
    found = yield from published(version, voters)
    if found is None:
        try:
            found = yield from registers.proposing(version, voters, (yield from NewProposer()), content)
        except registers.SlotClosedError:
            found = yield from published(version, voters)
            if found is None:
                raise VoterFellBehindError from None
    yield from publishing(version, found, voters)
    return found


def published(version: int, voters: Sequence[registers.Voter]) -> Generator[QuorumEffect, Any, Any]:
    """Return the content of a version from any reachable voter that has it."""
    for voter in voters:
        try:
            found = yield from ReadVersion(voter, version)
        except registers.UnreachableVoterError:
            continue
        if found is not None:
            return found
    return None


def publishing(
    version: int, content: Hashable, voters: Sequence[registers.Voter]
) -> Generator[QuorumEffect, Any, None]:
    """Put a decided version, and those before it, at all reachable voters.

    Raises:
        NoMajorityError: too few of them have it afterwards.
    """
    has = 0
    for voter in voters:
        try:
            has += yield from bringing(voter, version, content, voters, voters)
        except registers.UnreachableVoterError:
            continue
    if has < registers.majority(len(voters)):
        raise registers.NoMajorityError


def bringing(
    voter: registers.Voter,
    version: int,
    content: Hashable | None,
    sources: Sequence[registers.Voter],
    deciders: Sequence[registers.Voter],
) -> Generator[QuorumEffect, Any, bool]:
    """Bring a voter up to a version.

    Args:
        voter: the voter.
        version: the version that it should have.
        content: content of that version, if known.
        sources: voters that may have the missing versions.
        deciders: voters whose registers have the rest.

    Returns:
        True if it has the version.

    Raises:
        UnreachableVoterError: it does not answer.
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


def _copied(
    voter: registers.Voter, last: int, sources: Sequence[registers.Voter]
) -> Generator[QuorumEffect, Any, bool]:
    """Give a voter a checkpoint newer than its last version."""
    for source in sources:
        try:
            if (yield from CopyVoterCheckpoint(voter, source)) > last:
                return True
        except registers.UnreachableVoterError:
            continue
    return False


def _learned(version: int, voters: Sequence[registers.Voter]) -> Generator[QuorumEffect, Any, Any]:
    """Return a decided content that no reachable voter has published; None if it cannot be found out."""
    try:
        found = yield from registers.proposing(version, voters, (yield from NewProposer()), UNDECIDED)
    except (registers.NoMajorityError, registers.SlotClosedError, registers.VotersReplacedError):
        return None
    assert found != UNDECIDED, f"version {version} is not decided, but a later one is"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumMember:
    """A root that votes, or that has a copy of the decided versions."""

    broker: int
    uri: str
    """Location of the root when it was named."""
    id: str
    """Its name among these voters."""
    votes: bool
    version: int | None
    """Its last version of the metadata; None if it does not answer."""
    time_ms: int | None
    """Time when that version was written there, ms since the epoch, by the root's own clock."""

    @property
    def log_end(self) -> int:
        """Kafka's `LogEndOffset`: the version after the last one; -1 if the root does not answer."""
        return -1 if self.version is None else self.version + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataQuorum:
    """The roots that decide metadata."""

    cluster_id: str
    epoch: int
    """Number of takeovers by other voters."""
    members: Sequence[QuorumMember]

    @property
    def version(self) -> int:
        """The newest version of any reachable member; -1 without one."""
        return max((m.version for m in self.members if m.version is not None), default=-1)

    def caught_up_ms(self, member: QuorumMember) -> int | None:
        """Return when a member got the newest version, ms since the epoch; None if it has not, or if unknown."""
        return member.time_ms if member.version == self.version else None

    @property
    def majority(self) -> bool:
        """True if enough voters answer to decide."""
        voters = [member for member in self.members if member.votes]
        return sum(member.version is not None for member in voters) > len(voters) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The plan or the result of a recovery."""

    lost: Sequence[int]
    """Brokers that voted and do not answer."""
    voters: Sequence[int]
    """Brokers that vote afterwards."""
    version: int
    """The newest remaining version of the metadata."""
    sure: bool
    """True if no decided version can be missing, because a majority of the voters answers."""
    adopted: Sequence[int] = ()
    """Versions that were decided, or about to be, and that no voter had published."""
    findings: Sequence[str] = ()
    """Losses and possible losses, one sentence each."""
    done: bool = False
