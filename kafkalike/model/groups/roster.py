"""Roster: the members of a group and their partitions, as one value and as JSON of a row of `__consumer_offsets`.

A row holds the whole roster, so the latest row of a group wins, and a table that keeps only the latest rows describes
the same groups as one that keeps all. Heartbeats are not rows: see `Sessions`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kafkalike.model.row_value import VERSION, as_text, as_whole, flag, text, whole
from kafkalike.model.structs import GroupState, TopicPartition

Partitions = tuple[TopicPartition, ...]
"""Sorted, without doubles."""

TopicCounts = Mapping[str, tuple[str, int]]
"""By topic: its id, and how many partitions it has."""

ROSTER_VERSION: Final = 1
"""Format of the JSON; see `kafkalike.model.row_value`."""

PROTOCOL_TYPE: Final = "consumer"
"""Kafka's protocol type of all groups here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group."""

    member_id: str
    group_instance_id: str | None = None
    """Name that a static member keeps over restarts; None for a dynamic one."""
    client_id: str = ""
    client_host: str = ""
    subscription: tuple[str, ...] = ()
    """Topics that it wants, sorted; those that a pattern matched when it looked last."""
    protocols: tuple[str, ...] = ()
    """Names of its assignors, the one that it likes best first."""
    session_timeout_ms: float = 45_000
    """ms without a heartbeat after which it counts as dead."""
    heartbeat_interval_ms: float = 3000
    """ms between two heartbeats."""
    rebalance_timeout_ms: float = 300_000
    """`max_poll_interval_ms`: it leaves by itself when its application does not poll for so long."""
    assignment: Partitions = ()
    """What it owns: it may read these, and nobody else owns them until it has given them up."""
    target: Partitions = ()
    """What it is to own; differs from `assignment` only during a rebalance."""
    since: int = 0
    """Lowest generation under which it may commit."""
    released: bool = False
    """Eager rebalances: it has given up everything and waits for the others."""
    joined_ms: int = 0
    """When it joined, ms since the epoch."""

    @property
    def surplus(self) -> Partitions:
        """What it owns and is to give up."""
        if self.assignment == self.target:  # at nearly every look
            return ()
        target = set(self.target)
        return tuple(tp for tp in self.assignment if tp not in target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The membership of one group in one generation."""

    generation: int = 0
    """Rises with every change of who is a member or who owns what; never falls."""
    protocol: str = ""
    """Name of the assignor that made the targets; empty without members."""
    cooperative: bool = False
    """Whether members keep what stays theirs during a rebalance."""
    members: Mapping[str, Member] = field(default_factory=dict)
    """By member id."""
    topics: TopicCounts = field(default_factory=dict)
    """The subscribed topics as they were when the targets were made."""
    metadata_seq: int = 0
    """Number of the metadata row that `topics` was read at."""
    pending: bool = False
    """The targets are not those of these members any more, and a member is to make new ones: somebody left or died
    whose assignor the one who noticed does not have."""
    changed_ms: int = 0
    """When this roster was written, ms since the epoch."""

    @property
    def rebalancing(self) -> bool:
        """Whether somebody does not own yet what he is to own, or owns too much."""
        return self.pending or any(m.assignment != m.target for m in self.members.values())

    @property
    def state(self) -> GroupState:
        """`Empty`, `PreparingRebalance` or `Stable`.

        Kafka's `CompletingRebalance`, in which members wait for their leader's assignment, takes no time here: whoever
        finds a change makes the assignment in the same transaction.
        """
        if not self.members:
            return GroupState.EMPTY
        return GroupState.PREPARING_REBALANCE if self.rebalancing else GroupState.STABLE

    def instance(self, group_instance_id: str | None) -> Member | None:
        """The member that has a static name now."""
        if group_instance_id is None:
            return None
        return next((m for m in self.members.values() if m.group_instance_id == group_instance_id), None)

    def owner(self, tp: TopicPartition) -> Member | None:
        """Who owns a partition."""
        return next((m for m in self.members.values() if tp in m.assignment), None)

    def __iter__(self) -> Iterator[Member]:
        """Members by id."""
        return (self.members[member_id] for member_id in sorted(self.members))


def dump_roster(roster: Roster) -> str:
    """A roster as JSON."""
    return json.dumps(
        {
            VERSION: ROSTER_VERSION,
            "protocol": roster.protocol,
            "cooperative": roster.cooperative,
            "pending": roster.pending,
            "metadata_seq": roster.metadata_seq,
            "topics": {name: list(known) for name, known in sorted(roster.topics.items())},
            "members": [_dump_member(member) for member in roster],
        },
        separators=(",", ":"),
    )


def load_roster(found: Mapping[str, Any], generation: int, time_ms: int) -> Roster:
    """The roster that `dump_roster` wrote.

    Args:
        found: the object of its JSON.
        generation: of its row.
        time_ms: of its row.

    Raises:
        LookupError, TypeError, ValueError, AttributeError: it is not one.
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
    )


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


NS_PER_MS = 1_000_000

TICK_MS = 20
"""A storage's clock may go in steps, so that a heartbeat looks older than it is."""


@dataclass(slots=True)
class _Seen:
    stamp: int | None
    """The heartbeat seen last; None when there was none."""
    since: float
    """Since when it has been the last one; seconds of the observer's monotonic clock."""


class Sessions:
    """Who of the others gave no heartbeat for `session_timeout_ms`.

    A member is dead when its last heartbeat stayed the same for so long *on the observer's monotonic clock*: clocks
    of two machines are never compared, and one that is set forward or back kills nobody. So that a group that
    was left for dead an hour ago is not waited for again, a heartbeat that is older than the session by the
    storage's own clock counts after two heartbeat intervals without another one. Not thread-safe.

    Args:
        interval_s: seconds between two looks, as a rule.
    """

    def __init__(self, interval_s: float) -> None:
        self._longest_gap = 3 * interval_s
        self._seen: dict[str, _Seen] = {}
        self._observed: float | None = None
        self.lively = False
        """Whether anybody gave a heartbeat while he was watched."""

    def observe(
        self,
        now: float,
        others: Iterable[Member],
        stamps: Mapping[str, int],
        own_stamp: int | None,
        *,
        read_by: float | None = None,
    ) -> list[str]:
        """Look at everybody once.

        Args:
            now: when the heartbeats began to be read, seconds of the monotonic clock.
            others: the other members.
            stamps: their last heartbeats, ns of the storage's clock.
            own_stamp: the observer's own one, made just now: what time it is by that clock. None leaves its age out.
            read_by: when they had been read; None for at once. An observer may be held up in between, so a silence
                counts from here, and up to the next look's `now`.

        Returns:
            Ids of the members whose session is over.
        """
        stopped = self._observed is not None and now - self._observed > self._longest_gap
        self._observed = now
        seen: dict[str, _Seen] = {}
        over = []
        for member in others:
            stamp = stamps.get(member.member_id)
            known = self._seen.get(member.member_id)
            if known is not None and known.stamp != stamp:
                self.lively = True
            # An observer that was stopped itself saw nothing meanwhile: it begins anew.
            if known is None or known.stamp != stamp or stopped:
                known = _Seen(stamp, now if read_by is None else read_by)
            elif self._over(member, known, now, own_stamp):
                over.append(member.member_id)
            seen[member.member_id] = known
        self._seen = seen
        return over

    @staticmethod
    def _over(member: Member, known: _Seen, now: float, own_stamp: int | None) -> bool:
        quiet_ms = (now - known.since) * 1000
        if quiet_ms >= member.session_timeout_ms:
            return True
        if quiet_ms < 2 * member.heartbeat_interval_ms or own_stamp is None:
            return False
        return known.stamp is None or (own_stamp - known.stamp) / NS_PER_MS >= member.session_timeout_ms + TICK_MS

    def next_check(self, others: Iterable[Member]) -> float | None:
        """When the next session could be over, seconds of the monotonic clock; None when nobody is watched."""
        ends = [
            self._seen[m.member_id].since + m.session_timeout_ms / 1000 for m in others if m.member_id in self._seen
        ]
        return min(ends, default=None)


class Leases(Protocol):
    """Heartbeats of group members, outside the table of groups. Thread-safe."""

    def renew(self, group_id: str, member_id: str) -> None:
        """Give a heartbeat.

        Raises:
            KafkaStorageError: the storage refused.
        """
        ...

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """When members gave their last heartbeat: ns by the storage's own clock; who never gave one is missing.

        Raises:
            KafkaStorageError: the storage refused.
        """
        ...

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget a member; never fails."""
        ...
