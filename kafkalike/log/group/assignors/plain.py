"""Range and round-robin: partition counts and members in, who gets what out; nothing is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from kafkalike.log.group.assignors.base import PartitionAssignor, in_kafkas_order
from kafkalike.model.groups.group_protocol import Subscriber
from kafkalike.model.structs import TopicPartition


class RangePartitionAssignor(PartitionAssignor):
    """Topic by topic, runs of neighbours; the first members get one more when it does not come out even.

    Topics with the same number of partitions and the same members are shared out alike, so that partition n of one and
    of the other are read by the same member. Source: Kafka's RangeAssignor, without racks.
    """

    name = "range"

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        """Share out."""
        order = in_kafkas_order(members)
        given: dict[str, list[TopicPartition]] = {i: [] for i in order}
        for topic, count in partitions.items():
            takers = [i for i in order if topic in members[i].topics]
            if not takers:
                continue
            each, more = divmod(count, len(takers))
            start = 0
            for nth, member_id in enumerate(takers):
                stop = start + each + (nth < more)
                given[member_id] += [TopicPartition(topic, p) for p in range(start, stop)]
                start = stop
        return given


class RoundRobinPartitionAssignor(PartitionAssignor):
    """All partitions of all topics in turn, each to the next member that subscribes to its topic.

    Source: Kafka's RoundRobinAssignor.
    """

    name = "roundrobin"

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        """Share out."""
        order = in_kafkas_order(members)
        given: dict[str, list[TopicPartition]] = {i: [] for i in order}
        wanted = {topic for m in members.values() for topic in m.topics}
        turn = cycle(order)
        for topic in sorted(partitions.keys() & wanted):
            for p in range(partitions[topic]):
                taker = next(i for i in turn if topic in members[i].topics)
                given[taker].append(TopicPartition(topic, p))
        return given
