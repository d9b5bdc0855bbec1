"""DeltaCluster: a storage root whose topics are Delta tables."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import uuid
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.config.server import ServerConfig
from kafkalike.errors import KafkaError, KafkaStorageError, TopicAlreadyExistsError
from kafkalike.log.cluster.base import ClusterBase
from kafkalike.log.store.local import LocalStore
from kafkalike.log.store.port import Store
from kafkalike.log.store.roots import normalise_root
from kafkalike.log.table.actions import creation
from kafkalike.log.table.control_log import DeltaControlLog
from kafkalike.log.table.layout import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    DELETED,
    METADATA_SCHEMA,
    OFFSETS_SCHEMA,
    TOPIC_SCHEMA,
    TOPIC_TABLE_PROPERTIES,
)
from kafkalike.log.table.log_cleaner import Helpers, cleaning_turn, maintenance_turn
from kafkalike.log.table.snapshot import Snapshot, load_snapshot
from kafkalike.log.table.table import Table
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.log.topic.topic_log import DeltaTopicLog, Home
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.leases import Leases
from kafkalike.model.names import TopicId
from kafkalike.model.topic import TopicInfo

LOCAL_TAIL_SECONDS: Final = 0.002
REMOTE_TAIL_SECONDS: Final = 0.25
"""Wait between two looks at the tail: a look costs microseconds on a local disk, a request in an object store."""

GROUPS_PATIENCE_SECONDS: Final = 1.0
"""How long a commit queues for the lock of `__consumer_offsets`: many times what a turn takes, and short against a
session, since a member that is stopped while it holds the lock must not stop its group (decision 007)."""

UUID_LENGTH: Final = 36

VERSION_FILE: Final = re.compile(r"\d{20}\.(json|.*parquet)|_last_checkpoint")
"""A file of a table version: where there is one, there is a table."""


class DeltaCluster(ClusterBase):
    """A cluster at a storage root.

    Args:
        store: the root's files.
        server: server defaults; those of the root's own file when None.
        clock: time and waiting.
    """

    def __init__(self, store: Store, *, server: ServerConfig | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        near = store.reach == "machine"
        super().__init__(store.uri, ServerConfig.load(store.uri if near else None) if server is None else server, clock)
        self.store = store
        self.tail_interval = REMOTE_TAIL_SECONDS if store.reach == "everywhere" else LOCAL_TAIL_SECONDS
        self.helpers = Helpers()
        self.metadata: DeltaControlLog[ClusterState, MetadataRow] = self._metadata_log()
        self.groups: DeltaControlLog[GroupsState, GroupRow] = DeltaControlLog(
            store,
            CONSUMER_OFFSETS,
            OFFSETS_SCHEMA,
            GroupRow,
            GroupsState,
            helpers=self.helpers,
            clock=clock,
            patience=GROUPS_PATIENCE_SECONDS,
        )

    def _metadata_log(self) -> DeltaControlLog[ClusterState, MetadataRow]:
        return DeltaControlLog(
            self.store,
            CLUSTER_METADATA,
            METADATA_SCHEMA,
            MetadataRow,
            ClusterState,
            helpers=self.helpers,
            clock=self.clock,
            durable=True,
        )

    def metadata_on_disk(self) -> ClusterState:
        """The cluster's metadata, read from nothing: before something is removed, what is remembered does not count.

        Raises:
            LogCorruptError: they cannot be read.
        """
        metadata = self._metadata_log()
        state = metadata.refresh()
        metadata.check_sound()
        return state

    @property
    def _home(self) -> Home:
        return Home(
            store=self.store, metadata=self.metadata, server=self.server, helpers=self.helpers, clock=self.clock
        )

    @cached_property
    def leases(self) -> Leases:
        """Heartbeats of group members."""
        return self.store.leases()

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of this cluster writes to the root any more."""
        self.helpers.wait(timeout)

    @property
    def there(self) -> bool:
        """Whether the root holds the table of topics."""
        try:
            return bool(self.store.list(f"{CLUSTER_METADATA}/_delta_log"))
        except OSError as cause:
            message = f"{self.root} cannot be read: {cause}"
            raise KafkaStorageError(message) from cause

    def files_of(self, info: TopicInfo) -> Store:
        """Files of a topic's table."""
        return self.store.at(info.location)

    def table_uri(self, info: TopicInfo) -> str:
        """Where Spark finds a topic's table."""
        return f"{self.root}/{info.location}"

    def _location(self, name: str, *, used_before: bool) -> str:
        if self.store.reach == "machine" or not used_before:
            return name
        # A late writer of the deleted topic could still commit to the old folder; `~` cannot be part of a topic's name.
        # On a local root the topic's lock keeps late writers out.
        return f"{name}~{uuid.uuid4().hex}"

    def _create_table(self, name: str, location: str) -> TopicId:
        files = self.store.at(location)
        # The metadata survive a power failure, so the table that they name must.
        table, table_id = Table(files, self.clock, to_segment=segment_of, durable=True), str(uuid.uuid4())
        try:
            if self.store.reach == "machine":
                self._refuse_link(name, Path(files.uri))
                self._clear_leftover(name, Path(files.uri))
            content = creation(
                table_id,
                TOPIC_SCHEMA,
                partition_by=["partition"],
                properties=TOPIC_TABLE_PROPERTIES,
                time_ms=self.clock.now_ms(),
            )
            if table.create(content):
                return TopicId(table_id)
            # Another creator has made it just now, or one that was killed long ago. Who of them has the topic, the
            # metadata decide.
            found = topic_table(files)
        except OSError as cause:
            message = f"the table of topic {name!r} cannot be created at {files.uri}: {cause}"
            raise KafkaStorageError(message) from cause
        if found is None or found.newest > 0:
            message = f"the table of topic {name!r} cannot be created: there is another table at {files.uri}"
            raise KafkaStorageError(message)
        return TopicId(str(found.metadata()["id"]))

    def _refuse_link(self, name: str, folder: Path) -> None:
        """Refuse a symbolic link in the place of a new topic when it leads out of the root.

        Raises:
            KafkaStorageError: it does.
        """
        if folder.is_symlink() and not folder.resolve().is_relative_to(Path(self.root).resolve()):
            message = (
                f"topic {name!r} cannot be created: {folder} is a symbolic link to {folder.resolve()}, outside of "
                "the root; remove the link or choose another name"
            )
            raise KafkaStorageError(message)

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
        table = topic_table(self.store.at(folder.name))
        state = self.metadata_on_disk()
        if name in state.topics or (table is not None and live_topic(state, str(table.metadata()["id"])) is not None):
            self.metadata.reload()
            message = f"topic {name!r} already exists"
            raise TopicAlreadyExistsError(message)
        used_before = name in state.used_names
        if table is not None and table.newest == 0 and not used_before:
            # A creation that was killed, or is under way: the table is as good as a new one.
            return
        if table is None or not used_before:
            what = (
                "that kafkalike did not make" if table is None else "with records of a topic the metadata do not know"
            )
            message = f"topic {name!r} cannot be created: {folder} holds data {what}; move it or choose another name"
            raise KafkaStorageError(message)
        with self.store.turn(cleaning_turn(folder.name), Deadline(self.clock, 60_000)):
            try:
                _move_aside(folder, Path(self.root, DELETED, f"{table.metadata()['id']}~{uuid.uuid4().hex}"))
            except OSError as cause:
                message = f"topic {name!r} cannot be created: what is left at {folder} cannot be put aside: {cause}"
                raise KafkaStorageError(message) from cause

    def _drop_table(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        if self.store.reach != "machine":
            forget()
            return
        deadline = Deadline(self.clock, 60_000)
        folder = Path(self.root, info.location)
        # The folder goes before anyone else can create the topic again: else it would be the new one's. Those who write
        # to a table's log without its lock are kept out last: they take no other lock.
        with (
            self.store.turn(info.location, deadline),
            self.metadata.exclusive(deadline),
            self.store.turn(cleaning_turn(info.location), deadline),
        ):
            forget()
            faults.point("delete.after_forget")
            # One that cannot be put aside is removed where it is.
            with contextlib.suppress(OSError):
                folder = _move_aside(folder, Path(self.root, DELETED, info.topic_id))
        # What somebody has in hand now, maintenance removes.
        self.store.forget_turns(turns_of(info.location))
        shutil.rmtree(folder, ignore_errors=True)

    def log(self, name: str) -> DeltaTopicLog:
        """Open the log of an existing topic.

        Args:
            name: the topic.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
        """
        log = DeltaTopicLog(self._home, self.topic(name))
        log.refresh()
        return log


def topic_table(files: Store) -> Snapshot | None:
    """The table at a place, when it can be read and has the columns of a topic."""
    try:
        found = load_snapshot(files)
        schema = json.loads(found.metadata()["schemaString"])
    except (KafkaError, OSError, KeyError, ValueError):
        return None
    return found if schema == TOPIC_SCHEMA else None


def turns_of(location: str) -> list[str]:
    """What writers of a topic queue for, whose table has this folder."""
    return [location, cleaning_turn(location), maintenance_turn(location)]


def topic_id_of(folder: str) -> str:
    """The id of the topic whose table was put aside into a folder of `__deleted`."""
    return folder[:UUID_LENGTH]


def live_topic(state: ClusterState, topic_id: str) -> TopicInfo | None:
    """The topic of that id, if there is one."""
    return next((info for info in state.topics.values() if info.topic_id == topic_id), None)


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


def open_cluster(root: str) -> DeltaCluster:
    """Open the cluster at a path or URI; nothing is made before the first write.

    Raises:
        KafkaConfigurationError, UnsafeStorageError: see `normalise_root`.
    """
    normalised, local = normalise_root(root)
    if local:
        return DeltaCluster(LocalStore(normalised))
    # It brings deltalake: 0.1 s, and a runtime with threads that a fork does not survive.
    from kafkalike.log.store.remote import RemoteStore

    return DeltaCluster(RemoteStore(normalised))
