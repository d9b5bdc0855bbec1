"""Wire member: the rules for a client of Kafka's protocol that is a member of a group's roster.

A native member looks at the roster itself. A client of the wire protocol knows only its gateway's answers, so a
partition that it was given stays its own until it says, or its protocol implies, that it has given the partition up.
The rules cover both protocols of Kafka: the classic one (JoinGroup, SyncGroup, Heartbeat) and the consumer protocol of
KIP-848 (ConsumerGroupHeartbeat).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkalike.model.groups.group_protocol import pending_partitions
from kafkalike.model.groups.roster import Member, Partitions, Roster
from kafkalike.model.structs import TopicPartition

WIRE_HOST: Final = "wire:"
"""Prefix of `Member.client_host`. Only such members may be adopted by another gateway: a client that names the id of a
native member is not that member."""


@dataclass(frozen=True, slots=True)
class ClientView:
    """The state of one client, as far as its gateway knows."""

    given: Partitions | None = None
    """Partitions that it was last allowed to hold; None if this gateway has not told it."""
    reported: frozenset[TopicPartition] | None = None
    """Partitions that it said it holds (KIP-848); None if it has not told this gateway."""


def permitted(roster: Roster, member: Member) -> Partitions:
    """Return the partitions that a member may hold from now on."""
    pending = set(pending_partitions(roster, member))
    return tuple(tp for tp in member.assignment if tp not in pending)


# --- classic protocol ------------------------------------------------------------------------------


def released_by_join(roster: Roster, member: Member, owned: frozenset[TopicPartition]) -> Partitions:
    """Return the partitions that a client gives up by JoinGroup.

    A client of an eager assignor has given up everything when it sends the request. A cooperative one names the
    partitions that it still holds; a partition lost before the member held it needs no further step.

    Args:
        roster: the roster.
        member: the client.
        owned: partitions that its request names.
    """
    pending = pending_partitions(roster, member)
    return tuple(tp for tp in pending if tp not in owned) if roster.cooperative else pending


def may_answer_join(roster: Roster, member: Member) -> bool:
    """Return whether JoinGroup may be answered: at once in a cooperative group, else when all have given up."""
    return roster.cooperative or not (member.released or pending_partitions(roster, member))


def must_rejoin(roster: Roster, member: Member, view: ClientView) -> bool:
    """Return whether Heartbeat is answered with "rebalance in progress".

    A higher generation alone does not count, so the others keep reading while one member moves.
    """
    return bool(
        member.released or pending_partitions(roster, member) or set(permitted(roster, member)) != set(view.given or ())
    ) or (view.given is None)


# --- KIP-848 ---------------------------------------------------------------------------------------


def released_by_heartbeat(roster: Roster, member: Member, view: ClientView) -> Partitions:
    """Return the partitions that a client has given up, as of its heartbeat.

    A partition counts as given up only if an earlier answer withdrew it and the client does not name it. A client that
    does not name a partition which it was just given may be about to take it.

    Args:
        roster: the roster.
        member: the client.
        view: with the partitions that the heartbeat reports.
    """
    if view.reported is None:
        return ()
    given = set(view.given or ())
    return tuple(tp for tp in pending_partitions(roster, member) if tp not in view.reported and tp not in given)


def is_unclear(roster: Roster, member: Member, view: ClientView) -> bool:
    """Return whether a client must start over: it should give up partitions, and has not named its partitions.

    This occurs after another gateway's death. The client answers the error by giving up everything.
    """
    if view.reported is not None or view.given is None:
        return False
    return any(tp not in view.given for tp in pending_partitions(roster, member))
