"""Sticky: partition counts, members and what they own in, who gets what out; even first, then as it was."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalike.log.group.assignors.base import PartitionAssignor, in_kafkas_order
from kafkalike.model.groups.group_protocol import Subscriber
from kafkalike.model.structs import TopicPartition


class StickyPartitionAssignor(PartitionAssignor):
    """As even as can be, and among even ways the one that moves least.

    Even: no partition could go from its member to one that has two fewer and subscribes to its topic. With equal
    subscriptions the numbers differ by one at most, and a partition moves only if its owner left or has too many.
    Eager, as in Kafka: everybody gives up everything and gets most of it back.
    """

    name = "sticky"

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        """Share out."""
        order = in_kafkas_order(members)
        given = _kept(partitions, members, order)
        if len({members[i].topics for i in order}) == 1:
            _cut_to_quota(given, order, sum(partitions.get(t, 0) for t in set(members[order[0]].topics)))
        takers = {t: [i for i in order if t in members[i].topics] for t in partitions}
        _hand_out_rest(partitions, given, takers)
        _even_out(given, takers)
        return given


class CooperativeStickyAssignor(StickyPartitionAssignor):
    """The same for the cooperative protocol: what stays is never given up."""

    name = "cooperative-sticky"
    protocol = "cooperative"


def _kept(
    partitions: Mapping[str, int], members: Mapping[str, Subscriber], order: list[str]
) -> dict[str, list[TopicPartition]]:
    """What members own and may still have; if two claim the same, the first one's."""
    given: dict[str, list[TopicPartition]] = {i: [] for i in order}
    seen: set[TopicPartition] = set()
    for member_id in order:
        topics = set(members[member_id].topics)
        for tp in members[member_id].owned:
            if tp not in seen and tp.topic in topics and tp.partition < partitions.get(tp.topic, 0):
                seen.add(tp)
                given[member_id].append(tp)
    return given


def _cut_to_quota(given: Mapping[str, list[TopicPartition]], order: list[str], total: int) -> None:
    """Equal subscriptions: take from each what is above its share; who has most may keep one more."""
    each, more = divmod(total, len(order))
    for member_id in sorted(order, key=lambda i: -len(given[i])):
        quota = each
        if more and len(given[member_id]) > each:
            quota, more = each + 1, more - 1
        del given[member_id][quota:]


def _hand_out_rest(
    partitions: Mapping[str, int], given: Mapping[str, list[TopicPartition]], takers: Mapping[str, list[str]]
) -> None:
    """Give what nobody has to those who have least, the pickiest topics first."""
    held = {tp for owned in given.values() for tp in owned}
    for topic in sorted((t for t in partitions if takers[t]), key=lambda t: (len(takers[t]), t)):
        for p in range(partitions[topic]):
            tp = TopicPartition(topic, p)
            if tp not in held:
                given[min(takers[topic], key=lambda i: len(given[i]))].append(tp)


def _even_out(given: Mapping[str, list[TopicPartition]], takers: Mapping[str, list[str]]) -> None:
    """Move single partitions to members that have two fewer, until none is left to move.

    Ends, as every move makes the sum of the squares of the numbers smaller.
    """
    moved = True
    while moved:
        moved = False
        for member_id in sorted(given, key=lambda i: -len(given[i])):
            for tp in list(reversed(given[member_id])):
                taker = min(takers[tp.topic], key=lambda i: len(given[i]))
                if len(given[member_id]) - len(given[taker]) > 1:
                    given[member_id].remove(tp)
                    given[taker].append(tp)
                    moved = True
