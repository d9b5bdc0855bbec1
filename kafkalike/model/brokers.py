"""Brokers: the storage roots of a cluster and their replicas of topics; the rows of `__cluster_metadata` that say so.

The cluster-wide defaults of server settings are rows of the same table.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kafkalike.model.replication.registration import Registration, Replica, UncleanElection
from kafkalike.model.row_value import VERSION, as_text, as_whole, flag, text, whole

ONLY_BROKER: Final = 1
"""Id of the one broker of a cluster that has one root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A storage root of a cluster. Nothing runs there."""

    id: int
    """From 1 on; a removed broker's id is never given out again."""
    uri: str
    """Where the root is: an absolute path or a URI."""
    rack: str | None = None
    """Kafka's `broker.rack`: readers with the same `client_rack` read from it."""
    draining: bool = False
    """Whether it is to be emptied: no new replicas are put there."""


AddRoot = Callable[[str, "str | None", "int | None"], "Broker"]
"""Gives a cluster another root: its place, its rack and its broker id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTable:
    """What the controller has registered of one table: which roots shall have it, and which take its versions."""

    location: str
    """Folder of the table, relative to each root."""
    assigned: tuple[int, ...]
    """Ids of the brokers that shall have a replica, Kafka's order: the first one is the preferred leader."""
    registration: Registration
    """Who takes the next version, and in what order."""
    adding: tuple[int, ...] = ()
    """Those of `assigned` that a reassignment has named, and that have not been in sync since."""

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is under way: somebody is to come, or to go. One out of sync alone is none."""
        return bool(self.adding) or any(replica.broker not in self.assigned for replica in self.registration.chain)

    def reassigned(self, wanted: Sequence[int]) -> ReplicatedTable:
        """The same table, which others shall have."""
        known = set(self.assigned) - set(self.adding)
        adding = tuple(broker for broker in wanted if broker not in known and broker not in self.isr)
        return replace(self, assigned=tuple(wanted), adding=adding)

    def registered(self, registration: Registration) -> ReplicatedTable:
        """The same table, with other ones in its chain."""
        found = replace(self, registration=registration)
        return replace(found, adding=tuple(broker for broker in self.adding if broker not in found.isr))

    @property
    def leader(self) -> int:
        """Id of the broker that may be read."""
        return self.registration.leader.broker

    @property
    def isr(self) -> tuple[int, ...]:
        """Ids of the brokers in sync, the leader first."""
        return tuple(replica.broker for replica in reversed(self.registration.in_sync))


def first_replicas(location: str, assigned: Sequence[int], away: Collection[int] = ()) -> ReplicatedTable:
    """What is registered of a new table.

    Args:
        location: its folder.
        assigned: ids of the brokers that shall have it, the preferred leader first.
        away: those among them that give no answer: they are not in sync, and the next one leads.
    """
    there = [broker for broker in assigned if broker not in away]
    chain = tuple(Replica(broker) for broker in (*there[1:], there[0]))
    return ReplicatedTable(location=location, assigned=tuple(assigned), registration=Registration(0, chain))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnd:
    """How far one replica of a table is."""

    broker: int
    in_sync: bool
    version: int | None
    """Its last table version; None: its root gives no answer."""
    bytes: int | None
    """Of its data files; None: its root gives no answer."""
    time_ms: int | None = None
    """When its last version was made, ms since the epoch; None: not known, as its root gives no answer, or as its log
    has a checkpoint in that version's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLag:
    """How far a replica is behind the leader; what is not known is None."""

    versions: int | None = None
    bytes: int | None = None
    """Of data files."""
    seconds: float | None = None
    """From the time of its last version to that of the leader's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Replicas of one topic. All partitions of a topic have the same ones."""

    topic: str
    leader: int
    """Id of the leader's broker; -1: its root gives no answer."""
    epoch: int
    """Kafka's leader epoch."""
    replicas: tuple[int, ...]
    """Ids of the brokers that shall have one, the preferred leader first."""
    isr: tuple[int, ...]
    """Ids of the brokers in sync."""
    offline: tuple[int, ...] = ()
    """Ids of those whose root gives no answer."""
    ends: tuple[ReplicaEnd, ...] = ()
    """How far each of them is; empty unless it was asked for."""
    joining: int | None = None
    """Id of the broker whose replica is about to be in sync."""
    adding: tuple[int, ...] = ()
    """Ids of brokers that a reassignment has named, and that have not been in sync since."""
    min_isr: int = 1
    """The topic's `min.insync.replicas`."""
    losses: tuple[str, ...] = ()
    """Unclean elections, in words: when, who was chosen, where its log ended."""

    @property
    def under_replicated(self) -> bool:
        """Whether a broker that shall have a replica is not in sync."""
        return not set(self.replicas) <= set(self.isr)

    def lags(self) -> Mapping[int, ReplicaLag]:
        """How far each replica is behind the leader, by broker; empty unless it was asked how far they are.

        Of those that have the leader's version the seconds are 0, whatever clocks wrote it.
        """
        ends = {end.broker: end for end in self.ends}
        leader = ends.get(self.leader)
        return {broker: ReplicaLag() if leader is None else _lag(leader, end) for broker, end in ends.items()}


def _lag(leader: ReplicaEnd, end: ReplicaEnd) -> ReplicaLag:
    versions = _behind(leader.version, end.version)
    late_ms = 0 if versions == 0 else _behind(leader.time_ms, end.time_ms)
    return ReplicaLag(
        versions=versions, bytes=_behind(leader.bytes, end.bytes), seconds=None if late_ms is None else late_ms / 1000
    )


def _behind(leader: int | None, own: int | None) -> int | None:
    return None if leader is None or own is None else max(leader - own, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateReport:
    """What one run of `replicate` has done."""

    joined: Mapping[str, Sequence[int]]
    """By table: brokers whose replicas are in sync now, and were not."""
    left: Mapping[str, Sequence[int]]
    """By table: brokers whose replicas were taken out, as they are not assigned any more, or gave no answer."""
    led: Mapping[str, int]
    """By table: the broker that leads now, and did not."""
    failed: Sequence[str]
    """What could not be done and why, a sentence each."""


BROKER: Final = "broker"
"""Kind of a row that says what a broker is."""

REPLICAS: Final = "replicas"
"""Kind of a row that says who has a table."""


def broker_value(broker: Broker, *, removed: bool = False) -> str:
    """The value of a broker's row."""
    value = {
        VERSION: 1,
        "broker": broker.id,
        "uri": broker.uri,
        "rack": broker.rack,
        "draining": broker.draining,
        "removed": removed,
    }
    return json.dumps(value, sort_keys=True)


def broker_of(value: Mapping[str, Any]) -> tuple[Broker, bool]:
    """What such a value says, and whether the broker was removed."""
    rack = value["rack"]
    found = Broker(
        id=whole(value, "broker", at_least=1),
        uri=text(value, "uri"),
        rack=None if rack is None else text(value, "rack"),
        draining=flag(value, "draining"),
    )
    return found, flag(value, "removed")


def replicas_value(table: ReplicatedTable) -> str:
    """The value of the row that says who has a table."""
    registered = table.registration
    value = {
        VERSION: 1,
        "location": table.location,
        "assigned": list(table.assigned),
        "epoch": registered.epoch,
        "chain": list(map(list, registered.chain)),
        "joining": None if registered.joining is None else list(registered.joining),
        "life": registered.life,
        **({"adding": list(table.adding)} if table.adding else {}),
        **({"renamed": list(map(list, registered.renamed))} if registered.renamed else {}),
        "losses": [
            [loss.epoch, loss.replica, loss.kept, loss.chain, *([loss.files] if loss.files else [])]
            for loss in registered.losses
        ],
    }
    return json.dumps(value, sort_keys=True)


def replicas_of(value: Mapping[str, Any]) -> ReplicatedTable:
    """What such a value says."""
    joining = value["joining"]
    registration = Registration(
        epoch=whole(value, "epoch"),
        chain=tuple(map(_replica, value["chain"])),
        joining=None if joining is None else _replica(joining),
        life=whole(value, "life"),
        losses=tuple(
            # Rows of the first release do not count files.
            UncleanElection(
                as_whole(epoch, "epoch"),
                _replica(replica),
                as_whole(kept, "kept", at_least=-1),
                tuple(map(_replica, chain)),
                *(as_whole(count, "files") for count in files),
            )
            for epoch, replica, kept, chain, *files in value["losses"]
        ),
        renamed=tuple(map(_replica, value.get("renamed", ()))),
    )
    if not registration.in_sync:
        raise ValueError("nobody is in sync")
    return ReplicatedTable(
        location=text(value, "location"),
        assigned=tuple(as_whole(broker, "assigned", at_least=1) for broker in value["assigned"]),
        registration=registration,
        adding=tuple(as_whole(broker, "adding", at_least=1) for broker in value.get("adding", ())),
    )


def _replica(found: Any) -> Replica:  # noqa: ANN401 - of a JSON
    broker, life = found
    return Replica(as_whole(broker, "broker", at_least=1), as_whole(life, "life"))


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where a client has data files read, in a cluster of several roots."""

    rack: str = ""
    """At a replica of this rack that is in sync; empty: at the leader."""
    striped: bool = False
    """Whether the replicas take turns, file by file: those of the rack, or all in sync where it has none."""


LEADER: Final = ReadFrom()
"""What those want who say nothing."""


def nearest_first(in_sync: Sequence[T], is_near: Callable[[T], bool] | None) -> tuple[Sequence[T], int]:
    """Sort those who are asked for data files.

    Args:
        in_sync: replicas in sync, the leader first.
        is_near: whether one is in the rack of who reads; None: it has none.

    Returns:
        The near ones first, each in the order of before; and how many take turns where reads are striped.
    """
    if is_near is None:
        return in_sync, len(in_sync)
    near = [one for one in in_sync if is_near(one)]
    others = [one for one in in_sync if not is_near(one)]
    return (*near, *others), len(near) or len(others)


def by_turns(sorted_ones: Sequence[T], turns: int, name: str) -> Sequence[T]:
    """Give a file's turn to one of the first ones; who would come before it comes after the last of them.

    All processes give a file to the same one, so that what one of them has read is in that root's cache for others.

    Args:
        sorted_ones: replicas, the one that is asked first at the front.
        turns: how many of them, from the front, take turns; with less than two nothing changes.
        name: of the file.
    """
    if turns < 2:  # noqa: PLR2004
        return sorted_ones
    first = zlib.crc32(name.encode()) % turns
    return (*sorted_ones[first:turns], *sorted_ones[:first], *sorted_ones[turns:])


DEFAULTS: Final = "defaults"
"""Kind of the rows that hold the defaults of the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Server settings of a cluster."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Those in force, by Kafka's dotted names; all others have Kafka's own defaults."""
    seed: Mapping[str, str] = field(default_factory=dict)
    """The settings of the `server.properties` that they were first taken from."""

    @property
    def are_set(self) -> bool:
        """Whether a file or an operator has ever set one; if not, a `server.properties` may still seed them."""
        return bool(self.settings or self.seed)


def defaults_value(defaults: Defaults) -> str:
    """Return the value of a row."""
    value = {VERSION: 1, "settings": dict(defaults.settings), "seed": dict(defaults.seed)}
    return json.dumps(value, sort_keys=True)


def defaults_of(value: Mapping[str, Any]) -> Defaults:
    """Return the defaults that the value of a row holds."""
    settings, seed = (
        {str(name): as_text(setting, name) for name, setting in value[part].items()} for part in ("settings", "seed")
    )
    return Defaults(settings=settings, seed=seed)
