"""ReplicatedFiles: files that are no tables, such as staged records of transactions, kept at each replica of a table.

A decision names them, so they must be wherever the decision is: at all who are in sync of the table that has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from kafkalike.model.clock import Clock
from kafkalike.model.replication.registration import Replica
from kafkalike.replication.tables.failover_storage import FailoverAccess, FailoverStorage
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.port import BufferedOutput, Coordination, Entry, Storage

WAIT_SECONDS: Final = 0.05
"""Wait before a replica that gave no answer is asked again."""


class ReplicatedFiles(FailoverStorage):
    """A folder at each replica of a table that is in sync.

    Args:
        table: whose replicas.
        folder_of: a replica → the folder at its root.
        clock: waiting.
        coordination: the cluster's.
    """

    def __init__(
        self,
        table: TableReplicas,
        folder_of: Callable[[Replica], Storage],
        clock: Clock,
        coordination: Coordination,
    ) -> None:
        self._table = table
        self._folder_of = folder_of
        self._clock = clock
        self._coordination = coordination
        self.tasks = FailoverAccess(self._storages)

    def _storages(self) -> Sequence[Storage]:
        """The folder at each of them."""
        return [self._folder_of(replica) for replica in self._table.in_sync()]

    @property
    def coordination(self) -> Coordination:  # type: ignore[override]
        """The cluster's."""
        return self._coordination

    @property
    def uri(self) -> str:
        """The first one's; the table's name where nobody has it yet."""
        found = self._storages()
        return found[0].uri if found else self._table.uri

    def folders(self) -> Sequence[str]:
        """Names of the folders that one of them has."""
        found: set[str] = set()
        for store in self._storages():
            with contextlib.suppress(OSError):
                found.update(store.folders())
        return sorted(found)

    def at(self, folder: str) -> ReplicatedFiles:
        """The same folder of each."""
        return ReplicatedFiles(
            self._table, lambda replica: self._folder_of(replica).at(folder), self._clock, self._coordination
        )

    def _everywhere(self, do: Callable[[Storage], object]) -> None:
        """Do something at all in sync; one that gives no answer for too long is taken out.

        Raises:
            OSError: nobody else is in sync, or nobody can say so.
        """
        done: set[Replica] = set()
        while True:
            left = [replica for replica in self._table.in_sync() if replica not in done]
            if not left:
                return
            try:
                do(self._folder_of(left[0]))
            except OSError:
                if self._folder_of(left[0]).is_there():  # type: ignore[attr-defined]
                    raise
                self._table.published.report(left[0])
                self._clock.sleep(WAIT_SECONDS)
            else:
                done.add(left[0])

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file at each, unless there is one; whether the first one had none."""
        answers: list[bool] = []
        self._everywhere(lambda store: answers.append(store.put_if_absent(name, content, durable=durable)))
        return bool(answers) and answers[0]

    def replace(self, name: str, content: bytes) -> None:
        """Write a file at each."""
        self._everywhere(lambda store: store.replace(name, content))

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file at each, when it is closed."""
        folder = name.rpartition("/")[0]

        def put(content: bytes) -> None:
            if folder:
                self.make_folder(folder)
            self.replace(name, content)

        return pa.PythonFile(BufferedOutput(put), "w")

    def make_folder(self, folder: str) -> None:
        """Make a folder at each."""
        self._everywhere(lambda store: store.make_folder(folder))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files that one of them has."""
        found: dict[str, Entry] = {}
        for store in self._storages():
            try:
                for entry in store.list(folder, deep=deep, after=after):
                    found.setdefault(entry.name, entry)
            except OSError:
                continue
        return list(found.values())

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file at each that answers."""
        for storage in self._storages():
            storage.remove(name, quietly=quietly)

    def sync(self, name: str) -> None:
        """Make a file survive a power failure at each."""
        self._everywhere(lambda store: store.sync(name))
