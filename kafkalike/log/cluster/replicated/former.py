"""Former replicas: those that are out of their tables in; their data files removed, out. Their logs stay.

Kafka removes what a reassigned replica has left, too. Here the log of versions stays, as it keeps out writers that have
slept since the replica was in the chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalike.log.cluster.replicated.roots import replica_in
from kafkalike.log.table.layout import is_folder_of
from kafkalike.model.brokers import ReplicatedTable
from kafkalike.model.brokers.rows import REPLICAS
from kafkalike.model.metadata_rows import parse_row
from kafkalike.model.replication.joining import giving_up
from kafkalike.model.replication.values import Replica, ReplicaError

if TYPE_CHECKING:
    from kafkalike.log.cluster.replicated.home import BrokerHome
    from kafkalike.log.store.port import Store

DELAY = "kafkalike.replaced.file.delay.ms"
"""For how long queries that began before may read the files."""


class _Former(NamedTuple):
    table: ReplicatedTable
    replica: Replica
    folder: Store
    """Where it is."""


class FormerReplicas:
    """What replicas have left at roots that are not assigned to their tables any more, or under another name.

    Args:
        cluster: whose.
    """

    def __init__(self, cluster: BrokerHome) -> None:
        self._cluster = cluster

    def clear(self) -> int:
        """Remove their data files, a while after the table's replicas were changed last.

        Returns:
            How many replicas had some.

        Raises:
            KafkaStorageError, OSError: a root, or the controller, gave no answer; the next run goes on.
        """
        return sum(map(self._emptied, list(self._found())))

    def _found(self) -> Iterator[_Former]:
        state = self._cluster.metadata.refresh_strictly()
        changed = self._changed()
        due = [table for table in state.replicas.values() if self._is_due(table, changed)]
        store = self._cluster.store
        for broker in sorted(state.brokers):
            root = store.root_of(broker)
            folders = root.folders() if due and root.is_there() else ()
            for table in due:
                if broker in table.assigned and broker not in table.isr:
                    # It is to come back, or to be chosen where nobody else is left.
                    continue
                for folder in folders:
                    if is_folder_of(folder, table.location):
                        replica = replica_in(folder, table.location, broker)
                        if replica not in table.registration.chain:
                            yield _Former(table, replica, root.at(folder))

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
        table, replica, folder = former
        files = [entry.name for entry in folder.list(deep=True)]
        if not files:
            return False
        controller = self._cluster.controller_of(table.location)
        if replica == controller.look().name(replica.broker):
            roots = self._cluster.store.replicas(table.location).roots
            try:
                roots.carry_out(giving_up(replica.broker))
            except ReplicaError:
                return False
        registered = controller.look()
        if replica in registered.chain or replica == registered.name(replica.broker):
            # Somebody has let it in meanwhile.
            return False
        _remove(folder, files)
        return True


def _remove(folder: Store, files: Sequence[str]) -> None:
    folder.beside([partial(folder.remove, name) for name in files])
