"""Replicas of topics as reports show them: leaders, brokers in sync, lags, and what a run of `replicate` has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEnd:
    """Progress of one replica of a table."""

    broker: int
    in_sync: bool
    version: int | None
    """Its last table version; None if its root does not answer."""
    bytes: int | None
    """Size of its data files; None if its root does not answer."""
    time_ms: int | None = None
    """Time of its last version, ms since the epoch; None if its root does not answer, or its log has a checkpoint in
    place of that version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLag:
    """Distance of a replica from the leader; None for unknown values."""

    versions: int | None = None
    bytes: int | None = None
    """Size of the data files that it lacks."""
    seconds: float | None = None
    """From the time of its last version to the time of the leader's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """Replicas of one topic, the same for all of its partitions."""

    topic: str
    leader: int
    """Id of the leader's broker; -1 if its root does not answer."""
    epoch: int
    """Kafka's leader epoch."""
    replicas: tuple[int, ...]
    """Ids of the brokers that should have a replica, the preferred leader first."""
    isr: tuple[int, ...]
    """Ids of the brokers in sync."""
    offline: tuple[int, ...] = ()
    """Ids of the brokers whose root does not answer."""
    ends: tuple[ReplicaEnd, ...] = ()
    """Progress of each replica; empty unless requested."""
    joining: int | None = None
    """Id of the broker whose replica is about to be in sync."""
    adding: tuple[int, ...] = ()
    """Ids of the brokers that a reassignment has added and that have not been in sync since."""
    min_isr: int = 1
    """The topic's `min.insync.replicas`."""
    losses: tuple[str, ...] = ()
    """Unclean elections, in words: time, new leader, end of its log."""

    @property
    def under_replicated(self) -> bool:
        """True if an assigned replica is not in sync."""
        return not set(self.replicas) <= set(self.isr)

    def lags(self) -> Mapping[int, ReplicaLag]:
        """Return the lag of each replica by broker; empty unless the progress of the replicas was requested.

        The lag in seconds of a replica with the leader's version is 0, whatever clocks wrote it.
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
    """Results of one run of `replicate`."""

    joined: Mapping[str, Sequence[int]]
    """By table: brokers whose replicas have come in sync."""
    left: Mapping[str, Sequence[int]]
    """By table: brokers whose replicas were removed, because they are not assigned any more or did not answer."""
    led: Mapping[str, int]
    """By table: the broker that has become leader."""
    failed: Sequence[str]
    """Failed steps with their reasons, one sentence each."""
