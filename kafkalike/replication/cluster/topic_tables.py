"""ReplicatedTopicTables: the tables of topics on the roots of a cluster: made at all replicas, discarded, dropped."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import topic_creation
from kafkalike.delta.layout import DELETED
from kafkalike.delta.replica_files import application, mark_replica
from kafkalike.delta.table_change import cleaning_turn, turns_of
from kafkalike.errors import InvalidReplicationFactorError, KafkaError, KafkaStorageError
from kafkalike.log.cluster.root_tables import RootTables
from kafkalike.log.cluster.topic_folders import location_of, put_aside
from kafkalike.model import faults
from kafkalike.model.brokers import first_replicas
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.metadata_rows import replicas_row
from kafkalike.model.names import TopicId, TopicName
from kafkalike.replication.cluster.broker_storage import LONG
from kafkalike.replication.cluster.cluster_storage import ClusterStorage, folder_of
from kafkalike.replication.cluster.controller import FixedController
from kafkalike.replication.cluster.mirror_store import mirrors_broker
from kafkalike.replication.cluster.root_resolver import is_folder
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.timeouts import calls_of

if TYPE_CHECKING:
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.metadata_rows import MetadataRow
    from kafkalike.model.replication.registration import Replica
    from kafkalike.model.topic import TopicInfo
    from kafkalike.replication.cluster.controller import StaleReadControlLog
    from kafkalike.replication.cluster.placement import Placement


class RefusingRootError(KafkaStorageError):
    """A root does not take a new table.

    Args:
        message: which one, and why.
        broker: whose root it is, if one is to blame.
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
        metadata: of the cluster, as this client remembers them.
        metadata_on_disk: reads them from nothing.
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
        """Choose a folder that nobody else ever chooses, as two creators may choose different roots."""
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
        """Make an empty table at those of its replicas that begin in sync.

        Args:
            name: of the topic, for the error.
            location: its folder on each root.
            placed: the brokers that are to have it.
            closed: whether foreign writers are to refuse it.

        Returns:
            Its id.

        Raises:
            RefusingRootError: a root does not take it; nothing is left of it.
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
        except (OSError, KafkaError) as cause:
            for replica in registration.chain:
                self._discard_folder(replica.broker, location)
            why = f"broker {replicas.refused} does not take it: {cause.__cause__}" if replicas.refused else str(cause)
            raise RefusingRootError(
                f"the table of topic {name!r} cannot be created: {why}", replicas.refused
            ) from cause
        return TopicId(table_id)

    def discard(self, info: TopicInfo) -> None:
        """Remove a table that nobody has registered, from the roots that answer."""
        for broker in self._store.alive():
            self._discard_folder(broker, info.location)

    def _discard_folder(self, broker: int, location: str) -> None:
        """Remove a table that nobody has registered; what cannot be removed now, maintenance removes."""
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
            info: of the topic.
            forget: takes the topic out of the metadata; called while nobody else writes it or cleans its log up.

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
        """Say at roots in object stores where the table is for as long as it takes maintenance to remove it."""
        for replica in replicas:
            root = self._store.root_of(replica.broker)
            if not is_folder(root.uri):
                # One that gives no answer keeps the files, as a folder that is away does.
                with contextlib.suppress(OSError):
                    root.replace(f"{DELETED}/{info.table_id}", folder_of(info.location, replica).encode())

    # --- mirrors -------------------------------------------------------------------------------

    def place_mirror(self, state: ClusterState, location: str) -> ReplicatedTable:
        """Choose the broker that has all mirrors: what a pass stages lies beside its tables."""
        broker = mirrors_broker(state)
        if broker is None:
            broker = self._placement.of_topic(state, location, 1, 1, None).leader
        return first_replicas(location, (broker,))

    def make_mirror(
        self, source: TopicInfo, location: str, first: bytes | None, placed: ReplicatedTable | None
    ) -> TopicId:
        """Make the table of a mirror at its root.

        Raises:
            RefusingRootError: the root does not take it.
        """
        assert placed is not None
        root = self._store.root_of(placed.leader)
        files = root.at(location)
        try:
            mark_replica(files, placed.registration.leader)
            tables = RootTables(root.uri, root, self._clock, self._metadata, self._metadata_on_disk)
            return tables.make(source.name, location, source.table_id, first)
        except (OSError, KafkaStorageError) as cause:
            raise RefusingRootError(
                f"the mirror {source.name!r} cannot be made: broker {placed.leader} does not take it: {cause}",
                placed.leader,
            ) from cause

    def mirror_rows(self, seq: int, info: TopicInfo, placed: ReplicatedTable | None) -> Sequence[MetadataRow]:
        """Return the row that says where a mirror's table is."""
        assert placed is not None
        now = self._clock.now_ms()
        return [replicas_row(seq, now, placed, "is a mirror", topic=info.name, topic_id=info.topic_id)]

    def retry_elsewhere(self, create: Callable[[], TopicInfo], *, by_hand: bool = False) -> TopicInfo:
        """Create a topic. A root that does not take its table, as it is full or read-only, is passed over for others.

        Args:
            create: creates it.
            by_hand: whether the caller has chosen the brokers.

        Raises:
            RefusingRootError: there are too few others, or the caller has chosen it; nothing is left of the table.
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
            except InvalidReplicationFactorError:
                if refused:
                    raise next(iter(refused.values())) from None
                raise
