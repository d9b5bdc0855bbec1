"""ReplicatedCluster: several storage roots whose topics are Delta tables, each on one or more of them."""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.errors import (
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    KafkaConnectionError,
    KafkaError,
    KafkaStorageError,
    MirrorError,
)
from kafkalike.log.cluster.delta_cluster import DeltaCluster, spark_uri, turns_of
from kafkalike.log.cluster.replicated.broker_store import BrokerRoot, Founding
from kafkalike.log.cluster.replicated.brokers import Brokers
from kafkalike.log.cluster.replicated.controller import FixedController, MetadataController, Place
from kafkalike.log.cluster.replicated.founding import found_cluster
from kafkalike.log.cluster.replicated.home import BrokerHome
from kafkalike.log.cluster.replicated.metadata import PatientControlLog
from kafkalike.log.cluster.replicated.places import Places, is_folder, rack_of, settings_of
from kafkalike.log.cluster.replicated.roots import SeveralRoots, folder_of
from kafkalike.log.cluster.replicated.voters import first_voters, metadata_root
from kafkalike.log.cluster.topic_folders import location_of, put_aside
from kafkalike.log.store.bounded.calls import calls_of
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.commit_file import creation
from kafkalike.log.table.control_log import DeltaControlLog
from kafkalike.log.table.layout import (
    CONTROL_TABLES,
    DELETED,
    METADATA_TABLE_PROPERTIES,
    TOPIC_SCHEMA,
    TOPIC_TABLE_PROPERTIES,
)
from kafkalike.log.table.log_cleaner import cleaning_turn
from kafkalike.log.table.replicas.table_replicas import TableReplicas
from kafkalike.log.table.replicas.version_file import application
from kafkalike.log.table.root_format import check_root_format
from kafkalike.model.brokers import Broker, ReplicatedTable, first_replicas
from kafkalike.model.cluster_state import ClusterState, LogStartsMoved, MetadataRow, broker_row
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.replication.assignment import assigned, check_assignment, check_factor

if TYPE_CHECKING:
    from kafkalike.config.server import ServerConfig
    from kafkalike.config.storage import StorageOptions
    from kafkalike.log.store.port import Store
    from kafkalike.model.replication.values import Replica
    from kafkalike.model.topic import TopicInfo

CONTROL_FACTOR: Final = "offsets.topic.replication.factor"
"""Server setting: replicas of control tables, if there are so many roots."""

LONGEST_NAME: Final = 220
"""Characters of a topic's name that its folder's name takes: file systems allow 255 bytes."""


class RefusingRootError(KafkaStorageError):
    """A root does not take a new table.

    Args:
        message: which one, and why.
        broker: whose root it is, if one is to blame.
    """

    def __init__(self, message: str, broker: int | None) -> None:
        super().__init__(message)
        self.broker = broker


class ReplicatedCluster(DeltaCluster):
    """A cluster at several roots.

    Args:
        roots: by broker id; the first one has the metadata.
        founding: whether the cluster was made.
        places: opens roots.
        reopen: the roots' URIs, joined by commas, and what their storages need → their store, in another process.
        server: server defaults; those of the first root's own file that is there when None.
        clock: time and waiting.
        client_rack: where data files are read first: at a root of this rack that is in sync; empty: at the leader.
    """

    store: SeveralRoots
    metadata: PatientControlLog[ClusterState, MetadataRow]

    def __init__(
        self,
        roots: Mapping[int, str],
        founding: Founding,
        *,
        places: Places,
        reopen: Callable[[str, StorageOptions | None], Store],
        server: ServerConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        client_rack: str = "",
    ) -> None:
        self._roots = dict(roots)
        self._client_rack = client_rack
        self._reopen = reopen
        self._founding = founding
        self._found_mutex = threading.RLock()
        self._founded = False
        self._places = places
        self._passed_over = threading.local()
        """Brokers that did not take the table of the topic that this thread creates."""
        stores = {broker: places.broker(root, founding) for broker, root in roots.items()}
        folders = (s for _, s in sorted(stores.items()) if is_folder(s.uri) and s.is_there())
        first = next(folders, None)
        settings = settings_of(first.uri if first else None) if server is None else server
        if not founding.done:
            founding.voters = first_voters(roots, settings.get("controller.quorum.voters"))
        lag_ms = int(settings.get("replica.lag.time.max.ms"))
        for root in filter(is_folder, roots.values()):
            calls_of(root).allow(lag_ms)
        several = SeveralRoots(
            stores,
            metadata_root(stores, lambda uri: places.broker(uri, founding), clock),
            clock=clock,
            lag_ms=lag_ms,
            controller_of=self._controller_of,
            opened=self._open_root,
            is_out=self._is_out,
            reopen=reopen,
            to_send=places.to_send,
            is_near=self._is_near if client_rack else None,
        )
        root = ",".join(root for _, root in sorted(roots.items()))
        super().__init__(several, server=settings, clock=clock, root=root)

    def in_rack(self, client_rack: str) -> ReplicatedCluster:
        """The same cluster for a client that is in a rack: it reads data files at a root there that is in sync.

        What is published is what the leader shows, whoever is asked for files.

        Args:
            client_rack: its name, as brokers have it; empty: the leader is asked.
        """
        if client_rack == self._client_rack:
            return self
        return ReplicatedCluster(
            self._roots,
            self._founding,
            places=self._places,
            reopen=self._reopen,
            server=self.server,
            clock=self.clock,
            client_rack=client_rack,
        )

    def _is_near(self, broker: int) -> bool:
        known = self.metadata.state.brokers.get(broker)
        return known is not None and known.rack == self._client_rack

    def _check_format(self, properties: Mapping[str, str]) -> None:
        check_root_format(self.root, properties, several=True)

    def _refuse_seal(self) -> None:
        """Nothing is refused."""

    def _metadata_log(self) -> DeltaControlLog[ClusterState, MetadataRow]:
        return PatientControlLog(
            self._metadata_rows(),
            helpers=self.helpers,
            properties=METADATA_TABLE_PROPERTIES,
            before_change=self._found,
        )

    def _controller_of(self, location: str) -> MetadataController:
        place: Place | None = self._place_control if location in CONTROL_TABLES else None
        return MetadataController(self.metadata, location, self.clock, place)

    def _open_root(self, broker: int) -> BrokerRoot:
        known = self.metadata.state.brokers.get(broker)
        if known is None:
            known = self.metadata.refresh().brokers.get(broker)
        if known is None:
            message = f"there is no broker {broker} any more"
            raise KafkaStorageError(message)
        return self._places.broker(known.uri, self._founding)

    def _found(self) -> None:
        """Make the cluster, unless it is. Caller: before the first change of its metadata."""
        if not self._founded:
            with self._found_mutex:
                self._found_once()

    def _found_once(self) -> None:
        if self._founded:
            return
        if self._founding.growing:
            return
        if not self._founding.done:
            self._founding.cluster = found_cluster(self._places, self._roots, self._founding.voters)
            self._founding.done = True
        self._founded = True
        try:
            # Whoever has signed the roots may have been killed before this.
            self.metadata.transact(self._first_brokers)
        except BaseException:
            self._founded = False
            raise

    def _first_brokers(self, state: ClusterState) -> Sequence[MetadataRow]:
        if state.last_broker:
            return []
        now = self.clock.now_ms()
        return [
            broker_row(state.seq + at, now, Broker(id=broker, uri=root, rack=rack_of(root)), "added")
            for at, (broker, root) in enumerate(sorted(self._roots.items()), start=1)
        ]

    # --- brokers -------------------------------------------------------------------------------

    @cached_property
    def replication(self) -> Brokers:
        """Brokers and replicas."""
        return Brokers(self.home)

    @property
    def home(self) -> BrokerHome:
        """What those who work for its brokers and replicas need of it."""
        return BrokerHome(
            root=self.root,
            store=self.store,
            places=self._places,
            metadata=self.metadata,
            server=self.server,
            clock=self.clock,
            usable=self.usable,
            controller_of=self._controller_of,
        )

    def usable(self, state: ClusterState) -> dict[int, str | None]:
        """Racks of the brokers that answer and may get new replicas, by id."""
        return {
            broker.id: broker.rack
            for broker in state.brokers.values()
            if not broker.draining
            and broker.id not in getattr(self._passed_over, "brokers", ())
            and self.store.root_of(broker.id).is_there()
        }

    def create_topic(
        self,
        name: str,
        num_partitions: int,
        configs: Mapping[str, str],
        *,
        validate_only: bool = False,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        begins: LogStartsMoved | None = None,
    ) -> TopicInfo:
        """Create a topic. A root that does not take its table, as it is full or read-only, is passed over for others.

        Raises:
            RefusingRootError: there are too few others, or it was named; nothing is left of the table.
        """
        refused: dict[int, RefusingRootError] = {}
        while True:
            self._passed_over.brokers = frozenset(refused)
            try:
                return super().create_topic(
                    name,
                    num_partitions,
                    configs,
                    validate_only=validate_only,
                    replication_factor=replication_factor,
                    assignments=assignments,
                    begins=begins,
                )
            except RefusingRootError as cause:
                if assignments or cause.broker is None or cause.broker in refused:
                    raise
                refused[cause.broker] = cause
            except InvalidReplicationFactorError:
                if refused:
                    raise next(iter(refused.values())) from None
                raise
            finally:
                self._passed_over.brokers = frozenset()

    def _is_out(self, broker: int) -> bool:
        """Whether a broker is out of sync with some table that it shall have, as far as is known."""
        tables = self.metadata.state.replicas.values()
        return any(broker in table.assigned and broker not in table.isr for table in tables)

    def _place(
        self, state: ClusterState, partitions: int, factor: int, assignments: Mapping[int, Sequence[int]] | None
    ) -> tuple[int, ...]:
        usable = self.usable(state)
        if assignments:
            return _assigned_by_hand(assignments, partitions, usable)
        if factor == 0 or factor < -1:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        wanted = int(self.server.get("default.replication.factor")) if factor == -1 else factor
        return self._spread(state, usable, wanted)

    def _spread(self, state: ClusterState, usable: Mapping[int, str | None], factor: int) -> tuple[int, ...]:
        """Brokers for a table; the one that leads the fewest tables is the first."""
        check_factor(factor, len(usable))
        leads = dict.fromkeys(sorted(usable), 0)
        for table in state.replicas.values():
            if table.assigned[0] in leads:
                leads[table.assigned[0]] += 1
        fewest = min(leads.values())
        every = [assigned(usable, 1, factor, start=start, shift=len(state.replicas))[0] for start in range(len(usable))]
        return min((found for found in every if leads[found[0]] == fewest), key=lambda found: found[0])

    def _place_control(self, state: ClusterState, location: str) -> ReplicatedTable:
        usable = self.usable(state)
        factor = min(int(self.server.get(CONTROL_FACTOR)), len(state.brokers))
        return first_replicas(location, self._spread(state, usable, factor))

    # --- tables --------------------------------------------------------------------------------

    @property
    def there(self) -> bool:
        """Whether some root answers, and the cluster was made."""
        return bool(self.store.alive()) and bool(self.metadata.refresh().seq)

    def places(self) -> Sequence[Store]:
        """The roots that answer, each for itself."""
        return [self.store.roots[broker] for broker in self.store.alive()]

    def check_there(self) -> None:
        """Refuse a cluster none of whose roots is there.

        Raises:
            KafkaConnectionError: none is.
        """
        if not self._founding.done or not self.store.alive():
            message = f"none of the roots {self.root} is there"
            raise KafkaConnectionError(message)

    def table_uri(self, info: TopicInfo) -> str:
        """Where Spark finds a topic's table: at its leader."""
        return spark_uri(self.files_of(info).uri)

    def near_table(self, info: TopicInfo) -> tuple[str, int] | None:
        """See `DeltaCluster.near_table`: of a replica in sync, which has all that is published, and maybe more."""
        if not self._client_rack:
            return None
        # Before the look at who is in sync: that one has this version.
        version = self.log(info.name).version
        self.metadata.refresh()
        replicas = self.store.replicas(info.location)
        leader, *others = replicas.in_sync()
        if self._is_near(leader.broker):
            return None
        for replica in others:
            if self._is_near(replica.broker) and self.store.root_of(replica.broker).is_there():
                return spark_uri(replicas.store_of(replica).uri), version
        return None

    def _location(self, name: TopicName, *, used_before: bool) -> str:
        # Two creators may choose different roots: no two of them ever choose one folder.
        del used_before
        return location_of(TopicName(name[:LONGEST_NAME]), used_before=True)

    def _create_table(self, name: TopicName, location: str, placed: tuple[int, ...] | None = None) -> TopicId:
        assert placed is not None
        registration = first_replicas(location, placed).registration
        replicas = TableReplicas(
            location,
            lambda replica: self.store.root_of(replica.broker).at(location),
            FixedController(registration),
            self.clock,
            lag_ms=0,
        )
        configuration, table_id = registration.configuration, str(uuid.uuid4())
        content = creation(
            table_id,
            TOPIC_SCHEMA,
            partition_by=["partition"],
            properties=TOPIC_TABLE_PROPERTIES,
            time_ms=self.clock.now_ms(),
            txns={application(configuration): configuration.epoch},
        )
        try:
            replicas.put(0, content, durable=True)
        except (OSError, KafkaError) as cause:
            for replica in registration.chain:
                self._discard_folder(replica.broker, location)
            why = f"broker {replicas.refused} does not take it: {cause.__cause__}" if replicas.refused else str(cause)
            message = f"the table of topic {name!r} cannot be created: {why}"
            raise RefusingRootError(message, replicas.refused) from cause
        return TopicId(table_id)

    def check_may_mirror(self) -> None:
        """Refused: replicas write of themselves into the log."""
        message = (
            f"{self.root} has several roots: what they write into a table's log about its replicas would take versions "
            "that belong to the source; mirror to a cluster of one root"
        )
        raise MirrorError(message)

    def _discard_table(self, info: TopicInfo) -> None:
        for broker in self.store.alive():
            self._discard_folder(broker, info.location)

    def _discard_folder(self, broker: int, location: str) -> None:
        """Remove a table that nobody has registered; what cannot be removed now, maintenance removes."""
        root = self.store.root_of(broker)
        if is_folder(root.uri):
            folder = Path(root.uri, location)
            with contextlib.suppress(OSError):
                root.bounded(lambda: shutil.rmtree(folder, ignore_errors=True), long=True)
        else:
            root.at(location).discard(log_name(0))

    def _drop_table(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        deadline = Deadline(self.clock, 60_000)
        with self.store.turn(info.location, deadline), self.store.turn(cleaning_turn(info.location), deadline):
            replicas = self.store.replicas(info.location).members()
            self._mark_deleted(info, replicas)
            forget()
            faults.point("delete.after_forget")
            folders = []
            for replica in replicas:
                root = self.store.root_of(replica.broker)
                if not is_folder(root.uri):
                    continue
                if root.is_there():
                    folder = Path(self.store.replicas(info.location).store_of(replica).uri)
                    folders.append(put_aside(folder, Path(root.uri), info.topic_id))
        self.store.forget(info.location)
        self.store.forget_turns(turns_of(info.location))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _mark_deleted(self, info: TopicInfo, replicas: Sequence[Replica]) -> None:
        """Say at roots in object stores where the table is for as long as it takes maintenance to remove it."""
        for replica in replicas:
            root = self.store.root_of(replica.broker)
            if not is_folder(root.uri):
                # One that gives no answer keeps the files, as a folder that is away does.
                with contextlib.suppress(OSError):
                    root.replace(f"{DELETED}/{info.topic_id}", folder_of(info.location, replica).encode())


def _assigned_by_hand(
    assignments: Mapping[int, Sequence[int]], partitions: int, usable: Mapping[int, str | None]
) -> tuple[int, ...]:
    """The brokers of a topic whose partitions were assigned.

    Raises:
        InvalidReplicationAssignmentError: as Kafka; and where partitions differ.
    """
    check_assignment(assignments, usable)
    if len(assignments) != partitions:
        message = f"{len(assignments)} partitions were assigned, and the topic is to have {partitions}"
        raise InvalidReplicationAssignmentError(message)
    different = {tuple(brokers) for brokers in assignments.values()}
    if len(different) > 1:
        message = (
            "all partitions of a topic are in one table, so they have the same replicas and the same leader; the "
            f"assignment has {len(different)} different ones"
        )
        raise InvalidReplicationAssignmentError(message)
    return next(iter(different))
