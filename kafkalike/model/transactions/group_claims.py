"""Group claims: in whose name a transaction commits the offsets of a group, and whether the group lets it.

`kafkalike.model.groups.group_state` answers what these rules ask of the groups' table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model.groups.group_protocol import check_commit
from kafkalike.model.groups.roster import Roster
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.transaction_views import PendingDecisions
from kafkalike.model.transactions.transactional_id import TopicLife, TransactionalIdState, TransactionOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    """A group whose offsets a transaction commits, and the membership that it does so by."""

    group_id: str
    generation: int = -1
    """The generation that the consumer knows; -1 outside the membership."""
    member_id: str = ""
    """Id of the member; empty outside the membership."""
    group_instance_id: str | None = None
    """Its static name, if it has one."""
    client_id: str = ""
    """Who is told to have committed."""
    alone: bool = False
    """Whether the group must have no members, who alone may commit then; outside the membership."""
    lives: tuple[tuple[str, str], ...] = ()
    """Ids of topics that the offsets belong to, by name; a topic that is not named may be any of its name."""

    @property
    def of_member(self) -> bool:
        """Whether it is a member's; else nobody's membership is looked at, as in Kafka."""
        return self.generation >= 0 or bool(self.member_id)

    @classmethod
    def of(cls, metadata: ConsumerGroupMetadata | str, client_id: str = "") -> GroupClaim:
        """What `send_offsets_to_transaction` was given.

        Args:
            metadata: of a consumer, or only the group's id: then no membership is looked at, as in Kafka.
            client_id: who is told to have committed.

        Raises:
            ValueError: no group.
        """
        if isinstance(metadata, str):
            return cls(group_id=metadata, client_id=client_id)
        if metadata.group_id is None:
            raise ValueError("the consumer has no group")
        return cls(
            group_id=metadata.group_id,
            generation=metadata.generation_id,
            member_id=metadata.member_id,
            group_instance_id=metadata.group_instance_id,
            client_id=client_id,
        )


GroupOffsets = Mapping[GroupClaim, Mapping[TopicPartition, OffsetAndMetadata]]
"""Offsets of groups that are to be committed, by claim and partition."""


def check_claim(roster: Roster, claim: GroupClaim) -> None:
    """Refuse offsets in the name of anyone but a live member, where a claim is a member's, or wants no members.

    Args:
        roster: the group that the claim names.
        claim: in whose name.

    Raises: as `check_commit`.
    """
    if claim.of_member or claim.alone:
        check_commit(roster, claim.group_id, claim.member_id, claim.generation, claim.group_instance_id)


def joined_lives(known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Ids of the topics that all offsets of a transaction belong to.

    Args:
        known: ids by name, of the offsets that were given before.
        given: of those that are given now.

    Raises:
        UnknownTopicOrPartitionError: a topic was deleted and created again in between.
    """
    for name, topic_id in given.items():
        if known.get(name, topic_id) != topic_id:
            raise UnknownTopicOrPartitionError(
                f"offsets of {name!r} cannot be added: the topic was deleted and created again during the "
                "transaction, which has offsets of the earlier one; abort it"
            )
    return {**known, **given}


def with_lives(
    offsets: GroupOffsets, lives: Mapping[str, str]
) -> dict[GroupClaim, Mapping[TopicPartition, OffsetAndMetadata]]:
    """The same offsets, for the topics with these ids alone.

    Args:
        offsets: by claim, whose own `lives` are replaced.
        lives: ids by name; offsets of others may be those of any topic of the name.
    """
    made: dict[GroupClaim, Mapping[TopicPartition, OffsetAndMetadata]] = {}
    for claim, positions in offsets.items():
        named = sorted({tp.topic for tp in positions} & lives.keys())
        made[replace(claim, lives=tuple((name, lives[name]) for name in named))] = positions
    return made


def check_partitions(offsets: GroupOffsets, topics: Mapping[str, TopicInfo]) -> None:
    """Refuse offsets of partitions that a topic does not have. Topics that are not there are left to `offset_commit`.

    Args:
        offsets: what is to be committed.
        topics: by name.

    Raises:
        UnknownTopicOrPartitionError: there is no such partition.
    """
    for positions in offsets.values():
        for tp in positions:
            info = topics.get(tp.topic)
            if info is not None and tp.partition not in info.partitions:
                raise UnknownTopicOrPartitionError(f"{tp.topic}-{tp.partition} does not exist; nothing was committed")


def offset_commit(
    groups: Groups, claim: GroupClaim, tp: TopicPartition, at: OffsetAndMetadata, topics: Mapping[str, str]
) -> TransactionOffset:
    """The offset that a transaction commits for a partition.

    Args:
        groups: the table now.
        claim: in whose name.
        tp: the partition.
        at: its next offset to read.
        topics: ids of the topics that exist, by name.

    Raises:
        UnknownTopicOrPartitionError: the topic is gone. And see `check_claim`.
    """
    roster = groups.group(claim.group_id).roster
    check_claim(roster, claim)
    topic_id = topics.get(tp.topic)
    lives = dict(claim.lives)
    if topic_id is None or lives.get(tp.topic, topic_id) != topic_id:
        why = "there is no such topic" if topic_id is None else "it was deleted and created again"
        raise UnknownTopicOrPartitionError(f"offsets of {tp.topic!r} cannot be committed: {why}; nothing was committed")
    return TransactionOffset(
        group_id=claim.group_id,
        topic=TopicLife(tp.topic, topic_id),
        partition=tp.partition,
        offset=at.offset,
        leader_epoch=at.leader_epoch,
        metadata=at.metadata,
        generation=roster.generation if claim.of_member else -1,
        member_id=claim.member_id,
        client_id=claim.client_id,
    )


class RosterOwner(Protocol):
    """A group."""

    @property
    def roster(self) -> Roster:
        """Its members."""
        ...


class Groups(Protocol):
    """The groups' table at a row; `GroupsState` is one."""

    @property
    def seq(self) -> int:
        """Number of its last row."""
        ...

    @property
    def transactions(self) -> Mapping[str, TransactionalIdState]:
        """Transactional ids that are not forgotten."""
        ...

    @property
    def unsettled(self) -> Mapping[str, PendingDecisions]:
        """Decisions that are not known to be in all topics, by the id of a topic that they bring records into."""
        ...

    def group(self, group_id: str) -> RosterOwner:
        """A group; an empty one when it is not known."""
        ...
