"""Assignment: the phases of a consumer's assignment, and the acts that each event requires; no I/O.

A phase is one value. The consumer replaces the value first and then performs the acts in order; `Done` tells that all
of them are done. After an interrupt in between, the phase names the begun acts: the next look at the group or the
topics finds the rest, and an interrupted listener is called again.

    Unassigned --> Joining --> Revoking --> Assigning --> Assigned |    ^          |            | v
    +----------+------------+ Waiting (eager: other members have to give up first)

    Without membership each of them goes to Losing, and from there to Unassigned; TakenOver leads to Fenced.
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
"""Partitions that a consumer reads, with the ids of their topics; None if the topic is deleted, or not seen yet."""

Tps = frozenset[TopicPartition]

Callback = Literal["on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"]


# --- phases ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unassigned:
    """Not a member, as far as the consumer knows, and without partitions."""

    waits: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Joining:
    """Joined; the listener is told that it starts without partitions (eager)."""

    waits: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Revoking:
    """Giving up partitions: commits, calls the listener, stops reading them, records that in the roster."""

    fresh: bool
    """True if it has not taken any assignment since it joined."""
    going: Tps
    """Partitions reported to the listener as revoked. They are reported as assigned if they stay after all."""
    untold: Tps | None
    """Remaining partitions that the listener must still be told of; None if it knows all of them."""
    waits: bool
    """True if other members have to give up its target first, as far as it knows."""


@dataclass(frozen=True, slots=True)
class WaitingForOthers:
    """All partitions given up; waiting until the other members have done the same (eager)."""

    generation: int
    fresh: bool
    """True if it has not taken any assignment since it joined."""
    waits: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Assigning:
    """Taking the partitions of a generation, then calling the listener."""

    generation: int | None
    """None outside a group."""
    untold: Tps
    """Partitions to report to the listener."""
    waits: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """Reading the partitions of a generation, which the listener knows."""

    generation: int | None
    """None outside a group."""
    waits: bool
    """True if more partitions follow once other members have given them up (cooperative)."""


@dataclass(frozen=True, slots=True)
class Losing:
    """Membership lost: other members may read its partitions, and the listener is told so."""

    waits: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another process uses the static name. Final until `release`."""

    error: FencedInstanceIdError
    waits: Literal[False] = False


Phase = Unassigned | Joining | Revoking | WaitingForOthers | Assigning | Assigned | Losing | Fenced


def settled(phase: Phase) -> bool:
    """Return whether all begun acts are done."""
    return isinstance(phase, Assigned | WaitingForOthers)


# --- what happens ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RosterSeen:
    """The group's roster, of which the consumer is a member."""

    roster: Roster
    member_id: str
    held: Held


@dataclass(frozen=True, slots=True)
class NotAMember:
    """The group's roster does not contain the consumer."""

    held: Held


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Another process has joined under the consumer's static name."""

    error: FencedInstanceIdError
    held: Held


@dataclass(frozen=True, slots=True)
class Matched:
    """Outside a group: all partitions of the subscribed topics."""

    target: Held
    held: Held
    changed: bool
    """True if the subscription has changed."""


@dataclass(frozen=True, slots=True)
class Done:
    """All acts are done."""


Event = RosterSeen | NotAMember | TakenOver | Matched | Done


# --- what to do ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitPositions:
    """Commit the positions, if auto-commit is on."""


@dataclass(frozen=True, slots=True)
class CallListener:
    """Call the listener. Its error is raised after all acts."""

    name: Callback
    partitions: Tps


@dataclass(frozen=True, slots=True)
class HoldPartitions:
    """Read exactly these partitions."""

    target: Held


@dataclass(frozen=True, slots=True)
class Take:
    """Like `HoldPartitions`, for a new assignment."""

    target: Held


@dataclass(frozen=True, slots=True)
class Release:
    """Record in the group that the consumer has given up these partitions, which makes a new roster."""

    given_up: Partitions


Act = CommitPositions | CallListener | HoldPartitions | Take | Release
Acts = tuple[Act, ...]


# --- the rule --------------------------------------------------------------------------------------


def step(phase: Phase, event: Event) -> tuple[Phase, Acts]:
    """Return the phase after an event and the acts to perform; no acts if nothing has changed.

    Any event may come in any phase, because an interrupt may have cut short any phase.
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
    return (CallListener("on_partitions_lost", frozenset(held)), HoldPartitions({})) if held else ()


def _seen(phase: Phase, seen: RosterSeen) -> tuple[Phase, Acts]:
    roster, me = seen.roster, seen.roster.members[seen.member_id]
    due = pending_partitions(roster, me)
    # As in kafka-python, the listener of an eager member is also called when the member joins, without partitions.
    greeting = isinstance(phase, Unassigned | Joining | Losing) and not roster.cooperative
    if isinstance(phase, Fenced):
        return phase, ()
    if due or greeting:
        return _revoking(phase, seen, due, greeting=greeting)
    waits = roster.rebalancing and me.assignment != me.target
    if isinstance(phase, WaitingForOthers | Assigned) and phase.generation == roster.generation:
        # Its partitions are right, but its wait for other members may have started or ended.
        if isinstance(phase, Assigned) and phase.waits != waits:
            return replace(phase, waits=waits), ()
        return phase, ()
    if waits and not roster.cooperative:
        return WaitingForOthers(roster.generation, _fresh(phase)), ()
    return _taking(phase, seen, me.assignment, waits=waits)


def _revoking(phase: Phase, seen: RosterSeen, due: Partitions, *, greeting: bool) -> tuple[Phase, Acts]:
    """Stop reading the partitions to give up (eager: all), and then tell the group."""
    held = seen.held
    going = frozenset(tp for tp in held if tp in due) if seen.roster.cooperative or not due else frozenset(held)
    untold = _untold(phase, held)
    revoking = Revoking(_fresh(phase), going, None if untold is None else untold - going, phase.waits)
    if not going and not greeting:
        return revoking, (Release(due),)
    kept = {tp: topic_id for tp, topic_id in held.items() if tp not in going}
    acts = (CommitPositions(), CallListener("on_partitions_revoked", going), HoldPartitions(kept))
    return (Joining() if greeting else revoking), acts


def _taking(phase: Phase, seen: RosterSeen, owned: Partitions, *, waits: bool) -> tuple[Phase, Acts]:
    """Read the partitions that the roster assigns; tell the listener of the new ones, or of all (eager)."""
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
    call = CallListener("on_partitions_assigned", telling)
    acts: Acts = (call,) if same and not _fresh(phase) else (Take(target), call)
    return Assigning(roster.generation, telling, waits), acts


def _matched(phase: Phase, matched: Matched) -> tuple[Phase, Acts]:
    """Outside a group: give up the current partitions and take the target."""
    everything = frozenset(matched.target)
    assigning, assigned = Assigning(None, everything, waits=False), CallListener("on_partitions_assigned", everything)
    if matched.held != matched.target or matched.changed:
        return assigning, (
            CallListener("on_partitions_revoked", frozenset(matched.held)),
            Take(matched.target),
            assigned,
        )
    if isinstance(phase, Assigning):
        return assigning, (assigned,)
    return phase, ()


def _fresh(phase: Phase) -> bool:
    """Return whether the consumer has taken no assignment since it joined."""
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
    """Return the current partitions that the listener must still be told of; None if it knows all."""
    match phase:
        case Assigning(untold=untold):
            return untold
        case Revoking(going=going, untold=untold):
            again = going & held.keys()
            return (untold or frozenset()) | again if again else untold
        case _:
            return None
