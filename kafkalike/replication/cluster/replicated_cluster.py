"""Replicated cluster: several storage roots whose topics are Delta tables, each with replicas on one or more roots."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kafkalike.delta import layout
from kafkalike.errors import InvalidConfigurationError, KafkaConnectionError, KafkaStorageError
from kafkalike.log.cluster.cluster import Cluster, spark_uri
from kafkalike.log.cluster.server_defaults import ServerFiles, environments_file
from kafkalike.model.brokers import LEADER, Broker, ReadFrom
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow, broker_row
from kafkalike.model.concurrency import OnError
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.replication.cluster.broker_storage import BrokerStorage
from kafkalike.replication.cluster.brokers import Brokers
from kafkalike.replication.cluster.cluster_storage import ClusterStorage
from kafkalike.replication.cluster.controller import (
    MetadataController,
    Place,
    StaleReadControlLog,
    first_voters,
    metadata_root,
)
from kafkalike.replication.cluster.epoch_marker import configuration_in, seal_table
from kafkalike.replication.cluster.format_storage import find_cluster, found_cluster
from kafkalike.replication.cluster.mirror_store import mirror_at, mirrors_broker
from kafkalike.replication.cluster.replica_manager import BrokerContext
from kafkalike.replication.cluster.root_resolver import RootResolver, is_folder
from kafkalike.replication.cluster.root_sign import Founding, Sign
from kafkalike.replication.cluster.topic_tables import Placement, ReplicatedTopicTables
from kafkalike.storage.timeouts import calls_of

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.model.config.storage_options import StorageOptions
    from kafkalike.model.topic import TopicInfo
    from kafkalike.storage.port import Storage

LAG: Final = "replica.lag.time.max.ms"
"""Server setting: how long a root may fail to answer before its replicas count as out of sync."""


class ReplicatedCluster(Cluster):
    """A cluster at several roots.

    Args:
        roots: the roots, by broker id; the first one has the metadata.
        founding: whether the cluster was made.
        places: opens roots.
        reopen: opens the cluster's storage in another process, from URIs joined by commas and their options.
        server: settings that seed the cluster's defaults; None: those in the roots' own files.
        clock: time and waiting.
        read_from: the replicas to read data files from.
    """

    store: ClusterStorage
    metadata: StaleReadControlLog[ClusterState, MetadataRow]
    metadata_properties = layout.METADATA_TABLE_PROPERTIES | {layout.ROOT_FORMAT: layout.SEVERAL_ROOTS}
    several = True

    def __init__(
        self,
        roots: Mapping[int, str],
        founding: Founding,
        *,
        places: RootResolver,
        reopen: Callable[[str, StorageOptions | None], Storage],
        server: ServerProperties | None = None,
        clock: Clock = SYSTEM_CLOCK,
        read_from: ReadFrom = LEADER,
    ) -> None:
        self._roots = dict(roots)
        self._read_from = read_from
        self._reopen = reopen
        self._founding = founding
        self._found_mutex = threading.RLock()
        self._adopt_mutex = threading.Lock()
        self._founded = False
        self._adopted = founding.done
        """True once `roots` are the roots of the finished cluster."""
        self._places = places
        stores = {broker: places.broker(root, founding) for broker, root in roots.items()}
        self._given = server
        settings = self._first_settings()
        lag_ms = int(settings.get(LAG))
        if not founding.done:
            self._choose_voters(settings)
        for root in filter(is_folder, roots.values()):
            calls_of(root).set_lag(lag_ms)
        several = ClusterStorage(
            stores,
            metadata_root(stores, lambda uri: places.broker(uri, founding), clock),
            clock=clock,
            lag_ms=lag_ms,
            controller_of=self._controller_of,
            opened=self._open_root,
            is_out=self._is_out,
            reopen=reopen,
            to_send=places.to_send,
            is_near=self._is_near if read_from.rack else None,
            striped=read_from.striped,
            known=lambda: self.metadata.state,
            refreshed=self._refreshed,
        )
        self._placement = Placement(lambda: self.server, lambda broker: several.root_of(broker).is_there())
        root = ",".join(root for _, root in sorted(roots.items()))
        super().__init__(several, server=server, clock=clock, root=root)

    def _server_files(self) -> ServerFiles:
        """Return the server files at all roots; a root that is missing or hangs is listed as silent."""
        known = {broker.id: broker.uri for broker in self.metadata.state.brokers.values()}
        found: dict[str, ServerProperties] = {}
        silent: list[str] = []
        for broker, uri in sorted((known or self._roots).items()):
            try:
                own = self._places.server_file(uri)
                if not own:
                    # After the search for its file, because a missing root has no files either.
                    self.store.root_of(broker).check_there()
                found.update(own)
            except (OSError, KafkaStorageError):
                silent.append(uri)
        return ServerFiles(found=found or environments_file(), silent=silent)

    def _first_settings(self) -> ServerProperties:
        """Return the settings until the metadata are read; reject a bad file before a cluster is made of it.

        The files of an existing cluster are checked later, when a default is needed, together with the metadata.
        """
        try:
            return self._settings_of_folders()
        except InvalidConfigurationError:
            if not self._founding.done:
                raise
            return ServerProperties()

    def _settings_of_folders(self) -> ServerProperties:
        """Return the settings in the files at folders that answer, which cost nothing to read."""
        if self._given is not None:
            return self._given
        found: dict[str, ServerProperties] = {}
        for uri in filter(is_folder, self._roots.values()):
            with contextlib.suppress(OSError):
                found.update(self._places.server_file(uri))
        return ServerFiles(found=found or environments_file()).merged()

    def _choose_voters(self, settings: ServerProperties) -> None:
        self._founding.voters = first_voters(self._roots, settings.get("controller.quorum.voters"))

    def _took(self, server: ServerProperties) -> None:
        self.store.wait_for(int(server.get(LAG)))

    def reading(self, read_from: ReadFrom) -> ReplicatedCluster:
        """Return the same cluster for a client with another choice of replicas to read from.

        The leader alone publishes versions, whichever replica serves the files.
        """
        if read_from == self._read_from:
            return self
        return ReplicatedCluster(
            self._roots,
            self._founding,
            places=self._places,
            reopen=self._reopen,
            server=self._given,
            clock=self.clock,
            read_from=read_from,
        )

    def _refreshed(self) -> ClusterState:
        return self.metadata.refresh()

    def _is_near(self, broker: int) -> bool:
        known = self.metadata.state.brokers.get(broker)
        return known is not None and known.rack == self._read_from.rack

    def _check_format(self, properties: Mapping[str, str]) -> None:
        layout.check_root_format(self.root, properties, several=True)

    def _refuse_seal(self) -> None:
        """Do nothing: a seal does not concern clients of several roots."""

    def _check_new_table(self) -> None:
        """Do nothing: the roots are signed before the first table is made."""

    def _metadata_log(self) -> ControlLog[ClusterState, MetadataRow]:
        return StaleReadControlLog(
            self._control.metadata_rows(),
            helpers=self.helpers,
            properties=self.metadata_properties,
            before_change=self._found,
            before_look=self._look_again,
        )

    def _controller_of(self, location: str) -> MetadataController:
        place: Place | None = self._placement.of_control if location in layout.CONTROL_TABLES else None
        return MetadataController(self.metadata, location, self.clock, place)

    def _open_root(self, broker: int) -> BrokerStorage:
        known = self.metadata.state.brokers.get(broker)
        if known is None:
            known = self.metadata.refresh().brokers.get(broker)
        if known is None:
            raise KafkaStorageError(f"broker {broker} does not exist anymore")
        return self._places.broker(known.uri, self._founding)

    def _found(self) -> None:
        """Make the cluster, unless it exists. Caller: before the first change of its metadata."""
        if not self._founded:
            with self._found_mutex:
                self._found_once()
        self.defaults.record()

    def _found_once(self) -> None:
        if self._founded:
            return
        if self._founding.growing:
            return
        self._look_again()
        if not self._founding.done:
            files = self._server_files().merged() if self._given is None else self._given
            self._choose_voters(files)
            made = found_cluster(self._places, self._roots, self._founding.voters)
            with self._adopt_mutex:
                self._adopt(made)
        self._founded = True
        with OnError(self._found_again):
            # The client that signed the roots may have been killed before this.
            self.metadata.transact(self._first_brokers)

    def _found_again(self) -> None:
        self._founded = False

    def _look_again(self) -> None:
        """Adopt the cluster that another client has made of the roots since they were opened.

        A root without a sign at that time may still be in use, because the first root may have been lost since.

        Raises:
            KafkaConfigurationError: the roots do not belong to one cluster anymore.
        """
        if self._adopted or self._founding.growing:
            return
        with self._adopt_mutex:
            found = find_cluster(self._places, [root for _, root in sorted(self._roots.items())])
            if found is not None and found.done:
                self._adopt(found.sign)

    def _adopt(self, made: Sign) -> None:
        """Use the broker ids of the existing cluster. Caller: holds the mutex, and has read no table yet.

        Each step precedes the flag that it is done, so an interrupted call can be repeated.
        """
        if dict(made.roots) != self._roots:
            self.store.replace_roots({b: self._places.broker(uri, self._founding) for b, uri in made.roots.items()})
            self._roots = dict(made.roots)
        self._founding.cluster, self._founding.voters = made.cluster, made.voters
        self._founding.done = True
        self._adopted = True

    def _first_brokers(self, state: ClusterState) -> Sequence[MetadataRow]:
        if state.last_broker:
            return []
        now = self.clock.now_ms()
        rows = [
            broker_row(state.seq + at, now, Broker(id=broker, uri=root, rack=self._places.rack_of(root)), "added")
            for at, (broker, root) in enumerate(sorted(self._roots.items()), start=1)
        ]
        return [*rows, *self.defaults.first_rows(state, after=len(rows), founding=True)]

    # --- brokers -------------------------------------------------------------------------------

    @cached_property
    def replication(self) -> Brokers:
        """The brokers and replicas of the cluster."""
        return Brokers(self.home)

    @property
    def home(self) -> BrokerContext:
        """The parts that its brokers and replicas work with."""
        return BrokerContext(
            root=self.root,
            store=self.store,
            places=self._places,
            metadata=self.metadata,
            defaults=self.defaults,
            clock=self.clock,
            usable=self._placement.usable,
            controller_of=self._controller_of,
        )

    def _is_out(self, broker: int) -> bool:
        """Return whether a broker is known to be out of sync with an assigned table."""
        tables = self.metadata.state.replicas.values()
        return any(broker in table.assigned and broker not in table.isr for table in tables)

    # --- tables --------------------------------------------------------------------------------

    @property
    def there(self) -> bool:
        """True if a root answers and the cluster exists."""
        return bool(self.store.alive()) and bool(self.metadata.refresh().seq)

    def roots_by_broker(self) -> Mapping[int, Storage]:
        """Return the roots that answer, by broker id."""
        return {broker: self.store.roots[broker] for broker in self.store.alive()}

    def check_there(self) -> None:
        """Raise unless the cluster has a reachable root.

        Raises:
            KafkaConnectionError: no root is there.
        """
        if not self._founding.done or not self.store.alive():
            raise KafkaConnectionError(
                f"no cluster answers at {self.root}: check bootstrap_servers, and that the roots are mounted"
            )

    def table_uri(self, info: TopicInfo) -> str:
        """Return the location of a topic's table at its leader, for Spark."""
        return spark_uri(self.files_of(info).uri)

    def near_table(self, info: TopicInfo) -> tuple[str, int] | None:
        """Return a near replica in sync and a version that it has; see `Cluster.near_table`."""
        if not self._read_from.rack:
            return None
        # Before reading which replicas are in sync, so that they have this version.
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

    @cached_property
    def _tables(self) -> ReplicatedTopicTables:
        return ReplicatedTopicTables(self.store, self.clock, self._placement, self.metadata, self.metadata_on_disk)

    # --- mirrors -------------------------------------------------------------------------------

    @property
    def mirror_root(self) -> Storage:
        """The root that holds mirrors; any root if there are none."""
        broker = mirrors_broker(self.metadata.state)
        return self.store.first() if broker is None else self.store.root_of(broker)

    def mirror_files(self, info: TopicInfo) -> Storage:
        """Return the files of a mirror's table, at the root that holds mirrors."""
        state = self.metadata.state
        table = state.replicas.get(info.location)
        if mirror_at(state, info.location) is None or table is None:
            return self.files_of(info)
        return self.store.root_of(table.leader).at(info.location)

    def adopt_mirror(self, info: TopicInfo) -> None:
        """Make the table of a mirror under promotion a table with one replica."""
        controller = self._controller_of(info.location)
        while True:
            registered = controller.look()
            if mirror_at(self.metadata.state, info.location) is None:
                # Another promotion has finished.
                return
            files = self.mirror_files(info)
            # The source may have had replicas, whose epochs are in the table.
            known = configuration_in(files, info.location)
            if known is None or known.epoch < registered.epoch or known == registered.configuration:
                break
            controller.change(registered, registered._replace(epoch=known.epoch + 1))
        seal_table(files, info.location, registered.configuration, self.clock)
