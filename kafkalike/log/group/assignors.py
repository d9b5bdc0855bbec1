"""Assignors: assign the partitions of topics to the members of a group, under Kafka's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any, ClassVar, Final, Literal

from kafkalike.errors import KafkaConfigurationError
from kafkalike.model.groups.group_protocol import EXCLUSIVE, Scheme, Subscriber
from kafkalike.model.structs import TopicPartition


class PartitionAssignor(ABC):
    """Assigns the partitions of a group's topics to its members.

    Created without arguments. Any member may call it at any rebalance, also from its heartbeat thread, and all members
    of a group must have it under the same name. The result must depend on the arguments alone.
    """

    name: ClassVar[str]
    """Name in the protocol, equal for all members."""
    protocol: ClassVar[Literal["eager", "cooperative"]] = "eager"
    """`eager`: if anything moves, all members give up all partitions first. `cooperative`: members give up only the
    partitions that move, before others get them."""

    @abstractmethod
    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        """Assign the partitions.

        Args:
            partitions: number of partitions by topic, sorted by name; subscribed topics that exist.
            members: all members by id, sorted; at least one.

        Returns:
            Partitions by member id. A partition that occurs twice, or belongs to a topic that the member does not
            subscribe to, raises `IllegalStateError`. A partition without a member is not read.
        """


def in_kafkas_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Return member ids in the order of Kafka's assignors: static members by name, then dynamic ones by id.

    Source: AbstractPartitionAssignor.MemberInfo.
    """
    return sorted(members, key=lambda i: (members[i].group_instance_id is None, members[i].group_instance_id or i))


class RangePartitionAssignor(PartitionAssignor):
    """Topic by topic, ranges of consecutive partitions; with a remainder, the first members get one more.

    Topics with the same number of partitions and the same members are assigned alike, so one member reads partition n
    of each. Source: Kafka's RangeAssignor, without racks.
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
    """As even as possible, and among even assignments the one with the fewest moves.

    Even: no partition could move to a member that subscribes to its topic and has at least two fewer. With equal
    subscriptions the numbers differ by one at most, and a partition moves only if its owner left or has too many.
    Eager, as in Kafka: all members give up all partitions and get most of them back.
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
    """`StickyPartitionAssignor` for the cooperative protocol: members keep partitions that do not move."""

    name = "cooperative-sticky"
    protocol = "cooperative"


def _kept(
    partitions: Mapping[str, int], members: Mapping[str, Subscriber], order: list[str]
) -> dict[str, list[TopicPartition]]:
    """Return the partitions that members own and may keep; if two members claim one, the first gets it."""
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
    """With equal subscriptions, remove each member's partitions above its share; the largest may keep one more."""
    each, more = divmod(total, len(order))
    for member_id in sorted(order, key=lambda i: -len(given[i])):
        quota = each
        if more and len(given[member_id]) > each:
            quota, more = each + 1, more - 1
        del given[member_id][quota:]


def _hand_out_rest(
    partitions: Mapping[str, int], given: Mapping[str, list[TopicPartition]], takers: Mapping[str, list[str]]
) -> None:
    """Assign free partitions to the members with the fewest, topics with the fewest subscribers first."""
    held = {tp for owned in given.values() for tp in owned}
    for topic in sorted((t for t in partitions if takers[t]), key=lambda t: (len(takers[t]), t)):
        for p in range(partitions[topic]):
            tp = TopicPartition(topic, p)
            if tp not in held:
                given[min(takers[topic], key=lambda i: len(given[i]))].append(tp)


def _even_out(given: Mapping[str, list[TopicPartition]], takers: Mapping[str, list[str]]) -> None:
    """Move single partitions to members that have at least two fewer, until none can move.

    Terminates, because every move reduces the sum of the squares of the numbers.
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
"""Default assignors of kafka-python."""

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
    """Return the assignors of a member, the preferred one first.

    Args:
        strategy: a name, a `PartitionAssignor` class or an instance; or a list of them.

    Raises:
        KafkaConfigurationError: the list is empty, has an unknown name or another type, or two assignors share a name.
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


SHARE_SCHEME: Final = Scheme("share", lambda _partitions, _members: {}, cooperative=True)
"""No member owns partitions: locks of records coordinate the members."""
