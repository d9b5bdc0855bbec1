"""Replicated files: files that are no tables, such as staged records of transactions, kept at each replica of a table.

A decision names them, so they must be wherever the decision is: at all who are in sync of the table that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kafkalike.model.clock import Clock
from kafkalike.model.replication.registration import Replica
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.failover import FailoverStorage, FailoverWriter
from kafkalike.storage.port import Coordination, Storage

T = TypeVar("T")

WAIT_SECONDS: Final = 0.05
"""Wait before a replica that gave no answer is asked again."""


class ReplicaWriter(FailoverWriter):
    """Writes to the folder of each replica in sync; one that gives no answer for too long is taken out.

    Args:
        table: whose replicas.
        folder_of: a replica → the folder at its root.
        is_there: whether a replica's root answers.
        clock: waiting.
    """

    def __init__(
        self,
        table: TableReplicas,
        folder_of: Callable[[Replica], Storage],
        is_there: Callable[[Replica], bool],
        clock: Clock,
    ) -> None:
        self._table = table
        self._folder_of = folder_of
        self._is_there = is_there
        self._clock = clock

    def at(self, folder: str) -> ReplicaWriter:
        """Return the writer of the same folder below each of them."""
        return ReplicaWriter(
            self._table, lambda replica: self._folder_of(replica).at(folder), self._is_there, self._clock
        )

    def write(self, write: Callable[[Storage], T]) -> T | None:
        """Write to all in sync.

        Raises:
            OSError: nobody else is in sync, or nobody can say so.
        """
        answers: dict[Replica, T] = {}
        while True:
            left = [replica for replica in self._table.in_sync() if replica not in answers]
            if not left:
                return next(iter(answers.values()), None)
            try:
                answers[left[0]] = write(self._folder_of(left[0]))
            except OSError:
                if self._is_there(left[0]):
                    raise
                self._table.published.report(left[0])
                self._clock.sleep(WAIT_SECONDS)


def replicated_files(
    table: TableReplicas,
    folder_of: Callable[[Replica], Storage],
    is_there: Callable[[Replica], bool],
    clock: Clock,
    coordination: Coordination,
) -> FailoverStorage:
    """Return the files of a folder that each replica in sync of a table has at its root.

    Args:
        table: whose replicas.
        folder_of: a replica → the folder at its root.
        is_there: whether a replica's root answers.
        clock: waiting.
        coordination: the cluster's.
    """
    return FailoverStorage(
        lambda: [folder_of(replica) for replica in table.in_sync()],
        writer=ReplicaWriter(table, folder_of, is_there, clock),
        coordination=coordination,
        uri=table.uri,
    )
