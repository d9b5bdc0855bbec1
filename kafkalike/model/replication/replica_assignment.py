"""Replica assignment: choose the brokers of each partition's replicas by Kafka's rule.

The rule is that of KIP-36 and Kafka's documentation. Without racks the first replicas rotate over the brokers, and the
others are shifted against them, by one more after each rotation. With racks the brokers alternate between racks in that
rotation, and a partition gets a second replica in a rack, or on a broker, only if each has one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from kafkalike.errors import InvalidReplicationAssignmentError, InvalidReplicationFactorError


def check_factor(factor: int, brokers: int) -> None:
    """Reject a replication factor that the brokers cannot have, with Kafka's messages.

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
    """Return the brokers of each partition's replicas; the first broker of each is the preferred leader.

    Args:
        brokers: rack by broker id; None for a broker without a rack.
        partitions: number of partitions.
        factor: replicas of each partition.
        start: start of the rotation, from 0; a random number spreads the leaders of several topics.
        shift: initial shift of the second replicas, from 0; also random.
        first_partition: number of the first partition, above 0 when partitions are added to a topic.

    Returns:
        Broker ids by partition.

    Raises:
        InvalidReplicationFactorError: see `check_factor`.
        InvalidReplicationAssignmentError: only some of the brokers have a rack.
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
    """Yield the brokers after the first one in endless rotation, starting `shift` further on; never the first one."""
    others = len(ordered) - 1
    at = shift
    while True:
        yield ordered[(first + 1 + at % others) % len(ordered)]
        at += 1


def _is_next(broker: int, chosen: Sequence[int], racks: Mapping[int, str | None], count: int) -> bool:
    """Return whether a broker is new, and in a new rack unless all racks have a replica."""
    taken = {racks[other] for other in chosen}
    return broker not in chosen and (racks[broker] not in taken or len(taken) == count)


def late(there: Mapping[int, str | None], away: Mapping[int, str | None], count: int) -> tuple[int, ...]:
    """Choose brokers that do not answer to get a replica when they return, because too few others answer.

    Args:
        there: rack by broker id of the answering brokers, which all have a replica; None for a broker without a rack.
        away: the same for the other brokers.
        count: number of brokers to choose, at most the number of `away`.

    Returns:
        Their ids, each in a rack without a replica while there is one; lowest ids first.

    >>> late({1: "a"}, {2: "a", 3: "b", 4: "b"}, 2)
    (3, 2)
    """
    racks, chosen = {**there, **away}, list[int]()
    while len(chosen) < count:
        taken = {racks[broker] for broker in (*there, *chosen)}
        chosen.append(min(away.keys() - set(chosen), key=lambda broker: (racks[broker] in taken, broker)))
    return tuple(chosen)


def alternated(racks: Mapping[int, str | None]) -> list[int]:
    """Order brokers so that racks alternate: the first broker of each rack by name, then the second ones, and so on.

    Without racks the order is that of their ids.

    >>> alternated({0: "a", 1: "b", 2: "c", 3: "b", 4: "c", 5: "a"})
    [0, 1, 2, 5, 3, 4]
    """
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items()):
        by_rack.setdefault(rack or "", []).append(broker)
    rounds = zip_longest(*(members for _, members in sorted(by_rack.items(), key=operator.itemgetter(0))))
    return [broker for members in rounds for broker in members if broker is not None]


def check_assignment(assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, object]) -> None:
    """Reject a manual assignment that Kafka rejects, with its messages.

    Args:
        assignment: broker ids by partition.
        brokers: all brokers of the cluster, by id.

    Raises:
        InvalidReplicationAssignmentError: partitions that do not start at 0 or are not consecutive, an empty list,
            lists of different lengths, a duplicate broker, or an unknown one.
    """
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        raise InvalidReplicationAssignmentError("partitions should be a consecutive 0-based integer sequence")
    factor = len(assignment[0])
    for partition, replicas in sorted(assignment.items()):
        where = f"partition {partition} has replicas {list(replicas)}"
        if not replicas:
            raise InvalidReplicationAssignmentError(f"{where}: at least one broker is required")
        if len(set(replicas)) < len(replicas):
            raise InvalidReplicationAssignmentError(f"Duplicate brokers not allowed in replica assignment: {where}")
        if len(replicas) != factor:
            raise InvalidReplicationAssignmentError(
                f"{where}, others have {factor}: all partitions need the same number of replicas"
            )
        unknown = [broker for broker in replicas if broker not in brokers]
        if unknown:
            raise InvalidReplicationAssignmentError(f"{where}: broker {unknown[0]} does not exist")
