"""Context: the parts that one consumer's modules share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalike.consumer.logs import Logs
from kafkalike.consumer.metrics import Metrics
from kafkalike.consumer.subscription import Subscription
from kafkalike.log.dead_letters.dead_letter_buffer import DeadLetterBuffer
from kafkalike.log.dead_letters.dead_letter_transaction import DeadLetterTransactions
from kafkalike.log.group.assignors import DEFAULT_STRATEGY, schemes_of
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import MemberSettings
from kafkalike.model.clock import Clock
from kafkalike.model.config.consumer import ConsumerConfig

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a consumer is made of, made once. Belongs to its consumer's thread."""

    cluster: Cluster
    config: ConsumerConfig
    clock: Clock
    subscription: Subscription
    logs: Logs
    offsets: GroupOffsets
    member: GroupMember | None
    """This consumer as a member of its group; None without `group_id`."""
    letters: DeadLetterBuffer | None = None
    """Records that could not be read and wait for a commit; None where none become dead letters."""
    letter_commits: DeadLetterTransactions | None = None
    """Commits them."""
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def of(cls, cluster: Cluster, config: ConsumerConfig, clock: Clock) -> Context:
        """The parts of a new consumer."""
        subscription = Subscription(exclude_internal=config.exclude_internal_topics, hidden=config.is_letters)
        letters = None
        if config.tolerant and config.group_id is not None and config.errors_deadletterqueue_topic_name != "":
            letters = DeadLetterBuffer(cluster, config.group_id, clock, lambda: subscription.held)
        return cls(
            cluster=cluster,
            config=config,
            clock=clock,
            subscription=subscription,
            logs=Logs(cluster),
            offsets=GroupOffsets.of(cluster, clock),
            member=_member(cluster, config, clock),
            letters=letters,
            letter_commits=None
            if letters is None
            else DeadLetterTransactions(cluster, letters, config.client_id, clock),
        )


def _member(cluster: Cluster, config: ConsumerConfig, clock: Clock) -> GroupMember | None:
    """Also checks the assignors of a consumer without a group."""
    strategy = config.partition_assignment_strategy
    schemes = schemes_of(DEFAULT_STRATEGY if strategy is None else strategy)
    if config.group_id is None:
        return None
    settings = MemberSettings(
        group_id=config.group_id,
        schemes=schemes,
        client_id=config.client_id,
        group_instance_id=config.group_instance_id,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
    )
    return GroupMember.of(cluster, settings, clock)
