"""Chain storage: the replicas of a table on several roots as one storage for `Table` and its readers.

The protocols of `kafkalike.model.replication` make and read versions. A data file is kept in memory until its version
is put: each replica in the chain receives the file before the first replica announces the version. Published versions
can be read from any replica in sync: readers ask the leader first, and the others if it does not answer. A reader that
sets its rack reads data files from a replica in that rack, if one is in sync (Kafka's KIP-392). With striped reads,
replicas take turns file by file.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from kafkalike.delta.actions import log_name, version_of
from kafkalike.delta.damage import DamagedFileError
from kafkalike.delta.replica_files import MARK
from kafkalike.model.brokers import by_turns, nearest_first
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.groups.sessions import Leases
from kafkalike.model.replication.registration import Replica
from kafkalike.replication.tables.replicated_storage import LOG, ReplicatedStorage, version_in
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.failover import FailoverStorage, read_only
from kafkalike.storage.port import BufferedOutput, Coordination, Entry, Reach, Storage, TaskAccess
from kafkalike.storage.scheduler import Pace, Scheduler

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")

Entries = list[Entry]

_MARK: Final = MARK.rpartition("/")[2]


class ReplicatedScheduler(Scheduler):
    """Schedule requests to a table with replicas as its nearest replica does.

    Args:
        table: the table.
    """

    def __init__(self, table: ChainStorage) -> None:
        self._table = table

    @property
    def is_remote(self) -> bool:
        """Return whether the nearest replica is in an object store."""
        found = self._table.nearest()
        return self._table.root.scheduler.is_remote if found is None else found.scheduler.is_remote

    def beside(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls, in parallel where requests to the nearest replica take long."""
        found = self._table.nearest() if len(calls) > 1 else None
        return super().beside(calls) if found is None else found.scheduler.beside(calls)

    def is_past(self, name: str) -> bool:
        """Return whether a version is published; a new leader may start at a checkpoint above it."""
        version = version_in(name)
        return version is not None and self._table.replicas.published.has(version)


class ReplicatedAccess(TaskAccess):
    """How other processes reach a table with replicas.

    Args:
        table: the table.
    """

    def __init__(self, table: ChainStorage) -> None:
        self._table = table

    def sendable(self, storage: Storage) -> Storage:
        """Return the table with the credentials of its roots; another process can only read it."""
        del storage
        return self._table.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the credentials of the cluster."""
        return self._table.root.tasks.sent_options()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the Hadoop settings of the cluster."""
        return self._table.root.tasks.hadoop_settings()

    has_replicas = True

    def replicas(self) -> Sequence[Storage]:
        """Return the storage of each replica in sync that answers, the leader first."""
        return self._table.answering()

    def elsewhere(self) -> Sequence[Storage]:
        """Return the replicas in sync that answer."""
        return self._table.answering()


class ReplicatedCoordination(Coordination):
    """Coordinate through the cluster, except for `reach`, which depends on the table's leader.

    Args:
        table: the table.
    """

    def __init__(self, table: ChainStorage) -> None:
        self._table = table
        self._root = table.root.coordination

    @property
    def reach(self) -> Reach:
        """Return which processes can see the leader's root."""
        leader = self._table.leader()
        return self._root.reach if leader is None else leader.coordination.reach

    def check_writable(self, *, required: bool = True) -> None:
        """Raise if the cluster is not writable."""
        self._root.check_writable(required=required)

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue with the cluster's other writers."""
        return self._root.turn(name, deadline, meanwhile)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove leftovers of the cluster's queues."""
        return self._root.forget_turns(names)

    def leases(self) -> Leases:
        """Return the heartbeats of the cluster."""
        return self._root.leases()

    def now_ns(self) -> int:
        """Return the time of the cluster, ns."""
        return self._root.now_ns()

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """Watch the leader's folder, because new files there are published."""
        leader = self._table.leader()
        if leader is not None:
            leader.coordination.watch(folder, add)


class ChainStorage(ReplicatedStorage):
    """The storage of one table with replicas.

    Args:
        replicas: the table's replicas.
        root: the cluster's files, for turns and heartbeats.
        is_near: whether a broker is in the reader's rack; None if the reader has no rack.
        striped: whether replicas take turns in serving data files; see `ReadFrom`.
    """

    def __init__(
        self,
        replicas: TableReplicas,
        root: Storage,
        is_near: Callable[[int], bool] | None = None,
        *,
        striped: bool = False,
    ) -> None:
        self.replicas = replicas
        self.root = root
        self._is_near = is_near
        self._striped = striped
        self._lineage: int | None = None
        self._sent = False
        self.scheduler = ReplicatedScheduler(self)
        self.tasks = ReplicatedAccess(self)
        self.coordination = ReplicatedCoordination(self)

    def __repr__(self) -> str:
        """Return a text for error messages."""
        return f"ChainStorage({self.uri!r})"

    @property
    def uri(self) -> str:
        """Return the location of the leader's replica."""
        leader = self.leader()
        return self.replicas.uri if leader is None else leader.uri

    def leader(self) -> Storage | None:
        """Return the leader's replica; None if no replica has the table yet."""
        known = self.replicas.in_sync()
        return self.replicas.store_of(known[0]) if known else None

    def nearest(self) -> Storage | None:
        """Return the replica whose data files are read first; None if no replica has the table yet."""
        known, _ = self._with_data()
        return self.replicas.store_of(known[0]) if known else None

    def answering(self) -> Sequence[Storage]:
        """Return the storage of each replica in sync that answers, the leader first."""
        return [store for store in map(self.replicas.store_of, self.replicas.in_sync()) if _is_there(store)]

    def at(self, folder: str) -> Storage:
        """Return a folder below the leader's replica."""
        return self._reader().at(folder)

    def sendable(self) -> ChainStorage:
        """Return the table with the credentials of its roots; another process can only read it, see `__reduce__`."""
        sent = object.__new__(ChainStorage)
        sent.__dict__.update(self.__dict__, _sent=True)
        return sent

    def __reduce__(self) -> tuple[Callable[..., FailoverStorage], tuple[Sequence[Storage], int]]:
        """Pickle a read-only storage of data files: the near replica, the leader, then other replicas."""
        known, turns = self._with_data()
        stores = map(self.replicas.store_of, known)
        return read_only, ([store.tasks.sendable(store) if self._sent else store for store in stores], turns)

    def _reader(self) -> FailoverStorage:
        return read_only([self.replicas.store_of(replica) for replica in self.replicas.in_sync()])

    # --- versions ------------------------------------------------------------------------------

    def look_at_version(self, version: int, pace: Pace) -> bytes | None:
        """Return the file of a published version."""
        found = self.replicas.published.look(version, pace)
        if self._lineage is None:
            self._lineage = self.replicas.published.lineage
        elif self._lineage != self.replicas.published.lineage:
            # Versions of the discarded log do not count: the reader has to load all of the new one.
            self._lineage = self.replicas.published.lineage
            raise DamagedFileError(self.uri, log_name(version), "an unclean election has discarded its log")
        return found

    def put_version(self, version: int, content: bytes, *, durable: bool) -> bool:
        """Create a version with this content on all replicas in the chain, unless it exists."""
        return self.replicas.put(version, content, durable=durable)

    def put_file(self, name: str, content: bytes, *, durable: bool) -> bool:
        """Raise `OSError`: data files are stored with their version."""
        del content, durable
        raise OSError(errno.EINVAL, f"{name} is not a version of a table with replicas")

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder: of a log at the leader, of data at all replicas."""
        if f"{folder}/".startswith(LOG):
            return self._listed_log(folder, deep=deep, after=after)
        found: dict[str, Entry] = {}
        for store in self.answering():
            for entry in store.list(folder, deep=deep, after=after):
                found.setdefault(entry.name, entry)
        return list(found.values())

    def _listed_log(self, folder: str, *, deep: bool, after: str) -> Entries:
        view = self.replicas.published.view()
        self._lineage = self.replicas.published.lineage
        if view is None:
            return []
        failed: OSError | None = None
        for replica in self.replicas.in_sync():
            store = self.replicas.store_of(replica)
            try:
                store.size(MARK)
                listed = [e for e in store.list(folder, deep=deep, after=after) if e.name != _MARK]
            except OSError as cause:
                failed = failed or cause
                continue
            if replica == view.configuration.leader:
                return listed
            # Versions above the end are not published.
            return [entry for entry in listed if (version_of(entry.name) or 0) <= view.end]
        if failed is not None:
            raise failed
        return []

    # --- files ---------------------------------------------------------------------------------

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return made
        version = version_in(name)
        if version is None:
            return self.first(name, lambda store: store.read(name))
        found = self.look(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "the version does not exist", f"{self.uri}/{name}")
        return found

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return pa.BufferReader(made)
        return super().open_input(name, buffer_size)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return pa.py_buffer(made[start:stop])
        return super().read_range(name, start, stop)

    def size(self, name: str) -> int:
        """Return the size of a file, bytes."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return len(made)
        version = version_in(name)
        known = None if version is None else self.replicas.published.known(version)
        if known is not None:
            return len(known)
        return super().size(name)

    def _with_data(self) -> tuple[Sequence[Replica], int]:
        """Return the replicas to ask for a data file, in order.

        Near replicas in sync come first, then the leader, others in sync, and the rest of the chain. Data files have
        unique names and never change, so any copy is valid.

        Returns:
            The replicas, and how many of them take turns file by file; 1: always the first one.
        """
        is_near = self._is_near
        known, turns = nearest_first(
            self.replicas.in_sync(), None if is_near is None else lambda replica: is_near(replica.broker)
        )
        others = (replica for replica in self.replicas.members() if replica not in known)
        return (*known, *others), turns if self._striped else 1

    def _asked_for(self, name: str) -> Sequence[Replica]:
        """Return the replicas to ask for a file, in order."""
        return self.replicas.in_sync() if name.startswith(LOG) else by_turns(*self._with_data(), name)

    def first(self, name: str, read: Callable[[Storage], T]) -> T:
        """Read a file at the first replica of `_asked_for` that has it."""
        failed: OSError | None = None
        for replica in self._asked_for(name):
            store = self.replicas.store_of(replica)
            try:
                return read(store)
            except OSError as cause:
                failed = failed if isinstance(cause, FileNotFoundError) and failed is not None else cause
                if name.startswith(LOG) and isinstance(cause, FileNotFoundError) and _is_there(store):
                    # Each replica has log files of its own.
                    raise
        raise failed or FileNotFoundError(errno.ENOENT, "the table does not exist", f"{self.uri}/{name}")

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a data file; replicas receive it with the version that names it."""
        return pa.PythonFile(BufferedOutput(lambda content: self.replicas.roots.supplies.made(name, content)), "w")

    def replace(self, name: str, content: bytes) -> None:
        """Raise `OSError`: each replica keeps its own files beside the versions; see `replicas`."""
        del content
        raise OSError(errno.EINVAL, f"{name} cannot be replaced on several roots")

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Copy a file to another storage; into a table with replicas, from the replica on the same root."""
        if isinstance(target, ChainStorage):
            return target._take(self, source, name)  # noqa: SLF001 - another of the same class
        return super().copy(source, target, name)

    def _take(self, origin: ChainStorage, source: str, name: str) -> bool:
        """Copy a file of another table to each replica: by link or copy within a root, else through this process.

        Returns:
            Whether the copies share the originals' bytes everywhere.
        """
        size = origin.size(source)
        beside = {replica.broker: origin.replicas.store_of(replica) for replica in origin.replicas.members()}
        shared = True
        for replica in self.replicas.members():
            store, near = self.replicas.store_of(replica), beside.get(replica.broker)
            with contextlib.suppress(FileNotFoundError):
                if near is not None and near.size(source) == size:
                    shared = near.copy(source, store, name) and shared
                    continue
            shared = False
            self.replicas.roots.supplies.put(replica, name, origin.read(source))
        return shared

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file on all roots that answer; keep a version if `quietly`, because it may be published."""
        self.replicas.roots.supplies.forget(name)
        if quietly and version_in(name) is not None:
            return
        for replica in self.replicas.members():
            store = self.replicas.store_of(replica)
            if quietly or _is_there(store):
                store.remove(name, quietly=quietly)

    def sync(self, name: str) -> None:
        """Make a file survive a power failure; a file in memory becomes durable with its version."""
        if self.replicas.roots.supplies.content_of(name) is not None:
            return
        for store in self.answering():
            with contextlib.suppress(FileNotFoundError):
                store.sync(name)

    def folders(self) -> Sequence[str]:
        """Return the names of the folders below."""
        return sorted({name for store in self.answering() for name in store.folders()})


def _is_there(store: Storage) -> bool:
    try:
        store.size(MARK)
    except OSError:
        return False
    return True
