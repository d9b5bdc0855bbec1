"""Cluster: a storage root with its topics, settings, groups and transactions; each topic is a Delta table."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.delta.group_commit.staging_area import OpenTables
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
    KafkaConnectionError,
    KafkaError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.control_logs import ControlLogs, GroupsLog, MetadataLog, SchemasLog
from kafkalike.log.cluster.root_tables import RootTables
from kafkalike.log.cluster.server_defaults import ServerDefaults, ServerFiles, files_of_root, given
from kafkalike.log.cluster.topic_changes import TopicChanges, TopicTables
from kafkalike.log.cluster.topic_folders import check_not_enclosed, location_of
from kafkalike.model.brokers import ONLY_BROKER
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, LogStartsMoved
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.model.config.topic_config import TOPIC_PROPERTIES
from kafkalike.model.groups.roster import Leases
from kafkalike.model.mirror import Mirrored
from kafkalike.model.names import TopicName, check_topic_name
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage
from kafkalike.storage.root_uri import normalise_root

if TYPE_CHECKING:
    # These are loaded by what needs them: many programs look at the metadata of a local root and go.
    from kafkalike.log.cluster.single_broker import Replication
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.transactions import Transactions
    from kafkalike.model.brokers import AddRoot, ReadFrom
    from kafkalike.model.config.server_config import ServerProperties

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

JUST_SECONDS: Final = 10.0
"""How long after a look at the metadata the root of an object store counts as being there."""


def request_metrics(requests: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What a client's metrics say of `Cluster.requests`: `{group: {name: number}}`; empty where none count."""
    return {"object-store-metrics": {f"{kind}-total": count for kind, count in requests.items()}} if requests else {}


class Cluster:
    """A storage root with its topics, settings and consumer offsets. Thread-safe.

    Args:
        store: the root's files.
        server: settings that seed the cluster's defaults; those of the root's own file when None.
        clock: time and waiting.
        root: what the cluster is called; the store's URI when None.
        add_root: gives the cluster another root; after that it must be opened anew. None where that is not possible.
    """

    def __init__(
        self,
        store: Storage,
        *,
        server: ServerProperties | None = None,
        clock: Clock = SYSTEM_CLOCK,
        root: str | None = None,
        add_root: AddRoot | None = None,
    ) -> None:
        self.store = store
        name, read = store.uri if root is None else root, self._server_files if server is None else given(server)
        self.root = name
        """What `bootstrap_servers` named, normalised."""
        self.clock = clock
        self._add_root = add_root
        self.defaults = ServerDefaults(name, lambda: self.metadata, clock, read, several=self.several, took=self._took)
        far_tail = OBJECTS_TAIL_SECONDS if store.scheduler.is_remote else REMOTE_TAIL_SECONDS
        self.tail_interval = far_tail if store.coordination.reach == "everywhere" else LOCAL_TAIL_SECONDS
        """Seconds a waiting reader should let pass between two looks at the log's tail."""
        self.heartbeat_ms = FAR_HEARTBEAT_MS if store.scheduler.is_remote else HEARTBEAT_MS
        """Time between two heartbeats, ms, of a group's member whose user does not say it."""
        self.root_interval = FAR_ROOT_SECONDS if store.scheduler.is_remote else ROOT_SECONDS
        """Seconds a reader should let pass between two looks whether the root is there at all."""
        self._is_root_checked = False
        self.helpers = Helpers()
        self.open_appends = OpenTables()
        self.metadata: MetadataLog = self._metadata_log()
        """The topics."""
        self.groups: GroupsLog = self._control.groups_log(before_change=self._before_commit)
        """Committed offsets and group membership."""

    metadata_properties: Mapping[str, str] = METADATA_TABLE_PROPERTIES
    """Of `__cluster_metadata` when it is made."""
    several = False
    """Whether it may lose a root and live."""

    def _before_commit(self) -> None:
        # A root of a newer format is refused there.
        self.metadata.look_once()
        self.groups.durable = self.server.flush

    def _took(self, server: ServerProperties) -> None:
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

    def _metadata_log(self) -> MetadataLog:
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
    def schemas(self) -> SchemasLog:
        """Schemas with their subjects, ids, levels and modes; see `kafkalike.schemas.Registry`."""
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
        return self.store.coordination.leases()

    @cached_property
    def transactions(self) -> Transactions:
        """Transactions over several topics and groups."""
        from kafkalike.log.transactions.effect_runner import TransactionContext
        from kafkalike.log.transactions.transaction_files import Staging
        from kafkalike.log.transactions.transactions import Transactions

        staging = Staging(self.store)
        return Transactions(TransactionContext(cluster=self, staging=staging))

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of this process writes to the root on behalf of calls that are over.

        Args:
            timeout: seconds; None without end.
        """
        self.helpers.wait(timeout)
        self.groups.settle(timeout)

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that this process has made of the root's object store, by kind, such as `get`; else empty."""
        return self.store.scheduler.requests

    @property
    def there(self) -> bool:
        """Whether the root holds the table of topics, looked at now; False for a root that was never written to.

        Raises:
            KafkaStorageError: the storage refused.
        """
        if self.store.scheduler.is_remote:
            # Whoever asks wants them next, or has just read them: one list for both.
            with contextlib.suppress(KafkaError):
                self.metadata.look_once()
            if self.metadata.seen_within(JUST_SECONDS):
                return True
        try:
            since = self.metadata.version if self.store.scheduler.is_remote else 0
            return bool(LogFiles.listed(self.store.at(CLUSTER_METADATA), since).commits)
        except OSError as cause:
            raise KafkaStorageError(f"{self.root} cannot be read: {cause}") from cause

    def check_there(self) -> None:
        """Refuse a folder that is not there: never made, or gone since the cluster was opened.

        Raises:
            KafkaConnectionError: it does not exist, or its tables are gone.
        """
        if not Path(self.root).is_dir():
            raise KafkaConnectionError(f"the root {self.root} does not exist")
        if self.metadata.state.seq and not is_root(self.root):
            raise KafkaConnectionError(f"the tables of {self.root} are gone; is it still mounted?")

    def reading(self, read_from: ReadFrom) -> Cluster:
        """Return the same cluster for a client that says where data files are read: here at the one root there is."""
        del read_from
        return self

    def places(self) -> Sequence[Storage]:
        """The roots that answer, each for itself."""
        return list(self.roots_by_broker().values())

    def roots_by_broker(self) -> Mapping[int, Storage]:
        """The same, by broker."""
        return {ONLY_BROKER: self.store}

    def files_of(self, info: TopicInfo) -> Storage:
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
        return self._uri_at(location_of(name, used_before=False))

    def _uri_at(self, location: str) -> str:
        return spark_uri(f"{self.root}/{location}")

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
        return self._changes.create_mirror(source, mirrored, first)

    @property
    def mirror_root(self) -> Storage:
        """The root where mirrors are, and what their passes stage."""
        return self.store

    def mirror_files(self, info: TopicInfo) -> Storage:
        """Files of a mirror's table, at the root where mirrors are; those of another topic, too."""
        return self.files_of(info)

    def adopt_mirror(self, info: TopicInfo) -> None:
        """Make the table of a mirror that is being promoted ready for those who write to topics here. Done once.

        Raises:
            KafkaStorageError, LogCorruptError, OSError: it cannot be now.
        """
        del info

    @cached_property
    def _tables(self) -> TopicTables:
        return RootTables(self.root, self.store, self.clock, self.metadata, self.metadata_on_disk)

    @cached_property
    def _changes(self) -> TopicChanges:
        return TopicChanges(
            metadata=self.metadata,
            server=self.defaults.in_force,
            tables=self._tables,
            store=self.store,
            log=self.log,
            clock=self.clock,
        )

    def log(self, name: str, *, since: float = math.inf) -> TopicLog:
        """Open the log of an existing topic.

        Args:
            name: the topic.
            since: see `ControlLog.refresh`.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
        """
        return self.open(self.topic(name, since=since))

    def open(self, info: TopicInfo) -> TopicLog:
        """Open the log of a topic whose metadata were just looked at."""
        from kafkalike.log.topic.tailed_topic import TopicContext
        from kafkalike.log.topic.topic_log import TopicLog

        home = TopicContext(
            store=self.store,
            metadata=self.metadata,
            server=self.defaults.in_force,
            helpers=self.helpers,
            clock=self.clock,
            open_appends=self.open_appends,
            schemas=lambda: self.schemas,
            in_sync=self._in_sync,
        )
        log = TopicLog(home, info)
        log.refresh(metadata=False)
        return log

    def _in_sync(self, info: TopicInfo) -> int:
        """How many replicas of a topic are in sync, as far as is known."""
        table = self.metadata.state.replicas.get(info.location)
        return 1 if table is None else len(table.registration.in_sync)

    def open_ahead(self, names: Iterable[str]) -> Mapping[str, TopicLog]:
        """Open the logs of several topics side by side, where that saves time.

        Returns:
            Those that were opened, by topic; `log` opens the others, or says why it cannot.
        """
        wanted = set(names)
        if len(wanted) <= 1 or not self.store.scheduler.is_remote:
            return {}
        from kafkalike.log.topic.tailed_topic import open_ahead

        known = self.topics()
        return open_ahead([known[name] for name in sorted(wanted & known.keys())], self.open)

    def look_ahead(self, logs: Iterable[TopicLog], *, waiting: bool = False) -> float:
        """Look at the tables of several topics side by side, where that saves time.

        Args:
            logs: opened by this cluster.
            waiting: see `TopicLog.refresh`.

        Returns:
            The `since` with which `TopicLog.refresh` takes what was seen.
        """
        if not self.store.scheduler.is_remote:
            # Where a look costs nothing, neither may this.
            return SYSTEM_CLOCK.monotonic()
        from kafkalike.log.topic.tailed_topic import look_ahead

        return look_ahead(self.store, logs, waiting=waiting)

    @property
    def server(self) -> ServerProperties:
        """Cluster-wide defaults, as of the last look at the metadata; the first call looks.

        Raises:
            InvalidConfigurationError: a `server.properties` differs from them, or cannot be read.
            KafkaStorageError: the metadata cannot be read; or nothing has recorded the defaults, and a root that may
                have a file with them gives no answer.
        """
        return self.defaults.in_force()

    def edit_defaults(
        self, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace the cluster-wide defaults by what `edit` makes of them, checked; see `edit_configs`."""
        self.defaults.edit(edit, validate_only=validate_only)

    @cached_property
    def replication(self) -> Replication:
        """Brokers and replicas."""
        from kafkalike.log.cluster.single_broker import SingleBroker

        return SingleBroker(self.root, self.topics, self.topic, lambda: self.metadata.refresh().seq, self._add_root)

    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics by name, fresh."""
        return dict(self.metadata.refresh().topics)

    def topic(self, name: str, *, since: float = math.inf) -> TopicInfo:
        """One topic, fresh.

        Raises:
            InvalidTopicError, UnknownTopicOrPartitionError: no such name, no such topic.
        """
        return self.metadata.refresh(since=since).require(check_topic_name(name))

    def ensure_topic(self, name: str) -> TopicInfo:
        """The topic, created with the server's defaults when it is missing and `auto.create.topics.enable` allows."""
        known = self.metadata.refresh().topics.get(check_topic_name(name))
        if known is not None:
            return known
        if not self.server.auto_create_topics:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist, and auto.create.topics.enable=false")
        try:
            return self.create_topic(name, -1, {})
        except TopicAlreadyExistsError:
            return self.topic(name)

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
        """Create a topic with checked settings.

        Args:
            name: its name.
            num_partitions: -1 takes the server's default, or as many as there are assignments.
            configs: its own settings.
            validate_only: create nothing.
            replication_factor: on how many roots it shall be; -1 takes the server's default.
            assignments: ids of the brokers that shall have each partition, the preferred leader first. All partitions
                of a topic are in one table, so all have the same brokers.
            begins: where the logs of some partitions begin; nobody ever sees the topic without that.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: as they say.
            InvalidReplicationFactorError: there are not so many roots, or none answers.
            InvalidReplicationAssignmentError: no such broker, different ones for partitions of one topic, or none that
                answers.
        """
        return self._changes.create_topic(
            name,
            num_partitions,
            configs,
            validate_only=validate_only,
            replication_factor=replication_factor,
            assignments=assignments,
            begins=begins,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data."""
        self._changes.delete_topic(name)

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> TopicInfo:
        """Raise the partition count to `total`."""
        return self._changes.add_partitions(name, total, validate_only=validate_only)

    def set_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> TopicInfo:
        """Replace the topic's own settings by these, checked."""
        settings = TOPIC_PROPERTIES.check_all(configs)
        return self.edit_configs(name, lambda _: settings, validate_only=validate_only)

    def edit_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> TopicInfo:
        """Replace the topic's own settings by what `edit` makes of them, checked.

        `edit` may be called again with newer settings when another writer was faster, so that two who change
        different settings at the same time lose neither change.
        """
        return self._changes.edit_configs(name, edit, validate_only=validate_only)

    def move_log_start(
        self,
        name: str,
        starts: Mapping[int, int],
        reason: str,
        run: str,
        topic_id: str | None = None,
        *,
        log: TopicLog | None = None,
    ) -> TopicInfo:
        """Record that the log of some partitions begins later; never moves it back.

        Args:
            name: the topic.
            starts: first offset to keep, by partition.
            reason: who moves it: `retention`, `delete_records`; what `OffsetOutOfRangeError` quotes.
            run: id of the run that moves it.
            topic_id: the topic that the offsets are about; None takes whichever has the name.
            log: its log, if the caller has it open: opening one may take 100 ms.

        Raises:
            TopicDeletedError: the name belongs to another topic by now; nothing was moved.
            OffsetOutOfRangeError, UnknownTopicOrPartitionError: an offset above the log end, no such partition.
        """
        return self._changes.move_log_start(name, starts, reason, run, topic_id, log=log)

    def disk_usage(self, name: str) -> Mapping[int, int]:
        """Bytes of live data files, by partition."""
        log = self.log(name)
        log.refresh()
        return {p: sum(s.size_bytes for s in log.segments(p)) for p in log.info.partitions}


class MemoryCluster(Cluster):
    """A cluster in memory, for tests: its topics are Delta tables in a dictionary, and end with the process.

    Args:
        server: server defaults; Kafka's own when None.
        clock: source of append times.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.admin.testing import MemoryCluster
        >>> with KafkaProducer(bootstrap_servers=MemoryCluster()) as producer:
        ...     producer.send("orders", b"tea").get(timeout=10).offset
        0
    """

    def __init__(self, server: ServerProperties | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        import uuid

        from kafkalike.model.config.server_config import ServerProperties
        from kafkalike.storage.memory import MemoryStorage

        store = MemoryStorage(f"memory:{uuid.uuid4().hex[:8]}", now_ns=lambda: clock.now_ms() * 1_000_000)
        super().__init__(store, server=server or ServerProperties(), clock=clock)


def is_root(folder: str | Path) -> bool:
    """Whether a folder of this machine is the root of a cluster: its metadata are there."""
    return Path(folder, CLUSTER_METADATA, "_delta_log").is_dir()


def spark_uri(uri: str) -> str:
    """A place as Spark calls it: it has S3 under another scheme."""
    return f"s3a{uri[2:]}" if uri.startswith("s3:") else uri


def open_cluster(
    root: str, storage_options: StorageOptions | None = None, *, add_root: AddRoot | None = None
) -> Cluster:
    """Open the cluster at a path or URI; nothing is made before the first write.

    Args:
        root: a path or URI.
        storage_options: of an object store; environment variables say what these do not.
        add_root: see `Cluster`.

    Raises:
        KafkaConfigurationError, UnsafeStorageError: see `normalise_root`, `resolve_options` and `object_root`.
    """
    normalised, local = normalise_root(root)
    if local:
        if storage_options:
            raise KafkaConfigurationError(
                f"storage_options are for object stores, and {root} is a folder of this machine"
            )
        return Cluster(LocalStorage(normalised), add_root=add_root)
    # It brings obstore: 0.1 s, and a runtime with threads that a fork does not survive.
    from kafkalike.storage.objects import open_objects

    objects = open_objects(root, storage_options)
    assert objects is not None, "what is no folder is in an object store"
    return Cluster(objects, add_root=add_root)
