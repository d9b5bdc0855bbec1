"""Three roots: folders in, a cluster with three replicas of each topic out, and what is done to it again and again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.errors import ElectionNotNeededError
from tests.tools.clusters import on_three_disks

if TYPE_CHECKING:
    from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster

LAG_MS: Final = 20
"""For how long a root that gives no answer is waited for."""

PATIENCE_SECONDS: Final = 30.0


def opened(roots: Sequence[Path]) -> ReplicatedCluster:
    """The cluster as another process has it, which waits little for a root that is away."""
    return on_three_disks(roots[0].parent, **{"replica.lag.time.max.ms": str(LAG_MS)})


def elected_unclean(cluster: ReplicatedCluster) -> None:
    """Wait until nobody in sync counts as answering, and have another one chosen for the topic `t`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while cluster.replication.replicas("t").leader == -1:
        assert time.monotonic() < until
        with contextlib.suppress(ElectionNotNeededError):
            cluster.replication.elect_leader("t", "unclean")
