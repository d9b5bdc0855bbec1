"""Cluster: a storage root with its topics, settings, groups and transactions; each topic is a Delta table."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.delta import layout
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.log_files import LogFiles
from kafkalike.log.cluster.control_logs import ControlLogs, GroupsLog, MetadataLog, SchemasLog
from kafkalike.log.cluster.root_tables import RootTables
from kafkalike.log.cluster.server_defaults import ServerDefaults, ServerFiles, files_of_root, given
from kafkalike.log.cluster.topic_changes import TopicTables
from kafkalike.log.cluster.topic_folders import check_not_enclosed, location_of
from kafkalike.log.cluster.topic_successor import TopicSuccessions
from kafkalike.model.brokers import ONLY_BROKER, AddRoot, ReadFrom
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.names import TopicName
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    # Imported where they are used, because many programs only read the metadata of a local root.
    from kafkalike.delta.group_commit.staging_area import OpenTables
    from kafkalike.log.cluster.single_broker import Replication
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.transactions import Transactions
    from kafkalike.model.config.server_config import ServerProperties
    from kafkalike.model.groups.sessions import Leases

LOCAL_TAIL_SECONDS: Final = 0.002
REMOTE_TAIL_SECONDS: Final = 0.25
OBJECTS_TAIL_SECONDS: Final = 0.025
"""Seconds between two looks at the log's tail: on a local disk, at a root that is remote and can only be read, and in
an object store. A look takes microseconds on a local disk and a request elsewhere. In an object store not every look
makes a request: see `Pace`."""

HEARTBEAT_MS: Final = 3000.0
FAR_HEARTBEAT_MS: Final = 10_000.0
"""ms between two heartbeats: Kafka's default, and in an object store, where each heartbeat is a paid request, less than
a third of Kafka's default session."""

ROOT_SECONDS: Final = 10.0
FAR_ROOT_SECONDS: Final = 600.0
"""Seconds between two checks that the root exists. In an object store that check costs as much as a write."""

JUST_SECONDS: Final = 10.0
"""Seconds after a look at the metadata during which the root of an object store counts as present."""


def request_metrics(requests: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return `Cluster.requests` as a group of a client's metrics, `{group: {name: number}}`."""
    return {"object-store-metrics": {f"{kind}-total": count for kind, count in requests.items()}} if requests else {}


class Cluster(TopicSuccessions):
    """A storage root with its topics, settings and consumer offsets. Thread-safe.

    Args:
        store: the root's files.
        server: settings that seed the cluster's defaults; None reads the root's `server.properties`.
        clock: time and waiting.
        root: the cluster's name in messages; the store's URI when None.
        add_root: adds a second root to the cluster, which must be reopened afterwards. None if that is not possible.
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
        """The root that `bootstrap_servers` named, normalized."""
        self.clock = clock
        self._add_root = add_root
        far_tail = OBJECTS_TAIL_SECONDS if store.scheduler.is_remote else REMOTE_TAIL_SECONDS
        self.tail_interval = far_tail if store.coordination.reach == "everywhere" else LOCAL_TAIL_SECONDS
        """Seconds that a waiting reader lets pass between two looks at the log's tail."""
        self.heartbeat_ms = FAR_HEARTBEAT_MS if store.scheduler.is_remote else HEARTBEAT_MS
        """Default time between two heartbeats of a group member, ms."""
        self.root_interval = FAR_ROOT_SECONDS if store.scheduler.is_remote else ROOT_SECONDS
        """Seconds that a reader lets pass between two checks that the root exists."""
        self._is_root_checked = False
        self.helpers = Helpers()
        self.metadata: MetadataLog = self._metadata_log()
        """The table of topics, `__cluster_metadata`."""
        self.defaults = ServerDefaults(name, self.metadata, clock, read, several=self.several, took=self._took)

    metadata_properties: Mapping[str, str] = layout.METADATA_TABLE_PROPERTIES
    """Table properties with which `__cluster_metadata` is created."""
    several = False
    """True if the cluster has several roots and survives the loss of one."""

    def _took(self, server: ServerProperties) -> None:
        """Take settings that came into force; see `ServerDefaults`."""

    def _server_files(self) -> ServerFiles:
        return files_of_root(self.store)

    def _check_format(self, properties: Mapping[str, str]) -> None:
        layout.check_root_format(self.root, properties)

    def _refuse_seal(self) -> None:
        """Refuse a control table that has replicas, because this client knows one root only."""
        raise layout.grown_error(self.root)

    def _check_new_table(self) -> None:
        """Refuse to create a control table at a root that is, or is becoming, part of a replicated cluster.

        The check reads the root again, because this client would write past the other roots.

        Raises:
            UnsupportedVersionError: the root belongs to a cluster of several roots.
            KafkaConfigurationError: see `check_root`.
            KafkaStorageError: the root does not answer.
        """
        try:
            taken = any(self.store.look(name) is not None for name in (layout.BROKERS, layout.CLAIM))
        except OSError as cause:
            raise errors.KafkaStorageError(f"{self.root} cannot be read: {cause}") from cause
        if taken:
            raise layout.taken_error(self.root)
        self.check_root()

    def check_root(self) -> None:
        """Refuse a root without metadata that is a Delta table, or lies in a Delta table or in another cluster's root.

        Raises:
            KafkaConfigurationError: the root is such a place.
        """
        if not LogFiles.listed(self.store.at(layout.CLUSTER_METADATA)).commits:
            check_not_enclosed(self.store)
            self._is_root_checked = True

    def _check_root_once(self) -> None:
        if not self._is_root_checked:
            self.check_root()

    def _metadata_log(self) -> MetadataLog:
        return self._control.metadata_log(before_change=lambda: self.defaults.record())  # noqa: PLW0108 - made later

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
    def groups(self) -> GroupsLog:
        """Committed offsets and group membership. Opened on first use, because many producers need neither."""
        return self._control.groups_log(before_change=self.defaults.flushes)

    @cached_property
    def schemas(self) -> SchemasLog:
        """Schemas with their subjects, ids, levels and modes; see `kafkalike.schemas.Registry`."""
        # `look_once` rejects a root of a newer format.
        return self._control.schemas_log(before_change=self.metadata.look_once)

    def metadata_on_disk(self) -> ClusterState:
        """Read the cluster's metadata from the storage, ignoring this client's copy.

        Callers do so before they remove files.

        Raises:
            LogCorruptError: the metadata cannot be read.
        """
        metadata = self._metadata_log()
        state = metadata.refresh()
        metadata.check_sound()
        return state

    @cached_property
    def open_appends(self) -> OpenTables:
        """Appends of this process that may still be committed."""
        from kafkalike.delta.group_commit.staging_area import OpenTables

        return OpenTables()

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
        """Wait until no background thread of this process writes to the root.

        Args:
            timeout: seconds; None waits without limit.
        """
        self.helpers.wait(timeout)
        if "groups" in vars(self):
            self.groups.settle(timeout)

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests of this process to the root's object store, by kind, such as `get`; empty for other storage."""
        return self.store.scheduler.requests

    @property
    def there(self) -> bool:
        """True if the root holds the table of topics. Looks at the storage; False for a root that was never written to.

        Raises:
            KafkaStorageError: the storage refused.
        """
        if self.store.scheduler.is_remote:
            # The caller reads the metadata next, or has just read them, so one request serves both.
            with contextlib.suppress(errors.KafkaError):
                self.metadata.look_once()
            if self.metadata.seen_within(JUST_SECONDS):
                return True
        try:
            since = self.metadata.version if self.store.scheduler.is_remote else 0
            return bool(LogFiles.listed(self.store.at(layout.CLUSTER_METADATA), since).commits)
        except OSError as cause:
            raise errors.KafkaStorageError(f"{self.root} cannot be read: {cause}") from cause

    def check_there(self) -> None:
        """Refuse a folder that does not exist or has lost its tables.

        Raises:
            KafkaConnectionError: the folder does not exist, or its tables have disappeared since the cluster was
                opened.
        """
        if not Path(self.root).is_dir():
            raise errors.KafkaConnectionError(
                f"the root {self.root} does not exist: check bootstrap_servers, and that its file system is mounted"
            )
        if self.metadata.state.seq and not is_root(self.root):
            raise errors.KafkaConnectionError(f"the tables of {self.root} have disappeared; is it still mounted?")

    def reading(self, read_from: ReadFrom) -> Cluster:
        """Return this cluster for a client that chooses where data files are read; a single root leaves no choice."""
        del read_from
        return self

    def places(self) -> Sequence[Storage]:
        """The storage of each root that answers."""
        return list(self.roots_by_broker().values())

    def roots_by_broker(self) -> Mapping[int, Storage]:
        """The storage of each root that answers, by broker id."""
        return {ONLY_BROKER: self.store}

    def files_of(self, info: TopicInfo) -> Storage:
        """Return the files of a topic's table."""
        return self.store.at(info.location)

    def table_uri(self, info: TopicInfo) -> str:
        """Return the URI by which Spark opens a topic's table."""
        return self._uri_at(info.location)

    def near_table(self, info: TopicInfo) -> tuple[str, int] | None:
        """Return Spark's URI of a topic's table in the client's rack, and its newest published version.

        None if no other place than `table_uri` has the table.
        """
        del info
        return None

    def first_table_uri(self, name: TopicName) -> str:
        """Return Spark's URI of the table of the first topic of a name; later topics have other folders."""
        return self._uri_at(location_of(name, used_before=False))

    def _uri_at(self, location: str) -> str:
        return spark_uri(f"{self.root}/{location}")

    @property
    def mirror_root(self) -> Storage:
        """The root that holds mirrors and the files that their runs stage."""
        return self.store

    def mirror_files(self, info: TopicInfo) -> Storage:
        """Return the files of a mirror's table, at the root that holds mirrors; for other topics, as `files_of`."""
        return self.files_of(info)

    def adopt_mirror(self, info: TopicInfo) -> None:
        """Prepare the table of a mirror for its promotion to a topic with writers of this cluster. Idempotent.

        Raises:
            KafkaStorageError, LogCorruptError, OSError: the table cannot be read or changed at present.
        """
        del info

    @cached_property
    def _tables(self) -> TopicTables:
        return RootTables(self.root, self.store, self.clock, self.metadata, self.metadata_on_disk)

    def log(self, name: str, *, since: float = math.inf) -> TopicLog:
        """Open the log of an existing topic.

        Args:
            name: the topic.
            since: see `ControlLog.refresh`.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        return self.open(self.topic(name, since=since))

    def open(self, info: TopicInfo) -> TopicLog:
        """Open the log of a topic from metadata that the caller has just read."""
        from kafkalike.log.topic.tailed_topic import TopicContext
        from kafkalike.log.topic.topic_log import TopicLog

        home = TopicContext(
            store=self.store,
            metadata=self.metadata,
            server=self.defaults.in_force,
            helpers=self.helpers,
            clock=self.clock,
            open_appends=lambda: self.open_appends,
            schemas=lambda: self.schemas,
            in_sync=self._in_sync,
        )
        log = TopicLog(home, info)
        log.refresh(metadata=False)
        return log

    def _in_sync(self, info: TopicInfo) -> int:
        """Return how many replicas of a topic are in sync, as of the last look at the metadata."""
        table = self.metadata.state.replicas.get(info.location)
        return 1 if table is None else len(table.registration.in_sync)

    def open_ahead(self, names: Iterable[str]) -> Mapping[str, TopicLog]:
        """Open the logs of several topics in parallel if that saves time.

        Returns:
            The opened logs by topic. For the other topics call `log`, which also reports errors.
        """
        wanted = set(names)
        if len(wanted) <= 1 or not self.store.scheduler.is_remote:
            return {}
        from kafkalike.log.topic.tailed_topic import open_ahead

        known = self.topics()
        return open_ahead([known[name] for name in sorted(wanted & known.keys())], self.open)

    def look_ahead(self, logs: Iterable[TopicLog], *, waiting: bool = False) -> float:
        """Look at the tables of several topics in parallel if that saves time.

        Args:
            logs: opened by this cluster.
            waiting: see `TopicLog.refresh`.

        Returns:
            The `since` with which `TopicLog.refresh` uses these looks.
        """
        if not self.store.scheduler.is_remote:
            # A look at local files is cheap, so this must be, too.
            return SYSTEM_CLOCK.monotonic()
        from kafkalike.log.topic.tailed_topic import look_ahead

        return look_ahead(self.store, logs, waiting=waiting)

    @property
    def server(self) -> ServerProperties:
        """Cluster-wide defaults, as of the last look at the metadata; the first call looks.

        Raises:
            InvalidConfigurationError: a `server.properties` contradicts the defaults, or cannot be read.
            KafkaStorageError: the metadata cannot be read; or no defaults are recorded, and a root whose
                `server.properties` may hold them does not answer.
        """
        return self.defaults.in_force()

    def edit_defaults(
        self, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace the cluster-wide defaults by the checked result of `edit`; see `edit_configs`."""
        self.defaults.edit(edit, validate_only=validate_only)

    @cached_property
    def replication(self) -> Replication:
        """Brokers and replicas of the cluster."""
        from kafkalike.log.cluster.single_broker import SingleBroker

        return SingleBroker(self.root, self.topics, self.topic, lambda: self.metadata.refresh().seq, self._add_root)

    def disk_usage(self, name: str) -> Mapping[int, int]:
        """Return the bytes of live data files, by partition."""
        log = self.log(name)
        log.refresh()
        return {p: sum(s.size_bytes for s in log.segments(p)) for p in log.info.partitions}


class MemoryCluster(Cluster):
    """A cluster in memory, for tests.

    Its topics are Delta tables in a dictionary, which the end of the process discards.

    Args:
        server: server defaults; Kafka's when None.
        clock: source of append times.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.testing import MemoryCluster
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
    """True if a folder of this machine holds the metadata of a cluster."""
    return Path(folder, layout.CLUSTER_METADATA, "_delta_log").is_dir()


def spark_uri(uri: str) -> str:
    """Return a URI with Spark's scheme for it: `s3a` for S3."""
    return f"s3a{uri[2:]}" if uri.startswith("s3:") else uri
