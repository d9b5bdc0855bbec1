"""Brokers: the storage roots of a cluster, the replicas of its tables, and their rows of `__cluster_metadata`.

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
"""Id of the broker of a cluster with one root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A storage root of a cluster. No process runs there."""

    id: int
    """From 1 on; the id of a removed broker is not reused."""
    uri: str
    """Location of the root: an absolute path or a URI."""
    rack: str | None = None
    """Kafka's `broker.rack`: consumers with the same `client_rack` read from it."""
    draining: bool = False
    """True while the broker is being emptied: it gets no new replicas."""


AddRoot = Callable[[str, "str | None", "int | None"], "Broker"]
"""Adds a root to a cluster: its location, rack and broker id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTable:
    """The controller's registration of one table: its assigned brokers, and the replicas that take its versions."""

    location: str
    """Folder of the table, relative to each root."""
    assigned: tuple[int, ...]
    """Ids of the brokers that should have a replica, in Kafka's order: the first one is the preferred leader."""
    registration: Registration
    """The replicas that take the next version, and their order."""
    adding: tuple[int, ...] = ()
    """Brokers of `assigned` that a reassignment has added and that have not been in sync since."""

    @property
    def reassigning(self) -> bool:
        """True while a replica is being added or removed. A replica that is only out of sync does not count."""
        return bool(self.adding) or any(replica.broker not in self.assigned for replica in self.registration.chain)

    def reassigned(self, wanted: Sequence[int]) -> ReplicatedTable:
        """Return the table with other assigned brokers."""
        known = set(self.assigned) - set(self.adding)
        adding = tuple(broker for broker in wanted if broker not in known and broker not in self.isr)
        return replace(self, assigned=tuple(wanted), adding=adding)

    def registered(self, registration: Registration) -> ReplicatedTable:
        """Return the table with another registration."""
        found = replace(self, registration=registration)
        return replace(found, adding=tuple(broker for broker in self.adding if broker not in found.isr))

    @property
    def leader(self) -> int:
        """Id of the leader's broker."""
        return self.registration.leader.broker

    @property
    def isr(self) -> tuple[int, ...]:
        """Ids of the brokers in sync, the leader first."""
        return tuple(replica.broker for replica in reversed(self.registration.in_sync))


def first_replicas(location: str, assigned: Sequence[int], away: Collection[int] = ()) -> ReplicatedTable:
    """Return the registration of a new table.

    Args:
        location: folder of the table.
        assigned: ids of the brokers that should have it, the preferred leader first.
        away: brokers of `assigned` that do not answer: they are out of sync, and the next one leads.
    """
    there = [broker for broker in assigned if broker not in away]
    chain = tuple(Replica(broker) for broker in (*there[1:], there[0]))
    return ReplicatedTable(location=location, assigned=tuple(assigned), registration=Registration(0, chain))


BROKER: Final = "broker"
"""Kind of a row about a broker."""

REPLICAS: Final = "replicas"
"""Kind of a row about the replicas of a table."""


def broker_value(broker: Broker, *, removed: bool = False) -> str:
    """Return the value of a broker's row."""
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
    """Parse the value of a broker's row; the second result is True if the broker was removed."""
    rack = value["rack"]
    found = Broker(
        id=whole(value, "broker", at_least=1),
        uri=text(value, "uri"),
        rack=None if rack is None else text(value, "rack"),
        draining=flag(value, "draining"),
    )
    return found, flag(value, "removed")


def replicas_value(table: ReplicatedTable) -> str:
    """Return the value of the row about the replicas of a table."""
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
    """Parse the value of the row about the replicas of a table."""
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
        raise ValueError("no replica is in sync")
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
    """Replicas from which a client reads data files in a cluster of several roots."""

    rack: str = ""
    """Read from a replica in sync in this rack; if empty, from the leader."""
    striped: bool = False
    """Spread files over the replicas of the rack, or over all in sync if the rack has none."""


LEADER: Final = ReadFrom()
"""The default: read from the leader."""


def nearest_first(in_sync: Sequence[T], is_near: Callable[[T], bool] | None) -> tuple[Sequence[T], int]:
    """Sort replicas in the order in which a client asks them for data files.

    Args:
        in_sync: replicas in sync, the leader first.
        is_near: tells whether a replica is in the client's rack; None if the client has no rack.

    Returns:
        The near replicas first, otherwise in the given order; and how many of them share striped reads.
    """
    if is_near is None:
        return in_sync, len(in_sync)
    near = [one for one in in_sync if is_near(one)]
    others = [one for one in in_sync if not is_near(one)]
    return (*near, *others), len(near) or len(others)


def by_turns(sorted_ones: Sequence[T], turns: int, name: str) -> Sequence[T]:
    """Choose the replica that serves a file in striped reads, and move the replicas before it behind the others.

    All processes choose the same replica for a file, so a file that one process has read is in that root's cache for
    all.

    Args:
        sorted_ones: replicas in the order in which they are asked.
        turns: number of replicas, from the front, that share the reads; below two the order stays.
        name: name of the file.
    """
    if turns < 2:  # noqa: PLR2004
        return sorted_ones
    first = zlib.crc32(name.encode()) % turns
    return (*sorted_ones[first:turns], *sorted_ones[:first], *sorted_ones[turns:])


DEFAULTS: Final = "defaults"
"""Kind of the rows about the cluster-wide defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Cluster-wide server settings."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings in force, by Kafka's dotted names; all others have Kafka's defaults."""
    seed: Mapping[str, str] = field(default_factory=dict)
    """Settings of the `server.properties` file that first set them."""

    @property
    def are_set(self) -> bool:
        """True if a file or an operator has ever set one; if not, a `server.properties` file may still do so."""
        return bool(self.settings or self.seed)


def defaults_value(defaults: Defaults) -> str:
    """Return the value of the row with the defaults."""
    value = {VERSION: 1, "settings": dict(defaults.settings), "seed": dict(defaults.seed)}
    return json.dumps(value, sort_keys=True)


def defaults_of(value: Mapping[str, Any]) -> Defaults:
    """Parse the value of a row with the defaults."""
    settings, seed = (
        {str(name): as_text(setting, name) for name, setting in value[part].items()} for part in ("settings", "seed")
    )
    return Defaults(settings=settings, seed=seed)
