"""Live gateways: the gateways of a cluster register themselves, and clients are spread over them.

They are the members of a reserved group, so that heartbeats and expiry work as in groups. A gateway that was killed
disappears after its session.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.errors import KafkaError
from kafkalike.log.group.assignors import schemes_of
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import GroupStore, MemberSettings, PartitionCounts
from kafkalike.model.clock import Clock
from kafkalike.model.groups import group_protocol
from kafkalike.model.groups.group_protocol import GroupFacts
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.names import GATEWAYS_GROUP

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

logger = logging.getLogger(__name__)

BEATS_PER_SESSION: Final = 4
"""Heartbeats of a gateway in its session."""

FASTER_BEATS: Final = 3
"""How much more often gateways send heartbeats than members of groups, because clients wait for a dead one."""


class GatewayNode(NamedTuple):
    """A gateway, as clients see it: a broker."""

    node_id: int
    host: str
    port: int


class LiveGateways:
    """The gateways that clients are told of. Any of them can serve any request; the spread only helps batching.

    Args:
        cluster: the cluster.
        address: host and port of this gateway for clients.
        clock: time.
    """

    def __init__(self, cluster: Cluster, address: tuple[str, int], clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._address = address
        self._store = GroupStore(cluster.groups, GATEWAYS_GROUP)
        self.beat_seconds = cluster.heartbeat_ms / FASTER_BEATS / 1000
        """Time between two calls of `beat`."""
        host, port = address
        self._settings = MemberSettings(
            group_id=GATEWAYS_GROUP,
            schemes=schemes_of(["range"]),
            client_id="gateway",
            session_timeout_ms=self.beat_seconds * BEATS_PER_SESSION * 1000,
            heartbeat_interval_ms=self.beat_seconds * 1000,
            host=f"{host}:{port}",
        )
        self._member: GroupMember | None = None
        self._answered = clock.monotonic()
        self._own = GatewayNode(0, host, port)
        self._nodes: tuple[GatewayNode, ...] = (self._own,)

    @property
    def silent_seconds(self) -> float:
        """Time since the storage answered last, beyond the time in which it must; 0 if it does."""
        silent = self._clock.monotonic() - self._answered
        return silent if silent > self.beat_seconds * BEATS_PER_SESSION else 0.0

    @property
    def own(self) -> GatewayNode:
        """This gateway; its id is known once it has joined."""
        return self._own

    def join(self) -> None:
        """Register this gateway under the smallest free id.

        Raises:
            KafkaError: the storage failed.
        """
        token = str(uuid.uuid4())
        settings = self._settings
        facts = GroupFacts(
            schemes=settings.schemes, topics=PartitionCounts({}), metadata_seq=0, now_ms=self._clock.now_ms()
        )
        chosen = ""

        def plan(roster: Roster) -> Roster:
            nonlocal chosen
            taken = {_node(member).node_id for member in roster}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            chosen = f"{number}-{token}"
            # Before the row, so that no other gateway finds this one without a heartbeat.
            self._cluster.leases.renew(GATEWAYS_GROUP, chosen)
            member = Member(
                member_id=chosen,
                client_id=settings.client_id,
                client_host=settings.host,
                protocols=tuple(settings.schemes),
                session_timeout_ms=settings.session_timeout_ms,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                joined_ms=self._clock.now_ms(),
            )
            return group_protocol.join(roster, member, facts)

        roster = self._store.change(plan, token, "gateway started")
        self._member = GroupMember.of(self._cluster, settings, self._clock, member_id=chosen)
        self._member.resume(roster)
        self._own = _node(roster.members[chosen])
        self._take(roster)
        logger.info("gateway: joined as node %s", self._own.node_id)

    def beat(self) -> None:
        """Send a heartbeat, remove dead gateways, and join again if this one was removed; errors are logged."""
        try:
            if self._member is None:
                self.join()
                return
            self._member.polled(self._clock.monotonic())
            self._member.beat()
            roster = self._member.look()
            if roster is None:
                logger.warning("gateway: node %s was removed, and joins again", self._own.node_id)
                self._member = None
                self.join()
            else:
                self._take(roster)
        except KafkaError as error:
            logger.warning("gateway: no heartbeat of node %s: %s", self._own.node_id, error)

    def leave(self) -> None:
        """Take this gateway off the list; if the storage fails, the others remove it later."""
        member, self._member = self._member, None
        if member is not None:
            try:
                member.leave(why="gateway stopped")
            except KafkaError as error:
                logger.warning("gateway: node %s stays listed until its session expires: %s", self._own.node_id, error)

    def look(self) -> Sequence[GatewayNode]:
        """Look for other gateways, and return all live ones by id; costs a file look-up if nothing changed."""
        try:
            self._take(self._store.read())
        except KafkaError as error:
            logger.warning("gateway: other gateways are unknown: %s", error)
        return self._nodes

    @property
    def nodes(self) -> Sequence[GatewayNode]:
        """The live gateways by id as of the last look, this one included."""
        return self._nodes

    def node_of(self, name: str) -> GatewayNode:
        """Return the gateway for a partition or group: the same for all gateways that know the same nodes."""
        return max(self._nodes, key=lambda node: hashlib.blake2b(f"{node.node_id}/{name}".encode()).digest())

    def _take(self, roster: Roster) -> None:
        self._answered = self._clock.monotonic()
        self._nodes = tuple(sorted({self._own, *(_node(member) for member in roster)}))


def _node(member: Member) -> GatewayNode:
    number, _, _ = member.member_id.partition("-")
    host, _, port = member.client_host.rpartition(":")
    return GatewayNode(int(number), host, int(port))
