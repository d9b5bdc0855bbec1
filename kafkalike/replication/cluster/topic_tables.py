"""Topic tables: create, discard and drop the tables of topics on the roots of a cluster, and place their replicas."""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import topic_creation
from kafkalike.delta.layout import DELETED
from kafkalike.delta.replica_files import application, mark_replica
from kafkalike.delta.table_change import cleaning_turn, turns_of
from kafkalike.log.cluster.root_tables import RootTables
from kafkalike.log.cluster.topic_folders import location_of, put_aside
from kafkalike.model import faults
from kafkalike.model.brokers import ReplicatedTable, first_replicas
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.cluster_state import ClusterState, MetadataRow, replicas_row
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.replication.replica_assignment import assigned, check_assignment, check_factor, late
from kafkalike.replication.cluster.broker_coordination import LONG
from kafkalike.replication.cluster.cluster_storage import ClusterStorage, folder_of
from kafkalike.replication.cluster.controller import FixedController, StaleReadControlLog
from kafkalike.replication.cluster.mirror_store import mirrors_broker
from kafkalike.replication.cluster.root_resolver import is_folder
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.timeouts import calls_of

if TYPE_CHECKING:
    from kafkalike.model.config.server_config import ServerProperties
    from kafkalike.model.replication.registration import Replica
    from kafkalike.model.topic import TopicInfo


class RefusingRootError(errors.KafkaStorageError):
    """A root refuses a new table.

    Args:
        message: the table and the reason.
        broker: the broker that refused, if it was one.
    """

    def __init__(self, message: str, broker: int | None) -> None:
        super().__init__(message)
        self.broker = broker


class ReplicatedTopicTables:
    """Makes and drops the tables of topics. Thread-safe.

    Args:
        store: the roots.
        clock: time and waiting.
        placement: chooses brokers.
        metadata: the cluster's metadata, as this client has read them.
        metadata_on_disk: reads the metadata from scratch.
    """

    def __init__(
        self,
        store: ClusterStorage,
        clock: Clock,
        placement: Placement,
        metadata: StaleReadControlLog[ClusterState, MetadataRow],
        metadata_on_disk: Callable[[], ClusterState],
    ) -> None:
        self._store = store
        self._clock = clock
        self._placement = placement
        self._metadata = metadata
        self._metadata_on_disk = metadata_on_disk

    def location(self, name: TopicName, *, used_before: bool) -> str:
        """Choose a unique folder, because two creators may choose different roots."""
        del used_before
        return location_of(name, used_before=True)

    def place(
        self,
        state: ClusterState,
        location: str,
        partitions: int,
        factor: int,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> ReplicatedTable:
        """Choose the brokers for the table of a new topic; see `Placement.of_topic`."""
        return self._placement.of_topic(state, location, partitions, factor, assignments)

    def create(self, name: TopicName, location: str, placed: ReplicatedTable | None, *, closed: bool) -> TopicId:
        """Make an empty table at the replicas that start in sync.

        Args:
            name: the topic, for the error.
            location: its folder on each root.
            placed: the brokers for its replicas.
            closed: whether the table rejects foreign writers.

        Returns:
            The table's id.

        Raises:
            RefusingRootError: a root refuses it; the table is removed again.
        """
        assert placed is not None
        registration = placed.registration
        replicas = TableReplicas(
            location,
            lambda replica: self._store.root_of(replica.broker).at(location),
            FixedController(registration),
            self._clock,
            lag_ms=0,
        )
        configuration, table_id = registration.configuration, str(uuid.uuid4())
        txns = {application(configuration): configuration.epoch}
        content = topic_creation(table_id, time_ms=self._clock.now_ms(), closed=closed, txns=txns)
        try:
            replicas.put(0, content, durable=True)
        except (OSError, errors.KafkaError) as cause:
            for replica in registration.chain:
                self._discard_folder(replica.broker, location)
            why = f"broker {replicas.refused} does not take it: {cause.__cause__}" if replicas.refused else str(cause)
            raise RefusingRootError(
                f"the table of topic {name!r} cannot be created: {why}", replicas.refused
            ) from cause
        return TopicId(table_id)

    def discard(self, info: TopicInfo) -> None:
        """Remove an unregistered table from the roots that answer."""
        for broker in self._store.alive():
            self._discard_folder(broker, info.location)

    def _discard_folder(self, broker: int, location: str) -> None:
        """Remove an unregistered table; maintenance removes the rest if this fails."""
        root = self._store.root_of(broker)
        if is_folder(root.uri):
            folder = Path(root.uri, location)
            with contextlib.suppress(OSError):
                calls_of(root.uri).call(lambda: shutil.rmtree(folder, ignore_errors=True), LONG)
        else:
            root.at(location).remove(log_name(0), quietly=True)

    def drop(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        """Remove a topic's table.

        Args:
            info: the topic.
            forget: removes the topic from the metadata; called while other writers and log cleaning are excluded.

        Raises:
            KafkaTimeoutError: its queue is not free in time.
        """
        deadline = Deadline(self._clock, 60_000)
        with (
            self._store.coordination.turn(info.location, deadline),
            self._store.coordination.turn(cleaning_turn(info.location), deadline),
        ):
            replicas = self._store.replicas(info.location).members()
            self._mark_deleted(info, replicas)
            forget()
            faults.point("delete.after_forget")
            folders = []
            for replica in replicas:
                root = self._store.root_of(replica.broker)
                if not is_folder(root.uri):
                    continue
                if root.is_there():
                    folder = Path(self._store.replicas(info.location).store_of(replica).uri)
                    folders.append(put_aside(folder, Path(root.uri), info.table_id))
        self._store.forget(info.location)
        self._store.coordination.forget_turns(turns_of(info.location))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _mark_deleted(self, info: TopicInfo, replicas: Sequence[Replica]) -> None:
        """Record the table's location at roots in object stores until maintenance has removed it."""
        for replica in replicas:
            root = self._store.root_of(replica.broker)
            if not is_folder(root.uri):
                # A root that does not answer keeps its files, as an unmounted folder does.
                with contextlib.suppress(OSError):
                    root.replace(f"{DELETED}/{info.table_id}", folder_of(info.location, replica).encode())

    # --- mirrors -------------------------------------------------------------------------------

    def place_mirror(self, state: ClusterState, location: str) -> ReplicatedTable:
        """Choose the broker that holds all mirrors, because a pass stages its files beside their tables."""
        broker = mirrors_broker(state)
        if broker is None:
            broker = self._placement.of_topic(state, location, 1, 1, None).leader
        return first_replicas(location, (broker,))

    def make_mirror(
        self, source: TopicInfo, location: str, first: bytes | None, placed: ReplicatedTable | None
    ) -> TopicId:
        """Make the table of a mirror at its root.

        Raises:
            RefusingRootError: the root refuses it.
        """
        assert placed is not None
        root = self._store.root_of(placed.leader)
        files = root.at(location)
        try:
            mark_replica(files, placed.registration.leader)
            tables = RootTables(root.uri, root, self._clock, self._metadata, self._metadata_on_disk)
            return tables.make(source.name, location, source.table_id, first)
        except (OSError, errors.KafkaStorageError) as cause:
            raise RefusingRootError(
                f"the mirror {source.name!r} cannot be made: broker {placed.leader} does not take it: {cause}",
                placed.leader,
            ) from cause

    def mirror_rows(self, seq: int, info: TopicInfo, placed: ReplicatedTable | None) -> Sequence[MetadataRow]:
        """Return the row that registers a mirror's table."""
        assert placed is not None
        now = self._clock.now_ms()
        return [replicas_row(seq, now, placed, "is a mirror", topic=info.name, topic_id=info.topic_id)]

    def retry_elsewhere(self, create: Callable[[], TopicInfo], *, by_hand: bool = False) -> TopicInfo:
        """Create a topic; if a root refuses its table because it is full or read-only, try other roots.

        Args:
            create: creates it.
            by_hand: whether the caller has chosen the brokers.

        Raises:
            RefusingRootError: too few other roots are left, or the caller has chosen this one; the table is removed
                again.
        """
        refused: dict[int, RefusingRootError] = {}
        while True:
            try:
                with self._placement.passing_over(refused):
                    return create()
            except RefusingRootError as cause:
                if by_hand or cause.broker is None or cause.broker in refused:
                    raise
                refused[cause.broker] = cause
            except errors.InvalidReplicationFactorError:
                if refused:
                    raise next(iter(refused.values())) from None
                raise


CONTROL_FACTOR: Final = "offsets.topic.replication.factor"
"""Server setting: the number of replicas of control tables, if there are enough roots."""


class Placement:
    """Chooses brokers for new tables. Thread-safe.

    Args:
        server: returns the cluster-wide defaults, with the number of replicas.
        is_there: whether a broker's root answers.
    """

    def __init__(self, server: Callable[[], ServerProperties], is_there: Callable[[int], bool]) -> None:
        self._server = server
        self._is_there = is_there
        self._passed_over = threading.local()
        """Brokers that refused the table of the topic that this thread creates."""

    @contextlib.contextmanager
    def passing_over(self, brokers: Collection[int]) -> Iterator[None]:
        """Exclude brokers from this thread's choices inside the block."""
        self._passed_over.brokers = frozenset(brokers)
        try:
            yield
        finally:
            self._passed_over.brokers = frozenset()

    def usable(self, state: ClusterState) -> dict[int, str | None]:
        """Return the racks of the brokers that answer and may get new replicas, by id."""
        return self._looked(state)[0]

    def _looked(self, state: ClusterState) -> tuple[dict[int, str | None], dict[int, str | None]]:
        """Return the racks, by id, of brokers that may get new replicas now, and of others that do not answer."""
        usable, away = dict[int, str | None](), dict[int, str | None]()
        passed_over = getattr(self._passed_over, "brokers", ())
        for broker in state.brokers.values():
            if broker.draining:
                continue
            # Each broker is asked once, so a broker that is coming back is counted once.
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
        """Choose the first replicas of a topic's table.

        Args:
            state: the cluster's state.
            location: the table's folder.
            partitions: the topic's number of partitions.
            factor: the number of replicas; -1: `default.replication.factor`.
            assignments: the brokers of each partition, if the caller assigns them; `factor` is ignored then.

        Raises:
            InvalidReplicationFactorError: too few brokers, no broker that answers, or an invalid factor.
            InvalidReplicationAssignmentError: see `_assigned_by_hand`; or no broker of the assignment answers.
        """
        if assignments:
            usable, away = self._looked(state)
            by_hand = _assigned_by_hand(assignments, partitions, usable | away)
            if set(by_hand) <= set(away):
                raise errors.InvalidReplicationAssignmentError(
                    f"none of the brokers {list(by_hand)} of the assignment gives an answer"
                )
            return first_replicas(location, by_hand, away)
        if factor == 0 or factor < -1:
            raise errors.InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        wanted = int(self._server().get("default.replication.factor")) if factor == -1 else factor
        return self._spread(state, location, wanted)

    def _spread(self, state: ClusterState, location: str, factor: int) -> ReplicatedTable:
        """Choose brokers for a table: first brokers that answer, then others, as in Kafka.

        The broker that leads the fewest tables comes first.
        """
        usable, away = self._looked(state)
        check_factor(factor, len(usable) + len(away))
        if not usable:
            raise errors.InvalidReplicationFactorError(
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
        """Choose the first replicas of a control table: the configured number, or all brokers if there are fewer.

        Raises:
            InvalidReplicationFactorError: no broker answers.
        """
        brokers = sum(not broker.draining for broker in state.brokers.values())
        factor = min(int(self._server().get(CONTROL_FACTOR)), max(brokers, 1))
        return self._spread(state, location, factor)


def _assigned_by_hand(
    assignments: Mapping[int, Sequence[int]], partitions: int, usable: Mapping[int, str | None]
) -> tuple[int, ...]:
    """Return the brokers of a topic whose partitions the caller has assigned.

    Raises:
        InvalidReplicationAssignmentError: as in Kafka, and if partitions differ.
    """
    check_assignment(assignments, usable)
    if len(assignments) != partitions:
        raise errors.InvalidReplicationAssignmentError(
            f"{len(assignments)} partitions were assigned, and the topic is to have {partitions}"
        )
    different = {tuple(brokers) for brokers in assignments.values()}
    if len(different) > 1:
        raise errors.InvalidReplicationAssignmentError(
            "all partitions of a topic are in one table, so they have the same replicas and the same leader; the "
            f"assignment has {len(different)} different ones"
        )
    return next(iter(different))
