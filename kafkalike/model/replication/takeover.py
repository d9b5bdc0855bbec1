"""Takeover: replace lost or retired voters by new voters, which continue from the last decisions of the old ones.

Each remaining voter first gets a mark that names the new voters: after it, it decides nothing more for the old ones.
The registers of any majority of the old voters contain all that they may have decided. The new voters start with that,
and then with a version that records the takeover. They are opened only then, so that no other process decides anything
with them before.

With a mark at a majority of the old voters nothing can be lost. With fewer marks, versions that the other voters
decided alone are lost, and those voters must not come back, because nothing stops them from deciding by themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafkalike.model.effects import Effect
from kafkalike.model.replication import quorum_protocol, registers
from kafkalike.model.replication.quorum_protocol import LastVersion, NewProposer, bringing, published

NEXT: Final = -1
"""The slot of a set's registers in which its successors are decided. It is never closed."""


class VoterSet(NamedTuple):
    """The voters of one epoch."""

    epoch: int
    """Each set has its own epoch."""
    voters: tuple[registers.Voter, ...]
    """Each has its own name in each set, so that a late request for one set is never in another's row."""
    observers: tuple[registers.Voter, ...] = ()
    """Replicas that get a copy of decided versions without a vote, for clusters with few roots."""


@dataclass(frozen=True, slots=True)
class PutMark(Effect[VoterSet]):
    """Put a mark of the takeover at a voter of any set. The answer is the set that its mark then names."""

    voter: registers.Voter
    after: VoterSet


@dataclass(frozen=True, slots=True)
class OpenVoter(Effect[None]):
    """Open a voter of a new set. The answer is None.

    A voter with the mark of a later set is not opened any more, because the process that asks for it has slept, and
    readers that trust the old set would take it for up to date.
    """

    voter: registers.Voter
    epoch: int


@dataclass(frozen=True, slots=True)
class NewRecord(Effect[Any]):
    """Make a version without data that records the new voters. The answer is its content."""

    after: VoterSet
    reached: tuple[registers.Voter, ...]
    """The old voters that answered."""
    version: int


TakeoverEffect = quorum_protocol.QuorumEffect | PutMark | OpenVoter | NewRecord


class OtherTakeoverError(Exception):
    """Another process has begun a different takeover, which must be finished first.

    Args:
        after: the voters that it names.
    """

    def __init__(self, after: VoterSet) -> None:
        super().__init__(f"voters {after} are taking over")
        self.after = after


class TakeoverResult(NamedTuple):
    """The findings and effects of a takeover."""

    reached: tuple[registers.Voter, ...]
    """The old voters that answered."""
    lasts: Mapping[registers.Voter, int]
    """The last version of each of them."""
    adopted: tuple[int, ...]
    """Versions that were only in registers."""
    version: int
    """The version that records the takeover."""
    sure: bool
    """True if nothing can be lost, because a majority of the old voters answered."""


def taking_over(
    before: VoterSet, after: VoterSet, *, lossy: bool = False
) -> Generator[TakeoverEffect, Any, TakeoverResult]:
    """Replace voters. Any process may restart it at any point with the same new voters.

    Args:
        before: the current voters, which must be open, or have been.
        after: the new voters, of the next epoch, under new names. Voters that do not answer have no vote until they are
            replaced, because an empty root with their name looks like a root that has voted.
        lossy: continue although too few of the old voters answer.

    Raises:
        OtherTakeoverError: other voters are already named.
        NoMajorityError: too few of the old or the new voters answer. If the takeover had begun, the old ones decide
            nothing more, and it must be restarted.
        UnreachableVoterError: an old voter does not answer any more. It must be restarted as well.
    """
    assert after.epoch == before.epoch + 1
    reached, sure = yield from _stopped(before, after, lossy=lossy)
    lasts: dict[registers.Voter, int] = {}
    for voter in reached:
        lasts[voter] = yield from LastVersion(voter)
    sources = (*reached, *after.voters)
    version, ready = yield from _prepared(after, max(lasts.values()), sources)
    adopted: list[int] = []
    opens = False
    while not opens:
        version += 1
        wanted = yield from _accepted(version, reached)
        if wanted is None:
            wanted = yield from NewRecord(after, reached, version)
        decided, ready = yield from _decided(version, wanted, after, sources, ready)
        opens = decided.opens == after.epoch
        if not opens:
            adopted.append(version)
    for voter in ready:
        yield from OpenVoter(voter, after.epoch)
    return TakeoverResult(reached, lasts, tuple(adopted), version, sure)


def _marked(
    before: Sequence[registers.Voter], after: VoterSet
) -> Generator[TakeoverEffect, Any, tuple[registers.Voter, ...]]:
    """Mark the old voters. Return the voters that answer."""
    reached: list[registers.Voter] = []
    for voter in before:
        try:
            found = yield from PutMark(voter, after)
        except registers.UnreachableVoterError:
            continue
        if found != after:
            raise OtherTakeoverError(found)
        reached.append(voter)
    return tuple(reached)


def _stopped(
    before: VoterSet, after: VoterSet, *, lossy: bool
) -> Generator[TakeoverEffect, Any, tuple[tuple[registers.Voter, ...], bool]]:
    """Let the old voters decide their successors, and then nothing more.

    Returns:
        The voters that answer, and whether they are a majority.
    """
    try:
        found: Any = yield from registers.proposing(
            NEXT, before.voters, (yield from NewProposer()), after, opening=True
        )
    except registers.NoMajorityError:
        if not lossy:
            raise
        found = after
    if found != after:
        raise OtherTakeoverError(found)
    reached = yield from _marked(before.voters, after)
    sure = len(reached) >= registers.majority(len(before.voters))
    if lossy:
        reached = (*reached, *(yield from _marked(before.observers, after)))
    if not reached or not (sure or lossy):
        raise registers.NoMajorityError
    return reached, sure


def _prepared(
    after: VoterSet, version: int, sources: Sequence[registers.Voter]
) -> Generator[TakeoverEffect, Any, tuple[int, Sequence[registers.Voter]]]:
    """Bring the new voters up to the old ones, or to the most advanced new one. Return that version and its voters."""
    there: list[registers.Voter] = []
    for voter in after.voters:
        try:
            found = yield from PutMark(voter, after)
            if found != after:
                raise OtherTakeoverError(found)
            # Another process may have made more progress with the same takeover, and its versions are decided.
            version = max(version, (yield from LastVersion(voter)))
        except registers.UnreachableVoterError:
            continue
        there.append(voter)
    ready: list[registers.Voter] = []
    for voter in there:
        try:
            if (yield from bringing(voter, version, None, sources, ())):
                ready.append(voter)
        except registers.UnreachableVoterError:
            continue
    return version, ready


def _accepted(version: int, reached: Sequence[registers.Voter]) -> Generator[TakeoverEffect, Any, Any]:
    """Return what the old voters may have decided: the value of the latest ballot, as Paxos requires."""
    found: list[registers.Accept] = []
    for voter in reached:
        row: list[registers.Request] = yield from registers.ReadRow(voter, version, 0)
        # Afterwards, because a late process may have published it and deleted its registers.
        if (yield from LastVersion(voter)) >= version:
            known = yield from published(version, reached)
            if known is None:
                raise registers.UnreachableVoterError
            return known
        voted = registers.Voted()
        for request in row:
            voted = voted.after(request)
        if voted.accepted is not None:
            found.append(voted.accepted)
    return max(found, key=lambda accept: accept.ballot).value if found else None


def _decided(
    version: int,
    wanted: Hashable,
    after: VoterSet,
    sources: Sequence[registers.Voter],
    ready: Sequence[registers.Voter],
) -> Generator[TakeoverEffect, Any, tuple[Any, list[registers.Voter]]]:
    """Have the new voters decide a version, and bring it to voters with all earlier ones; return them.

    Raises:
        NoMajorityError: they are too few.
    """
    try:
        found = yield from registers.proposing(version, after.voters, (yield from NewProposer()), wanted, opening=True)
    except registers.SlotClosedError:
        # Another process is ahead with the same takeover.
        found = yield from published(version, sources)
        if found is None:
            raise registers.NoMajorityError from None
    left: list[registers.Voter] = []
    for voter in ready:
        try:
            if (yield from bringing(voter, version, found, sources, after.voters)):
                left.append(voter)
        except registers.UnreachableVoterError:
            continue
    if len(left) < registers.majority(len(after.voters)):
        raise registers.NoMajorityError
    return found, left
