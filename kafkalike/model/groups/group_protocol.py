"""Group protocol: a roster and what happens to it in, the next roster out. Pure rules; nobody coordinates.

Whoever finds a change (a join, a leave, a dead member, another subscription, other partitions) makes the next roster
and writes it by compare-and-set. A roster says of each member what it owns (`assignment`) and what it is to own
(`target`). A partition is owned by one member at most: the next owner gets it when the owner before has given it up
(`release`) or is a member no more.

* Cooperative assignors: a member gives up only what it is not to own any more, and gets what is free at once.
* Eager ones: when anything moves, everybody gives up everything; when all have, everybody gets its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberCommitError,
)
from kafkalike.model.groups.roster import Member, Partitions, Roster, TopicCounts
from kafkalike.model.structs import TopicPartition

EXCLUSIVE: Final = "exclusive"
"""Protocol of a member that wants the group for itself, such as a batch job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """What an assignor knows of a member."""

    topics: tuple[str, ...]
    """Topics that it wants, sorted."""
    owned: Partitions = ()
    """What it owns, for assignors that change as little as they can."""
    group_instance_id: str | None = None
    """Name of a static member."""


Assign = Callable[[Mapping[str, int], Mapping[str, Subscriber]], Mapping[str, Iterable[TopicPartition]]]
"""Partition counts by topic, and members by id; who gets what."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to share partitions out."""

    name: str
    assign: Assign
    cooperative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What the one who changes a roster knows."""

    schemes: Mapping[str, Scheme]
    """The assignors that it has, by name."""
    topics: TopicCounts
    """All topics of the cluster."""
    metadata_seq: int
    """Number of the metadata row that `topics` was read at."""
    now_ms: int
    """ms since the epoch."""


# --- who is a member -------------------------------------------------------------------------------


def join(roster: Roster, member: Member, known: GroupFacts) -> Roster:
    """Take a member in, or take in what changed about one (subscription, assignors).

    A static member that comes back with the same subscription and assignors takes its own place over: nothing is
    rebalanced and the generation stays; the id it had before is no member any more.

    Raises:
        InconsistentGroupProtocolError: no assignor that all members have.
        NonEmptyGroupError: the member wants the group for itself, and others are in it.
    """
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
        raise NonEmptyGroupError(
            f"{member.member_id!r} wants the group for itself, but it has members: {_ids(members)}"
        )
    members[member.member_id] = member
    if present is not None and _same_wish(present, member) and not roster.pending:
        return replace(roster, members=members, changed_ms=known.now_ms)
    return _rebalance(roster, members, known)


def leave(roster: Roster, member_ids: Iterable[str], known: GroupFacts) -> Roster:
    """Take members out: they left, or their session is over. Ids that are no members are passed over."""
    gone = set(member_ids)
    members = {member_id: m for member_id, m in roster.members.items() if member_id not in gone}
    if len(members) == len(roster.members):
        return roster
    return _rebalance(roster, members, known)


def renew(roster: Roster, known: GroupFacts) -> Roster:
    """Make new targets if the topics differ from those that the targets were made from, or nobody could make any."""
    if not roster.members or not (roster.pending or topics_differ(roster, known)):
        return roster
    return _rebalance(roster, roster.members, known)


def topics_differ(roster: Roster, known: GroupFacts) -> bool:
    """Whether subscribed topics were created, deleted or given partitions since the targets were made."""
    return known.metadata_seq > roster.metadata_seq and _topics_of(roster.members.values(), known) != roster.topics


# --- who owns what ---------------------------------------------------------------------------------


def pending_partitions(roster: Roster, member: Member) -> Partitions:
    """What a member is to give up now."""
    if roster.cooperative:
        return member.surplus
    return member.assignment if roster.rebalancing and not member.released else ()


def release(roster: Roster, member_id: str, given_up: Iterable[TopicPartition], known: GroupFacts) -> Roster:
    """Note that a member holds some partitions no more, and hand on what is free by that.

    What it gave up is named: while it did so, it may have come to owe more than that, or less.
    Commits of the member under older generations are refused from here on.
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


def check_commit(
    roster: Roster, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
) -> None:
    """Refuse a commit in the name of anyone but a live member. Caller: the plan of a commit, on the current roster.

    These are the rules of Kafka's broker (GroupCoordinator, doCommitOffsets), and the errors those of its clients.

    Args:
        roster: the group now.
        group_id: for messages.
        member_id: who commits; empty outside the membership.
        generation: the one that it knows; -1 outside the membership.
        group_instance_id: its static name, if it has one.

    Raises:
        UnknownMemberCommitError: it is no member (any more); a `CommitFailedError` and an `UnknownMemberIdError`.
        FencedInstanceIdError: another process took its static name over.
        CommitFailedError: its generation is over.
        RebalanceInProgressError: it has given up its partitions and waits for new ones.
    """
    if generation < 0 and not roster.members:
        return
    head = f"group {group_id!r}: offsets were not committed: "
    member = roster.members.get(member_id)
    if member is None:
        owner = roster.instance(group_instance_id)
        if owner is not None:
            raise FencedInstanceIdError(f"{head}{owner.member_id!r} has taken over as {group_instance_id!r}")
        held = f"{_ids(roster.members)} hold it in generation {roster.generation}" if roster.members else "it is empty"
        raise UnknownMemberCommitError(f"{head}{member_id!r} is not its member; {held}")
    if not member.since <= generation <= roster.generation:
        cause = IllegalGenerationError(f"generation {generation} is over; it is {roster.generation} now")
        raise CommitFailedError(f"{head}{cause}") from cause
    if member.released and roster.rebalancing:
        raise RebalanceInProgressError(f"{head}the group is being rebalanced; poll() finishes that")


# --- rebalancing -----------------------------------------------------------------------------------


def _rebalance(roster: Roster, members: Mapping[str, Member], known: GroupFacts) -> Roster:
    """Make targets for these members, and hand out what is free."""
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
            # Also when it is older than the roster's: who knows of newer topics must see that these targets do not.
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
    """Hand out what nobody owns any more."""
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
    """Open a new generation if somebody came or went, got or gave up something, or topics changed.

    A new member may commit from there on.
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
    """What the assignor says, checked."""
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
                raise IllegalStateError(f"assignor {scheme.name!r} gave {_name(tp)} to {member_id!r}: {fault}")
            targets[member_id].append(tp)
    return {i: tuple(sorted(set(partitions))) for i, partitions in targets.items()}


def _owned(members: Mapping[str, Member], topics: TopicCounts) -> dict[str, list[TopicPartition]]:
    """What members own, as assignors are to know it: what one was promised counts, unless somebody still owns it."""
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
    """What is wrong with a member's getting a partition; empty when nothing is."""
    if member is None or tp.topic not in member.subscription:
        return "it did not subscribe to that"
    if tp.topic not in topics or not 0 <= tp.partition < topics[tp.topic][1]:
        return "there is no such partition"
    return ""


def _choose(members: Mapping[str, Member]) -> str:
    """The assignor that all members have and most of them like best.

    Raises:
        InconsistentGroupProtocolError: there is none.
    """
    offers = {m.protocols for m in members.values()}
    if len(offers) == 1 and any(offers):
        return next(iter(offers))[0]
    ordered = [members[i] for i in sorted(members)]
    common = set(ordered[0].protocols).intersection(*(m.protocols for m in ordered))
    if not common:
        lists = "; ".join(f"{m.member_id!r} has {', '.join(m.protocols) or 'none'}" for m in ordered)
        raise InconsistentGroupProtocolError(f"the members have no assignor in common: {lists}")
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
