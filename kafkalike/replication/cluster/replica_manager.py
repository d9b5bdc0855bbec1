"""Replica manager: add and remove replicas of a table, move its leadership, and hold unclean elections.

Like Kafka, a replica that was reassigned loses its data files. Its log of versions stays, because it fences writers
that have been asleep since the replica was in the chain.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kafkalike import errors
from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.layout import CONSUMER_OFFSETS, TRANSACTIONS, is_folder_of, location_in
from kafkalike.delta.replica_files import VersionFile
from kafkalike.delta.table_state import FENCE
from kafkalike.log.cluster.server_defaults import ServerDefaults
from kafkalike.model.brokers import REPLICAS, ReplicatedTable
from kafkalike.model.clock import Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow, parse_row
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.replication import isr_changes, registration
from kafkalike.model.replication.isr_changes import giving_up
from kafkalike.model.replication.replica_effects import End
from kafkalike.model.replication.replica_protocol import Seen, appending
from kafkalike.replication.cluster.cluster_storage import ClusterStorage, replica_in
from kafkalike.replication.cluster.controller import MetadataController, StaleReadControlLog
from kafkalike.replication.cluster.epoch_marker import configuration_in
from kafkalike.replication.cluster.root_resolver import RootResolver

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage


T = TypeVar("T")

TRIES: Final = 10
"""Attempts to let a replica join while its log falls behind, or while the log must grow past an unpublished version."""


class _End(NamedTuple):
    """The end of a replica's log."""

    epoch: int
    version: int
    replica: registration.Replica


class ReplicaManager:
    """Manages the replicas of one table.

    Args:
        cluster: the cluster.
        location: the table's folder.
    """

    def __init__(self, cluster: BrokerContext, location: str) -> None:
        self._cluster = cluster
        self._location = location
        self._replicas = cluster.store.replicas(location)
        self._roots = self._replicas.roots
        self._controller = cluster.controller_of(location)

    def _table(self) -> ReplicatedTable:
        return self._cluster.metadata.refresh().replicas[self._location]

    def _alive(self, broker: int) -> bool:
        return self._cluster.store.root_of(broker).is_there()

    def end_of(self, broker: int) -> tuple[int | None, int | None, int | None]:
        """Return the last version of a broker's replica, the bytes of its data files, and that version's time, ms.

        All are None if the root does not answer; the time is None if a checkpoint stands in the version's place.
        """
        registered = self._table().registration
        replica = next((r for r in registered.chain if r.broker == broker), registered.name(broker))
        store = self._replicas.store_of(replica)
        try:
            version: int = self._roots.do(End(replica))
            last = store.look(log_name(version))
            size = sum(entry.size for entry in store.list(deep=True) if entry.name.endswith(".parquet"))
            return version, size, None if last is None else VersionFile(last).commit.timestamp_ms
        except OSError:
            # The root is there and has no replica yet.
            return (-1, 0, None) if self._alive(broker) else (None, None, None)

    # --- one run -------------------------------------------------------------------------------

    def replicate(self) -> list[str]:
        """Run all steps that are due; return the failures with their reasons."""
        failed: list[str] = []
        for step in (self._evict, self._let_in, self._let_out, self._lead_back):
            try:
                step(failed)
            except (
                errors.KafkaError,
                OSError,
                registration.ReplicaError,
                registration.FellBehindError,
                registration.NoReplicaLeftError,
            ) as cause:
                failed.append(str(cause) or type(cause).__name__)
        return failed

    def _evict(self, failed: list[str]) -> None:
        """Remove replicas that do not answer; if none in sync answers, hold an unclean election if it is enabled."""
        registered = self._table().registration
        gone = [replica for replica in registered.chain if not self._alive(replica.broker)]
        if set(registered.in_sync) <= set(gone):
            if all(self._roots.note_down(replica) >= self._cluster.store.lag_ms for replica in registered.in_sync):
                if self._is_unclean_allowed():
                    self.elect_unclean(self._location)
                else:
                    failed.append("no replica in sync gives an answer")
            return
        for replica in gone:
            self._replicas.published.report(replica)

    def _is_unclean_allowed(self) -> bool:
        settings = self._cluster.settings(self._cluster.metadata.state, self._location)
        return settings is not None and settings["unclean.leader.election.enable"] == "true"

    def _let_in(self, failed: list[str]) -> None:
        for broker in self._table().assigned:
            if broker in self._table().isr:
                continue
            if not self._alive(broker):
                failed.append(f"the root of broker {broker} gives no answer")
                continue
            self.join(broker, leads=broker == self._table().assigned[0])

    def _let_out(self, failed: list[str]) -> None:
        """Remove replicas that are not assigned, once all assigned ones are in sync."""
        del failed
        table = self._table()
        if not set(table.assigned) <= set(table.isr):
            return
        for replica in table.registration.chain:
            if replica.broker not in table.assigned:
                self.take_out(replica.broker)

    def _lead_back(self, failed: list[str]) -> None:
        del failed
        table = self._table()
        preferred = table.assigned[0]
        if table.leader == preferred or preferred not in table.isr or not self._alive(preferred):
            return
        if self._cluster.server.get("auto.leader.rebalance.enable") == "true" and len(table.isr) > self._min_isr():
            self.lead(preferred)

    def _min_isr(self) -> int:
        settings = self._cluster.settings(self._cluster.metadata.state, self._location)
        return 1 if settings is None else int(settings["min.insync.replicas"])

    # --- steps ---------------------------------------------------------------------------------

    def join(self, broker: int, *, leads: bool) -> None:
        """Let a broker's replica join.

        Raises:
            KafkaStorageError: it cannot join at the moment.
            OSError: its root does not answer.
        """
        for _ in range(TRIES):
            registered = self._controller.look()
            if any(replica.broker == broker for replica in registered.in_sync):
                return
            self._roots.make_replica(registered.name(broker))
            if self._location == CONSUMER_OFFSETS:
                self._copy_staged(broker)
            view = self._fresh_view()
            registered = self._controller.look()
            seen: Seen = {}
            try:
                done = self._roots.carry_out(isr_changes.joining(broker, registered, view, seen, leads=leads))
            except registration.FellBehindError:
                self._replicas.published.forget()
                continue
            except registration.ReplicaError as failed:
                if failed.replica.broker == broker and failed.replica not in registered.chain:
                    raise errors.KafkaStorageError(
                        f"broker {broker} does not answer, or has a different log: {failed}"
                    ) from failed
                self._replicas.published.mend(failed)
                continue
            finally:
                self._roots.logs.forget_proven()
            self._replicas.published.forget()
            if done is None:
                # The log must grow past a version that only that replica has.
                self._go_on()
        raise errors.KafkaStorageError(
            f"broker {broker} could not join in {TRIES} attempts; the next run of `kafkalike replicate` continues"
        )

    def _fresh_view(self) -> registration.View:
        self._replicas.published.forget()
        view = self._replicas.published.view()
        if view is None:
            raise errors.KafkaStorageError(f"{self._location} has no table yet")
        return view

    def _go_on(self) -> None:
        empty = CommitFile(
            version=0, time_ms=self._cluster.clock.now_ms(), operation=FENCE, append_id=uuid.uuid4().hex
        ).content()
        with contextlib.suppress(registration.FellBehindError):
            self._roots.carry_out(appending(self._fresh_view(), VersionFile(empty), {}))

    def _copy_staged(self, broker: int) -> None:
        """Copy the staged records of transactions, which decisions in the table name, to a broker."""
        here = self._cluster.store.root_of(broker).at(TRANSACTIONS)
        every = self._cluster.store.at(TRANSACTIONS)
        for entry in every.list(deep=True):
            with contextlib.suppress(FileNotFoundError):
                content = every.read(entry.name)
                here.make_folder(entry.name.rpartition("/")[0])
                here.put_if_absent(entry.name, content, durable=True)

    def take_out(self, broker: int) -> None:
        """Remove a broker's replica from the chain, if it is there."""
        registered = self._controller.look()
        for replica in registered.chain:
            if replica.broker == broker:
                self._left(replica, registered)

    def _left(self, replica: registration.Replica, registered: registration.Registration) -> None:
        view = self._fresh_view()
        seen: Seen = {}
        try:
            self._roots.carry_out(isr_changes.leaving(replica, registered, view, seen))
        except registration.NoReplicaLeftError:
            raise errors.KafkaStorageError(f"broker {replica.broker} has the only replica in sync") from None
        except registration.ReplicaError as failed:
            self._replicas.published.mend(failed)
        self._replicas.published.forget()

    def lead(self, broker: int) -> None:
        """Make a broker's replica in sync the leader: it leaves, and joins again at the end of the chain."""
        registered = self._controller.look()
        if registered.leader.broker == broker:
            return
        if len(registered.in_sync) > 1:
            for replica in registered.in_sync:
                if replica.broker == broker:
                    self._left(replica, registered)
        self.join(broker, leads=True)

    def elect_unclean(self, topic: str) -> None:
        """Elect the replica with the longest log while no replica in sync answers; others are rebuilt.

        Raises:
            ElectionNotNeededError: a replica in sync answers.
            EligibleLeadersNotAvailableError: no replica answers.
        """
        table = self._table()
        registered = table.registration
        if any(self._alive(replica.broker) for replica in registered.in_sync):
            raise errors.ElectionNotNeededError(
                f"Leader election not needed for topic {topic}: a replica in sync answers"
            )
        out = [broker for broker in table.assigned if all(broker != member.broker for member in registered.chain)]
        found = [end for broker in out for end in self._ends_at(registered.name(broker))]
        if not found:
            # A recovery may have renamed all of them; a replica that was given up by name may be losing its files.
            named = {replica.broker for replica in registered.renamed}
            found = [end for broker in out if broker not in named for end in self._former_ends_at(broker)]
        if not found:
            raise errors.EligibleLeadersNotAvailableError(
                f"Failed to elect a leader of topic {topic}: no replica answers"
            )
        chosen = max(found).replica

        def prepare(life: int) -> None:
            self._roots.make_replica(registration.Replica(chosen.broker, life))

        election = isr_changes.choosing_unclean(chosen, registered.name(chosen.broker))
        if self._roots.carry_out(election, prepare=prepare) is None:
            raise errors.ElectionNotNeededError(f"topic {topic}: another client has held an election meanwhile")
        self._replicas.published.forget()

    def _ends_at(self, replica: registration.Replica) -> Iterator[_End]:
        """Yield the end of the log of a registered replica; nothing if it has none, or does not answer."""
        with contextlib.suppress(OSError, registration.ReplicaError):
            if self._alive(replica.broker) and (end := self._roots.do(End(replica))) >= 0:
                yield _End(0, end, replica)

    def _former_ends_at(self, broker: int) -> Iterator[_End]:
        """Yield the ends of all logs that a broker has of the table; the epoch tells which is the newest."""
        folders: Sequence[str] = ()
        with contextlib.suppress(OSError):
            folders = self._cluster.store.root_of(broker).folders() if self._alive(broker) else ()
        for folder in folders:
            if not is_folder_of(folder, self._location):
                continue
            replica = replica_in(folder, self._location, broker)
            with contextlib.suppress(OSError, registration.ReplicaError, errors.KafkaError):
                files = self._replicas.store_of(replica)
                known = configuration_in(files, self._location)
                yield _End(-1 if known is None else known.epoch, self._roots.do(End(replica)), replica)


DELAY: Final = "kafkalike.replaced.file.delay.ms"
"""How long the files remain for queries that started before."""


class _Former(NamedTuple):
    location: str
    replica: registration.Replica
    folder: Storage
    """The folder with its files."""


class FormerReplicas:
    """Replicas with files at roots that are not assigned to their tables anymore, or under an old name.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: BrokerContext) -> None:
        self._cluster = cluster

    def clear(self) -> int:
        """Remove their data files, some time after the last change of the table's replicas.

        Returns:
            How many replicas had files.

        Raises:
            KafkaStorageError, OSError: a root, or the controller, refused or did not answer. This is the first error;
                all other replicas were processed.
        """
        count, failed = 0, list[errors.KafkaError | OSError]()
        for former in list(self._found(failed)):
            try:
                count += self._emptied(former)
            except (errors.KafkaError, OSError) as cause:
                failed.append(cause)
        if failed:
            raise failed[0]
        return count

    def _found(self, failed: list[errors.KafkaError | OSError]) -> Iterator[_Former]:
        state = self._cluster.metadata.refresh_strictly()
        changed = self._changed()
        due = {table.location: table for table in state.replicas.values() if self._is_due(table, changed)}
        for broker in sorted(state.brokers) if due else ():
            try:
                root = self._cluster.store.root_of(broker)
                folders = root.folders() if root.is_there() else ()
            except (errors.KafkaError, OSError) as cause:
                failed.append(cause)
                continue
            for folder in folders:
                table = due.get(location_in(folder)) or due.get(folder)
                if table is not None:
                    replica = replica_in(folder, table.location, broker)
                    if not _is_kept(table, replica):
                        yield _Former(table.location, replica, root.at(folder))

    def _changed(self) -> Mapping[str, int]:
        """Return the time of the last change of each table's replicas, ms, by location."""
        found: dict[str, int] = {}
        for row in self._cluster.metadata.rows:
            if row.kind == REPLICAS and isinstance(said := parse_row(row), ReplicatedTable):
                found[said.location] = row.time_ms
        return found

    def _is_due(self, table: ReplicatedTable, changed: Mapping[str, int]) -> bool:
        settings = self._cluster.settings(self._cluster.metadata.state, table.location)
        if settings is None:
            settings = self._cluster.server.effective({})
        return self._cluster.clock.now_ms() - changed.get(table.location, 0) >= int(settings[DELAY])

    def _emptied(self, former: _Former) -> bool:
        location, replica, folder = former
        files = [entry.name for entry in folder.list(deep=True)]
        table = self._cluster.metadata.refresh_strictly().replicas.get(location)
        if not files or table is None or _is_kept(table, replica):
            # Another client may have let it join meanwhile, or may be about to.
            return False
        self._check_known(former, table)
        if all(member.broker != replica.broker for member in table.registration.chain):
            # Whatever its name: a client that lets it join, or elects it, relies on the registration.
            roots = self._cluster.store.replicas(location).roots
            try:
                if roots.carry_out(giving_up(replica.broker)) is None:
                    return False
            except registration.ReplicaError:
                return False
        folder.scheduler.beside([partial(folder.remove, name) for name in files])
        return True

    def _check_known(self, former: _Former, table: ReplicatedTable) -> None:
        """Raise for files that may be newer than all the metadata know, as after a recovery with losses.

        Raises:
            KafkaStorageError: they may be newer.
        """
        try:
            said = configuration_in(former.folder, former.location)
        except (errors.KafkaError, FileNotFoundError):
            # Without a readable log, the files cannot be newer.
            return
        if said is not None and said.epoch > table.registration.epoch:
            raise errors.KafkaStorageError(
                f"{former.folder.uri} has epoch {said.epoch}, but the newest epoch in the metadata is "
                f"{table.registration.epoch}: its files stay; check whether {former.location} lacks records"
            )


def _is_kept(table: ReplicatedTable, replica: registration.Replica) -> bool:
    """Return whether a replica is in use, will join again, or could be elected if no other is left."""
    return replica in table.registration.chain or (replica.broker in table.assigned and replica.broker not in table.isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The parts of a cluster of several roots that its brokers, replicas and recoveries share."""

    root: str
    """The cluster's name: its roots, joined by commas."""
    store: ClusterStorage
    places: RootResolver
    """Opens the roots of brokers."""
    metadata: StaleReadControlLog[ClusterState, MetadataRow]
    defaults: ServerDefaults
    clock: Clock
    usable: Callable[[ClusterState], dict[int, str | None]]
    """Returns the racks of the brokers that answer and may get new replicas, by id."""
    controller_of: Callable[[str], MetadataController]
    """Maps a folder to the controller of its table."""

    @property
    def server(self) -> ServerProperties:
        """The cluster-wide defaults, as of the last look at the metadata."""
        return self.defaults.in_force()

    def settings(self, state: ClusterState, location: str) -> Mapping[str, str] | None:
        """Return the effective settings of the topic whose table is in a folder; None for a control table."""
        info = next((info for info in state.topics.values() if info.location == location), None)
        return None if info is None else self.server.effective(info.configs)
