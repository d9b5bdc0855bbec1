"""Client-led groups: the rules for groups in which a client computes the assignments, as Kafka's broker keeps them.

Kafka Connect, Kafka Streams and consumers with assignors of their own need them. Metadata and assignments are opaque.
The whole state is a row of the group, so any gateway continues after any other. Members join (`PreparingRebalance`);
when all have joined, a generation starts and the leader gets everybody's metadata (`CompletingRebalance`); when it has
sent the assignments, the group is `Stable`. No row has a deadline, because clocks of two machines are never compared: a
gateway measures how long a request of its own has waited, and calls `time_out`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kafkalike import errors
from kafkalike.model.groups.roster import ClientLed, Member, Roster
from kafkalike.model.structs import GroupState

MAX_STATE_BYTES: Final = 4 * 1024 * 1024
"""Metadata and assignments of all members of a group."""

Offer = Mapping[str, bytes]
"""Metadata by assignor, the preferred one first."""


def join(roster: Roster, member: Member, protocol_type: str, offer: Offer, now_ms: int) -> Roster:
    """Add a member, or record that it joins again.

    A follower that repeats its request gets the current generation. Any other request starts a rebalance.

    Raises:
        InconsistentGroupProtocolError: the group has members of another kind or without a common assignor.
        GroupMaxSizeReachedError: the metadata is too large.
    """
    led = roster.led
    if roster.members and (led is None or led.protocol_type != protocol_type):
        kind = "native assignors" if led is None else f"protocol type {led.protocol_type!r}"
        raise errors.InconsistentGroupProtocolError(
            f"{member.member_id!r} has protocol type {protocol_type!r} and {', '.join(offer) or 'no assignor'}; the "
            f"group's members use {kind}: stop them, or join another group"
        )
    if led is None:
        led = ClientLed(protocol_type=protocol_type, phase=GroupState.STABLE)
    known = roster.members.get(member.member_id) or roster.instance(member.group_instance_id)
    if known is not None and known.member_id != member.member_id:
        roster, led = _renamed(roster, led, known.member_id, member.member_id)
    same = known is not None and led.offers.get(member.member_id) == offer
    if known is not None:
        member = replace(member, since=known.since, released=known.released, joined_ms=known.joined_ms)
    member = replace(member, protocols=tuple(offer))
    members = {**roster.members, member.member_id: member}
    offers = {**led.offers, member.member_id: dict(offer)}
    _check_size(offers, led.assignments)
    roster = replace(roster, members=members, changed_ms=now_ms)
    common = _common(roster)
    if not common:
        raise errors.InconsistentGroupProtocolError("the members have no assignor in common")
    repeated = led.phase is GroupState.COMPLETING_REBALANCE or (
        led.phase is GroupState.STABLE and member.member_id != led.leader
    )
    if same and repeated:
        return replace(roster, led=replace(led, offers=offers))
    joined = led.joined if led.phase is GroupState.PREPARING_REBALANCE else ()
    if member.member_id not in joined:
        joined = (*joined, member.member_id)
    return _advanced(roster, replace(led, offers=offers), joined)


def leave(roster: Roster, member_ids: Iterable[str], now_ms: int) -> Roster:
    """Remove members that left or whose session has expired. Unknown ids are ignored."""
    gone = set(member_ids)
    members = {i: m for i, m in roster.members.items() if i not in gone}
    led = roster.led
    if led is None or len(members) == len(roster.members):
        return roster
    if not members:
        return Roster(generation=roster.generation + 1, changed_ms=now_ms)
    offers = {i: offer for i, offer in led.offers.items() if i in members}
    joined = tuple(i for i in led.joined if i in members)
    return _advanced(replace(roster, members=members, changed_ms=now_ms), replace(led, offers=offers), joined)


def sync(roster: Roster, member_id: str, generation: int, assignments: Mapping[str, bytes], now_ms: int) -> Roster:
    """Record the assignments of the leader; for any other member, check that it may wait for them.

    Raises:
        UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError: it has to join again.
        GroupMaxSizeReachedError: the assignments are too large.
    """
    check_member(roster, member_id, generation)
    led = roster.led
    if led is None or led.phase is not GroupState.COMPLETING_REBALANCE or member_id != led.leader:
        return roster
    assignments = {i: bytes(a) for i, a in assignments.items() if i in roster.members}
    _check_size(led.offers, assignments)
    return replace(
        roster,
        led=replace(led, phase=GroupState.STABLE, assignments=assignments),
        members={i: replace(m, released=False) for i, m in roster.members.items()},
        changed_ms=now_ms,
    )


def check_member(roster: Roster, member_id: str, generation: int) -> None:
    """Check a heartbeat.

    Raises:
        UnknownMemberIdError: it is not a member.
        IllegalGenerationError: its generation has ended.
        RebalanceInProgressError: it has to join again.
    """
    if roster.led is None or member_id not in roster.members:
        raise errors.UnknownMemberIdError(f"{member_id!r} is not a member")
    if generation != roster.generation:
        raise errors.IllegalGenerationError(
            f"generation {generation} has ended; the current one is {roster.generation}"
        )
    if roster.led.phase is GroupState.PREPARING_REBALANCE:
        raise errors.RebalanceInProgressError("the group is being rebalanced")


def may_answer_join(roster: Roster, member_id: str) -> bool:
    """Return whether a member's request to join can be answered with the current generation.

    That generation may be over already: the next rebalance can start before a waiting request is looked at. The client
    learns that at its next request, and joins again.
    """
    led = roster.led
    if led is None or member_id not in roster.members:
        return False
    return led.phase is not GroupState.PREPARING_REBALANCE or member_id not in led.joined


def time_out(roster: Roster, generation: int, phase: GroupState, now_ms: int) -> Roster:
    """End a phase that took the rebalance timeout: remove the members that the others wait for.

    Static members that have not joined stay until their session expires.

    Args:
        roster: the roster.
        generation: generation of the phase.
        phase: the phase; if it has ended, nothing changes.
        now_ms: ms since the epoch.
    """
    led = roster.led
    if led is None or (roster.generation, led.phase) != (generation, phase):
        return roster
    if phase is GroupState.COMPLETING_REBALANCE:
        return leave(roster, [led.leader], now_ms)
    if phase is not GroupState.PREPARING_REBALANCE or not led.joined:
        return roster
    members = {i: m for i, m in roster.members.items() if i in led.joined or m.group_instance_id is not None}
    offers = {i: led.offers[i] for i in members}
    return _started(replace(roster, members=members, changed_ms=now_ms), replace(led, offers=offers), led.joined)


def _advanced(roster: Roster, led: ClientLed, joined: tuple[str, ...]) -> Roster:
    """Start a generation if all members have joined, else wait for the others."""
    if joined and len(joined) == len(roster.members):
        return _started(roster, led, joined)
    waiting = replace(led, phase=GroupState.PREPARING_REBALANCE, joined=joined)
    return replace(roster, led=waiting, protocol=_chosen(roster))


def _started(roster: Roster, led: ClientLed, joined: tuple[str, ...]) -> Roster:
    generation = roster.generation + 1
    return replace(
        roster,
        generation=generation,
        protocol=_chosen(roster),
        members={i: replace(m, since=generation, released=True) for i, m in roster.members.items()},
        led=replace(
            led,
            phase=GroupState.COMPLETING_REBALANCE,
            leader=led.leader if led.leader in joined else joined[0],
            joined=(),
            assignments={},
        ),
    )


def _renamed(roster: Roster, led: ClientLed, old: str, new: str) -> tuple[Roster, ClientLed]:
    """Give a static member's place to its new process."""

    def name(member_id: str) -> str:
        return new if member_id == old else member_id

    members = {name(i): replace(m, member_id=name(i)) for i, m in roster.members.items()}
    return replace(roster, members=members), replace(
        led,
        leader=name(led.leader),
        joined=tuple(map(name, led.joined)),
        offers={name(i): offer for i, offer in led.offers.items()},
        assignments={name(i): assignment for i, assignment in led.assignments.items()},
    )


def _common(roster: Roster) -> set[str]:
    return set.intersection(*(set(m.protocols) for m in roster.members.values()))


def _chosen(roster: Roster) -> str:
    """Return the common assignor that most members prefer."""
    common = _common(roster)
    votes = Counter(next(name for name in m.protocols if name in common) for m in roster)
    return votes.most_common(1)[0][0]


def _check_size(offers: Mapping[str, Offer], assignments: Mapping[str, bytes]) -> None:
    size = sum(len(data) for offer in offers.values() for data in offer.values())
    size += sum(map(len, assignments.values()))
    if size > MAX_STATE_BYTES:
        raise errors.GroupMaxSizeReachedError(
            f"metadata and assignments of the group have {size} bytes; at most {MAX_STATE_BYTES} are allowed"
        )
