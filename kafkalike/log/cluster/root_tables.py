"""RootTables: the tables of topics at one root: made where nobody else has one, discarded, and dropped with a topic."""

from __future__ import annotations

import shutil
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
from kafkalike.log.cluster.topic_changes import OutdatedError
from kafkalike.log.cluster.topic_folders import (
    check_first,
    is_later_life,
    live_topic,
    location_of,
    put_aside,
    refuse_link,
    remove_folder,
    topic_table,
)
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.model import faults
from kafkalike.model.brokers import ONLY_BROKER
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.model.brokers import ReplicatedTable


class RootTables:
    """Makes and removes the tables of topics.

    Args:
        root: path or URI of the root.
        store: its files.
        clock: time and waiting.
        metadata: of the cluster, as this client remembers them.
        metadata_on_disk: reads them from nothing.
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
        return location_of(name, used_before=used_before)

    def place(
        self,
        state: ClusterState,
        location: str,
        partitions: int,
        factor: int,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> None:
        """Refuse more than one replica, and brokers other than the one there is.

        Raises:
            InvalidReplicationFactorError, InvalidReplicationAssignmentError: it cannot be so.
        """
        del state, location, partitions
        if factor != -1 or assignments:
            from kafkalike.model.replication.replica_assignment import check_assignment, check_factor

            if factor != -1:
                check_factor(factor, 1)
            if assignments:
                check_assignment(assignments, {ONLY_BROKER: None})

    def create(self, name: TopicName, location: str, placed: ReplicatedTable | None, *, closed: bool) -> TopicId:
        """Make an empty table, or take one that is there; see `make`."""
        del placed
        table_id = str(uuid.uuid4())
        content = topic_creation(table_id, time_ms=self._clock.now_ms(), closed=closed)
        return self.make(name, location, table_id, content)

    def place_mirror(self, state: ClusterState, location: str) -> None:
        """Choose no broker: there is one root."""
        del state, location

    def make_mirror(
        self, source: TopicInfo, location: str, first: bytes | None, placed: ReplicatedTable | None
    ) -> TopicId:
        """Make the table of a mirror; see `make`."""
        del placed
        return self.make(source.name, location, source.table_id, first)

    def mirror_rows(self, seq: int, info: TopicInfo, placed: ReplicatedTable | None) -> Sequence[MetadataRow]:
        """Return no row: there is one root."""
        del seq, info, placed
        return ()

    def retry_elsewhere(self, create: Callable[[], TopicInfo], *, by_hand: bool = False) -> TopicInfo:
        """Create a topic once: there is no other root."""
        del by_hand
        return create()

    def make(self, name: TopicName, location: str, table_id: str, content: bytes | None = None) -> TopicId:
        """Make an empty table, or take one that another creator has made there.

        Args:
            name: of the topic, for errors.
            location: the table's folder.
            table_id: the table's id, where `content` is None.
            content: its first version; by default one is made.

        Returns:
            The id of the table that is there.

        Raises:
            OutdatedError: `location` was chosen by metadata that do not hold any more.
            KafkaStorageError: it cannot be made, or the table that is there is no new one.
        """
        files = self._store.at(location)
        # The metadata survive a power failure, so the table that they name must.
        table = Table(files, self._clock, to_segment=segment_of, durable=True)
        if content is None:
            content = topic_creation(table_id, time_ms=self._clock.now_ms(), closed=True)
        try:
            if self._store.coordination.reach == "machine":
                self._make_room(name, location)
            elif not is_later_life(location):
                _refuse_cluster(name, files)
            if table.create(content):
                return TopicId(table_id)
            # Another creator has made it just now, or one that was killed long ago. Who of them has the topic, the
            # metadata decide.
            found = topic_table(files)
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
        """Look whether a new table may be made at a place, and remove what a killed deletion has left."""
        root, folder = Path(self._root), Path(self._root, location)
        refuse_link(name, folder, root)
        if not is_later_life(location):
            if folder.exists():
                self._check_unused(name, location)
                check_first(name, folder, self._store.at(location))
            return
        last = self._metadata.state.last(name)
        if last is not None and Path(root, last.location).exists():
            table = topic_table(self._store.at(last.location))
            if table is not None and table.metadata()["id"] == last.table_id and not self._is_alive(last):
                remove_folder(Path(root, last.location), root, last.table_id)

    def _is_alive(self, info: TopicInfo) -> bool:
        return live_topic(self._metadata_on_disk(), info.table_id) is not None

    def _check_unused(self, name: TopicName, location: str) -> None:
        """Look whether a place for the first topic of a name can still be that, by the metadata on disk.

        Raises:
            OutdatedError: the name was used since the creation was planned, or this client remembered it wrongly.
        """
        if not is_later_life(location) and self._metadata_on_disk().was_used(name):
            self._metadata.reload()
            raise OutdatedError

    def discard(self, info: TopicInfo) -> None:
        """Remove a table that was made for a topic that does not come to be, if nobody else can have taken it."""
        if is_later_life(info.location):
            self._store.at(info.location).remove(log_name(0), quietly=True)
            if self._store.coordination.reach == "machine":
                shutil.rmtree(Path(self._root, info.location), ignore_errors=True)

    def drop(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        """Remove a topic's table.

        Args:
            info: the topic.
            forget: takes it out of the metadata; called when nobody else is writing to its table.

        Raises:
            KafkaStorageError: the topic was not deleted.
            KafkaTimeoutError: its writers did not end in time.
        """
        if self._store.coordination.reach != "machine":
            try:
                # Says where the table is for as long as it takes maintenance to remove it, whatever has the name then.
                self._store.replace(f"{DELETED}/{info.table_id}", info.location.encode())
            except OSError as cause:
                raise KafkaStorageError(f"topic {info.name!r} was not deleted: {cause}") from cause
            forget()
            return
        deadline = Deadline(self._clock, 60_000)
        # Those who are about to write end first. Who comes later finds no folder, and never the next topic's.
        with (
            self._store.coordination.turn(info.location, deadline),
            self._store.coordination.turn(cleaning_turn(info.location), deadline),
        ):
            forget()
            faults.point("delete.after_forget")
            folder = put_aside(Path(self._root, info.location), Path(self._root), info.table_id)
        # What somebody has in hand now, maintenance removes.
        self._store.coordination.forget_turns(turns_of(info.location))
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_cluster(name: TopicName, files: Storage) -> None:
    """Refuse the place of a topic that is the root of another cluster; in folders `check_first` does.

    Raises:
        KafkaStorageError: it is.
    """
    if LogFiles.listed(files.at(CLUSTER_METADATA)).commits:
        raise KafkaStorageError(
            f"topic {name!r} cannot be created: {files.uri} is the root of another cluster; choose another name"
        )
