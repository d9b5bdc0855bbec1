"""Topic changes: look up, create, change and delete topics and their tables, by rows of the cluster's metadata."""

from __future__ import annotations

import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from kafkalike import errors
from kafkalike.delta.log_files import LogFiles
from kafkalike.model import cluster_state
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.topic_config import FOREIGN_WRITES, TOPIC_PROPERTIES, check_partition_count
from kafkalike.model.names import TopicId, TopicName, check_topic_name
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import MetadataLog
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.cluster_state import ClusterState
    from kafkalike.model.mirror import Mirrored
    from kafkalike.storage.port import Storage

PROTOCOL_TIMEOUT_MS: Final = 60_000
"""How long a change of a table's protocol waits for producers that hold the topic, ms."""


class OutdatedError(Exception):
    """The metadata have changed since a change was planned, so the change must be planned again."""


class TopicTables(Protocol):
    """The tables of topics, at one root or at several."""

    def location(self, name: TopicName, *, used_before: bool) -> str:
        """Choose the folder, relative to the root, for the table of a new topic."""
        ...

    def place(
        self,
        state: ClusterState,
        location: str,
        partitions: int,
        factor: int,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> ReplicatedTable | None:
        """Choose the brokers for the table of a new topic; None in a cluster of one root.

        Raises:
            InvalidReplicationFactorError, InvalidReplicationAssignmentError: the brokers cannot satisfy the request.
        """
        ...

    def create(self, name: TopicName, location: str, placed: ReplicatedTable | None, *, closed: bool) -> TopicId:
        """Create an empty table, or adopt an existing empty one, and return its id.

        Args:
            name: the topic.
            location: the table's folder.
            placed: see `place`.
            closed: whether foreign writers must refuse to write to the table.

        Raises:
            OutdatedError: `location` was chosen by outdated metadata.
        """
        ...

    def discard(self, info: TopicInfo) -> None:
        """Remove the table of a topic that was not created, unless another creator can have adopted it."""
        ...

    def drop(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        """Keep writers out, call `forget` (which records the deletion), then remove the table."""
        ...

    def place_mirror(self, state: ClusterState, location: str) -> ReplicatedTable | None:
        """Choose the broker for the table of a mirror; None in a cluster of one root."""
        ...

    def make_mirror(
        self, source: TopicInfo, location: str, first: bytes | None, placed: ReplicatedTable | None
    ) -> TopicId:
        """Create the table of a mirror, or adopt an existing one, and return its id."""
        ...

    def mirror_rows(
        self, seq: int, info: TopicInfo, placed: ReplicatedTable | None
    ) -> Sequence[cluster_state.MetadataRow]:
        """Return the row that records where a mirror's table is; none in a cluster of one root."""
        ...

    def retry_elsewhere(self, create: Callable[[], TopicInfo], *, by_hand: bool = False) -> TopicInfo:
        """Create a topic; in a cluster of several roots, retry without the roots that refused its table.

        Args:
            create: creates the topic.
            by_hand: whether the caller has chosen the brokers.
        """
        ...


class TopicChanges(ABC):
    """The topics of a cluster: look up, create, change and delete them. `Cluster` supplies the tables. Thread-safe."""

    store: Storage
    """The root's files."""
    clock: Clock
    """Source of the rows' times."""
    metadata: MetadataLog
    """The table of topics, `__cluster_metadata`."""

    @property
    @abstractmethod
    def server(self) -> ServerProperties:
        """Cluster-wide server defaults in force."""

    @property
    @abstractmethod
    def _tables(self) -> TopicTables:
        """The tables of topics."""

    @abstractmethod
    def log(self, name: str, *, since: float = math.inf) -> TopicLog:
        """Open the log of an existing topic."""

    def topics(self) -> Mapping[str, TopicInfo]:
        """Look at the metadata and return all topics by name."""
        return dict(self.metadata.refresh().topics)

    def topic(self, name: str, *, since: float = math.inf) -> TopicInfo:
        """Look at the metadata and return one topic.

        Raises:
            InvalidTopicError, UnknownTopicOrPartitionError: the name is invalid, or the topic does not exist.
        """
        return self.metadata.refresh(since=since).require(check_topic_name(name))

    def ensure_topic(self, name: str) -> TopicInfo:
        """Return the topic; create it with defaults if it is missing and `auto.create.topics.enable` allows that.

        Raises:
            UnknownTopicOrPartitionError: the topic is missing and may not be created.
        """
        known = self.metadata.refresh().topics.get(check_topic_name(name))
        if known is not None:
            return known
        if not self.server.auto_create_topics:
            raise errors.UnknownTopicOrPartitionError(
                f"topic {name!r} does not exist, and auto.create.topics.enable=false"
            )
        try:
            return self.create_topic(name, -1, {})
        except errors.TopicAlreadyExistsError:
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
        begins: cluster_state.LogStartsMoved | None = None,
    ) -> TopicInfo:
        """Create a topic with checked settings.

        Args:
            name: its name.
            num_partitions: -1 takes the server's default, or the number of assignments.
            configs: settings of the topic.
            validate_only: check, and create nothing.
            replication_factor: number of roots that hold the topic; -1 takes the server's default.
            assignments: broker ids by partition, the preferred leader first. All partitions of a topic are in one
                table, so they all have the same brokers.
            begins: log starts of some partitions; they become visible together with the topic.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: the name,
                partition count or a setting is rejected.
            InvalidReplicationFactorError: too few roots exist or answer.
            InvalidReplicationAssignmentError: a broker does not exist, partitions have different brokers, or no
                assigned broker answers.
        """
        checked = check_topic_name(name)
        settings = TOPIC_PROPERTIES.check_all(configs)
        if num_partitions != -1:
            check_partition_count(num_partitions)
        made: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            # Read again for this state, because another client may have changed the defaults.
            server = self.server
            total = server.num_partitions if num_partitions == -1 else num_partitions
            closed = server.is_closed(settings)
            if checked in state.topics:
                raise errors.TopicAlreadyExistsError(f"topic {name!r} already exists")
            now = self.clock.now_ms()
            used = state.was_used(checked)
            location = self._tables.location(checked, used_before=used)
            placed = self._tables.place(state, location, total, replication_factor, assignments)
            table_id = TopicId("")
            if not validate_only:
                table_id = self._tables.create(checked, location, placed, closed=closed)
            info = TopicInfo(
                name=checked,
                topic_id=table_id,
                location=location,
                num_partitions=total,
                configs=settings,
                created_ms=now,
            )
            made.append(info)
            if validate_only:
                return []
            rows = [cluster_state.topic_row(state.seq + 1, now, info, "created")]
            if begins is not None:
                starts = {p: move.offset for p, move in begins.moves.items()}
                rows.append(
                    cluster_state.log_start_row(state.seq + 2, now, info, starts, reason=begins.reason, run=begins.run)
                )
            if placed is not None:
                seq = rows[-1].seq + 1
                rows.append(
                    cluster_state.replicas_row(seq, now, placed, "created", topic=info.name, topic_id=info.topic_id)
                )
            return rows

        return self._tables.retry_elsewhere(lambda: self._landed(plan, made), by_hand=bool(assignments))

    def _landed(
        self, plan: Callable[[ClusterState], Sequence[cluster_state.MetadataRow]], made: list[TopicInfo]
    ) -> TopicInfo:
        """Carry out a plan that creates a topic with its table, and remove the tables of failed tries.

        Args:
            plan: makes the rows, and adds the topic whose table it has created to `made`.
            made: gets the topics of all tries; topics of an earlier call are cleared.

        Returns:
            The topic of the try that was committed.

        Raises:
            TopicAlreadyExistsError: another client has created the topic.
        """
        made.clear()
        while True:
            try:
                self.metadata.transact(plan)
            except OutdatedError:
                continue
            except errors.TopicAlreadyExistsError:
                discard_tables(self._tables, made)
                raise
            discard_tables(self._tables, made[:-1])
            return made[-1]

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data."""
        info = self.metadata.refresh().require(check_topic_name(name))
        if self.server.get("delete.topic.enable") != "true":
            raise errors.PolicyViolationError(f"topic {name!r} may not be deleted: delete.topic.enable=false")

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            current = state.require(name)
            if current.topic_id != info.topic_id:
                raise errors.UnknownTopicOrPartitionError(f"topic {name!r} was deleted and created again meanwhile")
            return [cluster_state.topic_row(state.seq + 1, self.clock.now_ms(), current, "deleted", deleted=True)]

        self._tables.drop(info, lambda: self.metadata.transact(plan))

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> TopicInfo:
        """Raise the topic's partition count to `total`."""

        def change(info: TopicInfo) -> TopicInfo:
            check_partition_count(total)
            if total <= info.num_partitions:
                raise errors.InvalidPartitionsError(
                    f"topic {name!r} has {info.num_partitions} partitions, which is not lower than {total}"
                )
            return replace(info, num_partitions=total)

        return self._change(name, f"partitions raised to {total}", change, validate_only=validate_only)

    def set_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> TopicInfo:
        """Replace all settings of the topic by these, after a check."""
        settings = TOPIC_PROPERTIES.check_all(configs)
        return self.edit_configs(name, lambda _: settings, validate_only=validate_only)

    def edit_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> TopicInfo:
        """Replace the settings of the topic by the checked result of `edit`.

        If another client changes the topic first, `edit` is called again with the newer settings. So two clients that
        change different settings at the same time lose neither change.
        """
        before: list[TopicInfo] = []

        def change(info: TopicInfo) -> TopicInfo:
            before[:] = [info]
            return replace(info, configs=TOPIC_PROPERTIES.check_all(edit(info.configs)))

        after = self._change(name, "configs changed", change, validate_only=validate_only)
        # Also if the setting is unchanged, because the call that changed it may have been interrupted.
        if not validate_only and any(FOREIGN_WRITES in info.configs for info in (*before, after)):
            self.log(after.name).apply_foreign_writes(Deadline(self.clock, PROTOCOL_TIMEOUT_MS))
        return after

    def _change(
        self, name: str, change: str, edit: Callable[[TopicInfo], TopicInfo], *, validate_only: bool
    ) -> TopicInfo:
        checked = check_topic_name(name)
        after: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            state.require(checked).check_own()
            state.require(checked).check_settled()
            edited = edit(state.require(checked))
            after[:] = [edited]
            if validate_only or edited == state.topics[checked]:
                return []
            return [cluster_state.topic_row(state.seq + 1, self.clock.now_ms(), edited, change)]

        self.metadata.transact(plan)
        return after[0]

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
        """Record a later log start for some partitions; never moves one back.

        Args:
            name: the topic.
            starts: first offset to keep, by partition.
            reason: the operation, such as `retention` or `delete_records`, which `OffsetOutOfRangeError` quotes.
            run: id of the run that moves the log start.
            topic_id: id of the topic that the offsets belong to; None takes the current topic of that name.
            log: the topic's log if the caller has it open, because opening one may take 100 ms.

        Raises:
            TopicDeletedError: the name belongs to another topic; nothing was moved.
            OffsetOutOfRangeError, UnknownTopicOrPartitionError: an offset is above the log end, or a partition does not
                exist.
        """
        opened = self.log(name) if log is None else log
        opened.refresh()

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            info = state.require(name)
            info.check_own()
            if topic_id is not None and info.topic_id != topic_id:
                raise errors.TopicDeletedError(name, topic_id, info.topic_id)
            risen: dict[int, int] = {}
            for partition, offset in sorted(starts.items()):
                if partition not in info.partitions:
                    raise errors.UnknownTopicOrPartitionError(f"{name}-{partition} does not exist")
                live = range(info.log_start(partition), opened.log_end(partition))
                if offset < 0 or offset > live.stop:
                    raise errors.OffsetOutOfRangeError({f"{name}-{partition}": offset}, {f"{name}-{partition}": live})
                if offset > live.start:
                    risen[partition] = offset
            if not risen:
                return []
            return [
                cluster_state.log_start_row(state.seq + 1, self.clock.now_ms(), info, risen, reason=reason, run=run)
            ]

        self.metadata.transact(plan)
        return self.metadata.state.require(name)

    def create_mirror(self, source: TopicInfo, mirrored: Mirrored, first: bytes | None) -> TopicInfo:
        """Create a read-only copy of another cluster's topic, with an empty table of the same id.

        Args:
            source: the topic to copy.
            mirrored: the state of the copy.
            first: content of the first version of the source's table; None if the source's log no longer has it.

        Raises:
            TopicAlreadyExistsError: the cluster has a topic of that name.
            MirrorError: files of a deleted topic of the same id still exist.
        """
        made: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[cluster_state.MetadataRow]:
            if source.name in state.topics:
                raise errors.TopicAlreadyExistsError(f"topic {source.name!r} already exists")
            _check_gone(self.store, source, state)
            used_before = state.was_used(source.name)
            location = self._tables.location(source.name, used_before=used_before)
            placed = self._tables.place_mirror(state, location)
            table_id = self._tables.make_mirror(source, location, first, placed)
            if table_id != source.table_id:
                raise errors.TopicAlreadyExistsError(f"topic {source.name!r} is being created by another client")
            topic_id, origin_id = ids_of_mirror(table_id, used_before=used_before)
            info = replace(
                source, topic_id=topic_id, origin_id=origin_id, location=location, log_starts={}, mirror=mirrored
            )
            made.append(info)
            return [
                cluster_state.topic_row(state.seq + 1, mirrored.time_ms, info, "created"),
                cluster_state.mirror_row(state.seq + 2, info, mirrored, f"made a mirror of {mirrored.source}"),
                *self._tables.mirror_rows(state.seq + 3, info, placed),
            ]

        return self._tables.retry_elsewhere(lambda: self._landed(plan, made))


def ids_of_mirror(table_id: TopicId, *, used_before: bool) -> tuple[TopicId, TopicId | None]:
    """Return the id of a mirror, and the id of its table if that differs.

    If the name was used before, transactions and committed offsets of a deleted topic may name the table's id. They
    must not apply to the mirror, so it gets a new id.
    """
    return (TopicId(str(uuid.uuid4())), table_id) if used_before else (table_id, None)


def _check_gone(store: Storage, source: TopicInfo, state: ClusterState) -> None:
    """Refuse a deleted id while its files exist, because the two tables could not be told apart."""
    last = state.gone.get(source.name)
    if last is None or last.table_id != source.table_id or store.coordination.reach == "machine":
        return
    if LogFiles.listed(store.at(last.location)).commits:
        raise errors.MirrorError(
            f"topic {source.name!r} was deleted here, and its files still exist: run `kafkalike maintain` "
            "until it has removed them, then mirror the topic"
        )


def discard_tables(tables: TopicTables, made: Sequence[TopicInfo]) -> None:
    """Remove tables of plans that were surely not committed; maintenance removes the tables of failed calls."""
    for info in made:
        if info.topic_id:
            tables.discard(info)
