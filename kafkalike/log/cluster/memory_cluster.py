"""MemoryCluster: a cluster whose root is a dictionary of this process."""

from __future__ import annotations

import uuid

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.storage.memory import MemoryStorage


class MemoryCluster(Cluster):
    """A cluster in memory, for tests: its topics are Delta tables in a dictionary, and end with the process.

    Args:
        server: server defaults; Kafka's own when None.
        clock: source of append times.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.admin.testing import MemoryCluster
        >>> with KafkaProducer(bootstrap_servers=MemoryCluster()) as producer:
        ...     producer.send("orders", b"tea").get(timeout=10).offset
        0
    """

    def __init__(self, server: ServerProperties | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        store = MemoryStorage(f"memory:{uuid.uuid4().hex[:8]}", now_ns=lambda: clock.now_ms() * 1_000_000)
        super().__init__(store, server=server or ServerProperties(), clock=clock)
