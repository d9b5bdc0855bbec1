"""PartitionAssignor: what a user implements to share partitions out in his own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

from kafkalike.model.groups.group_protocol import Subscriber
from kafkalike.model.structs import TopicPartition


class PartitionAssignor(ABC):
    """Shares the partitions of a group's topics out among its members.

    Made without arguments. Any member may call it at any rebalance, also from its heartbeat thread, and all members of
    a group must have it under the same name. It must depend on its arguments alone.
    """

    name: ClassVar[str]
    """Name in the protocol, one for all members."""
    protocol: ClassVar[Literal["eager", "cooperative"]] = "eager"
    """`eager`: when anything moves, all members give up all partitions first. `cooperative`: only what moves is given
    up, by the member that loses it, before the other one gets it."""

    @abstractmethod
    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        """Share out.

        Args:
            partitions: number of partitions by topic, sorted by name; subscribed topics that exist.
            members: all members by id, sorted; at least one.

        Returns:
            By member id what it is to own. No partition twice, and none to a member that does not subscribe to its
            topic: that is refused as `IllegalStateError`. A partition that is given to nobody is read by nobody.
        """


def in_kafkas_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Member ids in the order of Kafka's assignors: static members by their names, then dynamic ones by id.

    Source: AbstractPartitionAssignor.MemberInfo.
    """
    return sorted(members, key=lambda i: (members[i].group_instance_id is None, members[i].group_instance_id or i))
