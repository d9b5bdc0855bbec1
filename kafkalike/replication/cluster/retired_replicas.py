"""Retired replicas: remove the data files that replicas left where their table no longer has them. Their logs stay.

Kafka removes what a reassigned replica has left, too. Here the log of versions stays, as it keeps out writers that have
slept since the replica was in the chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.delta.layout import location_in
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.model.brokers import REPLICAS, ReplicatedTable
from kafkalike.model.metadata_rows import parse_row
from kafkalike.model.replication.isr_changes import giving_up
from kafkalike.model.replication.registration import Replica, ReplicaError
from kafkalike.replication.cluster.cluster_storage import replica_in
from kafkalike.replication.cluster.epoch_marker import configuration_in

if TYPE_CHECKING:
    from kafkalike.replication.cluster.broker_context import BrokerContext
    from kafkalike.storage.port import Storage

DELAY: Final = "kafkalike.replaced.file.delay.ms"
"""For how long queries that began before may read the files."""


class _Former(NamedTuple):
    location: str
    replica: Replica
    folder: Storage
    """Where it is."""


class FormerReplicas:
    """What replicas have left at roots that are not assigned to their tables any more, or under another name.

    Args:
        cluster: whose.
    """

    def __init__(self, cluster: BrokerContext) -> None:
        self._cluster = cluster

    def clear(self) -> int:
        """Remove their data files, a while after the table's replicas were changed last.

        Returns:
            How many replicas had some.

        Raises:
            KafkaStorageError, OSError: a root refused, or gave no answer, or the controller gave none: the first such
                error. What could be done was done.
        """
        count, failed = 0, list[KafkaError | OSError]()
        for former in list(self._found(failed)):
            try:
                count += self._emptied(former)
            except (KafkaError, OSError) as cause:
                failed.append(cause)
        if failed:
            raise failed[0]
        return count

    def _found(self, failed: list[KafkaError | OSError]) -> Iterator[_Former]:
        state = self._cluster.metadata.refresh_strictly()
        changed = self._changed()
        due = {table.location: table for table in state.replicas.values() if self._is_due(table, changed)}
        for broker in sorted(state.brokers) if due else ():
            try:
                root = self._cluster.store.root_of(broker)
                folders = root.folders() if root.is_there() else ()
            except (KafkaError, OSError) as cause:
                failed.append(cause)
                continue
            for folder in folders:
                table = due.get(location_in(folder)) or due.get(folder)
                if table is not None:
                    replica = replica_in(folder, table.location, broker)
                    if not _is_kept(table, replica):
                        yield _Former(table.location, replica, root.at(folder))

    def _changed(self) -> Mapping[str, int]:
        """When the replicas of tables were changed last, ms, by location."""
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
            # Perhaps somebody has let it in meanwhile, or is to.
            return False
        self._check_known(former, table)
        if all(member.broker != replica.broker for member in table.registration.chain):
            # Whatever its name: whoever is about to let it in, or to choose it, goes by what is registered.
            roots = self._cluster.store.replicas(location).roots
            try:
                if roots.carry_out(giving_up(replica.broker)) is None:
                    return False
            except ReplicaError:
                return False
        _remove(folder, files)
        return True

    def _check_known(self, former: _Former, table: ReplicatedTable) -> None:
        """Refuse what may be newer than all that the metadata know, as after a recovery that lost some of them.

        Raises:
            KafkaStorageError: it is.
        """
        try:
            said = configuration_in(former.folder, former.location)
        except (KafkaError, FileNotFoundError):
            # No log is there that can be read, and none is newer.
            return
        if said is not None and said.epoch > table.registration.epoch:
            raise KafkaStorageError(
                f"{former.folder.uri} is of epoch {said.epoch}, and the metadata know of none above "
                f"{table.registration.epoch}: its files stay; see whether {former.location} lacks any record"
            )


def _is_kept(table: ReplicatedTable, replica: Replica) -> bool:
    """Whether a replica is written, or its broker is to come back, or to be chosen where nobody else is left."""
    return replica in table.registration.chain or (replica.broker in table.assigned and replica.broker not in table.isr)


def _remove(folder: Storage, files: Sequence[str]) -> None:
    folder.scheduler.beside([partial(folder.remove, name) for name in files])
