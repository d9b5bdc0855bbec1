"""Controller: what `__cluster_metadata` has registered of one table, changed by the compare-and-set that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkalike.errors import KafkaStorageError, UnknownTopicOrPartitionError
from kafkalike.model.clock import Clock
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.metadata_rows import MetadataRow, replicas_row

if TYPE_CHECKING:
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.replication.values import Registration
    from kafkalike.replication.cluster.metadata import PatientControlLog

Place = Callable[[ClusterState, str], "ReplicatedTable"]
"""Says who shall have a control table that is to be made."""


class FixedController:
    """What is to be registered of a table that is being made; nobody can change it before it is.

    Args:
        registration: is to be registered.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration

    def known(self) -> Registration:
        """See `TableController`."""
        return self._registration

    registered = look = found = known

    def change(self, before: Registration, after: Registration) -> bool:
        """It is not."""
        del before, after
        raise KafkaStorageError("a table that is being made cannot change its replicas")


class MetadataController:
    """What is registered of one table.

    Args:
        metadata: the rows.
        location: the table's folder.
        clock: time.
        place: says who shall have it, where it is a control table; None for a topic's, which is registered with it.
    """

    def __init__(
        self, metadata: PatientControlLog[ClusterState, MetadataRow], location: str, clock: Clock, place: Place | None
    ) -> None:
        self._metadata = metadata
        self._location = location
        self._clock = clock
        self._place = place

    def known(self) -> Registration | None:
        """What was registered as of the last look; asks nobody."""
        return self._of(self._metadata.state)

    def registered(self) -> Registration | None:
        """What is registered, or was where the controller gives no answer."""
        return self._of(self._metadata.refresh())

    def _of(self, state: ClusterState) -> Registration | None:
        found = state.replicas.get(self._location)
        return None if found is None else found.registration

    def look(self) -> Registration:
        """What is registered now.

        Raises:
            KafkaStorageError: the controller gives no answer.
            UnknownTopicOrPartitionError: the table is gone.
        """
        found = self._of(self._metadata.refresh_strictly())
        if found is None:
            raise UnknownTopicOrPartitionError(f"{self._location} does not exist any more")
        return found

    def change(self, before: Registration, after: Registration) -> bool:
        """Change it, if it is still what was seen."""
        made: list[bool] = []

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            found = state.replicas.get(self._location)
            made[:] = [found is not None and found.registration == before and _may_change(found, after)]
            if found is None or not made[0]:
                return []
            return [registered_row(state, self._clock.now_ms(), found, after, describe(before, after))]

        self._metadata.transact(plan)
        return made[0]

    def found(self) -> Registration:
        """Register a control table, unless it is."""
        if self._place is None:
            raise UnknownTopicOrPartitionError(f"{self._location} does not exist any more")
        place = self._place

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            if self._location in state.replicas:
                return []
            table = place(state, self._location)
            return [replicas_row(state.seq + 1, self._clock.now_ms(), table, "created", topic=self._location)]

        self._metadata.transact(plan)
        return self.look()


def _may_change(table: ReplicatedTable, after: Registration) -> bool:
    """Whether nobody is given up who is to have a replica."""
    known = table.registration.renamed
    return not any(replica.broker in table.assigned for replica in after.renamed if replica not in known)


def registered_row(
    state: ClusterState, now_ms: int, table: ReplicatedTable, after: Registration, change: str
) -> MetadataRow:
    """The row that registers something else of a table."""
    changed = table.registered(after)
    name, topic_id = owner(state, table.location)
    return replicas_row(state.seq + 1, now_ms, changed, change, topic=name, topic_id=topic_id)


def owner(state: ClusterState, location: str) -> tuple[str, str]:
    """Name and id of the topic whose table lies in a folder; of a control table its name, and no id."""
    for info in state.topics.values():
        if info.location == location:
            return info.name, info.topic_id
    return location, ""


def describe(before: Registration, after: Registration) -> str:
    """What has changed, for people."""
    gone = sorted({r.broker for r in before.chain} - {r.broker for r in after.chain})
    new = sorted({r.broker for r in after.chain} - {r.broker for r in before.chain})
    words = [f"broker {broker} out" for broker in gone] + [f"broker {broker} joins" for broker in new]
    if before.joining is not None and after.joining is None and not gone:
        words.append(f"broker {before.joining.broker} in sync")
    if before.leader.broker != after.leader.broker:
        words.append(f"broker {after.leader.broker} leads")
    if len(after.losses) > len(before.losses):
        words.append("unclean election")
    return ", ".join(words) or f"epoch {after.epoch}"
