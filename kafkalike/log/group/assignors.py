"""Assignors: partition counts and members in, each member's partitions out; under Kafka's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any, ClassVar, Final, Literal

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.groups.group_protocol import EXCLUSIVE, Scheme, Subscriber
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


class RangePartitionAssignor(PartitionAssignor):
    """Topic by topic, runs of neighbours; the first members get one more when it does not come out even.

    Topics with the same number of partitions and the same members are shared out alike, so that partition n of one and
    of the other are read by the same member. Source: Kafka's RangeAssignor, without racks.
    """

    name = "range"

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
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
        """Return the partitions of each member."""
        order = in_kafkas_order(members)
        given: dict[str, list[TopicPartition]] = {i: [] for i in order}
        wanted = {topic for m in members.values() for topic in m.topics}
        turn = cycle(order)
        for topic in sorted(partitions.keys() & wanted):
            for p in range(partitions[topic]):
                taker = next(i for i in turn if topic in members[i].topics)
                given[taker].append(TopicPartition(topic, p))
        return given


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
        """Return the partitions of each member."""
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


DEFAULT_STRATEGY: Final[tuple[str, ...]] = ("range", "roundrobin")
"""kafka-python's default."""

BY_NAME: Final[dict[str, type[PartitionAssignor]]] = {
    kind.name: kind
    for kind in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}


def schemes_of(strategy: Any) -> dict[str, Scheme]:  # noqa: ANN401 - what a user gave
    """The assignors of a member, the one that it likes best first.

    Args:
        strategy: a list of names, of `PartitionAssignor` classes, or of instances; or one of them.

    Raises:
        KafkaConfigurationError: an unknown name, something else, two of one name, or none.
    """
    given = list(strategy) if isinstance(strategy, list | tuple) else [strategy]
    schemes: dict[str, Scheme] = {}
    for one in given:
        assignor = _assignor(one)
        if assignor.name in schemes:
            raise _refused(f"there are two assignors named {assignor.name!r}")
        schemes[assignor.name] = Scheme(assignor.name, assignor.assign, assignor.protocol == "cooperative")
    if not schemes:
        raise _refused("at least one assignor is needed")
    return schemes


def _assignor(given: object) -> PartitionAssignor:
    if isinstance(given, str):
        if given not in BY_NAME:
            raise _refused(f"assignor {given!r} is not known; known are {', '.join(BY_NAME)}, and classes of your own")
        return BY_NAME[given]()
    if isinstance(given, type) and issubclass(given, PartitionAssignor):
        try:
            given = given()
        except TypeError as cause:
            raise _refused(f"{given!r} cannot be made without arguments: {cause}") from cause
    if not isinstance(given, PartitionAssignor):
        raise _refused(f"a name or a PartitionAssignor is needed, not {given!r}")
    name: object = getattr(given, "name", None)
    if not isinstance(name, str) or not name or name == EXCLUSIVE:
        raise _refused(f"{given!r} needs a class attribute 'name', which must not be {EXCLUSIVE!r}")
    if given.protocol not in {"eager", "cooperative"}:
        raise _refused(f"protocol of {name!r} must be 'eager' or 'cooperative', not {given.protocol!r}")
    return given


def _refused(why: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(f"invalid value for setting 'partition_assignment_strategy': {why}")
