"""Cluster storage: the roots of a cluster as one storage; a table is at the brokers it is registered with."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from kafkalike import errors
from kafkalike.delta import layout
from kafkalike.delta.layout import TRANSACTIONS as STAGED_TRANSACTIONS
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.config.storage_options import SentOptions, StorageOptions
from kafkalike.model.groups.sessions import Leases
from kafkalike.model.replication.registration import Replica
from kafkalike.replication.cluster.broker_coordination import SeveralLeases
from kafkalike.replication.cluster.broker_storage import BrokerStorage
from kafkalike.replication.cluster.controller import Voters
from kafkalike.replication.cluster.mirror_store import MirrorStore, mirror_at
from kafkalike.replication.tables.chain_storage import ChainStorage
from kafkalike.replication.tables.replica_logs import TableController
from kafkalike.replication.tables.table_replicas import TableReplicas, replicated_files
from kafkalike.storage.port import Coordination, Entry, Reach, Storage, TaskAccess
from kafkalike.storage.scheduler import NOW, Pace, Scheduler

if TYPE_CHECKING:
    from kafkalike.model.cluster_state import ClusterState


AT_ONE: Final = frozenset({layout.STAGING, layout.DELETED, layout.DAMAGED, layout.LEASES, layout.LOCKS})
"""Folders that differ between roots, because their content is temporary or belongs to one root."""

SURE_MS: Final = 1000
"""How long a root must be down, ms, before its removal from another table counts."""


class ClusterScheduler(Scheduler):
    """Schedules the requests of all roots of a cluster.

    Args:
        cluster: the roots.
    """

    def __init__(self, cluster: ClusterStorage) -> None:
        self._cluster = cluster

    @property
    def is_remote(self) -> bool:
        """Return whether any root is in an object store."""
        return any(root.scheduler.is_remote for root in self._cluster.roots.values())

    @property
    def requests(self) -> Mapping[str, int]:
        """Return the requests of all roots in object stores, by kind."""
        found: Counter[str] = Counter()
        for root in self._cluster.roots.values():
            found.update(root.scheduler.requests)
        return found


class ClusterAccess(TaskAccess):
    """Gives other processes access to the roots of a cluster.

    Args:
        cluster: the roots.
        to_send: maps URIs to the options that other processes need to open them; None if all are folders.
    """

    def __init__(self, cluster: ClusterStorage, to_send: Callable[[list[str]], SentOptions | None]) -> None:
        self._cluster = cluster
        self.to_send = to_send

    def sendable(self, storage: Storage) -> Storage:
        """Return a storage that another process can open, with the credentials of the roots."""
        del storage
        return self._cluster.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the credentials of all roots."""
        return self.to_send([root.uri for root in self._cluster.roots.values()])

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the Hadoop settings of all roots.

        Raises:
            KafkaConfigurationError: two roots need different settings for buckets of one name, which Hadoop cannot tell
                apart.
        """
        found: dict[str, str] = {}
        for root in self._cluster.roots.values():
            for name, value in root.tasks.hadoop_settings().items():
                if found.setdefault(name, value) != value:
                    bucket = name.removeprefix("fs.s3a.bucket.").partition(".")[0]
                    raise errors.KafkaConfigurationError(
                        f"several roots are in buckets called {bucket}, which need different settings; Hadoop, "
                        'with which Delta reads, knows a bucket by its name alone: read with format("kafkalike"), or '
                        "give buckets names of their own"
                    )
        return found


class ClusterCoordination(Coordination):
    """Coordinates the processes that use a cluster of several roots.

    Args:
        cluster: the roots.
        clock: time.
    """

    def __init__(self, cluster: ClusterStorage, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    @property
    def reach(self) -> Reach:
        """Return the reach of the first root that answers, which holds the staged files of Spark's tasks."""
        if all(root.scheduler.is_remote for root in self._cluster.roots.values()):
            return "everywhere"
        with contextlib.suppress(errors.KafkaConnectionError):
            return self._cluster.first().coordination.reach
        return "machine"

    def check_writable(self, *, required: bool = True) -> None:
        """Raise if a root does not isolate concurrent writers; a root that does not answer may come back."""
        for root in self._cluster.roots.values():
            if required:
                with contextlib.suppress(errors.KafkaConnectionError, errors.TopicAuthorizationFailedError):
                    root.coordination.check_writable()
            elif root.scheduler.is_remote or root.is_there():
                root.coordination.check_writable(required=False)

    @contextlib.contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Queue at the first root that accepts; only fairness suffers if two clients choose different roots."""
        with contextlib.ExitStack() as held:
            self._queue(held, name, deadline, meanwhile)
            yield

    def _queue(
        self, held: contextlib.ExitStack, name: str, deadline: Deadline, meanwhile: Callable[[], object]
    ) -> None:
        refused: errors.KafkaError | OSError | None = None
        for root in self._cluster.folders_first():
            try:
                held.enter_context(root.coordination.turn(name, deadline, meanwhile))
            except (errors.TopicAuthorizationFailedError, errors.KafkaStorageError, OSError) as cause:
                # The root is read-only, full, or was just lost; the next writes remove its replicas from their chains.
                if root.scheduler.is_remote or root.is_there():
                    refused = refused or cause
            else:
                return
        raise refused or self._cluster.none_there()

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove leftovers of queues at the roots that answer."""
        wanted = list(names)
        return sum(self._cluster.roots[broker].coordination.forget_turns(wanted) for broker in self._cluster.alive())

    def leases(self) -> Leases:
        """Return the heartbeats at several roots."""
        return SeveralLeases(self._cluster.alive, lambda broker: self._cluster.roots[broker].coordination.leases())

    def now_ns(self) -> int:
        """Return the time by this machine's clock, ns."""
        return self._clock.now_ms() * 1_000_000


class ClusterStorage(Storage):
    """The roots of a cluster. Thread-safe.

    Args:
        roots: the roots, by broker id.
        metadata_root: the storage of `__cluster_metadata`.
        clock: time and waiting.
        lag_ms: `replica.lag.time.max.ms`.
        controller_of: maps a folder to the controller of its table.
        opened: opens the root of a broker that was added later.
        is_out: whether a broker is known to be out of sync with an assigned table.
        reopen: opens such a storage in another process, from URIs joined by commas and their options.
        to_send: maps URIs to the options that other processes need to open them; None if all are folders.
        is_near: whether a broker is in the rack of this client; None: the client has no rack.
        striped: whether replicas take turns in serving data files.
        known: returns the metadata that this process has read.
        refreshed: reads the metadata again.
    """

    def __init__(
        self,
        roots: Mapping[int, BrokerStorage],
        metadata_root: Voters,
        *,
        clock: Clock,
        lag_ms: int,
        controller_of: Callable[[str], TableController],
        opened: Callable[[int], BrokerStorage],
        is_out: Callable[[int], bool],
        reopen: Callable[[str, StorageOptions | None], Storage],
        to_send: Callable[[list[str]], SentOptions | None],
        is_near: Callable[[int], bool] | None = None,
        striped: bool = False,
        known: Callable[[], ClusterState],
        refreshed: Callable[[], ClusterState],
    ) -> None:
        self.roots = dict(roots)
        self._known = known
        self._refreshed = refreshed
        self.metadata_root = metadata_root
        self._clock = clock
        self.lag_ms = lag_ms
        self._controller_of = controller_of
        self._opened = opened
        self._reopen = reopen
        self.scheduler = ClusterScheduler(self)
        self.tasks: ClusterAccess = ClusterAccess(self, to_send)
        self.coordination = ClusterCoordination(self, clock)
        self._sent = False
        self._is_out = is_out
        self._is_near = is_near
        self._striped = striped
        self._down_since: dict[int, int] = {}
        """The time, ms, since which a root has not been there, by broker."""
        self._tables: dict[str, TableReplicas] = {}

    def replace_roots(self, roots: Mapping[int, BrokerStorage]) -> None:
        """Use other broker ids. Caller: nothing was read by the previous ones.

        Args:
            roots: the roots, by broker id.
        """
        self.metadata_root.replace_roots(roots)
        self._down_since = {}
        self.roots = dict(roots)

    def __repr__(self) -> str:
        """Return a text for error messages."""
        return f"ClusterStorage({[root.uri for root in self.roots.values()]!r})"

    def wait_for(self, lag_ms: int) -> None:
        """Set `replica.lag.time.max.ms`."""
        self.lag_ms = lag_ms
        for table in tuple(self._tables.values()):
            table.wait_for(lag_ms)
        for root in tuple(self.roots.values()):
            root.root.set_lag(lag_ms)

    def root_of(self, broker: int) -> BrokerStorage:
        """Return the root of a broker."""
        found = self.roots.get(broker)
        if found is None:
            found = self.roots[broker] = self._opened(broker)
        return found

    def down_ms(self, broker: int) -> int:
        """Return how long a root has been down, ms; 0 if it is there.

        If another client has removed it from the chain of another table, that client has already waited.
        """
        root = self.root_of(broker)
        if root.is_there():
            self._down_since.pop(broker, None)
            return 0
        now = self._clock.now_ms()
        down_ms = now - self._down_since.setdefault(broker, now - int(1000 * root.root.silent_seconds()))
        return max(down_ms, self.lag_ms) if down_ms >= SURE_MS and self._is_out(broker) else down_ms

    def alive(self) -> list[int]:
        """Return the brokers whose roots answer, in order."""
        return [broker for broker, root in sorted(self.roots.items()) if root.is_there()]

    def ask_again(self) -> None:
        """Retry roots that are currently skipped, for callers that need to know which ones answer."""
        calls = [root.root.ask_again for root in self.roots.values()]
        next((root for root in self.roots.values() if root.scheduler.is_remote), self).scheduler.beside(calls)

    def first(self) -> BrokerStorage:
        """Return the first root that answers, preferably a folder.

        Raises:
            KafkaConnectionError: no root answers.
        """
        for root in self.folders_first():
            if root.is_there():
                return root
        raise self.none_there()

    def folders_first(self) -> list[BrokerStorage]:
        """Return all roots; folders come first because their locks work between processes of this machine."""
        return [root for _, root in sorted(self.roots.items(), key=lambda each: (each[1].scheduler.is_remote, each[0]))]

    def none_there(self) -> errors.KafkaConnectionError:
        """Return the error for a cluster without reachable roots."""
        return errors.KafkaConnectionError(
            f"none of the roots {', '.join(r.uri for r in self.roots.values())} is there"
        )

    def replicas(self, location: str) -> TableReplicas:
        """Return the replicas of the table in a folder."""
        found = self._tables.get(location)
        if found is None:
            made = TableReplicas(
                location,
                lambda replica: self.root_of(replica.broker).at(folder_of(location, replica)),
                self._controller_of(location),
                self._clock,
                lag_ms=self.lag_ms,
                down_before=lambda replica: self.down_ms(replica.broker),
            )
            found = self._tables.setdefault(location, made)
        return found

    def forget(self, location: str) -> None:
        """Drop the state of a deleted table."""
        self._tables.pop(location, None)

    # --- a store -------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """The first root that answers; the first root if none does."""
        with contextlib.suppress(errors.KafkaConnectionError):
            return self.first().uri
        return self.folders_first()[0].uri

    def at(self, folder: str) -> Storage:
        """Return the storage of a folder."""
        first, _, rest = folder.partition("/")
        if first == layout.CLUSTER_METADATA:
            return self.metadata_root.at(folder)
        if first in AT_ONE:
            return self.first().at(folder)
        if first == STAGED_TRANSACTIONS:
            return replicated_files(
                self.replicas(layout.CONSUMER_OFFSETS),
                lambda replica: self.root_of(replica.broker).at(folder),
                lambda replica: self.root_of(replica.broker).is_there(),
                self._clock,
                self.coordination,
            )
        table = self._table(first)
        return table.at(rest) if rest else table

    def _table(self, location: str) -> Storage:
        table = ChainStorage(self.replicas(location), self, self._is_near, striped=self._striped)
        state = self._known()
        mirror = None if location in layout.CONTROL_TABLES else mirror_at(state, location)
        placed = state.replicas.get(location)
        if mirror is None or placed is None:
            return table
        plain = self.root_of(placed.leader).at(location)
        return cast("Storage", MirrorStore(mirror, plain, table, self._known, self._refreshed))

    def _split(self, name: str) -> tuple[Storage, str]:
        """Return the storage that holds a name, and the name within it."""
        first, _, rest = name.partition("/")
        return (self.at(first), rest) if rest else (self.first(), name)

    def sendable(self) -> ClusterStorage:
        """Return a storage that another process can open, with the credentials of the roots."""
        sent = object.__new__(ClusterStorage)
        sent.__dict__.update(self.__dict__, _sent=True)
        return sent

    def __reduce__(self) -> tuple[Callable[..., Storage], tuple[str, SentOptions | None]]:
        """Pickle the URIs; another process opens them. Options contain secrets, so only `sendable` adds them."""
        uris = [root.uri for _, root in sorted(self.roots.items())]
        return self._reopen, (",".join(uris), self.tasks.to_send(uris) if self._sent else None)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        store, rest = self._split(name)
        return store.read(rest)

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Return the content of a file that may not exist yet."""
        store, rest = self._split(name)
        return store.look(rest, pace)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file unless it exists."""
        store, rest = self._split(name)
        return store.put_if_absent(rest, content, durable=durable)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, or overwrite it."""
        store, rest = self._split(name)
        store.replace(rest, content)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        store, rest = self._split(name)
        return store.open_input(rest, buffer_size)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        store, rest = self._split(name)
        return store.read_range(rest, start, stop)

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file."""
        store, rest = self._split(name)
        return store.open_output(rest)

    def size(self, name: str) -> int:
        """Return the size of a file, bytes."""
        store, rest = self._split(name)
        return store.size(rest)

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder."""
        first, _, rest = folder.partition("/")
        store = self.at(first) if first else self.first()
        return store.list(rest, deep=deep, after=after)

    def folders(self) -> Sequence[str]:
        """Return the names of the folders at all roots that answer."""
        return sorted({name for broker in self.alive() for name in self.roots[broker].folders()})

    def make_folder(self, folder: str) -> None:
        """Make a folder inside a table; tables and roots have their own functions."""
        first, _, rest = folder.partition("/")
        if first and rest:
            self.at(first).make_folder(rest)

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Copy a file to another storage."""
        store, rest = self._split(source)
        return store.copy(rest, target, name)

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file from its table or root."""
        store, rest = self._split(name)
        store.remove(rest, quietly=quietly)

    def sync(self, name: str) -> None:
        """Make a file survive a power failure."""
        store, rest = self._split(name)
        store.sync(rest)


def folder_of(location: str, replica: Replica) -> str:
    """Return the folder of a replica below its root."""
    return f"{location}~{replica.life}" if replica.life else location


def replica_in(folder: str, location: str, broker: int) -> Replica:
    """Return the replica that a folder of a table belongs to."""
    return Replica(broker, int(folder.removeprefix(location).removeprefix("~") or 0))
