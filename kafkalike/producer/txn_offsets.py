"""Given offsets: what `send_offsets_to_transaction` is given in; in whose name which positions are committed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalArgumentError,
    InvalidGroupIdError,
    RebalanceInProgressError,
)
from kafkalike.log.group.group_offsets import check_position
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions.group_claims import GroupClaim, check_claim

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import GroupsLog

LEFT_BEHIND: Final = (CommitFailedError, FencedInstanceIdError, RebalanceInProgressError)
"""What a group says to who is not, or no longer, its member with these partitions."""


def claim_of(metadata: object, client_id: str) -> GroupClaim:
    """In whose name offsets are committed.

    Raises:
        TypeError: neither a `ConsumerGroupMetadata` nor the id of a group.
        InvalidGroupIdError: no group id, or one that no group can have.
        IllegalArgumentError: a generation without a member.
    """
    if not isinstance(metadata, str | ConsumerGroupMetadata):
        raise TypeError(f"group_metadata must be a ConsumerGroupMetadata or the id of a group, not {metadata!r}")
    group_id = metadata if isinstance(metadata, str) else metadata.group_id
    if group_id is None:
        raise InvalidGroupIdError("the consumer has no group_id, so it has no offsets to commit")
    check_group_id(group_id)
    claim = GroupClaim.of(metadata, client_id)
    if claim.generation > 0 and not claim.member_id:
        raise IllegalArgumentError(f"generation {claim.generation} needs the member_id that is in it")
    return claim


def positions_of(offsets: object, max_metadata_bytes: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions by partition, checked.

    Args:
        offsets: what a program gave.
        max_metadata_bytes: the most of an offset's metadata.

    Raises:
        TypeError: no mapping, or wrong types in it.
        IllegalArgumentError, OffsetMetadataTooLargeError: see `check_position`.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must map TopicPartition to OffsetAndMetadata, not {offsets!r}")
    return {tp: check_position(tp, at, max_metadata_bytes) for tp, at in offsets.items()}


def check_member(groups: GroupsLog, claim: GroupClaim) -> None:
    """Refuse a consumer that its group has left behind. The commit looks again, in the change that it makes.

    Args:
        groups: the groups' table.
        claim: in whose name.

    Raises:
        CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: the group has moved on.
        KafkaStorageError: the storage does not answer.
    """
    if not claim.of_member:
        return
    try:
        # A look of a moment ago will do where one costs money: what is missed by it, the commit refuses.
        check_claim(groups.refresh(waiting=True).group(claim.group_id).roster, claim)
    except LEFT_BEHIND:
        # The consumer may know more than that look.
        check_claim(groups.refresh().group(claim.group_id).roster, claim)
