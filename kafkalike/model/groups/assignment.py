"""Assignment: what a consumer stands in and what happened in, what it stands in then and what is to be done out. Pure.

A phase is one value. Whoever follows it replaces the value first and then does what is to be done, in order; `Done`
says that all of it was done. An interrupt in between leaves a phase that says what was begun: the next look at the
group or at the topics finds out what is left, and a listener that was interrupted is called again.

    Unassigned --> Joining --> Revoking --> Assigning --> Assigned
                                |    ^          |            |
                                v    +----------+------------+
                              Waiting (eager: others have to give up first)

    Without membership each of them goes to Losing, and to Unassigned from there; TakenOver leads to Fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from kafkalike.errors import FencedInstanceIdError
from kafkalike.model.groups.group_protocol import pending_partitions
from kafkalike.model.groups.roster import Partitions, Roster
from kafkalike.model.structs import TopicPartition

Held = Mapping[TopicPartition, str | None]
"""Partitions that a consumer reads, with the ids of their topics; None where the topic is gone, or not seen yet."""

Tps = frozenset[TopicPartition]

Callback = Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"]


# --- phases ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unassigned:
    """No member, as far as it knows, and holds nothing."""

    waits: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Joining:
    """It has joined, and its listener hears that it begins with nothing (eager)."""

    waits: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Revoking:
    """It gives partitions up: commits, calls the listener, holds them no more, writes that to the roster."""

    fresh: bool
    """Whether it has taken nothing yet since it joined."""
    going: Tps
    """What the listener hears of as revoked. It hears of it as assigned if that is to stay after all."""
    untold: Tps | None
    """What the listener must still hear of as assigned, of what stays; None when it has heard of everything."""
    waits: bool
    """Whether others have to give up first what it is to own, as far as it knew."""


@dataclass(frozen=True, slots=True)
class WaitingForOthers:
    """It has given up everything, and so must others before anybody gets anything (eager)."""

    generation: int
    fresh: bool
    """As in `Revoking`."""
    waits: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Assigning:
    """It takes what a generation gives it, and then calls the listener."""

    generation: int | None
    """None outside a group."""
    untold: Tps
    """What the listener must hear of."""
    waits: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """It reads what a generation gave it, and its listener knows."""

    generation: int | None
    """None outside a group."""
    waits: bool
    """Whether there is more to come that others have to give up first (cooperative)."""


@dataclass(frozen=True, slots=True)
class Losing:
    """It is a member no more: what it holds is another's by now, and the listener hears so."""

    waits: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another process has its static name. The end, until `release`."""

    error: FencedInstanceIdError
    waits: Literal[False] = False


Phase = Unassigned | Joining | Revoking | WaitingForOthers | Assigning | Assigned | Losing | Fenced


def settled(phase: Phase) -> bool:
    """Whether nothing was begun that is not done."""
    return isinstance(phase, Assigned | WaitingForOthers)


# --- what happens ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RosterSeen:
    """The group's roster, in which it is a member."""

    roster: Roster
    member_id: str
    held: Held


@dataclass(frozen=True, slots=True)
class NotAMember:
    """The group's roster does not have it."""

    held: Held


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Another process has joined under its static name."""

    error: FencedInstanceIdError
    held: Held


@dataclass(frozen=True, slots=True)
class Matched:
    """Outside a group: all partitions of its topics."""

    target: Held
    held: Held
    changed: bool
    """Whether the subscription is another one than before."""


@dataclass(frozen=True, slots=True)
class Done:
    """All that was to be done is done."""


Event = RosterSeen | NotAMember | TakenOver | Matched | Done


# --- what to do ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitPositions:
    """Commit the positions, if that is automatic."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call the listener. What it raises is passed on when everything is done."""

    name: Callback
    partitions: Tps


@dataclass(frozen=True, slots=True)
class HoldPartitions:
    """Hold exactly these partitions."""

    target: Held


@dataclass(frozen=True, slots=True)
class Take:
    """As `HoldPartitions`, and it is a new assignment."""

    target: Held


@dataclass(frozen=True, slots=True)
class Release:
    """Tell the group that these are held no more. Another roster comes of it."""

    given_up: Partitions


Act = CommitPositions | Call | HoldPartitions | Take | Release
Acts = tuple[Act, ...]


# --- the rule --------------------------------------------------------------------------------------


def step(phase: Phase, event: Event) -> tuple[Phase, Acts]:
    """The phase after an event, and what is to be done in it; nothing when all is as it should be.

    Any event may come in any phase, since any phase may have been cut short by an interrupt.
    """
    match event:
        case Done():
            return _done(phase), ()
        case RosterSeen():
            return _seen(phase, event)
        case Matched():
            return _matched(phase, event)
        case NotAMember(held):
            if isinstance(phase, Fenced):
                return phase, _losing(held)
            return (Losing() if held else Unassigned()), _losing(held)
        case TakenOver(error, held):
            return Fenced(error), _losing(held)
        case _ as never:
            assert_never(never)


def _done(phase: Phase) -> Phase:
    match phase:
        case Joining():
            return Revoking(fresh=True, going=frozenset(), untold=None, waits=False)
        case Revoking():
            return replace(phase, going=frozenset())
        case Assigning(generation, _, waits):
            return Assigned(generation, waits)
        case Losing():
            return Unassigned()
        case _:
            return phase


def _losing(held: Held) -> Acts:
    return (Call("on_partitions_lost", frozenset(held)), HoldPartitions({})) if held else ()


def _seen(phase: Phase, seen: RosterSeen) -> tuple[Phase, Acts]:
    roster, me = seen.roster, seen.roster.members[seen.member_id]
    due = pending_partitions(roster, me)
    # The listener of an eager member hears of it also when it has joined, with nothing: as in kafka-python.
    greeting = isinstance(phase, Unassigned | Joining | Losing) and not roster.cooperative
    if isinstance(phase, Fenced):
        return phase, ()
    if due or greeting:
        return _revoking(phase, seen, due, greeting=greeting)
    waits = roster.rebalancing and me.assignment != me.target
    if isinstance(phase, WaitingForOthers | Assigned) and phase.generation == roster.generation:
        # What it holds is right; whether more is to come may have changed.
        if isinstance(phase, Assigned) and phase.waits != waits:
            return replace(phase, waits=waits), ()
        return phase, ()
    if waits and not roster.cooperative:
        return WaitingForOthers(roster.generation, _fresh(phase)), ()
    return _taking(phase, seen, me.assignment, waits=waits)


def _revoking(phase: Phase, seen: RosterSeen, due: Partitions, *, greeting: bool) -> tuple[Phase, Acts]:
    """Hold what is due no more (eager: nothing at all), and then tell the group."""
    held = seen.held
    going = frozenset(tp for tp in held if tp in due) if seen.roster.cooperative or not due else frozenset(held)
    untold = _untold(phase, held)
    revoking = Revoking(_fresh(phase), going, None if untold is None else untold - going, phase.waits)
    if not going and not greeting:
        return revoking, (Release(due),)
    kept = {tp: topic_id for tp, topic_id in held.items() if tp not in going}
    acts = (CommitPositions(), Call("on_partitions_revoked", going), HoldPartitions(kept))
    return (Joining() if greeting else revoking), acts


def _taking(phase: Phase, seen: RosterSeen, owned: Partitions, *, waits: bool) -> tuple[Phase, Acts]:
    """Hold what the roster says is owned; the listener hears of what is new, or of everything (eager)."""
    roster, held, untold = seen.roster, seen.held, _untold(phase, seen.held)
    target: dict[TopicPartition, str] = {tp: roster.topics[tp.topic][0] for tp in owned if tp.topic in roster.topics}
    same = held == target
    if same and untold is None and not _fresh(phase):
        return Assigned(roster.generation, waits), ()
    if roster.cooperative:
        new = {tp for tp, topic_id in target.items() if held.get(tp) != topic_id}
        telling = frozenset(new | ((untold or frozenset()) & target.keys()))
    else:
        telling = frozenset(target)
    call = Call("on_partitions_assigned", telling)
    acts: Acts = (call,) if same and not _fresh(phase) else (Take(target), call)
    return Assigning(roster.generation, telling, waits), acts


def _matched(phase: Phase, matched: Matched) -> tuple[Phase, Acts]:
    """Outside a group: give up what is held, take what is to be held."""
    everything = frozenset(matched.target)
    assigning, assigned = Assigning(None, everything, waits=False), Call("on_partitions_assigned", everything)
    if matched.held != matched.target or matched.changed:
        return assigning, (Call("on_partitions_revoked", frozenset(matched.held)), Take(matched.target), assigned)
    if isinstance(phase, Assigning):
        return assigning, (assigned,)
    return phase, ()


def _fresh(phase: Phase) -> bool:
    """Whether no assignment was taken since it joined."""
    match phase:
        case Unassigned() | Joining() | Losing() | Fenced():
            return True
        case Revoking(fresh=fresh) | WaitingForOthers(fresh=fresh):
            return fresh
        case Assigning() | Assigned():
            return False
        case _ as never:
            assert_never(never)


def _untold(phase: Phase, held: Held) -> Tps | None:
    """What the listener must hear of as assigned, as far as it is held and stays; None when it has heard of all."""
    match phase:
        case Assigning(untold=untold):
            return untold
        case Revoking(going=going, untold=untold):
            again = going & held.keys()
            return (untold or frozenset()) | again if again else untold
        case _:
            return None
