"""Exclusive lock: hold a consumer group exclusively while a batch job works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkalike.log.group.member import GroupMember, HeartbeatThread
from kafkalike.log.group.membership import MemberSettings, Membership
from kafkalike.model.clock import Clock
from kafkalike.model.groups.group_protocol import EXCLUSIVE, Scheme, Subscriber
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

SESSION_MS: Final = 10_000
HEARTBEAT_MS: Final = 2000
RETRY_SECONDS: Final = 0.1
A_YEAR_MS: Final = 365 * 24 * 3600 * 1000
"""Poll interval of a batch job, which does not poll."""


@contextmanager
def held_alone(
    cluster: Cluster, group_id: str, topics: Sequence[str], client_id: str, clock: Clock
) -> Iterator[Membership]:
    """Hold a group exclusively for the length of a block.

    The group must have no live members; dead ones are waited for until their sessions expire. A consumer that tries to
    join meanwhile gets `InconsistentGroupProtocolError`, or `NonEmptyGroupError` if it wants the group exclusively.

    Args:
        cluster: the group's cluster.
        group_id: the group; it need not exist.
        topics: the topics that are read, shown in descriptions of the group.
        client_id: beginning of the member's id.
        clock: time.

    Raises:
        NonEmptyGroupError: the group has live members.
        KafkaError: the table of groups cannot be written.
    """
    scheme = Scheme(EXCLUSIVE, _everything)
    settings = MemberSettings(
        group_id=group_id,
        schemes={EXCLUSIVE: scheme},
        client_id=client_id,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=A_YEAR_MS,
    )
    member = GroupMember.of(cluster, settings, clock)
    while member.try_join(tuple(sorted(topics))) is None:
        clock.sleep(RETRY_SECONDS)
    heartbeat = HeartbeatThread(member, clock)
    heartbeat.start()
    try:
        assert member.membership is not None
        yield member.membership
    finally:
        heartbeat.stop()
        member.leave()


def _everything(
    partitions: Mapping[str, int], members: Mapping[str, Subscriber]
) -> Mapping[str, Sequence[TopicPartition]]:
    return {i: [TopicPartition(t, p) for t, count in partitions.items() for p in range(count)] for i in members}
