"""RootTables: create, discard and drop the tables of topics at one root."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import topic_creation
from kafkalike.delta.layout import CLUSTER_METADATA, DELETED
from kafkalike.delta.log_files import LogFiles
from kafkalike.delta.table import Table
from kafkalike.delta.table_change import cleaning_turn, turns_of
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.log.cluster import topic_folders
from kafkalike.log.cluster.topic_changes import OutdatedError
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.model import faults
from kafkalike.model.brokers import ONLY_BROKER, ReplicatedTable
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog


class RootTables:
    """Creates and removes the tables of topics at one root.

    Args:
        root: path or URI of the root.
        store: its files.
        clock: time and waiting.
        metadata: the cluster's metadata as this client remembers them.
        metadata_on_disk: reads the metadata from the storage.
    """

    def __init__(
        self,
        root: str,
        store: Storage,
        clock: Clock,
        metadata: ControlLog[ClusterState, MetadataRow],
        metadata_on_disk: Callable[[], ClusterState],
    ) -> None:
        self._root = root
        self._store = store
        self._clock = clock
        self._metadata = metadata
        self._metadata_on_disk = metadata_on_disk

    def location(self, name: TopicName, *, used_before: bool) -> str:
        """Choose the folder, relative to the root, for the table of a new topic."""
        return topic_folders.location_of(name, used_before=used_before)

    def place(
        self,
        state: ClusterState,
        location: str,
        partitions: int,
        factor: int,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> None:
        """Refuse more than one replica, and any broker but the only one.

        Raises:
            InvalidReplicationFactorError, InvalidReplicationAssignmentError: one root cannot satisfy the request.
        """
        del state, location, partitions
        if factor != -1 or assignments:
            from kafkalike.model.replication.replica_assignment import check_assignment, check_factor

            if factor != -1:
                check_factor(factor, 1)
            if assignments:
                check_assignment(assignments, {ONLY_BROKER: None})

    def create(self, name: TopicName, location: str, placed: ReplicatedTable | None, *, closed: bool) -> TopicId:
        """Create an empty table, or adopt an existing empty one; see `make`."""
        del placed
        table_id = str(uuid.uuid4())
        content = topic_creation(table_id, time_ms=self._clock.now_ms(), closed=closed)
        return self.make(name, location, table_id, content)

    def place_mirror(self, state: ClusterState, location: str) -> None:
        """Choose no broker, because there is one root."""
        del state, location

    def make_mirror(
        self, source: TopicInfo, location: str, first: bytes | None, placed: ReplicatedTable | None
    ) -> TopicId:
        """Create the table of a mirror; see `make`."""
        del placed
        return self.make(source.name, location, source.table_id, first)

    def mirror_rows(self, seq: int, info: TopicInfo, placed: ReplicatedTable | None) -> Sequence[MetadataRow]:
        """Return no row, because there is one root."""
        del seq, info, placed
        return ()

    def retry_elsewhere(self, create: Callable[[], TopicInfo], *, by_hand: bool = False) -> TopicInfo:
        """Create a topic once, because the cluster has one root."""
        del by_hand
        return create()

    def make(self, name: TopicName, location: str, table_id: str, content: bytes | None = None) -> TopicId:
        """Create an empty table, or adopt the empty table of another creator.

        Args:
            name: the topic, for errors.
            location: the table's folder.
            table_id: the table's id if `content` is None.
            content: content of the table's first version; None generates it.

        Returns:
            The id of the table at that place.

        Raises:
            OutdatedError: `location` was chosen by outdated metadata.
            KafkaStorageError: the table cannot be created, or a table with records is in its place.
        """
        files = self._store.at(location)
        # The metadata survive a power failure, so the table that they name must.
        table = Table(files, self._clock, to_segment=segment_of, durable=True)
        if content is None:
            content = topic_creation(table_id, time_ms=self._clock.now_ms(), closed=True)
        try:
            if self._store.coordination.reach == "machine":
                self._make_room(name, location)
            elif not topic_folders.is_later_life(location):
                _refuse_cluster(name, files)
            if table.create(content):
                return TopicId(table_id)
            # Another creator, possibly killed long ago, has made the table. The metadata decide whose topic it is.
            found = topic_folders.topic_table(files)
        except (OSError, KafkaStorageError) as cause:
            self._check_unused(name, location)
            if isinstance(cause, KafkaError):
                raise
            raise KafkaStorageError(f"the table of topic {name!r} cannot be created at {files.uri}: {cause}") from cause
        if found is None or found.newest > 0:
            self._check_unused(name, location)
            raise KafkaStorageError(
                f"the table of topic {name!r} cannot be created: there is another table at {files.uri}"
            )
        return TopicId(str(found.metadata()["id"]))

    def _make_room(self, name: TopicName, location: str) -> None:
        """Check that a new table may be created at a place, and remove the rest of a killed deletion."""
        root, folder = Path(self._root), Path(self._root, location)
        topic_folders.refuse_link(name, folder, root)
        if not topic_folders.is_later_life(location):
            if folder.exists():
                self._check_unused(name, location)
                topic_folders.check_first(name, folder, self._store.at(location))
            return
        last = self._metadata.state.last(name)
        if last is not None and Path(root, last.location).exists():
            table = topic_folders.topic_table(self._store.at(last.location))
            if table is not None and table.metadata()["id"] == last.table_id and not self._is_alive(last):
                topic_folders.remove_folder(Path(root, last.location), root, last.table_id)

    def _is_alive(self, info: TopicInfo) -> bool:
        return topic_folders.live_topic(self._metadata_on_disk(), info.table_id) is not None

    def _check_unused(self, name: TopicName, location: str) -> None:
        """Check by the metadata on disk that a place can still be that of the first topic of a name.

        Raises:
            OutdatedError: the name was used after the creation was planned, or this client's metadata were wrong.
        """
        if not topic_folders.is_later_life(location) and self._metadata_on_disk().was_used(name):
            self._metadata.reload()
            raise OutdatedError

    def discard(self, info: TopicInfo) -> None:
        """Remove the table of a topic that was not created, unless another creator can have adopted it."""
        if topic_folders.is_later_life(info.location):
            self._store.at(info.location).remove(log_name(0), quietly=True)
            if self._store.coordination.reach == "machine":
                topic_folders.remove_tree(Path(self._root, info.location))

    def drop(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        """Remove a topic's table.

        Args:
            info: the topic.
            forget: removes the topic from the metadata; called while no writer holds its table.

        Raises:
            KafkaStorageError: the topic was not deleted.
            KafkaTimeoutError: its writers did not finish in time.
        """
        if self._store.coordination.reach != "machine":
            try:
                # Tells maintenance where the dead table is, even if a new topic takes the name.
                self._store.replace(f"{DELETED}/{info.table_id}", info.location.encode())
            except OSError as cause:
                raise KafkaStorageError(f"topic {info.name!r} was not deleted: {cause}") from cause
            forget()
            return
        deadline = Deadline(self._clock, 60_000)
        # Writers that hold a turn finish first. Later ones find no folder, and never the folder of the next topic.
        with (
            self._store.coordination.turn(info.location, deadline),
            self._store.coordination.turn(cleaning_turn(info.location), deadline),
        ):
            forget()
            faults.point("delete.after_forget")
            folder = topic_folders.put_aside(Path(self._root, info.location), Path(self._root), info.table_id)
        # Maintenance removes files that are in use at present.
        self._store.coordination.forget_turns(turns_of(info.location))
        topic_folders.remove_tree(folder)


def _refuse_cluster(name: TopicName, files: Storage) -> None:
    """Refuse the root of another cluster as the place of a topic; for local folders `check_first` does so.

    Raises:
        KafkaStorageError: the place is the root of another cluster.
    """
    if LogFiles.listed(files.at(CLUSTER_METADATA)).commits:
        raise KafkaStorageError(
            f"topic {name!r} cannot be created: {files.uri} is the root of another cluster; choose another name"
        )
