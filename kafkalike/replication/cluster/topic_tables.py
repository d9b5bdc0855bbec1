"""TopicTables: the tables of topics on the roots of a cluster: made at all replicas, discarded, dropped."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalike.delta.actions import log_name
from kafkalike.delta.commit_file import topic_creation
from kafkalike.delta.layout import DELETED
from kafkalike.delta.version_file import application
from kafkalike.delta.write_queue import cleaning_turn, turns_of
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.log.cluster.topic_folders import put_aside
from kafkalike.model import faults
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.names import TopicId, TopicName
from kafkalike.replication.cluster.bounded_store import LONG
from kafkalike.replication.cluster.controller import FixedController
from kafkalike.replication.cluster.root_resolver import is_folder
from kafkalike.replication.cluster.roots import SeveralRoots, folder_of
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.timeouts import calls_of

if TYPE_CHECKING:
    from kafkalike.model.brokers import ReplicatedTable
    from kafkalike.model.replication.registration import Replica
    from kafkalike.model.topic import TopicInfo


class RefusingRootError(KafkaStorageError):
    """A root does not take a new table.

    Args:
        message: which one, and why.
        broker: whose root it is, if one is to blame.
    """

    def __init__(self, message: str, broker: int | None) -> None:
        super().__init__(message)
        self.broker = broker


class TopicTables:
    """Makes and drops the tables of topics. Thread-safe.

    Args:
        store: the roots.
        clock: time and waiting.
    """

    def __init__(self, store: SeveralRoots, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def create(self, name: TopicName, placed: ReplicatedTable, *, closed: bool) -> TopicId:
        """Make an empty table at those of its replicas that begin in sync.

        Args:
            name: of the topic, for the error.
            placed: its folder on each root, and the brokers that are to have it.
            closed: whether foreign writers are to refuse it.

        Returns:
            Its id.

        Raises:
            RefusingRootError: a root does not take it; nothing is left of it.
        """
        location, registration = placed.location, placed.registration
        replicas = TableReplicas(
            location,
            lambda replica: self._store.root_of(replica.broker).at(location),
            FixedController(registration),
            self._clock,
            lag_ms=0,
        )
        configuration, table_id = registration.configuration, str(uuid.uuid4())
        txns = {application(configuration): configuration.epoch}
        content = topic_creation(table_id, time_ms=self._clock.now_ms(), closed=closed, txns=txns)
        try:
            replicas.put(0, content, durable=True)
        except (OSError, KafkaError) as cause:
            for replica in registration.chain:
                self._discard_folder(replica.broker, location)
            why = f"broker {replicas.refused} does not take it: {cause.__cause__}" if replicas.refused else str(cause)
            raise RefusingRootError(
                f"the table of topic {name!r} cannot be created: {why}", replicas.refused
            ) from cause
        return TopicId(table_id)

    def discard(self, info: TopicInfo) -> None:
        """Remove a table that nobody has registered, from the roots that answer."""
        for broker in self._store.alive():
            self._discard_folder(broker, info.location)

    def _discard_folder(self, broker: int, location: str) -> None:
        """Remove a table that nobody has registered; what cannot be removed now, maintenance removes."""
        root = self._store.root_of(broker)
        if is_folder(root.uri):
            folder = Path(root.uri, location)
            with contextlib.suppress(OSError):
                calls_of(root.uri).call(lambda: shutil.rmtree(folder, ignore_errors=True), LONG)
        else:
            root.at(location).discard(log_name(0))

    def drop(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        """Remove a topic's table.

        Args:
            info: of the topic.
            forget: takes the topic out of the metadata; called while nobody else writes it or cleans its log up.

        Raises:
            KafkaTimeoutError: its queue is not free in time.
        """
        deadline = Deadline(self._clock, 60_000)
        with self._store.turn(info.location, deadline), self._store.turn(cleaning_turn(info.location), deadline):
            replicas = self._store.replicas(info.location).members()
            self._mark_deleted(info, replicas)
            forget()
            faults.point("delete.after_forget")
            folders = []
            for replica in replicas:
                root = self._store.root_of(replica.broker)
                if not is_folder(root.uri):
                    continue
                if root.is_there():
                    folder = Path(self._store.replicas(info.location).store_of(replica).uri)
                    folders.append(put_aside(folder, Path(root.uri), info.table_id))
        self._store.forget(info.location)
        self._store.forget_turns(turns_of(info.location))
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _mark_deleted(self, info: TopicInfo, replicas: Sequence[Replica]) -> None:
        """Say at roots in object stores where the table is for as long as it takes maintenance to remove it."""
        for replica in replicas:
            root = self._store.root_of(replica.broker)
            if not is_folder(root.uri):
                # One that gives no answer keeps the files, as a folder that is away does.
                with contextlib.suppress(OSError):
                    root.replace(f"{DELETED}/{info.table_id}", folder_of(info.location, replica).encode())
