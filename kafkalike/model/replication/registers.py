"""Registers: voters that run nothing, and a proposal in; what a majority of them has decided out.

A voter is a folder where a file can be created if it is absent, no more. For each slot, such as a version of the
cluster's metadata, it holds a row of files, each put behind the last one: what proposers have asked of it. What it has
promised and accepted follows from that row alone, so everybody computes the same; that makes it an acceptor of Paxos,
whoever reads it. A file that was put too late is there and has no effect.

Any process may stop between any two effects for ever; a put whose answer was lost may land later, in its place or
never. Two values are never decided for one slot. One is decided as soon as somebody is left alone for a while with a
majority of voters that answer.

A row is removed one day. So after each look and each put a voter is asked how it stands to the slot: where clean-up may
have been there, or other voters have taken over, what the row says counts for nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kafkalike.model.effects import Effect


class Ballot(NamedTuple):
    """Whose turn it is: later ones count more. No two proposals have the same one."""

    number: int
    proposer: str


class Prepare(NamedTuple):
    """Nothing of an earlier ballot is to be accepted from here on."""

    ballot: Ballot


class Accept(NamedTuple):
    """A value, unless a later ballot stands before it."""

    ballot: Ballot
    value: Hashable


Request = Prepare | Accept


class Voted(NamedTuple):
    """What a voter's row of a slot says."""

    promised: Ballot | None = None
    accepted: Accept | None = None

    def after(self, request: Request) -> Voted:
        """With one more request at the end of the row."""
        if self.promised is not None and request.ballot < self.promised:
            return self
        accepted = request if isinstance(request, Accept) else self.accepted
        return Voted(request.ballot, accepted)


class SlotState(NamedTuple):
    """How a voter stands to a slot."""

    closed: bool = False
    """It has what was decided, or a later version, or a checkpoint of one: its row may have been removed."""
    replaced: bool = False
    """Other voters take over, or have."""


class UnreachableVoterError(Exception):
    """A voter gives no answer."""


class NoMajorityError(Exception):
    """Too few voters answer: nothing is decided by this process, and what it has put may still count."""


class SlotClosedError(Exception):
    """The slot was decided long ago, and its registers may be gone."""


class VotersReplacedError(Exception):
    """Other voters decide now, or will."""


Voter: TypeAlias = Any
"""What a voter is called: any value that can be hashed."""


@dataclass(frozen=True, slots=True)
class ReadRow(Effect[list[Request]]):
    """Read a voter's row of a slot from a place on. Comes to the requests there, in order."""

    voter: Voter
    slot: int
    since: int


@dataclass(frozen=True, slots=True)
class PutRequest(Effect[bool]):
    """Create the file at a place of a voter's row, if it is absent. Comes to whether this call did."""

    voter: Voter
    slot: int
    place: int
    request: Request


@dataclass(frozen=True, slots=True)
class Stand(Effect[SlotState]):
    """Ask how a voter stands to a slot. Comes to a `SlotState`."""

    voter: Voter
    slot: int
    opening: bool
    """Whether one may ask a voter that is not open yet; see `kafkalike.model.replication.takeover`."""


@dataclass(frozen=True, slots=True)
class ProposalBackoff(Effect[None]):
    """Wait a random time that doubles with each try: another proposer was at work. Comes to nothing."""

    attempt: int


RegisterEffect = ReadRow | PutRequest | Stand | ProposalBackoff


def majority(voters: int) -> int:
    """How many of so many voters decide."""
    return voters // 2 + 1


def decided(rows: Sequence[Sequence[Request]], voters: int) -> Accept | None:
    """What is decided, by the rows of those voters that answered.

    Args:
        rows: one for each of them.
        voters: how many there are.

    Returns:
        None when these rows do not say it; others may.
    """
    votes: dict[Accept, int] = {}
    for row in rows:
        voted = Voted()
        counted: set[Accept] = set()
        for request in row:
            voted = voted.after(request)
            if isinstance(request, Accept) and voted.accepted == request:
                counted.add(request)
        for accept in counted:
            votes[accept] = votes.get(accept, 0) + 1
            if votes[accept] >= majority(voters):
                return accept
    return None


def proposing(
    slot: int, voters: Sequence[Voter], proposer: str, value: Hashable, *, opening: bool = False
) -> Generator[RegisterEffect, Any, Hashable]:
    """Have a value decided for a slot, or learn which one is.

    Args:
        slot: what is to be decided.
        voters: all of them.
        proposer: an id that nobody else has, this process's own proposals for the slot included.
        value: the wanted one; it says whose it is.
        opening: whether they take over: only who opens them may ask them then.

    Returns:
        The slot's value, for ever.

    Raises:
        NoMajorityError, SlotClosedError, VotersReplacedError: unknown: the value may still be decided, or was.
    """
    rows: dict[Voter, list[Request]] = {voter: [] for voter in voters}
    sure: dict[Voter, int] = dict.fromkeys(voters, 0)
    number, attempt = 0, 0
    while True:
        for row in rows.values():
            number = max((number, *(request.ballot.number for request in row)))
        number += 1
        ballot = Ballot(number, proposer)
        promises = yield from _asked(slot, rows, sure, Prepare(ballot), opening)
        if len(promises) >= majority(len(voters)):
            accepted = max((v.accepted for v in promises if v.accepted is not None), default=None, key=_by_ballot)
            wanted = value if accepted is None else accepted.value
            votes = yield from _asked(slot, rows, sure, Accept(ballot, wanted), opening)
            if len(votes) >= majority(len(voters)):
                return wanted
        found = decided([row[: sure[voter]] for voter, row in rows.items()], len(voters))
        if found is not None:
            return found.value
        attempt += 1
        yield from ProposalBackoff(attempt)


def _by_ballot(accept: Accept) -> Ballot:
    return accept.ballot


def _asked(
    slot: int,
    rows: dict[Voter, list[Request]],
    sure: dict[Voter, int],
    request: Request,
    opening: bool,  # noqa: FBT001 - of this module
) -> Generator[RegisterEffect, Any, list[Voted]]:
    """Put a request behind each voter's row.

    Args:
        slot: what is to be decided.
        rows: what is known of each voter's row; what is read and put comes behind it.
        sure: how much of each row counts: the voter has said after it that it votes still. What was put at one that
            has been replaced meanwhile, and gave no answer then, is in its row and counts for nothing.
        request: what is put.
        opening: see `proposing`.

    Returns:
        What those have voted that let it count; what they had accepted before it is in there.

    Raises:
        NoMajorityError: too few voters answer.
        SlotClosedError, VotersReplacedError: one of them says so.
    """
    answered, counted = 0, []
    for voter, row in rows.items():
        try:
            voted = yield from _put(slot, voter, row, request)
            # After it: what stood before says nothing of what the row was when it was read.
            standing: SlotState = yield from Stand(voter, slot, opening)
        except UnreachableVoterError:
            continue
        if standing.replaced:
            raise VotersReplacedError
        if standing.closed:
            raise SlotClosedError
        answered += 1
        sure[voter] = len(row)
        if voted.promised == request.ballot:
            counted.append(voted)
    if answered < majority(len(rows)):
        raise NoMajorityError
    return counted


def _put(slot: int, voter: Voter, row: list[Request], request: Request) -> Generator[RegisterEffect, Any, Voted]:
    """Put a request behind a voter's row, where it has not passed it by already. Returns what the voter says then."""
    while True:
        row += yield from ReadRow(voter, slot, len(row))
        voted = Voted()
        for earlier in row:
            voted = voted.after(earlier)
        if request in row or (voted.promised is not None and voted.promised > request.ballot):
            return voted
        if (yield from PutRequest(voter, slot, len(row), request)):
            row.append(request)
            return voted.after(request)
