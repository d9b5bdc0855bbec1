"""Claims: in whose name a transaction commits the offsets of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


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
            message = "the consumer has no group"
            raise ValueError(message)
        return cls(
            group_id=metadata.group_id,
            generation=metadata.generation_id,
            member_id=metadata.member_id,
            group_instance_id=metadata.group_instance_id,
            client_id=client_id,
        )


GroupOffsets = Mapping[GroupClaim, Mapping[TopicPartition, OffsetAndMetadata]]
"""Offsets of groups that are to be committed, by claim and partition."""
