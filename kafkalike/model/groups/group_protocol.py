"""Group protocol: compute the next roster of a group after a change, without a coordinator.

The process that finds a change (a join, a leave, an expired session, another subscription, other partitions) computes
the next roster and writes it by compare-and-set. A roster lists for each member the partitions that it owns
(`assignment`) and should own (`target`). A partition has at most one owner: the next owner gets it after the previous
one has given it up (`release`) or has left the group.

* Cooperative assignors: a member gives up only partitions outside its target, and gets free ones at once.
* Eager ones: if any partition moves, all members give up everything; then every member gets its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafkalike import errors
from kafkalike.model.groups import client_led_group as client_led
from kafkalike.model.groups.roster import Member, Partitions, Roster, TopicCounts
from kafkalike.model.structs import TopicPartition

EXCLUSIVE: Final = "exclusive"
"""Protocol of a member that needs the group for itself, such as a batch job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """An assignor's view of a member."""

    topics: tuple[str, ...]
    """Names of the subscribed topics, sorted."""
    owned: Partitions = ()
    """Owned partitions, for assignors that minimize changes."""
    group_instance_id: str | None = None
    """Name of a static member."""


Assign = Callable[[Mapping[str, int], Mapping[str, Subscriber]], Mapping[str, Iterable[TopicPartition]]]
"""Takes partition counts by topic and members by id; returns the partitions of each member."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """An assignor: its name, its function, and whether it is cooperative."""

    name: str
    assign: Assign
    cooperative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts that the process changing a roster knows."""

    schemes: Mapping[str, Scheme]
    """Its assignors, by name."""
    topics: TopicCounts
    """All topics of the cluster."""
    metadata_seq: int
    """Number of the metadata row at which `topics` was read."""
    now_ms: int
    """Time, ms since the epoch."""


# --- who is a member -------------------------------------------------------------------------------


def join(roster: Roster, member: Member, known: GroupFacts) -> Roster:
    """Add a member, or update one whose subscription or assignors have changed.

    A static member that returns with the same subscription and assignors takes over its own place: there is no
    rebalance, the generation stays, and its old member id leaves the group.

    Raises:
        InconsistentGroupProtocolError: the members have no common assignor, or one of them leads the group.
        NonEmptyGroupError: the member needs the group for itself, but it has other members.
    """
    if roster.led is not None:
        raise errors.InconsistentGroupProtocolError(
            f"{member.member_id!r} cannot join: {roster.led.leader or 'a client'!r} computes the assignments of this "
            "group. Stop its members, or join another group"
        )
    present = roster.members.get(member.member_id) or roster.instance(member.group_instance_id)
    members = dict(roster.members)
    if present is not None:
        del members[present.member_id]
        member = replace(
            member,
            assignment=present.assignment,
            target=present.target,
            released=present.released,
            since=present.since if present.member_id == member.member_id else roster.generation,
            joined_ms=present.joined_ms,
        )
    if EXCLUSIVE in member.protocols and members:
        raise errors.NonEmptyGroupError(
            f"{member.member_id!r} needs the group for itself, but it has members: {_ids(members)}"
        )
    members[member.member_id] = member
    if present is not None and _same_wish(present, member) and not roster.pending:
        return replace(roster, members=members, changed_ms=known.now_ms)
    return _rebalance(roster, members, known)


def leave(roster: Roster, member_ids: Iterable[str], known: GroupFacts) -> Roster:
    """Remove members that left or whose session has expired. Unknown ids are ignored."""
    if roster.led is not None:
        return client_led.leave(roster, member_ids, known.now_ms)
    gone = set(member_ids)
    members = {member_id: m for member_id, m in roster.members.items() if member_id not in gone}
    if len(members) == len(roster.members):
        return roster
    return _rebalance(roster, members, known)


def renew(roster: Roster, known: GroupFacts) -> Roster:
    """Compute new targets if the topics have changed since the last ones, or if the last ones are missing."""
    if not roster.members or not (roster.pending or topics_differ(roster, known)):
        return roster
    return _rebalance(roster, roster.members, known)


def topics_differ(roster: Roster, known: GroupFacts) -> bool:
    """Return whether subscribed topics were created, deleted or given partitions since the targets were computed."""
    return known.metadata_seq > roster.metadata_seq and _topics_of(roster.members.values(), known) != roster.topics


# --- who owns what ---------------------------------------------------------------------------------


def pending_partitions(roster: Roster, member: Member) -> Partitions:
    """Return the partitions that a member should give up now."""
    if roster.cooperative:
        return member.surplus
    return member.assignment if roster.rebalancing and not member.released else ()


def owners_awaited(roster: Roster, member_id: str) -> list[Member]:
    """Return the members that own partitions of the topics of a member that owns none."""
    me = roster.members.get(member_id)
    if me is None or me.assignment:
        return []
    # Most members of a large group may own nothing, and each of them asks at each heartbeat.
    owners = (m for m in roster.members.values() if m.assignment)
    return [m for m in owners if any(tp.topic in me.subscription for tp in m.assignment)]


def release(roster: Roster, member_id: str, given_up: Iterable[TopicPartition], known: GroupFacts) -> Roster:
    """Record that a member has given up some partitions, and assign free partitions.

    The partitions are named because the member's target may have changed while it gave them up. Commits of the member
    under older generations are rejected from here on.
    """
    member = roster.members.get(member_id)
    given = set(given_up)
    if member is None or not pending_partitions(roster, member) or given.isdisjoint(member.assignment):
        return roster
    kept = tuple(tp for tp in member.assignment if tp not in given)
    members = dict(roster.members)
    members[member_id] = replace(member, assignment=kept, released=not roster.cooperative and not kept)
    after = _sealed(roster, replace(roster, members=_granted(members, cooperative=roster.cooperative)), known)
    fenced = dict(after.members)
    fenced[member_id] = replace(fenced[member_id], since=after.generation)
    return replace(after, members=fenced)


# --- who may commit --------------------------------------------------------------------------------


# --- rebalancing -----------------------------------------------------------------------------------


def _rebalance(roster: Roster, members: Mapping[str, Member], known: GroupFacts) -> Roster:
    """Compute targets for these members, and assign free partitions."""
    if not members:
        return Roster(generation=roster.generation + 1, changed_ms=known.now_ms)
    protocol = _choose(members)
    scheme = known.schemes.get(protocol)
    if scheme is None:
        return _sealed(roster, replace(roster, members=members, protocol=protocol, pending=True), known)
    topics = _topics_of(members.values(), known)
    targets = _targets(scheme, members, topics)
    moves = any(m.assignment != targets[i] for i, m in members.items())
    eager = moves and not scheme.cooperative
    aimed = {i: _aimed(m, targets[i], released=eager and (m.released or not m.assignment)) for i, m in members.items()}
    granted = _granted(aimed, cooperative=scheme.cooperative) if moves else aimed
    return _sealed(
        roster,
        replace(
            roster,
            protocol=protocol,
            cooperative=scheme.cooperative,
            members=granted,
            topics=topics,
            # Also if it is older than the roster's: a member that knows newer topics must see that these targets do
            # not.
            metadata_seq=known.metadata_seq,
            pending=False,
        ),
        known,
    )


def _aimed(member: Member, target: Partitions, *, released: bool) -> Member:
    if (member.target, member.released) == (target, released):
        return member
    return replace(member, target=target, released=released)


def _granted(members: Mapping[str, Member], *, cooperative: bool) -> Mapping[str, Member]:
    """Assign partitions without an owner."""
    if cooperative:
        taken = {tp for m in members.values() for tp in m.assignment}
        return {
            i: m
            if m.assignment == m.target
            else replace(
                m,
                assignment=tuple(sorted({*m.assignment, *(tp for tp in m.target if tp not in taken)})),
                released=False,
            )
            for i, m in members.items()
        }
    if all(m.released for m in members.values()):
        return {i: replace(m, assignment=m.target, released=False) for i, m in members.items()}
    return members


def _sealed(before: Roster, after: Roster, known: GroupFacts) -> Roster:
    """Start a new generation if members, owned partitions or topics have changed.

    A new member may commit from that generation on.
    """
    came = after.members.keys() - before.members.keys()
    moved = (
        came
        or len(after.members) != len(before.members)
        or after.pending != before.pending
        or after.topics != before.topics
        or any(m.assignment != before.members[i].assignment for i, m in after.members.items())
    )
    generation = before.generation + 1 if moved else before.generation
    members = after.members
    if came:
        members = {i: replace(m, since=generation) if i in came else m for i, m in members.items()}
    return replace(after, generation=generation, members=members, changed_ms=known.now_ms)


def _targets(scheme: Scheme, members: Mapping[str, Member], topics: TopicCounts) -> dict[str, Partitions]:
    """Return the assignor's targets after checking them."""
    owned = _owned(members, topics)
    subscribers = {
        i: Subscriber(
            topics=members[i].subscription,
            owned=tuple(sorted(owned.get(i, ()))),
            group_instance_id=members[i].group_instance_id,
        )
        for i in sorted(members)
    }
    made = scheme.assign({name: count for name, (_, count) in sorted(topics.items())}, subscribers)
    targets: dict[str, list[TopicPartition]] = {i: [] for i in members}
    given: dict[TopicPartition, str] = {}
    for member_id, partitions in made.items():
        for tp in partitions:
            rival = given.setdefault(tp, member_id)
            fault = _fault(tp, members.get(member_id), topics) or (rival != member_id and f"{rival!r} has it already")
            if fault:
                raise errors.IllegalStateError(f"assignor {scheme.name!r} gave {_name(tp)} to {member_id!r}: {fault}")
            targets[member_id].append(tp)
    return {i: tuple(sorted(set(partitions))) for i, partitions in targets.items()}


def _owned(members: Mapping[str, Member], topics: TopicCounts) -> dict[str, list[TopicPartition]]:
    """Return the owned partitions for the assignors: a promised partition counts unless it still has another owner."""
    owners: dict[TopicPartition, str] = {tp: i for i, m in members.items() for tp in m.assignment}
    for member_id, member in members.items():
        if member.released:
            for tp in member.target:
                owners.setdefault(tp, member_id)
    owned: dict[str, list[TopicPartition]] = {}
    for tp, member_id in owners.items():
        if tp.topic in topics and tp.partition < topics[tp.topic][1]:
            owned.setdefault(member_id, []).append(tp)
    return owned


def _fault(tp: TopicPartition, member: Member | None, topics: TopicCounts) -> str:
    """Return the reason why a member must not get a partition; empty if it may."""
    if member is None or tp.topic not in member.subscription:
        return "it did not subscribe to this topic"
    if tp.topic not in topics or not 0 <= tp.partition < topics[tp.topic][1]:
        return "the topic does not have this partition"
    return ""


def _choose(members: Mapping[str, Member]) -> str:
    """Return the assignor that all members have and most of them prefer.

    Raises:
        InconsistentGroupProtocolError: the members have no common assignor.
    """
    offers = {m.protocols for m in members.values()}
    if len(offers) == 1 and any(offers):
        return next(iter(offers))[0]
    ordered = [members[i] for i in sorted(members)]
    common = set(ordered[0].protocols).intersection(*(m.protocols for m in ordered))
    if not common:
        lists = "; ".join(f"{m.member_id!r} has {', '.join(m.protocols) or 'none'}" for m in ordered)
        raise errors.InconsistentGroupProtocolError(f"the members have no assignor in common: {lists}")
    votes = Counter(next(name for name in m.protocols if name in common) for m in ordered)
    return votes.most_common(1)[0][0]


def _topics_of(members: Iterable[Member], known: GroupFacts) -> dict[str, tuple[str, int]]:
    wanted = {topic for m in members for topic in m.subscription}
    return {topic: known.topics[topic] for topic in sorted(wanted) if topic in known.topics}


def _same_wish(one: Member, other: Member) -> bool:
    return (one.subscription, one.protocols) == (other.subscription, other.protocols)


def _ids(members: Mapping[str, Member]) -> str:
    return ", ".join(map(repr, sorted(members)))


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
