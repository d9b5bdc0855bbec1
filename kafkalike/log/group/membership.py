"""Membership: what a member is like, what it is in its group, and what it knows of topics; values only."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kafkalike.model.groups.group_protocol import Scheme
from kafkalike.model.topic import TopicInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """In whose name offsets are committed."""

    group_id: str
    generation: int = -1
    """Generation of the group; -1 for a client outside the group's membership (manual assignment, admin)."""
    member_id: str = ""
    """Empty outside the membership."""
    client_id: str = ""
    """Name of the client, for people."""
    group_instance_id: str | None = None
    """Static name of the member; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What a member is like."""

    group_id: str
    schemes: Mapping[str, Scheme]
    """Its assignors by name, the one that it likes best first."""
    client_id: str = ""
    group_instance_id: str | None = None
    session_timeout_ms: float = 45_000
    heartbeat_interval_ms: float = 3000
    max_poll_interval_ms: float = 300_000
    host: str = field(default_factory=socket.gethostname)


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics of a cluster at one moment."""

    infos: Mapping[str, TopicInfo]
    seq: int


class Counts(Mapping[str, tuple[str, int]]):
    """Topic ids and partition counts, looked up when they are asked for: a cluster may have very many topics."""

    __slots__ = ("_infos",)

    def __init__(self, infos: Mapping[str, TopicInfo]) -> None:
        self._infos = infos

    def __getitem__(self, topic: str) -> tuple[str, int]:
        info = self._infos[topic]
        return info.topic_id, info.num_partitions

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)
