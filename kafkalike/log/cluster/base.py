"""ClusterBase: what creating, changing and deleting topics means, whatever the topics are stored in."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from kafkalike.errors import (
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicDeletedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.port import ControlLog, Replication, TopicLog, Transactions
from kafkalike.model.brokers import ONLY_BROKER
from kafkalike.model.clock import Clock
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.config.server import ServerConfig
from kafkalike.model.config.topic import FOREIGN_WRITES, TOPIC_PROPERTIES
from kafkalike.model.config.topic_changes import check_partition_count
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.metadata_rows import LogStartsMoved, MetadataRow, log_start_row, replicas_row, topic_row
from kafkalike.model.names import TopicId, TopicName, check_topic_name
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.cluster.server_defaults import ServerDefaults
    from kafkalike.model.brokers import AddRoot, ReplicatedTable
    from kafkalike.model.schemas.rows import SchemaRow
    from kafkalike.model.schemas.state import RegistryState


class OutdatedError(Exception):
    """The metadata have moved on since a change was planned: it is to be planned anew."""


class ClusterBase(abc.ABC):
    """Topics of a cluster over a control log; subclasses say where the tables are."""

    metadata: ControlLog[ClusterState, MetadataRow]
    groups: ControlLog[GroupsState, GroupRow]

    @property
    @abc.abstractmethod
    def schemas(self) -> ControlLog[RegistryState, SchemaRow]:
        """Schemas with their subjects, ids, levels and modes."""

    def __init__(self, root: str, defaults: ServerDefaults, clock: Clock) -> None:
        self.root = root
        self.defaults = defaults
        self.clock = clock

    @property
    def server(self) -> ServerConfig:
        """Cluster-wide defaults, as of the last look at the metadata."""
        return self.defaults.in_force()

    def edit_defaults(
        self, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace the cluster-wide defaults by what `edit` makes of those of the moment."""
        self.defaults.edit(edit, validate_only=validate_only)

    def _place(
        self,
        state: ClusterState,
        location: str,
        partitions: int,
        factor: int,
        assignments: Mapping[int, Sequence[int]] | None,
    ) -> ReplicatedTable | None:
        """Say which brokers shall have the table of a new topic; None where there is one root.

        Raises:
            InvalidReplicationFactorError, InvalidReplicationAssignmentError: it cannot be so.
        """
        from kafkalike.model.replication.assignment import check_assignment, check_factor

        del state, location, partitions
        if factor != -1:
            check_factor(factor, 1)
        if assignments:
            check_assignment(assignments, {ONLY_BROKER: None})
        return None

    @abc.abstractmethod
    def _create_table(
        self, name: TopicName, location: str, placed: ReplicatedTable | None = None, *, closed: bool = True
    ) -> TopicId:
        """Make an empty table, or take one that is there, and return its id.

        Args:
            name: the topic.
            location: the table's folder.
            placed: see `_place`.
            closed: whether foreign writers are to refuse it.

        Raises:
            OutdatedError: `location` was chosen by metadata that do not hold any more.
        """

    @abc.abstractmethod
    def _discard_table(self, info: TopicInfo) -> None:
        """Remove a table that was made for a topic that does not come to be, if nobody else can have taken it."""

    @abc.abstractmethod
    def _location(self, name: TopicName, *, used_before: bool) -> str:
        """Folder, relative to the root, for the table of a new topic."""

    @abc.abstractmethod
    def _drop_table(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        """Keep writers out, call `forget` (which records the deletion), then remove the table."""

    @property
    @abc.abstractmethod
    def transactions(self) -> Transactions:
        """Transactions over several topics and groups."""

    add_root: AddRoot | None = None
    """Gives the cluster another root, where that is possible; after that it must be opened anew."""

    @cached_property
    def replication(self) -> Replication:
        """Brokers and replicas."""
        from kafkalike.log.cluster.single_broker import SingleBroker

        return SingleBroker(
            self.root, self.topics, self.topic, lambda: self.metadata.refresh().seq, lambda: self.add_root
        )

    @abc.abstractmethod
    def log(self, name: str, *, since: float = math.inf) -> TopicLog:
        """Open the log of an existing topic."""

    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics by name, fresh."""
        return dict(self.metadata.refresh().topics)

    def topic(self, name: str, *, since: float = math.inf) -> TopicInfo:
        """One topic, fresh, or as of a look since a time."""
        return self.metadata.refresh(since=since).require(check_topic_name(name))

    def ensure_topic(self, name: str) -> TopicInfo:
        """The topic, created with the server's defaults when it is missing and that is allowed."""
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
        """Create a topic; see `Cluster.create_topic`.

        `begins` says where the logs of some partitions begin; nobody ever sees the topic without that.
        """
        checked = check_topic_name(name)
        settings = TOPIC_PROPERTIES.check_all(configs)
        if num_partitions != -1:
            check_partition_count(num_partitions)
        made: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            # The defaults of this state: others may have changed them since this client looked.
            server = self.server
            total = server.num_partitions if num_partitions == -1 else num_partitions
            closed = server.is_closed(settings)
            if checked in state.topics:
                raise TopicAlreadyExistsError(f"topic {name!r} already exists")
            now = self.clock.now_ms()
            used = state.was_used(checked)
            location = self._location(checked, used_before=used)
            placed = self._place(state, location, total, replication_factor, assignments)
            info = TopicInfo(
                name=checked,
                topic_id=TopicId("") if validate_only else self._create_table(checked, location, placed, closed=closed),
                location=location,
                num_partitions=total,
                configs=settings,
                created_ms=now,
            )
            made.append(info)
            if validate_only:
                return []
            rows = [topic_row(state.seq + 1, now, info, "created")]
            if begins is not None:
                starts = {p: move.offset for p, move in begins.moves.items()}
                rows.append(log_start_row(state.seq + 2, now, info, starts, reason=begins.reason, run=begins.run))
            if placed is not None:
                seq = rows[-1].seq + 1
                rows.append(replicas_row(seq, now, placed, "created", topic=info.name, topic_id=info.topic_id))
            return rows

        return self._landed(plan, made)

    def _landed(self, plan: Callable[[ClusterState], Sequence[MetadataRow]], made: Sequence[TopicInfo]) -> TopicInfo:
        """Carry out a plan that makes a topic with its table, and remove the tables of those tries that did not land.

        Args:
            plan: makes the rows, and adds the topic that it has made a table for to `made`.
            made: the topics of all tries.

        Returns:
            The topic of the try that landed.

        Raises:
            TopicAlreadyExistsError: somebody else has made the topic.
        """
        while True:
            try:
                self.metadata.transact(plan)
            except OutdatedError:
                continue
            except TopicAlreadyExistsError:
                self._discard(made)
                raise
            self._discard(made[:-1])
            return made[-1]

    def _discard(self, made: Sequence[TopicInfo]) -> None:
        """Remove tables of plans that surely did not land; those of calls that failed, maintenance removes."""
        for info in made:
            if info.topic_id:
                self._discard_table(info)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data."""
        info = self.topic(name)
        if self.server.get("delete.topic.enable") != "true":
            raise PolicyViolationError(f"topic {name!r} may not be deleted: delete.topic.enable=false")

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            current = state.require(name)
            if current.topic_id != info.topic_id:
                raise UnknownTopicOrPartitionError(f"topic {name!r} was deleted and created again meanwhile")
            return [topic_row(state.seq + 1, self.clock.now_ms(), current, "deleted", deleted=True)]

        self._drop_table(info, lambda: self.metadata.transact(plan))

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> TopicInfo:
        """Raise the partition count to `total`."""

        def change(info: TopicInfo) -> TopicInfo:
            check_partition_count(total)
            if total <= info.num_partitions:
                raise InvalidPartitionsError(
                    f"topic {name!r} has {info.num_partitions} partitions, which is not lower than {total}"
                )
            return replace(info, num_partitions=total)

        return self._change(name, f"partitions raised to {total}", change, validate_only=validate_only)

    def set_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> TopicInfo:
        """Replace the topic's own settings by these."""
        settings = TOPIC_PROPERTIES.check_all(configs)
        return self.edit_configs(name, lambda _: settings, validate_only=validate_only)

    def edit_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> TopicInfo:
        """Replace the topic's own settings by what `edit` makes of those of the moment."""
        before: list[TopicInfo] = []

        def change(info: TopicInfo) -> TopicInfo:
            before[:] = [info]
            return replace(info, configs=TOPIC_PROPERTIES.check_all(edit(info.configs)))

        after = self._change(name, "configs changed", change, validate_only=validate_only)
        # Also where it was so before: the call that changed it may have been cut off.
        if not validate_only and any(FOREIGN_WRITES in info.configs for info in (*before, after)):
            self._apply_foreign_writes(after)
        return after

    def _apply_foreign_writes(self, info: TopicInfo) -> None:
        """Close or open a topic's table to foreign writers, as its settings say; no such table, nothing to do."""
        del info

    def _change(
        self, name: str, change: str, edit: Callable[[TopicInfo], TopicInfo], *, validate_only: bool
    ) -> TopicInfo:
        checked = check_topic_name(name)
        after: list[TopicInfo] = []

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            state.require(checked).check_own()
            edited = edit(state.require(checked))
            after[:] = [edited]
            if validate_only or edited == state.topics[checked]:
                return []
            return [topic_row(state.seq + 1, self.clock.now_ms(), edited, change)]

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
        """Record that the log of some partitions begins later; never moves it back."""
        opened = self.log(name) if log is None else log
        opened.refresh()

        def plan(state: ClusterState) -> Sequence[MetadataRow]:
            info = state.require(name)
            info.check_own()
            if topic_id is not None and info.topic_id != topic_id:
                raise TopicDeletedError(name, topic_id, info.topic_id)
            risen: dict[int, int] = {}
            for partition, offset in sorted(starts.items()):
                if partition not in info.partitions:
                    raise UnknownTopicOrPartitionError(f"{name}-{partition} does not exist")
                live = range(info.log_start(partition), opened.log_end(partition))
                if offset < 0 or offset > live.stop:
                    raise OffsetOutOfRangeError({f"{name}-{partition}": offset}, {f"{name}-{partition}": live})
                if offset > live.start:
                    risen[partition] = offset
            if not risen:
                return []
            return [log_start_row(state.seq + 1, self.clock.now_ms(), info, risen, reason=reason, run=run)]

        self.metadata.transact(plan)
        return self.metadata.state.require(name)

    def disk_usage(self, name: str) -> Mapping[int, int]:
        """Bytes of live data files, by partition."""
        log = self.log(name)
        log.refresh()
        return {p: sum(s.size_bytes for s in log.segments(p)) for p in log.info.partitions}
