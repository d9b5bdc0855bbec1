"""Live gateways: the gateways of a cluster, over which clients are spread."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple


class GatewayNode(NamedTuple):
    """A gateway, as clients see it: a broker."""

    node_id: int
    host: str
    port: int


class LiveGateways:
    """The gateways that clients are told of. Any of them can serve any request; the spread only helps batching.

    Args:
        own: this gateway.
    """

    def __init__(self, own: GatewayNode) -> None:
        self.own = own
        self._nodes: tuple[GatewayNode, ...] = (own,)

    @property
    def nodes(self) -> Sequence[GatewayNode]:
        """The live gateways by id, this one included."""
        return self._nodes

    def node_of(self, name: str) -> GatewayNode:
        """Return the gateway for a partition or group: the same for all gateways that know the same nodes."""
        return max(self._nodes, key=lambda node: hashlib.blake2b(f"{node.node_id}/{name}".encode()).digest())
