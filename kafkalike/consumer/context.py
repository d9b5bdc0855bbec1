"""Context: the parts that one consumer's modules share."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkalike.clock import Clock
from kafkalike.config.consumer import ConsumerConfig
from kafkalike.consumer.logs import Logs
from kafkalike.consumer.metrics import Metrics
from kafkalike.consumer.subscription import Subscription
from kafkalike.group.offsets import GroupOffsets
from kafkalike.log.port import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a consumer is made of, made once. Belongs to its consumer's thread."""

    cluster: Cluster
    config: ConsumerConfig
    clock: Clock
    subscription: Subscription
    logs: Logs
    offsets: GroupOffsets
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def of(cls, cluster: Cluster, config: ConsumerConfig, clock: Clock) -> Context:
        """The parts of a new consumer."""
        return cls(
            cluster=cluster,
            config=config,
            clock=clock,
            subscription=Subscription(exclude_internal=config.exclude_internal_topics),
            logs=Logs(cluster),
            offsets=GroupOffsets.of(cluster, clock),
        )
