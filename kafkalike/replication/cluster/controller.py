"""Controller: `__cluster_metadata` as the registry of replicas, changed by compare-and-set, and its voters.

While the controller does not answer, readers continue with the metadata they have, and changes are refused.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalike.delta.control_log import ControlLog
from kafkalike.delta.layout import CLUSTER_METADATA
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.row_table import RowTable
from kafkalike.errors import KafkaConfigurationError, KafkaStorageError, UnknownTopicOrPartitionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow, replicas_row
from kafkalike.model.replication.registers import UnreachableVoterError
from kafkalike.model.replication.takeover import OpenVoter, PutMark, VoterSet
from kafkalike.model.row_value import ControlState
from kafkalike.replication.cluster.broker_storage import BrokerStorage
from kafkalike.replication.tables.quorum_storage import QuorumStorage
from kafkalike.replication.tables.voter_files import Voter
from kafkalike.replication.tables.voter_roots import VoterRoots
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.replication.registration import Registration


Place = Callable[[ClusterState, str], "ReplicatedTable"]
"""Chooses the brokers for a control table that is about to be created."""


class FixedController:
    """The registration of a table during its creation; it cannot change.

    Args:
        registration: the registration.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration

    def known(self) -> Registration:
        """Return the fixed registration."""
        return self._registration

    registered = look = found = known

    def change(self, before: Registration, after: Registration) -> bool:
        """Raise `KafkaStorageError`: the registration is fixed."""
        del before, after
        raise KafkaStorageError("the replicas of a table cannot change during its creation")


class MetadataController:
    """The registration of one table in the metadata.

    Args:
        metadata: the rows.
        location: the table's folder.
        clock: time.
        place: chooses the brokers of a control table; None for a topic's table, which is registered with the topic.
    """

    def __init__(
        self, metadata: StaleReadControlLog[ClusterState, MetadataRow], location: str, clock: Clock, place: Place | None
    ) -> None:
        self._metadata = metadata
        self._location = location
        self._clock = clock
        self._place = place

    def known(self) -> Registration | None:
        """Return the registration that was read last, without a request."""
        return self._of(self._metadata.state)

    def registered(self) -> Registration | None:
        """Return the registration, or the last known one if the controller does not answer."""
        return self._of(self._metadata.refresh())

    def _of(self, state: ClusterState) -> Registration | None:
        found = state.replicas.get(self._location)
        return None if found is None else found.registration

    def look(self) -> Registration:
        """Read the current registration.

        Raises:
            KafkaStorageError: the controller does not answer.
            UnknownTopicOrPartitionError: the table does not exist.
        """
        found = self._of(self._metadata.refresh_strictly())
        if found is None:
            raise UnknownTopicOrPartitionError(f"{self._location} does not exist any more")
        return found

    def change(self, before: Registration, after: Registration) -> bool:
        """Change the registration if it still equals `before`; return whether it did."""
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
        """Register a control table, unless it is registered."""
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
    """Return whether the change gives up no replica of an assigned broker."""
    known = table.registration.renamed
    return not any(replica.broker in table.assigned for replica in after.renamed if replica not in known)


def registered_row(
    state: ClusterState, now_ms: int, table: ReplicatedTable, after: Registration, change: str
) -> MetadataRow:
    """Return the row that changes the registration of a table."""
    changed = table.registered(after)
    name, topic_id = owner(state, table.location)
    return replicas_row(state.seq + 1, now_ms, changed, change, topic=name, topic_id=topic_id)


def owner(state: ClusterState, location: str) -> tuple[str, str]:
    """Return the name and id of the topic whose table is in a folder; for a control table its name and no id."""
    for info in state.topics.values():
        if info.location == location:
            return info.name, info.topic_id
    return location, ""


def describe(before: Registration, after: Registration) -> str:
    """Describe the change, for people."""
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


S = TypeVar("S", bound=ControlState)
R = TypeVar("R")

_log = logging.getLogger(__name__)

WARN_SECONDS = 30.0


class StaleReadControlLog(ControlLog[S, R]):
    """A control log whose root may be unreachable: readers then use the rows they have, and changes are refused.

    Args:
        table: see `ControlLog`.
        helpers: see `ControlLog`.
        properties: see `ControlLog`.
        before_change: see `ControlLog`.
        before_look: called before each look; may raise to refuse it.
    """

    _warned = -math.inf

    def __init__(
        self,
        table: RowTable[S, R],
        *,
        helpers: Helpers,
        properties: Mapping[str, str],
        before_change: Callable[[], bool | None],
        before_look: Callable[[], object],
    ) -> None:
        super().__init__(table, helpers=helpers, properties=properties, before_change=before_change)
        self._before_look = before_look

    def refresh(self, *, waiting: bool = False, since: float = math.inf, surely: bool = False) -> S:
        """Apply rows that other clients added, if the root answers."""
        self._before_look()
        try:
            return super().refresh(waiting=waiting, since=since, surely=surely)
        except KafkaStorageError as cause:
            if not self._table.loaded:
                raise
            now = SYSTEM_CLOCK.monotonic()
            if now - self._warned > WARN_SECONDS:
                self._warned = now
                _log.warning("the controller does not answer; using the metadata that were read before: %s", cause)
            return self._rows.state

    def refresh_strictly(self) -> S:
        """Apply rows that other clients added.

        Raises:
            KafkaStorageError: the root does not answer.
        """
        self._before_look()
        return super().refresh()


FEWEST: Final = 3
"""Minimum number of roots for several voters; two voters could not lose any voter."""


class Voters:
    """The voters that hold `__cluster_metadata`.

    Args:
        table: the metadata table.
    """

    def __init__(self, table: QuorumStorage) -> None:
        self.table = table

    @property
    def brokers(self) -> Collection[int]:
        """The brokers that vote."""
        voters = self.table.voters.now
        return () if voters is None else [voter.broker for voter in voters.voters]

    def replace_roots(self, roots: Mapping[int, BrokerStorage]) -> None:
        """Use other broker ids. Caller: nothing was read by the previous ones."""
        self.table.voters.replace_folders({broker: root.at(CLUSTER_METADATA) for broker, root in roots.items()})

    def at(self, folder: str) -> Storage:
        """Return the storage of the metadata folder, or of a folder below it."""
        below = folder.partition("/")[2]
        return self.table.at(below) if below else self.table


def first_voters(roots: Collection[int], wanted: str) -> tuple[int, ...]:
    """Return the voters of a new cluster.

    Args:
        roots: broker ids.
        wanted: `controller.quorum.voters`, or empty.

    Raises:
        KafkaConfigurationError: the setting names unknown brokers.
    """
    named = tuple(int(broker) for broker in wanted.split(",") if broker)
    strangers = sorted(set(named) - set(roots))
    if strangers:
        known = ", ".join(map(str, sorted(roots)))
        raise KafkaConfigurationError(f"controller.quorum.voters names broker {strangers[0]}, and there are {known}")
    return named or tuple(sorted(roots)[: FEWEST if len(roots) >= FEWEST else 1])


def metadata_root(
    roots: Mapping[int, BrokerStorage], broker_at: Callable[[str], BrokerStorage], clock: Clock
) -> Voters:
    """Return the voters of a cluster's metadata.

    Args:
        roots: the roots, by broker id.
        broker_at: opens another root, by its URI.
        clock: time and waiting.
    """

    def opened(voter: Voter) -> Storage:
        return broker_at(voter.uri).at(CLUSTER_METADATA)

    folders = {broker: root.at(CLUSTER_METADATA) for broker, root in roots.items()}
    return Voters(QuorumStorage(folders, opened, clock))


def found_voter(root: Storage, broker: int, where: Mapping[int, str], voters: Collection[int]) -> None:
    """Make a root of a new cluster a voter or an observer.

    Args:
        root: the root.
        broker: its broker id.
        where: the URIs of all roots, by broker id.
        voters: broker ids of the voters.

    Raises:
        OSError: the root does not accept it.
        KafkaConfigurationError: the root belongs to another set of voters.
    """
    named = [Voter(number, f"0.{number}", uri) for number, uri in sorted(where.items())]
    votes = tuple(voter for voter in named if voter.broker in voters)
    others = tuple(voter for voter in named if voter.broker not in voters)
    first = VoterSet(0, votes, others)
    mine = next(voter for voter in named if voter.broker == broker)
    acts = VoterRoots(lambda _: root.at(CLUSTER_METADATA), SYSTEM_CLOCK)
    try:
        found = acts.do(PutMark(mine, first))
        if found != first:
            raise KafkaConfigurationError(f"the root {root.uri} is a voter of {', '.join(v.uri for v in found.voters)}")
        if mine in votes:
            # Its creation must succeed even if it is slow.
            acts.forgive()
            acts.do(OpenVoter(mine, 0))
    except UnreachableVoterError as cause:
        raise OSError(str(cause)) from cause
