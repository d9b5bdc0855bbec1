"""Placement: a topic or a control table in; the brokers that are to have its replicas, the leader first, out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalike.errors import InvalidReplicationAssignmentError, InvalidReplicationFactorError
from kafkalike.model.brokers import ReplicatedTable, first_replicas
from kafkalike.model.replication.replica_assignment import assigned, check_assignment, check_factor, late

if TYPE_CHECKING:
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.config.server_config import ServerProperties

CONTROL_FACTOR: Final = "offsets.topic.replication.factor"
"""Server setting: replicas of control tables, if there are so many roots."""


class Placement:
    """Chooses brokers for new tables. Thread-safe.

    Args:
        server: gives the cluster-wide defaults: how many replicas a table gets.
        is_there: a broker id → whether its root answers.
    """

    def __init__(self, server: Callable[[], ServerProperties], is_there: Callable[[int], bool]) -> None:
        self._server = server
        self._is_there = is_there
        self._passed_over = threading.local()
        """Brokers that did not take the table of the topic that this thread creates."""

    @contextlib.contextmanager
    def passing_over(self, brokers: Collection[int]) -> Iterator[None]:
        """Leave brokers out of what this thread chooses meanwhile."""
        self._passed_over.brokers = frozenset(brokers)
        try:
            yield
        finally:
            self._passed_over.brokers = frozenset()

    def usable(self, state: ClusterState) -> dict[int, str | None]:
        """Racks of the brokers that answer and may get new replicas, by id."""
        return self._looked(state)[0]

    def _looked(self, state: ClusterState) -> tuple[dict[int, str | None], dict[int, str | None]]:
        """The racks, by id, of the brokers that may get new replicas now, and of those that may when they answer."""
        usable, away = dict[int, str | None](), dict[int, str | None]()
        passed_over = getattr(self._passed_over, "brokers", ())
        for broker in state.brokers.values():
            if broker.draining:
                continue
            # Each is asked once: one that is just coming back is in one of the two.
            if not self._is_there(broker.id):
                away[broker.id] = broker.rack
            elif broker.id not in passed_over:
                usable[broker.id] = broker.rack
        return usable, away

    def of_topic(
        self,
        state: ClusterState,
        location: str,
        partitions: int,
        factor: int,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> ReplicatedTable:
        """The first replicas of a topic's table.

        Args:
            state: of the cluster.
            location: the table's folder.
            partitions: how many the topic has.
            factor: how many replicas; -1: `default.replication.factor`.
            assignments: the brokers of each partition, where somebody has said them; then `factor` is not asked.

        Raises:
            InvalidReplicationFactorError: there are too few brokers, none answers, or it makes no sense.
            InvalidReplicationAssignmentError: see `_assigned_by_hand`; or none of the brokers answers.
        """
        if assignments:
            usable, away = self._looked(state)
            by_hand = _assigned_by_hand(assignments, partitions, usable | away)
            if set(by_hand) <= set(away):
                raise InvalidReplicationAssignmentError(
                    f"none of the brokers {list(by_hand)} of the assignment gives an answer"
                )
            return first_replicas(location, by_hand, away)
        if factor == 0 or factor < -1:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        wanted = int(self._server().get("default.replication.factor")) if factor == -1 else factor
        return self._spread(state, location, wanted)

    def _spread(self, state: ClusterState, location: str, factor: int) -> ReplicatedTable:
        """Brokers for a table: those that answer, and where they are too few, others that are away, as in Kafka.

        The one that leads the fewest tables is the first.
        """
        usable, away = self._looked(state)
        check_factor(factor, len(usable) + len(away))
        if not usable:
            raise InvalidReplicationFactorError(
                f"Unable to replicate the partition {factor} time(s): none of the roots gives an answer"
            )
        leads = dict.fromkeys(sorted(usable), 0)
        for table in state.replicas.values():
            if table.assigned[0] in leads:
                leads[table.assigned[0]] += 1
        fewest = min(leads.values())
        now, shift = min(factor, len(usable)), len(state.replicas)
        every = [assigned(usable, 1, now, start=start, shift=shift)[0] for start in range(len(usable))]
        chosen = min((found for found in every if leads[found[0]] == fewest), key=lambda found: found[0])
        return first_replicas(location, chosen + late(usable, away, factor - now), away)

    def of_control(self, state: ClusterState, location: str) -> ReplicatedTable:
        """The first replicas of a control table, as many as are wanted and there are brokers for.

        Raises:
            InvalidReplicationFactorError: no broker answers.
        """
        brokers = sum(not broker.draining for broker in state.brokers.values())
        factor = min(int(self._server().get(CONTROL_FACTOR)), max(brokers, 1))
        return self._spread(state, location, factor)


def _assigned_by_hand(
    assignments: Mapping[int, Sequence[int]], partitions: int, usable: Mapping[int, str | None]
) -> tuple[int, ...]:
    """The brokers of a topic whose partitions were assigned.

    Raises:
        InvalidReplicationAssignmentError: as Kafka; and where partitions differ.
    """
    check_assignment(assignments, usable)
    if len(assignments) != partitions:
        raise InvalidReplicationAssignmentError(
            f"{len(assignments)} partitions were assigned, and the topic is to have {partitions}"
        )
    different = {tuple(brokers) for brokers in assignments.values()}
    if len(different) > 1:
        raise InvalidReplicationAssignmentError(
            "all partitions of a topic are in one table, so they have the same replicas and the same leader; the "
            f"assignment has {len(different)} different ones"
        )
    return next(iter(different))
