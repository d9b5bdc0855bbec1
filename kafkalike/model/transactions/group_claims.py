"""Group claims: the membership under which a transaction commits offsets or acknowledgements, and its check.

`kafkalike.model.group_state` has the groups' table that these rules read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kafkalike.errors import InvalidRecordStateError, UnknownTopicOrPartitionError
from kafkalike.model.groups.partition_split import OffsetsOwner, check_open
from kafkalike.model.groups.roster import Roster, check_commit
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, ShareGroupMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.transaction_views import PendingDecisions
from kafkalike.model.transactions.transactional_id import (
    ShareChange,
    TopicLife,
    TransactionalIdState,
    TransactionOffset,
)

if TYPE_CHECKING:
    from kafkalike.model.shares.share_partition import Acknowledgements, SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClaim:
    """A group whose offsets a transaction commits, and the membership under which it does so."""

    group_id: str
    generation: int = -1
    """The generation that the consumer knows; -1 outside the group."""
    member_id: str = ""
    """Id of the member; empty outside the group."""
    group_instance_id: str | None = None
    """Its static name, if it has one."""
    client_id: str = ""
    """Client id to record with the commit."""
    alone: bool = False
    """True if the group must not have members; only for a commit from outside the group."""
    lives: tuple[tuple[str, str], ...] = ()
    """Ids of the topics of the offsets, by name; a missing topic may be any topic of its name."""

    @property
    def of_member(self) -> bool:
        """True if it names a member; otherwise the membership is not checked, as in Kafka."""
        return self.generation >= 0 or bool(self.member_id)

    @classmethod
    def of(cls, metadata: ConsumerGroupMetadata | str, client_id: str = "") -> GroupClaim:
        """Return the claim of a call of `send_offsets_to_transaction`.

        Args:
            metadata: of a consumer, or only the group's id: then the membership is not checked, as in Kafka.
            client_id: client id to record with the commit.

        Raises:
            ValueError: the consumer does not have a group.
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
"""Offsets of groups to commit, by claim and partition."""


ShareAcknowledgements = Mapping[ShareGroupMetadata, "Acknowledgements"]
"""Acknowledgements of records, by share group and member."""


def acknowledged_shares(
    groups: Groups, acknowledgements: ShareAcknowledgements, now_ms: int
) -> tuple[ShareChange, ...]:
    """Return the share partitions after a transaction's acknowledgements.

    Raises:
        InvalidRecordStateError: a member no longer owns a record.
    """
    from kafkalike.model.shares.share_partition import ShareLimits, acknowledge_all  # few transactions need it

    made: list[ShareChange] = []
    known: dict[str, dict[TopicPartition, SharePartition]] = {}
    for member, acks in acknowledgements.items():
        shares = known.setdefault(member.group_id, dict(groups.shares.get(member.group_id, {})))
        limits = ShareLimits(deliveries=member.delivery_count_limit)
        changed, refused = acknowledge_all(shares, member.member_id, acks, now_ms=now_ms, limits=limits)
        if refused:
            places = ", ".join(
                f"{tp.topic}-{tp.partition} @ {a.first}-{a.last}" for tp, no in refused.items() for a in no
            )
            raise InvalidRecordStateError(
                f"share group {member.group_id!r}: {places}: the lock of {member.member_id!r} has ended, and another "
                "member has acquired the records; nothing was committed: abort the transaction"
            )
        shares.update(changed)
        made += [ShareChange(member.group_id, tp, share, member.member_id) for tp, share in sorted(changed.items())]
    # Two members may have acknowledged records of one partition.
    last = {(change.group_id, change.tp): change for change in made}
    return tuple(last.values())


def check_claim(roster: Roster, claim: GroupClaim) -> None:
    """Reject the claim of anyone but a live member, if it names a member or requires a group without members.

    Args:
        roster: the group of the claim.
        claim: the claim.

    Raises: see `check_commit`.
    """
    if claim.of_member or claim.alone:
        check_commit(roster, claim.group_id, claim.member_id, claim.generation, claim.group_instance_id)


def joined_lives(known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Merge the topic ids of a transaction's offsets.

    Args:
        known: ids by name, of the offsets added before.
        given: ids by name, of the new offsets.

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
    """Restrict offsets to the topics with these ids.

    Args:
        offsets: by claim, whose own `lives` are replaced.
        lives: ids by name; offsets of other names may belong to any topic of the name.
    """
    made: dict[GroupClaim, Mapping[TopicPartition, OffsetAndMetadata]] = {}
    for claim, positions in offsets.items():
        named = sorted({tp.topic for tp in positions} & lives.keys())
        made[replace(claim, lives=tuple((name, lives[name]) for name in named))] = positions
    return made


def check_partitions(offsets: GroupOffsets, topics: Mapping[str, TopicInfo]) -> None:
    """Reject offsets of partitions that a topic does not have. Missing topics are left to `offset_commit`.

    Args:
        offsets: the offsets to commit.
        topics: topics by name.

    Raises:
        UnknownTopicOrPartitionError: a partition does not exist.
    """
    for positions in offsets.values():
        for tp in positions:
            info = topics.get(tp.topic)
            if info is not None and tp.partition not in info.partitions:
                raise UnknownTopicOrPartitionError(f"{tp.topic}-{tp.partition} does not exist; nothing was committed")


def offset_commit(
    groups: Groups, claim: GroupClaim, tp: TopicPartition, at: OffsetAndMetadata, topics: Mapping[str, str]
) -> TransactionOffset:
    """Return the offset that a transaction commits for a partition.

    Args:
        groups: the current table.
        claim: the membership.
        tp: the partition.
        at: its next offset to read.
        topics: ids of the existing topics, by name.

    Raises:
        UnknownTopicOrPartitionError: the topic was deleted. See also `check_claim`.
        GroupIdNotFoundError: it is a share group.
    """
    groups.check_type(claim.group_id, share=False)
    roster = groups.group(claim.group_id).roster
    check_claim(roster, claim)
    topic_id = topics.get(tp.topic)
    lives = dict(claim.lives)
    check_open(groups.groups, tp.topic, lives.get(tp.topic, topic_id or ""))
    if topic_id is None or lives.get(tp.topic, topic_id) != topic_id:
        why = "the topic does not exist" if topic_id is None else "it was deleted and created again"
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
    """A group with a roster."""

    @property
    def roster(self) -> Roster:
        """The members of the group."""
        ...


class Groups(Protocol):
    """The groups' table at a row; `GroupsState` implements it."""

    @property
    def seq(self) -> int:
        """Number of its last row."""
        ...

    @property
    def transactions(self) -> Mapping[str, TransactionalIdState]:
        """States of transactional ids that have not expired."""
        ...

    @property
    def unsettled(self) -> Mapping[str, PendingDecisions]:
        """By topic id, decisions that may not be in all of their topics yet."""
        ...

    @property
    def shares(self) -> Mapping[str, Mapping[TopicPartition, SharePartition]]:
        """Share partitions by id of their share group."""
        ...

    @property
    def groups(self) -> Mapping[str, OffsetsOwner]:
        """Groups with members or offsets, by id."""
        ...

    def group(self, group_id: str) -> RosterOwner:
        """Return a group; an empty one if it is unknown."""
        ...

    def check_type(self, group_id: str, *, share: bool) -> None:
        """Raise GroupIdNotFoundError if a group is a share group, or with `share` if it is a consumer group."""
        ...
