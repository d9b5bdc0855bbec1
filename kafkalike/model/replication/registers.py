"""Registers: decide a value per slot by a majority of voters that run no process.

A voter is a folder in which a file can be created if it is absent. For each slot, such as a version of the cluster's
metadata, it has a row of files, each put after the last one: the proposers' requests. Its promises and votes follow
from that row alone, so every reader computes the same; that makes it an acceptor of Paxos. A file that was put too late
is in the row without effect.

Any process may stop between any two effects forever. A put whose answer was lost may appear later, in its place or
never. Two values are never decided for one slot. A value is decided as soon as one proposer is left alone for a while
with a majority of answering voters.

Rows are deleted some day. After each look and each put the protocol therefore asks for the voter's state of the slot:
if cleanup may have deleted the row, or other voters have taken over, the row does not count.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kafkalike.model.effects import Effect


class Ballot(NamedTuple):
    """Orders proposals: later ones win. No two proposals have the same ballot."""

    number: int
    proposer: str


class Prepare(NamedTuple):
    """Request to accept nothing of an earlier ballot from here on."""

    ballot: Ballot


class Accept(NamedTuple):
    """Request to accept a value, unless a later ballot is before it in the row."""

    ballot: Ballot
    value: Hashable


Request = Prepare | Accept


class Voted(NamedTuple):
    """A voter's promise and vote for a slot, computed from its row."""

    promised: Ballot | None = None
    accepted: Accept | None = None

    def after(self, request: Request) -> Voted:
        """Return the state after one more request at the end of the row."""
        if self.promised is not None and request.ballot < self.promised:
            return self
        accepted = request if isinstance(request, Accept) else self.accepted
        return Voted(request.ballot, accepted)


class SlotState(NamedTuple):
    """A voter's state of a slot."""

    closed: bool = False
    """The voter has the decided version, or a later one, or a checkpoint of one: its row may have been deleted."""
    replaced: bool = False
    """Other voters are taking over, or have taken over."""


class UnreachableVoterError(Exception):
    """The voter does not answer."""


class NoMajorityError(Exception):
    """Too few voters answer: this process decides nothing, and its puts may still count."""


class SlotClosedError(Exception):
    """The slot was decided long ago, and its registers may be deleted."""


class VotersReplacedError(Exception):
    """Other voters decide, or will."""


Voter: TypeAlias = Any
"""Identifies a voter: any hashable value."""


@dataclass(frozen=True, slots=True)
class ReadRow(Effect[list[Request]]):
    """Read a voter's row of a slot from a place on. The answer is the requests there, in order."""

    voter: Voter
    slot: int
    since: int


@dataclass(frozen=True, slots=True)
class PutRequest(Effect[bool]):
    """Create the file at a place of a voter's row, if it is absent. The answer tells whether this call created it."""

    voter: Voter
    slot: int
    place: int
    request: Request


@dataclass(frozen=True, slots=True)
class Stand(Effect[SlotState]):
    """Ask for a voter's state of a slot. The answer is a `SlotState`."""

    voter: Voter
    slot: int
    opening: bool
    """True to also ask a voter that is not open yet; see `kafkalike.model.replication.takeover`."""


@dataclass(frozen=True, slots=True)
class ProposalBackoff(Effect[None]):
    """Wait a random time that doubles with each try, because another proposer is active. The answer is None."""

    attempt: int


RegisterEffect = ReadRow | PutRequest | Stand | ProposalBackoff


def majority(voters: int) -> int:
    """Return how many of `voters` decide."""
    return voters // 2 + 1


def decided(rows: Sequence[Sequence[Request]], voters: int) -> Accept | None:
    """Return the decided value according to the rows of the voters that answered.

    Args:
        rows: the row of each of them.
        voters: number of all voters.

    Returns:
        None if these rows do not show a decision; others may.
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
    """Have a value decided for a slot, or learn the decided one.

    Args:
        slot: the slot.
        voters: all voters.
        proposer: an id that no other proposal for the slot has, even of this process.
        value: the wanted value, which names its proposer.
        opening: True if these voters are taking over: only the process that opens them may ask them then.

    Returns:
        The slot's value, which is final.

    Raises:
        NoMajorityError, SlotClosedError, VotersReplacedError: the outcome is unknown: the value may be decided later,
            or was.
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
    """Put a request at the end of each voter's row.

    Args:
        slot: the slot.
        rows: the known row of each voter; requests that are read or put are added.
        sure: the part of each row that counts, because the voter was still voting afterwards. A put at a voter that was
            replaced meanwhile and did not answer is in its row but does not count.
        request: the request.
        opening: see `proposing`.

    Returns:
        The votes of the voters that let the request count, with their earlier votes.

    Raises:
        NoMajorityError: too few voters answer.
        SlotClosedError, VotersReplacedError: a voter reports it.
    """
    answered, counted = 0, []
    for voter, row in rows.items():
        try:
            voted = yield from _put(slot, voter, row, request)
            # Afterwards, because a state from before tells nothing about the row when it was read.
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
    """Put a request at the end of a voter's row, unless it or a later ballot is there; return the voter's state."""
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
