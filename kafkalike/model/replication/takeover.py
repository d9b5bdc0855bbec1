"""Takeover: voters that were lost, or shall go, in; other voters that go on where these have ended, out.

Each voter that is left gets a mark first, which names the new ones: after it, it decides nothing more for the old ones.
What those may have decided is in the registers of any majority of them. The new ones begin with that, and then with a
version that says so; only then are they open, so that nobody else decides anything with them before.

With a mark at a majority of the old voters nothing can be lost. With fewer, what they had decided without those that
are left is lost, and those that are gone must not come back: nothing keeps them from going on by themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kafkalike.model.effects import Effect
from kafkalike.model.replication import quorum_protocol
from kafkalike.model.replication.quorum_protocol import LastVersion, NewProposer, bringing, published
from kafkalike.model.replication.registers import (
    Accept,
    NoMajorityError,
    ReadRow,
    Request,
    SlotClosedError,
    UnreachableVoterError,
    Voted,
    Voter,
    majority,
    proposing,
)

NEXT: Final = -1
"""The slot of a set's registers in which its successors are decided. It is never closed."""


class VoterSet(NamedTuple):
    """Who votes."""

    epoch: int
    """One set for each."""
    voters: tuple[Voter, ...]
    """Each has a name of its own in each set, so that what is late for one set is never in another's row."""
    observers: tuple[Voter, ...] = ()
    """Who gets a copy of what was decided, and is not asked: where too few roots are there for several voters."""


@dataclass(frozen=True, slots=True)
class PutMark(Effect[VoterSet]):
    """Put a mark at a voter, of any set, that other voters take over. Comes to the set that its mark names then."""

    voter: Voter
    after: VoterSet


@dataclass(frozen=True, slots=True)
class OpenVoter(Effect[None]):
    """Let a voter of a new set vote. Comes to nothing.

    A voter that was there and was given the mark of a later set is not opened any more: who asks for that has slept,
    and whoever believes the old set would learn from it that there is nothing new.
    """

    voter: Voter
    epoch: int


@dataclass(frozen=True, slots=True)
class NewRecord(Effect[Any]):
    """A version without data that says which voters took over. Comes to its content."""

    after: VoterSet
    reached: tuple[Voter, ...]
    """Those of the old voters that were."""
    version: int


TakeoverEffect = quorum_protocol.QuorumEffect | PutMark | OpenVoter | NewRecord


class OtherTakeoverError(Exception):
    """Somebody else has begun to have others take over: that is to be ended first.

    Args:
        after: the voters that they name.
    """

    def __init__(self, after: VoterSet) -> None:
        super().__init__(f"voters {after} are taking over")
        self.after = after


class TakeoverResult(NamedTuple):
    """What a takeover found and did."""

    reached: tuple[Voter, ...]
    """Those of the old voters that answered."""
    lasts: Mapping[Voter, int]
    """The last version that each of them had."""
    adopted: tuple[int, ...]
    """Versions that were only in registers."""
    version: int
    """The version that says so."""
    sure: bool
    """Whether nothing can be lost: a majority of the old voters answered."""


def taking_over(
    before: VoterSet, after: VoterSet, *, lossy: bool = False
) -> Generator[TakeoverEffect, Any, TakeoverResult]:
    """Have other voters take over. It may be begun again at any point, by anybody, with the same new voters.

    Args:
        before: the voters so far, which must be open, or have been.
        after: the new ones, of the next epoch, under new names. Those that do not answer have no vote until they are
            replaced: an empty root under their name could not be told from one that has voted.
        lossy: go on where too few of the old ones answer.

    Raises:
        OtherTakeoverError: others were named already.
        NoMajorityError: too few of the old or the new voters answer. If it was begun, the old ones decide nothing more,
            and it is to be begun again.
        UnreachableVoterError: an old one answers no longer. The same.
    """
    assert after.epoch == before.epoch + 1
    reached, sure = yield from _stopped(before, after, lossy=lossy)
    lasts: dict[Voter, int] = {}
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


def _marked(before: Sequence[Voter], after: VoterSet) -> Generator[TakeoverEffect, Any, tuple[Voter, ...]]:
    """Mark the old voters. Returns those that answer."""
    reached: list[Voter] = []
    for voter in before:
        try:
            found = yield from PutMark(voter, after)
        except UnreachableVoterError:
            continue
        if found != after:
            raise OtherTakeoverError(found)
        reached.append(voter)
    return tuple(reached)


def _stopped(
    before: VoterSet, after: VoterSet, *, lossy: bool
) -> Generator[TakeoverEffect, Any, tuple[tuple[Voter, ...], bool]]:
    """Let the old voters decide who comes next, and then nothing more.

    Returns:
        Who answers, and whether that is a majority of the voters.
    """
    try:
        found: Any = yield from proposing(NEXT, before.voters, (yield from NewProposer()), after, opening=True)
    except NoMajorityError:
        if not lossy:
            raise
        found = after
    if found != after:
        raise OtherTakeoverError(found)
    reached = yield from _marked(before.voters, after)
    sure = len(reached) >= majority(len(before.voters))
    if lossy:
        reached = (*reached, *(yield from _marked(before.observers, after)))
    if not reached or not (sure or lossy):
        raise NoMajorityError
    return reached, sure


def _prepared(
    after: VoterSet, version: int, sources: Sequence[Voter]
) -> Generator[TakeoverEffect, Any, tuple[int, Sequence[Voter]]]:
    """Bring the new voters to where the old ones are, or one of themselves. Returns that version, and who has it."""
    there: list[Voter] = []
    for voter in after.voters:
        try:
            found = yield from PutMark(voter, after)
            if found != after:
                raise OtherTakeoverError(found)
            # Somebody else who does the same may have been further, and what he has put is decided.
            version = max(version, (yield from LastVersion(voter)))
        except UnreachableVoterError:
            continue
        there.append(voter)
    ready: list[Voter] = []
    for voter in there:
        try:
            if (yield from bringing(voter, version, None, sources, ())):
                ready.append(voter)
        except UnreachableVoterError:
            continue
    return version, ready


def _accepted(version: int, reached: Sequence[Voter]) -> Generator[TakeoverEffect, Any, Any]:
    """What the old voters may have decided: the value of the latest ballot, as for any later one."""
    found: list[Accept] = []
    for voter in reached:
        row: list[Request] = yield from ReadRow(voter, version, 0)
        # After it: somebody late may have published it, and removed its registers.
        if (yield from LastVersion(voter)) >= version:
            known = yield from published(version, reached)
            if known is None:
                raise UnreachableVoterError
            return known
        voted = Voted()
        for request in row:
            voted = voted.after(request)
        if voted.accepted is not None:
            found.append(voted.accepted)
    return max(found, key=lambda accept: accept.ballot).value if found else None


def _decided(
    version: int, wanted: Hashable, after: VoterSet, sources: Sequence[Voter], ready: Sequence[Voter]
) -> Generator[TakeoverEffect, Any, tuple[Any, list[Voter]]]:
    """Have the new voters decide a version, and bring it to those that have all before it. Returns those left of them.

    Raises:
        NoMajorityError: they are too few.
    """
    try:
        found = yield from proposing(version, after.voters, (yield from NewProposer()), wanted, opening=True)
    except SlotClosedError:
        # Somebody else who does the same is ahead.
        found = yield from published(version, sources)
        if found is None:
            raise NoMajorityError from None
    left: list[Voter] = []
    for voter in ready:
        try:
            if (yield from bringing(voter, version, found, sources, after.voters)):
                left.append(voter)
        except UnreachableVoterError:
            continue
    if len(left) < majority(len(after.voters)):
        raise NoMajorityError
    return found, left
