"""Roster: the members of a group, their partitions and which of them are silent; as a value and as JSON of a row.

A row of `__consumer_offsets` holds the whole roster, so the latest row of a group wins, and a table that keeps only the
latest rows describes the same groups as the full table. Heartbeats are not rows: see `Sessions`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike import errors
from kafkalike.model.row_value import VERSION, as_text, as_whole, flag, text, whole
from kafkalike.model.structs import GroupState, TopicPartition

Partitions = tuple[TopicPartition, ...]
"""Sorted tuple without duplicates."""

TopicCounts = Mapping[str, tuple[str, int]]
"""By topic: its id and its number of partitions."""

ROSTER_VERSION: Final = 1
"""Format of the JSON; see `kafkalike.model.row_value`."""

CLIENT_LED_VERSION: Final = 2
"""Format of the JSON of a client-led group, which older releases would misread."""

PROTOCOL_TYPE: Final = "consumer"
"""Kafka's protocol type of all groups that are not client-led."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group."""

    member_id: str
    group_instance_id: str | None = None
    """Name of a static member, which it keeps over restarts; None for a dynamic one."""
    client_id: str = ""
    client_host: str = ""
    subscription: tuple[str, ...] = ()
    """Subscribed topics, sorted; for a pattern, the topics that matched it at the last look."""
    protocols: tuple[str, ...] = ()
    """Names of its assignors, the preferred one first."""
    session_timeout_ms: float = 45_000
    """ms without a heartbeat after which the session expires."""
    heartbeat_interval_ms: float = 3000
    """ms between two heartbeats."""
    rebalance_timeout_ms: float = 300_000
    """`max_poll_interval_ms`: the member leaves if its application does not poll for that long."""
    assignment: Partitions = ()
    """Partitions that it owns: it may read them, and no other member owns them until it has given them up."""
    target: Partitions = ()
    """Partitions that it should own; differs from `assignment` only during a rebalance."""
    since: int = 0
    """Lowest generation under which it may commit."""
    released: bool = False
    """Eager rebalances: it has given up all partitions and waits for the others."""
    joined_ms: int = 0
    """Time when it joined, ms since the epoch."""

    @property
    def surplus(self) -> Partitions:
        """Partitions that it owns and should give up."""
        if self.assignment == self.target:  # the case in nearly every look
            return ()
        target = set(self.target)
        return tuple(tp for tp in self.assignment if tp not in target)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLed:
    """The state of a group whose leader computes the assignments; see `kafkalike.model.groups.client_led_group`."""

    protocol_type: str
    """Kafka's protocol type, such as `connect`."""
    phase: GroupState
    """`PreparingRebalance`, `CompletingRebalance` or `Stable`."""
    leader: str = ""
    """Id of the member that computes the assignments."""
    joined: tuple[str, ...] = ()
    """Ids of the members that have joined in this rebalance."""
    offers: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Opaque metadata by member and assignor."""
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """Opaque assignments by member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The membership of one group in one generation."""

    generation: int = 0
    """Increases with every change of the members or their partitions; never decreases."""
    protocol: str = ""
    """Name of the assignor that made the targets; empty without members."""
    cooperative: bool = False
    """True if members keep partitions that stay theirs during a rebalance."""
    members: Mapping[str, Member] = field(default_factory=dict)
    """The members by member id."""
    topics: TopicCounts = field(default_factory=dict)
    """The subscribed topics when the targets were made."""
    metadata_seq: int = 0
    """Number of the metadata row at which `topics` was read."""
    pending: bool = False
    """True if the targets are outdated and a member must compute new ones: a member left or expired, and the member
    that noticed does not have the group's assignor."""
    changed_ms: int = 0
    """Time when this roster was written, ms since the epoch."""
    led: ClientLed | None = None
    """None unless a client computes the assignments."""
    _rebalancing: bool | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def protocol_type(self) -> str:
        """Kafka's protocol type."""
        return PROTOCOL_TYPE if self.led is None else self.led.protocol_type

    @property
    def rebalancing(self) -> bool:
        """True if any member does not own exactly its target."""
        found = self._rebalancing
        if found is None:
            if self.led is not None:
                found = self.led.phase is not GroupState.STABLE
            else:
                found = self.pending or any(m.assignment != m.target for m in self.members.values())
            # Each member asks at each heartbeat.
            object.__setattr__(self, "_rebalancing", found)
        return found

    @property
    def state(self) -> GroupState:
        """`Empty`, `PreparingRebalance` or `Stable`.

        Kafka's `CompletingRebalance`, in which members wait for their leader's assignment, occurs only in client-led
        groups. In others, the member that finds a change makes the assignment in the same transaction.
        """
        if not self.members:
            return GroupState.EMPTY
        if self.led is not None:
            return self.led.phase
        return GroupState.PREPARING_REBALANCE if self.rebalancing else GroupState.STABLE

    def instance(self, group_instance_id: str | None) -> Member | None:
        """Return the member that has a static name now."""
        if group_instance_id is None:
            return None
        return next((m for m in self.members.values() if m.group_instance_id == group_instance_id), None)

    def owner(self, tp: TopicPartition) -> Member | None:
        """Return the owner of a partition."""
        return next((m for m in self.members.values() if tp in m.assignment), None)

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the members by id."""
        return (self.members[member_id] for member_id in sorted(self.members))


def check_commit(
    roster: Roster, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
) -> None:
    """Reject a commit of anyone but a live member; the plan of a commit calls this with the current roster.

    These are the rules of Kafka's broker (GroupCoordinator, doCommitOffsets), with the errors of its clients.

    Args:
        roster: the current roster.
        group_id: for messages.
        member_id: the member that commits; empty outside the group.
        generation: the generation that it knows; -1 outside the group.
        group_instance_id: its static name, if it has one.

    Raises:
        UnknownMemberCommitError: it is not a member; a `CommitFailedError` and an `UnknownMemberIdError`.
        FencedInstanceIdError: another process has taken over its static name.
        CommitFailedError: its generation has ended.
        RebalanceInProgressError: it has given up its partitions and waits for new ones.
    """
    if generation < 0 and not roster.members:
        return
    head = f"group {group_id!r}: offsets were not committed: "
    member = roster.members.get(member_id)
    if member is None:
        owner = roster.instance(group_instance_id)
        if owner is not None:
            raise errors.FencedInstanceIdError(f"{head}{owner.member_id!r} has taken over as {group_instance_id!r}")
        held = (
            f"{', '.join(map(repr, sorted(roster.members)))} hold it in generation {roster.generation}"
            if roster.members
            else "it is empty"
        )
        raise errors.UnknownMemberCommitError(f"{head}{member_id!r} is not a member; {held}")
    if not member.since <= generation <= roster.generation:
        cause = errors.IllegalGenerationError(
            f"generation {generation} has ended; the current one is {roster.generation}"
        )
        raise errors.CommitFailedError(f"{head}{cause}") from cause
    if member.released and roster.rebalancing:
        raise errors.RebalanceInProgressError(f"{head}the group is being rebalanced; poll() finishes that")


def dump_roster(roster: Roster) -> str:
    """Return a roster as JSON."""
    return json.dumps(
        {
            VERSION: ROSTER_VERSION if roster.led is None else CLIENT_LED_VERSION,
            "protocol": roster.protocol,
            "cooperative": roster.cooperative,
            "pending": roster.pending,
            "metadata_seq": roster.metadata_seq,
            "topics": {name: list(known) for name, known in sorted(roster.topics.items())},
            "members": [_dump_member(member) for member in roster],
            **({} if roster.led is None else {"led": _dump_led(roster.led)}),
        },
        separators=(",", ":"),
    )


def load_roster(found: Mapping[str, Any], generation: int, time_ms: int) -> Roster:
    """Parse the roster that `dump_roster` wrote.

    Args:
        found: the JSON object.
        generation: generation of its row.
        time_ms: time of its row.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: it is not a roster.
    """
    members = [_load_member(member) for member in found["members"]]
    return Roster(
        generation=generation,
        protocol=text(found, "protocol"),
        cooperative=flag(found, "cooperative"),
        pending=flag(found, "pending"),
        metadata_seq=whole(found, "metadata_seq"),
        topics={
            name: (as_text(topic_id, "topics"), as_whole(count, "topics"))
            for name, (topic_id, count) in found["topics"].items()
        },
        members={member.member_id: member for member in members},
        changed_ms=time_ms,
        led=_load_led(found["led"]) if "led" in found else None,
    )


def _dump_led(led: ClientLed) -> dict[str, Any]:
    return {
        "type": led.protocol_type,
        "phase": led.phase.value,
        "leader": led.leader,
        "joined": list(led.joined),
        # Lists, because the order of a member's assignors is its preference.
        "offers": {i: [[name, _encoded(data)] for name, data in offer.items()] for i, offer in led.offers.items()},
        "assignments": {i: _encoded(data) for i, data in led.assignments.items()},
    }


def _load_led(found: Mapping[str, Any]) -> ClientLed:
    return ClientLed(
        protocol_type=text(found, "type"),
        phase=GroupState(found["phase"]),
        leader=text(found, "leader"),
        joined=_texts(found["joined"]),
        offers={
            i: {as_text(name, "offers"): base64.b64decode(data, validate=True) for name, data in offer}
            for i, offer in found["offers"].items()
        },
        assignments={i: base64.b64decode(data, validate=True) for i, data in found["assignments"].items()},
    )


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _dump_member(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscription": list(member.subscription),
        "protocols": list(member.protocols),
        "session_timeout_ms": member.session_timeout_ms,
        "heartbeat_interval_ms": member.heartbeat_interval_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "assignment": _dump_partitions(member.assignment),
        "target": None if member.target == member.assignment else _dump_partitions(member.target),
        "since": member.since,
        "released": member.released,
        "joined_ms": member.joined_ms,
    }


def _load_member(found: Mapping[str, Any]) -> Member:
    assignment = _load_partitions(found["assignment"])
    instance = found["group_instance_id"]
    return Member(
        member_id=text(found, "member_id"),
        group_instance_id=None if instance is None else text(found, "group_instance_id"),
        client_id=text(found, "client_id"),
        client_host=text(found, "client_host"),
        subscription=_texts(found["subscription"]),
        protocols=_texts(found["protocols"]),
        session_timeout_ms=_ms(found, "session_timeout_ms"),
        heartbeat_interval_ms=_ms(found, "heartbeat_interval_ms"),
        rebalance_timeout_ms=_ms(found, "rebalance_timeout_ms"),
        assignment=assignment,
        target=assignment if found["target"] is None else _load_partitions(found["target"]),
        since=whole(found, "since"),
        released=flag(found, "released"),
        joined_ms=whole(found, "joined_ms"),
    )


def _texts(found: list[str]) -> tuple[str, ...]:
    return tuple(as_text(name, "subscription or protocols") for name in found)


def _ms(found: Mapping[str, Any], name: str) -> float:
    value: float = found[name]
    if type(value) not in {int, float}:
        raise TypeError(f"{name!r} is {value!r}, not a number")
    return value


def _dump_partitions(partitions: Partitions) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


def _load_partitions(by_topic: Mapping[str, list[int]]) -> Partitions:
    return tuple(
        sorted(TopicPartition(topic, as_whole(p, topic)) for topic, numbers in by_topic.items() for p in numbers)
    )
