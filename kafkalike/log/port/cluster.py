"""What may be asked of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalike.log.port.control import ControlLog
from kafkalike.log.port.replication import Replication
from kafkalike.log.port.topic import TopicLog
from kafkalike.log.port.transactions import Transactions
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.config.server import ServerConfig
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.leases import Leases
from kafkalike.model.metadata_rows import MetadataRow
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.model.schemas.rows import SchemaRow
    from kafkalike.model.schemas.state import RegistryState


def request_metrics(requests: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What a client's metrics say of `Cluster.requests`: `{group: {name: number}}`; empty where none count."""
    return {"object-store-metrics": {f"{kind}-total": count for kind, count in requests.items()}} if requests else {}


class Cluster(Protocol):
    """A storage root with its topics, settings and consumer offsets. Thread-safe."""

    @property
    def root(self) -> str:
        """What `bootstrap_servers` named, normalised."""
        ...

    @property
    def there(self) -> bool:
        """Whether the root holds the table of topics, looked at now; False for a root that was never written to.

        Raises:
            KafkaStorageError: the storage refused.
        """
        ...

    @property
    def server(self) -> ServerConfig:
        """Cluster-wide defaults, as of the last look at the metadata; the first call looks.

        Raises:
            InvalidConfigurationError: a `server.properties` differs from them, or cannot be read.
            KafkaStorageError: the metadata cannot be read; or nothing has recorded the defaults, and a root that may
                have a file with them gives no answer.
        """
        ...

    def edit_defaults(
        self, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace the cluster-wide defaults by what `edit` makes of them, checked; see `edit_configs`."""
        ...

    @property
    def metadata(self) -> ControlLog[ClusterState, MetadataRow]:
        """The topics."""
        ...

    @property
    def groups(self) -> ControlLog[GroupsState, GroupRow]:
        """Committed offsets and group membership."""
        ...

    @property
    def schemas(self) -> ControlLog[RegistryState, SchemaRow]:
        """Schemas with their subjects, ids, levels and modes; see `kafkalike.schemas.Registry`."""
        ...

    @property
    def leases(self) -> Leases:
        """Heartbeats of group members."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Transactions over several topics and groups."""
        ...

    @property
    def heartbeat_ms(self) -> float:
        """Time between two heartbeats, ms, of a group's member whose user does not say it."""
        ...

    @property
    def tail_interval(self) -> float:
        """Seconds a waiting reader should let pass between two looks at the log's tail."""
        ...

    @property
    def root_interval(self) -> float:
        """Seconds a reader should let pass between two looks whether the root is there at all."""
        ...

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that this process has made of the root's object store, by kind, such as `get`; else empty."""
        ...

    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics by name, fresh."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """One topic, fresh.

        Raises:
            InvalidTopicError, UnknownTopicOrPartitionError: no such name, no such topic.
        """
        ...

    @property
    def replication(self) -> Replication:
        """Brokers and replicas."""
        ...

    def create_topic(
        self,
        name: str,
        num_partitions: int,
        configs: Mapping[str, str],
        *,
        validate_only: bool = False,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
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

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: as they say.
            InvalidReplicationFactorError: there are not so many roots, or none answers.
            InvalidReplicationAssignmentError: no such broker, different ones for partitions of one topic, or none that
                answers.
        """
        ...

    def ensure_topic(self, name: str) -> TopicInfo:
        """The topic, created with the server's defaults when it is missing and `auto.create.topics.enable` allows."""
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data."""
        ...

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> TopicInfo:
        """Raise the partition count to `total`."""
        ...

    def set_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> TopicInfo:
        """Replace the topic's own settings by these, checked."""
        ...

    def edit_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> TopicInfo:
        """Replace the topic's own settings by what `edit` makes of them, checked.

        `edit` may be called again with newer settings when another writer was faster, so that two who change
        different settings at the same time lose neither change.
        """
        ...

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
        ...

    def log(self, name: str, *, since: float = math.inf) -> TopicLog:
        """Open the log of an existing topic."""
        ...

    def open_ahead(self, names: Iterable[str]) -> Mapping[str, TopicLog]:
        """Open the logs of several topics side by side, where that saves time.

        Returns:
            Those that were opened, by topic; `log` opens the others, or says why it cannot.
        """
        ...

    def look_ahead(self, logs: Iterable[TopicLog], *, waiting: bool = False) -> float:
        """Look at the tables of several topics side by side, where that saves time.

        Args:
            logs: opened by this cluster.
            waiting: see `TopicLog.refresh`.

        Returns:
            The `since` with which `TopicLog.refresh` takes what was seen.
        """
        ...

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of this process writes to the root on behalf of calls that are over.

        Args:
            timeout: seconds; None without end.
        """
        ...

    def disk_usage(self, name: str) -> Mapping[int, int]:
        """Bytes of live data files, by partition."""
        ...
