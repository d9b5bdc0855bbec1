"""Assignment: brokers with their racks in, which of them have the replicas of each partition out; Kafka's rule.

As KIP-36 and Kafka's documentation say it. Without racks the first replicas go round over the brokers, and those that
follow are shifted against them, by one more each time that the first ones have come round. With racks the brokers
alternate between racks in that round, and a partition has no second replica in a rack, or on a broker, while there is
one that has none.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from kafkalike.errors import InvalidReplicationAssignmentError, InvalidReplicationFactorError


def check_factor(factor: int, brokers: int) -> None:
    """Refuse a replication factor that the brokers cannot have, with Kafka's words.

    Raises:
        InvalidReplicationFactorError: it is below 1, or above the number of brokers.
    """
    if factor < 1:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0.")
    if factor > brokers:
        raise InvalidReplicationFactorError(f"Replication factor: {factor} larger than available brokers: {brokers}.")


def assigned(
    brokers: Mapping[int, str | None],
    partitions: int,
    factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Which brokers have the replicas of each partition; the first one of each is the preferred leader.

    Args:
        brokers: the rack by broker id; None for one without.
        partitions: how many partitions there are to be.
        factor: replicas of each.
        start: where in the round to begin, from 0; a random number spreads the leaders of several topics.
        shift: by how much the second replicas are shifted at first, from 0; random too.
        first_partition: number of the first one, above 0 when partitions are added to a topic.

    Returns:
        Broker ids by partition.

    Raises:
        InvalidReplicationFactorError: see `check_factor`.
        InvalidReplicationAssignmentError: some of the brokers have a rack, and not all.
    """
    check_factor(factor, len(brokers))
    racks = {rack for rack in brokers.values() if rack is not None}
    if racks and None in brokers.values():
        without = sorted(broker for broker, rack in brokers.items() if rack is None)
        raise InvalidReplicationAssignmentError(
            f"Not all brokers have rack information for replica rack aware assignment: brokers {without} lack it."
        )
    ordered = alternated(brokers)
    found = []
    for number in range(first_partition, first_partition + partitions):
        turns = shift + number // len(ordered) - max(first_partition - 1, 0) // len(ordered)
        first = (number + start) % len(ordered)
        chosen = [ordered[first]]
        if racks:
            rest = _followers(ordered, first, turns * len(racks))
            while len(chosen) < factor:
                broker = next(rest)
                if _is_next(broker, chosen, brokers, len(racks)):
                    chosen.append(broker)
        else:
            rest = _followers(ordered, first, turns)
            chosen += [next(rest) for _ in range(factor - 1)]
        found.append(tuple(chosen))
    return found


def _followers(ordered: Sequence[int], first: int, shift: int) -> Iterator[int]:
    """The brokers after the first one, round and round, beginning `shift` further on; never the first one."""
    others = len(ordered) - 1
    at = shift
    while True:
        yield ordered[(first + 1 + at % others) % len(ordered)]
        at += 1


def _is_next(broker: int, chosen: Sequence[int], racks: Mapping[int, str | None], count: int) -> bool:
    """Whether a broker is new, and in a new rack unless all racks have a replica."""
    taken = {racks[other] for other in chosen}
    return broker not in chosen and (racks[broker] not in taken or len(taken) == count)


def late(there: Mapping[int, str | None], away: Mapping[int, str | None], count: int) -> tuple[int, ...]:
    """Which brokers that give no answer are to have a replica as soon as they do, as too few others are there.

    Args:
        there: the rack by broker id of those that answer, who all have a replica; None for one without.
        away: the same of those that do not.
        count: how many are wanted, at most as many as are away.

    Returns:
        Their ids, each in a rack that has no replica yet while there is one; the first ones by id.

    >>> late({1: "a"}, {2: "a", 3: "b", 4: "b"}, 2)
    (3, 2)
    """
    racks, chosen = {**there, **away}, list[int]()
    while len(chosen) < count:
        taken = {racks[broker] for broker in (*there, *chosen)}
        chosen.append(min(away.keys() - set(chosen), key=lambda broker: (racks[broker] in taken, broker)))
    return tuple(chosen)


def alternated(racks: Mapping[int, str | None]) -> list[int]:
    """Brokers in an order in which racks alternate: the first one of each rack by name, then the second ones, and on.

    Without racks that is the order of their ids.

    >>> alternated({0: "a", 1: "b", 2: "c", 3: "b", 4: "c", 5: "a"})
    [0, 1, 2, 5, 3, 4]
    """
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items()):
        by_rack.setdefault(rack or "", []).append(broker)
    rounds = zip_longest(*(members for _, members in sorted(by_rack.items(), key=operator.itemgetter(0))))
    return [broker for members in rounds for broker in members if broker is not None]


def check_assignment(assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, object]) -> None:
    """Refuse an assignment given by hand that Kafka refuses, with its words.

    Args:
        assignment: broker ids by partition.
        brokers: all of the cluster, by id.

    Raises:
        InvalidReplicationAssignmentError: partitions that do not begin at 0 or leave one out, an empty list, lists of
            different lengths, a broker twice, or one that does not exist.
    """
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise InvalidReplicationAssignmentError("partitions should be a consecutive 0-based integer sequence")
    factor = len(assignment[0])
    for partition, replicas in sorted(assignment.items()):
        where = f"partition {partition} has replicas {list(replicas)}"
        if not replicas:
            raise InvalidReplicationAssignmentError(f"{where}: at least one is needed")
        if len(set(replicas)) < len(replicas):
            raise InvalidReplicationAssignmentError(f"Duplicate brokers not allowed in replica assignment: {where}")
        if len(replicas) != factor:
            raise InvalidReplicationAssignmentError(
                f"{where}, others have {factor}: all partitions need the same number of replicas"
            )
        unknown = [broker for broker in replicas if broker not in brokers]
        if unknown:
            raise InvalidReplicationAssignmentError(f"{where}: there is no broker {unknown[0]}")
