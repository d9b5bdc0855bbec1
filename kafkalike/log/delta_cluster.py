"""DeltaCluster: a storage root whose topics are Delta tables."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.config.server import ServerConfig
from kafkalike.errors import IllegalArgumentError, KafkaStorageError, TopicAlreadyExistsError
from kafkalike.log.base import ClusterBase
from kafkalike.log.condense import Condenser, Helpers
from kafkalike.log.control import DeltaControlLog
from kafkalike.log.layout import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    DELETED,
    LEASES,
    LOCKS,
    METADATA_SCHEMA,
    OFFSETS_SCHEMA,
    TOPIC_SCHEMA,
    TOPIC_TABLE_PROPERTIES,
)
from kafkalike.log.leases import LocalLeases, RemoteLeases
from kafkalike.log.lock import TableLock
from kafkalike.log.port import Leases
from kafkalike.log.storage import Files, LocalFiles, RemoteFiles, normalise_root
from kafkalike.log.topic_log import Appender, DeltaTopicLog
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.names import TopicId
from kafkalike.model.topic import TopicInfo

LOCAL_TAIL_SECONDS: Final = 0.002
REMOTE_TAIL_SECONDS: Final = 0.25
"""Wait between two looks at the tail: a look costs microseconds on a local disk, a request in an object store."""

GROUPS_PATIENCE_SECONDS: Final = 1.0
"""How long a commit queues for the lock of `__consumer_offsets`: many times what a turn takes, and short against a
session, since a member that is stopped while it holds the lock must not stop its group (decision 007)."""

VERSION_FILE: Final = re.compile(r"\d{20}\.(json|.*parquet)|_last_checkpoint")
"""A file of a table version: where there is one, there is a table."""

ENGINES: Final = ("auto", "deltalake", "spark")
"""How batches are written: in-process, through Spark, or in-process where the root is a local folder."""


class DeltaCluster(ClusterBase):
    """A cluster at a storage root.

    Args:
        root: absolute path or URI, as `normalise_root` returns it.
        local: whether it is a folder of this machine.
        server: server defaults.
        clock: time and waiting.
        locking: False leaves the advisory locks of a local root away: only for tests of the way object stores go.
    """

    def __init__(
        self,
        root: str,
        *,
        local: bool,
        server: ServerConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        locking: bool = True,
    ) -> None:
        super().__init__(root, ServerConfig.load(root if local else None) if server is None else server, clock)
        self.local = local
        self.tail_interval = LOCAL_TAIL_SECONDS if local else REMOTE_TAIL_SECONDS
        self._locking = local and locking
        self._helpers = Helpers()
        self.metadata: DeltaControlLog[ClusterState, MetadataRow] = self._metadata_log()
        self.groups: DeltaControlLog[GroupsState, GroupRow] = DeltaControlLog(
            self._files(CONSUMER_OFFSETS),
            OFFSETS_SCHEMA,
            GroupRow,
            GroupsState,
            lock=self._lock(CONSUMER_OFFSETS),
            condenser=self.condenser(CONSUMER_OFFSETS),
            clock=clock,
            patience=GROUPS_PATIENCE_SECONDS,
        )
        self.leases: Leases = LocalLeases(f"{self.root}/{LEASES}") if local else RemoteLeases(self.root, LEASES)
        self._spark_appender: Appender | None = None
        self._mutex = threading.Lock()

    def _metadata_log(self) -> DeltaControlLog[ClusterState, MetadataRow]:
        return DeltaControlLog(
            self._files(CLUSTER_METADATA),
            METADATA_SCHEMA,
            MetadataRow,
            ClusterState,
            lock=self._lock(CLUSTER_METADATA),
            condenser=self.condenser(CLUSTER_METADATA),
            clock=self.clock,
        )

    def metadata_on_disk(self) -> ClusterState:
        """The cluster's metadata, read from nothing: before something is removed, what is remembered does not count.

        Raises:
            LogCorruptError: they cannot be read.
        """
        return self._metadata_log().refresh()

    def _files(self, location: str) -> Files:
        uri = f"{self.root}/{location}"
        return LocalFiles(uri) if self.local else RemoteFiles(uri)

    def _lock(self, name: str) -> TableLock | None:
        return TableLock(f"{self.root}/{LOCKS}", name) if self._locking else None

    def maintenance_lock(self, name: str) -> TableLock | None:
        """The lock that one maintenance run at a time holds for a topic; None where the root has no locks."""
        # `~` cannot be part of a topic's name.
        return self._lock(f"maintenance~{name}")

    def condenser(self, location: str) -> Condenser:
        """What keeps the log of a table short."""
        return Condenser(self._files(location), self._condenser_lock(location), self._helpers)

    def _condenser_lock(self, location: str) -> TableLock | None:
        return self._lock(f"condense~{location}")

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of this cluster writes to the root any more."""
        self._helpers.wait(timeout)

    def files_of(self, info: TopicInfo) -> Files:
        """Files of a topic's table."""
        return self._files(info.location)

    def table_uri(self, info: TopicInfo) -> str:
        """Where Spark finds a topic's table."""
        return f"{self.root}/{info.location}"

    def _location(self, name: str, *, used_before: bool) -> str:
        if self.local or not used_before:
            return name
        # In an object store a late writer of the deleted topic could still commit to the old folder; `~` cannot be
        # part of a topic's name. On a local root the topic's lock keeps late writers out.
        return f"{name}~{self.clock.now_ms()}"

    def _create_table(self, name: str, location: str) -> TopicId:
        uri = f"{self.root}/{location}"
        try:
            if self.local:
                if self._locking:
                    self._clear_leftover(name, Path(uri))
                Path(uri).mkdir(parents=True, exist_ok=True, mode=0o700)
            table = DeltaTable.create(
                uri,
                TOPIC_SCHEMA,
                partition_by=["partition"],
                configuration=dict(TOPIC_TABLE_PROPERTIES),
                # A second try would be a second version, which gives the rival's table another id.
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except (DeltaError, OSError) as cause:
            found = None if self._locking else _unused_table(uri)
            if found is None:
                message = f"the table of topic {name!r} cannot be created at {uri}: {cause}"
                raise KafkaStorageError(message) from cause
            # Without a lock another creator may have made it just now, or one that was killed long ago. Who of them
            # has the topic, the metadata decide.
            table = found
        return TopicId(str(table.metadata().id))

    def _clear_leftover(self, name: str, folder: Path) -> None:
        """Make room for a new topic's table where a creation or deletion was killed; touch nothing else.

        A killed creation leaves an empty folder or an empty table of ours, a killed deletion a table of ours whose
        topic the metadata know as deleted. Anything else is somebody's data. The table is only put aside; maintenance
        removes it.

        Raises:
            TopicAlreadyExistsError: the table is a topic's; what this client remembered was wrong, and is read anew.
            KafkaStorageError: the folder holds something else, or cannot be put aside.
        """
        if not folder.exists() or _holds_nothing(folder):
            return
        table = _topic_table(str(folder))
        state = self.metadata_on_disk()
        if name in state.topics or (table is not None and live_topic(state, str(table.metadata().id)) is not None):
            self.metadata.reload()
            message = f"topic {name!r} already exists"
            raise TopicAlreadyExistsError(message)
        if table is None or (table.version() > 0 and name not in state.used_names):
            what = (
                "that kafkalike did not make" if table is None else "with records of a topic the metadata do not know"
            )
            message = f"topic {name!r} cannot be created: {folder} holds data {what}; move it or choose another name"
            raise KafkaStorageError(message)
        with self._no_condensing(folder.name, Deadline(self.clock, 60_000)):
            try:
                _move_aside(folder, Path(self.root, DELETED, str(table.metadata().id)))
            except OSError as cause:
                message = f"topic {name!r} cannot be created: what is left at {folder} cannot be put aside: {cause}"
                raise KafkaStorageError(message) from cause

    def _no_condensing(self, location: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep out those who write to a table's log without its lock. Taken last: they take no other lock."""
        lock = self._condenser_lock(location)
        return nullcontext() if lock is None else lock.held(deadline)

    def _drop_table(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        lock = self._lock(info.location)
        folder = Path(self.root, info.location)
        if lock is None:
            forget()
        else:
            deadline = Deadline(self.clock, 60_000)
            # The folder goes before anyone else can create the topic again: else it would be the new one's.
            with (
                lock.held(deadline),
                self.metadata.exclusive(deadline),
                self._no_condensing(info.location, deadline),
            ):
                forget()
                faults.point("delete.after_forget")
                # One that cannot be put aside is removed where it is.
                with contextlib.suppress(OSError):
                    folder = _move_aside(folder, Path(self.root, DELETED, info.topic_id))
        if self.local:
            shutil.rmtree(folder, ignore_errors=True)

    def log(self, name: str, engine: str = "auto") -> DeltaTopicLog:
        """Open the log of an existing topic.

        Args:
            name: the topic.
            engine: how `append` writes; one of `ENGINES`.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
            IllegalArgumentError: unknown engine, or `deltalake` for a root that is not a local folder.
        """
        info = self.topic(name)
        appender = self._appender(engine)
        lock = self._lock(info.location)
        log = DeltaTopicLog(self, info, self.files_of(info), lock=lock, clock=self.clock, appender=appender)
        log.refresh()
        return log

    def _appender(self, engine: str) -> Appender | None:
        if engine not in ENGINES:
            message = f"unknown append engine {engine!r}; one of {', '.join(ENGINES)} is needed"
            raise IllegalArgumentError(message)
        if engine == "deltalake" and not self.local:
            message = f"append engine 'deltalake' needs a local root; {self.root} is written through Spark"
            raise IllegalArgumentError(message)
        if engine == "spark" or not self.local:
            with self._mutex:
                if self._spark_appender is None:
                    from kafkalike.log.append_spark import SparkAppender

                    self._spark_appender = SparkAppender()
                return self._spark_appender
        return None


def _topic_table(uri: str) -> DeltaTable | None:
    """The table at a place when it has the columns of a topic."""
    try:
        table = DeltaTable(uri)
    except (DeltaError, OSError):
        return None
    return table if table.schema() == TOPIC_SCHEMA else None


def _unused_table(uri: str) -> DeltaTable | None:
    """The topic table at a place when nothing was ever written to it."""
    table = _topic_table(uri)
    return table if table is not None and table.version() == 0 else None


def _holds_nothing(folder: Path) -> bool:
    """Whether a folder is empty but for what a killed creation leaves: a log without a version, half-written files."""
    log = folder / "_delta_log"
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return all(path.parent == log and not VERSION_FILE.fullmatch(path.name) for path in files)


def _move_aside(folder: Path, target: Path) -> Path:
    """Rename a folder, which is quick however much is in it; returns where it is now.

    Raises:
        OSError: it cannot be renamed, or there is something at the target.
    """
    target.parent.mkdir(mode=0o700, exist_ok=True)
    return folder.rename(target)


def live_topic(state: ClusterState, topic_id: str) -> TopicInfo | None:
    """The topic of that id, if there is one."""
    return next((info for info in state.topics.values() if info.topic_id == topic_id), None)


def open_cluster(root: str) -> DeltaCluster:
    """Open the cluster at a path or URI; nothing is made before the first write.

    Raises:
        KafkaConfigurationError, UnsafeStorageError: see `normalise_root`.
    """
    normalised, local = normalise_root(root)
    return DeltaCluster(normalised, local=local)
