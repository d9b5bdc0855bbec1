"""DeltaCluster: a storage root whose topics are Delta tables."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kafkalike.delta.commit_file import topic_creation
from kafkalike.delta.control_log import DeltaControlLog
from kafkalike.delta.group_commit.group_appends import OpenTables
from kafkalike.delta.layout import (
    BROKERS,
    CLAIM,
    CLUSTER_METADATA,
    METADATA_TABLE_PROPERTIES,
    check_root_format,
    grown_error,
    taken_error,
)
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.log_files import LogFiles
from kafkalike.errors import (
    KafkaConfigurationError,
    KafkaError,
    KafkaStorageError,
    MirrorError,
    TopicAlreadyExistsError,
)
from kafkalike.log.cluster.base import ClusterBase
from kafkalike.log.cluster.control_logs import ControlLogs
from kafkalike.log.cluster.enclosing import check_not_enclosed
from kafkalike.log.cluster.root_tables import RootTables
from kafkalike.log.cluster.server_defaults import ServerDefaults, ServerFiles, files_of_root, given
from kafkalike.log.cluster.topic_folders import location_of
from kafkalike.log.port import TopicLog
from kafkalike.model.brokers import ONLY_BROKER
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.config.storage import StorageOptions
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.leases import Leases
from kafkalike.model.metadata_rows import MetadataRow, mirror_row, topic_row
from kafkalike.model.mirrored import Mirrored
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.local import LocalStore
from kafkalike.storage.port import Store
from kafkalike.storage.roots import normalise_root

if TYPE_CHECKING:
    # These are loaded by what needs them: many programs look at the metadata of a local root and go.
    from kafkalike.log.topic.topic_log import DeltaTopicLog
    from kafkalike.log.transactions.transactions import ClusterTransactions
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.config.server import ServerConfig
    from kafkalike.model.schemas.rows import SchemaRow
    from kafkalike.model.schemas.state import RegistryState

LOCAL_TAIL_SECONDS: Final = 0.002
REMOTE_TAIL_SECONDS: Final = 0.25
OBJECTS_TAIL_SECONDS: Final = 0.025
"""Wait between two looks at the tail: a look costs microseconds on a local disk, a request where a root can only be
read. In an object store not each look makes a request: see `Pace`."""

HEARTBEAT_MS: Final = 3000.0
FAR_HEARTBEAT_MS: Final = 10_000.0
"""ms between two heartbeats: Kafka's default, and where each is a put that costs money, less than a third of Kafka's
default session."""

ROOT_SECONDS: Final = 10.0
FAR_ROOT_SECONDS: Final = 600.0
"""Wait between two looks whether the root is there at all; in an object store that is a request as dear as a write."""

PROTOCOL_TIMEOUT_MS: Final = 60_000
"""How long a change of a table's protocol waits for producers that hold the topic, ms."""

JUST_SECONDS: Final = 10.0
"""How long after a look at the metadata the root of an object store counts as being there."""


class DeltaCluster(ClusterBase):
    """A cluster at a storage root.

    Args:
        store: the root's files.
        server: settings that seed the cluster's defaults; those of the root's own file when None.
        clock: time and waiting.
        root: what the cluster is called; the store's URI when None.
    """

    def __init__(
        self,
        store: Store,
        *,
        server: ServerConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        root: str | None = None,
    ) -> None:
        self.store = store
        name, read = store.uri if root is None else root, self._server_files if server is None else given(server)
        defaults = ServerDefaults(name, lambda: self.metadata, clock, read, several=self.several, took=self._took)
        super().__init__(name, defaults, clock)
        far_tail = OBJECTS_TAIL_SECONDS if store.far else REMOTE_TAIL_SECONDS
        self.tail_interval = far_tail if store.reach == "everywhere" else LOCAL_TAIL_SECONDS
        self.heartbeat_ms = FAR_HEARTBEAT_MS if store.far else HEARTBEAT_MS
        self.root_interval = FAR_ROOT_SECONDS if store.far else ROOT_SECONDS
        self._is_root_checked = False
        self.helpers = Helpers()
        self.open_appends = OpenTables()
        self.metadata: DeltaControlLog[ClusterState, MetadataRow] = self._metadata_log()
        self.groups: DeltaControlLog[GroupsState, GroupRow] = self._control.groups_log(
            before_change=self._before_commit
        )

    metadata_properties: Mapping[str, str] = METADATA_TABLE_PROPERTIES
    """Of `__cluster_metadata` when it is made."""
    several = False
    """Whether it may lose a root and live."""

    def _before_commit(self) -> None:
        # A root of a newer format is refused there.
        self.metadata.look_once()
        self.groups.durable = self.server.flush

    def _took(self, server: ServerConfig) -> None:
        """See `ServerDefaults`."""

    def _server_files(self) -> ServerFiles:
        return files_of_root(self.store)

    def _check_format(self, properties: Mapping[str, str]) -> None:
        check_root_format(self.root, properties)

    def _refuse_seal(self) -> None:
        """Refuse a control table that has replicas: this client knows of one root only."""
        raise grown_error(self.root)

    def _check_new_table(self) -> None:
        """Refuse to make a control table at a root of which others have made, or are making, one of several.

        What the root was when it was opened does not count: this client would write past the other roots.

        Raises:
            UnsupportedVersionError: they have.
            KafkaConfigurationError: see `check_root`.
            KafkaStorageError: the root gives no answer.
        """
        try:
            taken = any(self.store.look(name) is not None for name in (BROKERS, CLAIM))
        except OSError as cause:
            raise KafkaStorageError(f"{self.root} cannot be read: {cause}") from cause
        if taken:
            raise taken_error(self.root)
        self.check_root()

    def check_root(self) -> None:
        """Refuse a root without metadata that is a Delta table, or lies in one, or in another cluster's root.

        Raises:
            KafkaConfigurationError: it does.
        """
        if not LogFiles.listed(self.store.at(CLUSTER_METADATA)).commits:
            check_not_enclosed(self.store)
            self._is_root_checked = True

    def _check_root_once(self) -> None:
        if not self._is_root_checked:
            self.check_root()

    def _metadata_log(self) -> DeltaControlLog[ClusterState, MetadataRow]:
        return self._control.metadata_log(before_change=self.defaults.record)

    @cached_property
    def _control(self) -> ControlLogs:
        return ControlLogs(
            self.store,
            self.clock,
            self.helpers,
            check_format=self._check_format,
            on_seal=self._refuse_seal,
            on_missing=self._check_root_once,
            check_new=self._check_new_table,
        )

    @cached_property
    def schemas(self) -> DeltaControlLog[RegistryState, SchemaRow]:
        """Schemas with their subjects, ids, levels and modes."""
        # A root of a newer format is refused there.
        return self._control.schemas_log(before_change=self.metadata.look_once)

    def metadata_on_disk(self) -> ClusterState:
        """The cluster's metadata, read from nothing: before something is removed, what is remembered does not count.

        Raises:
            LogCorruptError: they cannot be read.
        """
        metadata = self._metadata_log()
        state = metadata.refresh()
        metadata.check_sound()
        return state

    @cached_property
    def leases(self) -> Leases:
        """Heartbeats of group members."""
        return self.store.leases()

    @cached_property
    def transactions(self) -> ClusterTransactions:
        """Transactions over several topics and groups."""
        from kafkalike.log.cluster.delta_transactions import transactions_of

        return transactions_of(self, self.store, self.groups.look)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of this cluster writes to the root any more."""
        self.helpers.wait(timeout)
        self.groups.settle(timeout)

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that this process has made of the root's object store; empty for a folder."""
        return self.store.requests

    @property
    def there(self) -> bool:
        """Whether the root holds the table of topics."""
        if self.store.far:
            # Whoever asks wants them next, or has just read them: one list for both.
            with contextlib.suppress(KafkaError):
                self.metadata.look_once()
            if self.metadata.seen_within(JUST_SECONDS):
                return True
        try:
            since = self.metadata.version if self.store.far else 0
            return bool(LogFiles.listed(self.store.at(CLUSTER_METADATA), since).commits)
        except OSError as cause:
            raise KafkaStorageError(f"{self.root} cannot be read: {cause}") from cause

    def places(self) -> Sequence[Store]:
        """The roots that answer, each for itself."""
        return list(self.roots_by_broker().values())

    def roots_by_broker(self) -> Mapping[int, Store]:
        """The same, by broker."""
        return {ONLY_BROKER: self.store}

    def files_of(self, info: TopicInfo) -> Store:
        """Files of a topic's table."""
        return self.store.at(info.location)

    def table_uri(self, info: TopicInfo) -> str:
        """Where Spark finds a topic's table."""
        return self._uri_at(info.location)

    def near_table(self, info: TopicInfo) -> tuple[str, int] | None:
        """Where Spark finds a topic's table at a root in the client's rack, and the version that is published.

        None: there is none but that of `table_uri`.
        """
        del info
        return None

    def first_table_uri(self, name: TopicName) -> str:
        """Where it finds the table of the first topic of a name; later ones lie elsewhere."""
        return self._uri_at(self._location(name, used_before=False))

    def _uri_at(self, location: str) -> str:
        return spark_uri(f"{self.root}/{location}")

    def _location(self, name: TopicName, *, used_before: bool) -> str:
        return location_of(name, used_before=used_before)

    def _create_table(
        self, name: TopicName, location: str, placed: ReplicatedTable | None = None, *, closed: bool = True
    ) -> TopicId:
        del placed
        table_id = str(uuid.uuid4())
        content = topic_creation(table_id, time_ms=self.clock.now_ms(), closed=closed)
        return self._tables.make(name, location, table_id, content)

    def create_mirror(self, source: TopicInfo, mirrored: Mirrored, first: bytes | None) -> TopicInfo:
        """Make a read-only copy of another cluster's topic, whose table has the same id and holds nothing yet.

        Args:
            source: the topic.
            mirrored: how the copy stands.
            first: the first version of its table; None where its log no longer has it.

        Raises:
            TopicAlreadyExistsError: there is a topic of that name.
            MirrorError: files of a deleted topic of the same id are still there.
        """
        made: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            if source.name in state.topics:
                raise TopicAlreadyExistsError(f"topic {source.name!r} already exists")
            self._check_gone(source, state)
            used_before = state.was_used(source.name)
            location = self._location(source.name, used_before=used_before)
            placed = self._place_mirror(state, location)
            table_id = self._make_mirror(source, location, first, placed)
            if table_id != source.table_id:
                raise TopicAlreadyExistsError(f"topic {source.name!r} is being created by somebody else")
            topic_id, origin_id = ids_of_mirror(table_id, used_before=used_before)
            info = replace(
                source, topic_id=topic_id, origin_id=origin_id, location=location, log_starts={}, mirror=mirrored
            )
            made.append(info)
            return [
                topic_row(state.seq + 1, mirrored.time_ms, info, "created"),
                mirror_row(state.seq + 2, info, mirrored, f"made a mirror of {mirrored.source}"),
                *self._placed_rows(state.seq + 3, info, placed),
            ]

        return self._landed(plan, made)

    def _place_mirror(self, state: ClusterState, location: str) -> ReplicatedTable | None:
        """Where the table of a mirror is to be; None: at the one root."""
        del state, location
        return None

    def _make_mirror(
        self, source: TopicInfo, location: str, first: bytes | None, placed: ReplicatedTable | None
    ) -> TopicId:
        """Make it there; the id of the table that is there then."""
        del placed
        return self._tables.make(source.name, location, source.table_id, first)

    def _placed_rows(self, seq: int, info: TopicInfo, placed: ReplicatedTable | None) -> Sequence[MetadataRow]:
        """The row that says where it is."""
        del seq, info, placed
        return ()

    @property
    def mirror_root(self) -> Store:
        """The root where mirrors are, and what their passes stage."""
        return self.store

    def mirror_files(self, info: TopicInfo) -> Store:
        """Files of a mirror's table, at the root where mirrors are; those of another topic, too."""
        return self.files_of(info)

    def adopt_mirror(self, info: TopicInfo) -> None:
        """Make the table of a mirror that is being promoted ready for those who write to topics here. Done once.

        Raises:
            KafkaStorageError, LogCorruptError, OSError: it cannot be now.
        """
        del info

    def _check_gone(self, source: TopicInfo, state: ClusterState) -> None:
        """Refuse an id that was deleted here as long as its files are there: nobody could tell the two apart."""
        last = state.gone.get(source.name)
        if last is None or last.table_id != source.table_id or self.store.reach == "machine":
            return
        if LogFiles.listed(self.store.at(last.location)).commits:
            raise MirrorError(
                f"topic {source.name!r} was deleted here, and its files are still there: run `kafkalike maintain` "
                "until they are gone, then mirror it"
            )

    def _apply_foreign_writes(self, info: TopicInfo) -> None:
        self.log(info.name).apply_foreign_writes(Deadline(self.clock, PROTOCOL_TIMEOUT_MS))

    def _discard_table(self, info: TopicInfo) -> None:
        self._tables.discard(info)

    def _drop_table(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        self._tables.drop(info, forget)

    @cached_property
    def _tables(self) -> RootTables:
        return RootTables(self.root, self.store, self.clock, self.metadata, self.metadata_on_disk)

    def log(self, name: str, *, since: float = math.inf) -> DeltaTopicLog:
        """Open the log of an existing topic.

        Args:
            name: the topic.
            since: see `ControlLog.refresh`.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
        """
        return self._opened(self.topic(name, since=since))

    def _opened(self, info: TopicInfo) -> DeltaTopicLog:
        from kafkalike.log.topic.followed import Home
        from kafkalike.log.topic.topic_log import DeltaTopicLog

        home = Home(
            store=self.store,
            metadata=self.metadata,
            server=self.defaults.in_force,
            helpers=self.helpers,
            clock=self.clock,
            open_appends=self.open_appends,
            schemas=lambda: self.schemas,
            in_sync=self._in_sync,
        )
        log = DeltaTopicLog(home, info)
        log.refresh(metadata=False)
        return log

    def _in_sync(self, info: TopicInfo) -> int:
        """How many replicas of a topic are in sync, as far as is known."""
        table = self.metadata.state.replicas.get(info.location)
        return 1 if table is None else len(table.registration.in_sync)

    def open_ahead(self, names: Iterable[str]) -> Mapping[str, DeltaTopicLog]:
        """Open the logs of several topics side by side."""
        wanted = set(names)
        if len(wanted) <= 1 or not self.store.far:
            return {}
        from kafkalike.log.cluster.ahead import open_ahead

        known = self.topics()
        return open_ahead([known[name] for name in sorted(wanted & known.keys())], self._opened)

    def look_ahead(self, logs: Iterable[TopicLog], *, waiting: bool = False) -> float:
        """Look at the tables of several topics side by side."""
        if not self.store.far:
            # Where a look costs nothing, neither may this.
            return SYSTEM_CLOCK.monotonic()
        from kafkalike.log.cluster.ahead import look_ahead

        return look_ahead(self.store, logs, waiting=waiting)


def ids_of_mirror(table_id: TopicId, *, used_before: bool) -> tuple[TopicId, TopicId | None]:
    """The id of a mirror, and that of its table where it is another one.

    Where the name was used before, transactions and committed offsets of a deleted topic may name the table's id: they
    must not count for this one.
    """
    return (TopicId(str(uuid.uuid4())), table_id) if used_before else (table_id, None)


def spark_uri(uri: str) -> str:
    """A place as Spark calls it: it has S3 under another scheme."""
    return f"s3a{uri[2:]}" if uri.startswith("s3:") else uri


def open_cluster(root: str, storage_options: StorageOptions | None = None) -> DeltaCluster:
    """Open the cluster at a path or URI; nothing is made before the first write.

    Args:
        root: a path or URI.
        storage_options: of an object store; environment variables say what these do not.

    Raises:
        KafkaConfigurationError, UnsafeStorageError: see `normalise_root`, `resolve_options` and `object_root`.
    """
    normalised, local = normalise_root(root)
    if local:
        if storage_options:
            raise KafkaConfigurationError(
                f"storage_options are for object stores, and {root} is a folder of this machine"
            )
        return DeltaCluster(LocalStore(normalised))
    # It brings obstore: 0.1 s, and a runtime with threads that a fork does not survive.
    from kafkalike.storage.objects import open_objects

    objects = open_objects(root, storage_options)
    assert objects is not None, "what is no folder is in an object store"
    return DeltaCluster(objects)
