"""Table replicas: a table with replicas as one process sees it: registration, published versions, next version.

All decisions are made by `kafkalike.model.replication`. A version costs one put at each replica in sync.

`ReplicaWriter` keeps files outside the table's log, such as staged records of transactions, at each replica. A
committed decision names these files, so they must be at every replica in sync of the table that holds the decision.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from kafkalike.delta.actions import log_name
from kafkalike.delta.replica_files import VersionFile
from kafkalike.errors import KafkaError, UnknownOutcomeError
from kafkalike.model.clock import Clock
from kafkalike.model.concurrency import OnError
from kafkalike.model.replication import registration
from kafkalike.model.replication.replica_protocol import Seen, appending
from kafkalike.replication.tables.protocol_runner import FIRST_WAIT_SECONDS, Landing, ProtocolRunner
from kafkalike.replication.tables.published_log import PublishedLog
from kafkalike.replication.tables.replica_logs import ReplicaRegistry, TableController
from kafkalike.storage.failover import FailoverStorage, FailoverWriter
from kafkalike.storage.port import Coordination, NotStoredError, Storage


class TableReplicas(ReplicaRegistry):
    """The replicas of one table. Thread-safe.

    Args:
        uri: the table's name in errors.
        store_of: maps a replica to the folder of its table.
        controller: decides the table's registration.
        clock: time and waiting.
        lag_ms: `replica.lag.time.max.ms`.
        down_before: see `ProtocolRunner`.
    """

    def __init__(
        self,
        uri: str,
        store_of: Callable[[registration.Replica], Storage],
        controller: TableController,
        clock: Clock,
        *,
        lag_ms: int,
        down_before: Callable[[registration.Replica], int] = lambda _: 0,
    ) -> None:
        super().__init__(uri, store_of, controller)
        self.roots = ProtocolRunner(self.store_of, controller, clock, lag_ms=lag_ms, down_before=down_before)
        self.refused: int | None = None
        """The broker that failed to take the first version at the table's creation."""
        self.published = PublishedLog(self, self.roots)
        self._clock = clock

    def wait_for(self, lag_ms: int) -> None:
        """Set `replica.lag.time.max.ms`."""
        self.roots.lag_ms = lag_ms

    def put(self, version: int, data: bytes, *, durable: bool) -> bool:
        """Create a version, unless it exists.

        Args:
            version: its number.
            data: the bytes of its file.
            durable: whether it must survive a power failure at each replica when this returns.

        Returns:
            Whether the version has this content; False if another writer made it.

        Raises:
            NotStoredError: it is not stored, and will not be.
            UnknownOutcomeError: it may be stored, or may still appear.
        """
        self.roots.durable = durable
        if version == 0:
            return self._created(data)
        view = self.published.view()
        if view is not None and view.end < version - 1:
            view = self.published.followed(view)
        if view is None or view.end < version - 1:
            raise NotStoredError(errno.ENOENT, f"{self.uri} has no version {version - 1}")
        if view.end >= version:
            return False
        return self._appended(view, VersionFile(data))

    def _appended(self, view: registration.View, content: VersionFile) -> bool:
        landing, seen = Landing(content), Seen()
        failed: Exception | None = None
        made = False
        with OnError(partial(self._abandon, view, content, landing)):
            try:
                self.roots.supplies.bring_new(view.configuration.chain, content.commit.adds)
                view, made = self.roots.carry_out(appending(view, content, seen), landing)
            except (registration.FellBehindError, registration.NoReplicaLeftError, KafkaError, OSError) as cause:
                self.published.forget()
                failed = cause
        if failed is not None:
            if landing.stored:
                self._forget_files(content)
                raise UnknownOutcomeError(f"commit to {self.uri}", content.append_id) from failed
            if isinstance(failed, registration.FellBehindError):
                return False
            raise NotStoredError(errno.EIO, f"no replica of {self.uri} accepts the commit: {failed}") from failed
        self.published.advance(view, {} if made and len(seen) == 1 else seen)
        if made:
            self._forget_files(content)
            self.published.note_made(view, content.data)
        return made

    def _abandon(self, view: registration.View, content: VersionFile, landing: Landing) -> None:
        """Drop what an interrupted append has made; its files stay if a version may name them."""
        self.published.forget()
        if not landing.stored:
            self._discard_files(view, content)
        self._forget_files(content)

    def _discard_files(self, view: registration.View, content: VersionFile) -> None:
        """Remove files that replicas received for a version that was not put anywhere."""
        new = [add.path for add in content.commit.adds if self.roots.supplies.content_of(add.path) is not None]
        for replica in view.configuration.chain:
            for path in new:
                self.store_of(replica).remove(path, quietly=True)

    def _forget_files(self, content: VersionFile) -> None:
        """Drop the data files of a content that will not be put again."""
        for add in content.commit.adds:
            self.roots.supplies.forget(add.path)

    def _created(self, data: bytes) -> bool:
        """Create the first version at all replicas in the chain; the seal that names them follows it."""
        stored, again, decided = False, True, data
        while again:
            again = False
            registered = self.controller.registered() or self.controller.found()
            decided = data
            for replica in registered.chain:
                try:
                    self.roots.make_replica(replica)
                    store = self.store_of(replica)
                    stored = store.put_if_absent(log_name(0), decided, durable=self.roots.durable) or stored
                    found = store.read(log_name(0))
                except OSError as cause:
                    self.refused = replica.broker
                    if again := self._waited(replica, registered):
                        break
                    if stored:
                        raise UnknownOutcomeError(
                            f"creation of {self.uri} at broker {replica.broker}: {cause}", VersionFile(data).append_id
                        ) from cause
                    raise NotStoredError(errno.EIO, f"broker {replica.broker} does not take it: {cause}") from cause
                if replica == registered.chain[0]:
                    decided = found
                elif found != decided:
                    raise NotStoredError(errno.EEXIST, f"there is another table at broker {replica.broker}")
        self.published.forget()
        self.published.view()
        return decided == data

    def _waited(self, replica: registration.Replica, registered: registration.Registration) -> bool:
        """Wait for a replica that does not take the table; after `replica.lag.time.max.ms`, leave it out.

        Returns:
            Whether to try again; False if the replica cannot be left out.
        """
        left_ms = self.roots.lag_ms - self.roots.note_down(replica)
        if left_ms > 0:
            self._clock.sleep(min(FIRST_WAIT_SECONDS, left_ms / 1000))
            return True
        try:
            self.controller.change(registered, registration.without(registered, replica))
        except (registration.NoReplicaLeftError, KafkaError, OSError):
            return False
        return True


T = TypeVar("T")

WAIT_SECONDS: Final = 0.05
"""Wait before a replica that did not answer is asked again."""


class ReplicaWriter(FailoverWriter):
    """Writes to the folder of each replica in sync; a replica that does not answer for too long is removed.

    Args:
        table: the table with the replicas.
        folder_of: maps a replica to the folder at its root.
        is_there: whether a replica's root answers.
        clock: waiting.
    """

    def __init__(
        self,
        table: TableReplicas,
        folder_of: Callable[[registration.Replica], Storage],
        is_there: Callable[[registration.Replica], bool],
        clock: Clock,
    ) -> None:
        self._table = table
        self._folder_of = folder_of
        self._is_there = is_there
        self._clock = clock

    def at(self, folder: str) -> ReplicaWriter:
        """Return the writer of a folder below at each replica."""
        return ReplicaWriter(
            self._table, lambda replica: self._folder_of(replica).at(folder), self._is_there, self._clock
        )

    def write(self, write: Callable[[Storage], T]) -> T | None:
        """Write to all replicas in sync.

        Raises:
            OSError: no other replica is in sync, or the controller does not answer.
        """
        answers: dict[registration.Replica, T] = {}
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
    folder_of: Callable[[registration.Replica], Storage],
    is_there: Callable[[registration.Replica], bool],
    clock: Clock,
    coordination: Coordination,
) -> FailoverStorage:
    """Return the files of a folder that each replica in sync of a table has at its root.

    Args:
        table: the table with the replicas.
        folder_of: maps a replica to the folder at its root.
        is_there: whether a replica's root answers.
        clock: waiting.
        coordination: the cluster's coordination.
    """
    return FailoverStorage(
        lambda: [folder_of(replica) for replica in table.in_sync()],
        writer=ReplicaWriter(table, folder_of, is_there, clock),
        coordination=coordination,
        uri=table.uri,
    )
