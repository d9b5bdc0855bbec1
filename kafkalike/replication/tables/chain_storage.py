"""ChainStorage: a table's replicas on several roots as one store, which `Table` and all that read it take for one.

A version is made and seen by the protocols of `kafkalike.model.replication`. A data file is kept in memory until its
version is put: then each member gets it before the first one says that the version is there. What is published can be
read from any member in sync: the leader is asked first, and another one where it has no answer. Data files of those who
say in which rack they are come from a member there, if one is in sync (Kafka's KIP-392). Those who want reads striped
get each file from the member whose turn it is.
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
from kafkalike.model.groups.roster import Leases
from kafkalike.model.replication.registration import Replica
from kafkalike.replication.tables.replicated_storage import LOG, ReplicatedStorage, version_in
from kafkalike.replication.tables.table_replicas import TableReplicas
from kafkalike.storage.failover import FailoverStorage, read_only
from kafkalike.storage.port import (
    BufferedOutput,
    Coordination,
    Entry,
    Pace,
    Reach,
    Scheduler,
    Storage,
    TaskAccess,
)

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")

Entries = list[Entry]

_MARK: Final = MARK.rpartition("/")[2]


class ReplicatedScheduler(Scheduler):
    """The requests of a table with replicas: those of the replica whose data files are read first.

    Args:
        table: the table.
    """

    def __init__(self, table: ChainStorage) -> None:
        self._table = table

    @property
    def is_remote(self) -> bool:
        """Whether that replica is in an object store."""
        found = self._table.nearest()
        return self._table.root.scheduler.is_remote if found is None else found.scheduler.is_remote

    def beside(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls, side by side where requests to that replica take long."""
        found = self._table.nearest() if len(calls) > 1 else None
        return super().beside(calls) if found is None else found.scheduler.beside(calls)

    def is_past(self, name: str) -> bool:
        """Whether a version is published: a leader that is new may have begun at a checkpoint above it."""
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
        """Return the table with the credentials of its roots; another process gets one that reads."""
        del storage
        return self._table.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the cluster's."""
        return self._table.root.tasks.sent_options()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the cluster's."""
        return self._table.root.tasks.hadoop_settings()

    has_replicas = True

    def replicas(self) -> Sequence[Storage]:
        """Return the replicas in sync that answer, each by itself; the leader first."""
        return self._table.answering()

    def elsewhere(self) -> Sequence[Storage]:
        """Return the replicas in sync that answer."""
        return self._table.answering()


class ReplicatedCoordination(Coordination):
    """The cluster's, but for who sees the table, which depends on its leader.

    Args:
        table: the table.
    """

    def __init__(self, table: ChainStorage) -> None:
        self._table = table
        self._root = table.root.coordination

    @property
    def reach(self) -> Reach:
        """Who sees the leader's root."""
        leader = self._table.leader()
        return self._root.reach if leader is None else leader.coordination.reach

    def check_writable(self, *, required: bool = True) -> None:
        """Refuse what the cluster refuses."""
        self._root.check_writable(required=required)

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue as the cluster's writers do."""
        return self._root.turn(name, deadline, meanwhile)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove what queues of the cluster have left behind."""
        return self._root.forget_turns(names)

    def leases(self) -> Leases:
        """Return the cluster's."""
        return self._root.leases()

    def now_ns(self) -> int:
        """Return the time of the cluster."""
        return self._root.now_ns()

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """Name the leader's folder: what appears there is published."""
        leader = self._table.leader()
        if leader is not None:
            leader.coordination.watch(folder, add)


class ChainStorage(ReplicatedStorage):
    """One table with replicas.

    Args:
        replicas: the table's.
        root: the cluster's files, for turns and heartbeats.
        is_near: whether a broker is in the rack of who reads; None: it has none.
        striped: whether replicas take turns to give data files; see `ReadFrom`.
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
        """For error messages."""
        return f"ChainStorage({self.uri!r})"

    @property
    def uri(self) -> str:
        """Where the leader's replica is."""
        leader = self.leader()
        return self.replicas.uri if leader is None else leader.uri

    def leader(self) -> Storage | None:
        """Return the leader's replica; None where nobody has the table yet."""
        known = self.replicas.in_sync()
        return self.replicas.store_of(known[0]) if known else None

    def nearest(self) -> Storage | None:
        """Return the replica whose data files are read first; None where nobody has the table yet."""
        known, _ = self._with_data()
        return self.replicas.store_of(known[0]) if known else None

    def answering(self) -> Sequence[Storage]:
        """Return the replicas in sync that answer, each by itself; the leader first."""
        return [store for store in map(self.replicas.store_of, self.replicas.in_sync()) if _is_there(store)]

    def at(self, folder: str) -> Storage:
        """A folder of the leader's replica."""
        return self._reader().at(folder)

    def sendable(self) -> ChainStorage:
        """Return the table with the credentials of its roots; another process gets one that reads, see `__reduce__`."""
        sent = object.__new__(ChainStorage)
        sent.__dict__.update(self.__dict__, _sent=True)
        return sent

    def __reduce__(self) -> tuple[Callable[..., FailoverStorage], tuple[Sequence[Storage], int]]:
        """Elsewhere it is read only: data files, from the near one, the leader, or another one that has them."""
        known, turns = self._with_data()
        stores = map(self.replicas.store_of, known)
        return read_only, ([store.tasks.sendable(store) if self._sent else store for store in stores], turns)

    def _reader(self) -> FailoverStorage:
        return read_only([self.replicas.store_of(replica) for replica in self.replicas.in_sync()])

    # --- versions ------------------------------------------------------------------------------

    def look_at_version(self, version: int, pace: Pace) -> bytes | None:
        """Return the file of a version that is published."""
        found = self.replicas.published.look(version, pace)
        if self._lineage is None:
            self._lineage = self.replicas.published.lineage
        elif self._lineage != self.replicas.published.lineage:
            # What was read of the log that was given up does not count: all of it is read anew.
            self._lineage = self.replicas.published.lineage
            raise DamagedFileError(self.uri, log_name(version), "its log was given up by an unclean election")
        return found

    def put_version(self, version: int, content: bytes, *, durable: bool) -> bool:
        """Make a version with these bytes on all members of the chain, unless there is one."""
        return self.replicas.put(version, content, durable=durable)

    def put_file(self, name: str, content: bytes, *, durable: bool) -> bool:
        """Refuse it: data files come with their version."""
        del content, durable
        raise OSError(errno.EINVAL, f"{name} is no version of a table with replicas")

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of a folder: of a log, the leader's; of data, all that some replica has."""
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
            # What one of the others has beyond is not published.
            return [entry for entry in listed if (version_of(entry.name) or 0) <= view.end]
        if failed is not None:
            raise failed
        return []

    # --- files ---------------------------------------------------------------------------------

    def read(self, name: str) -> bytes:
        """Content of a file."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return made
        version = version_in(name)
        if version is None:
            return self.first(name, lambda store: store.read(name))
        found = self.look(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such version", f"{self.uri}/{name}")
        return found

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return pa.BufferReader(made)
        return super().open_input(name, buffer_size)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return pa.py_buffer(made[start:stop])
        return super().read_range(name, start, stop)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        made = self.replicas.roots.supplies.content_of(name)
        if made is not None:
            return len(made)
        version = version_in(name)
        known = None if version is None else self.replicas.published.known(version)
        if known is not None:
            return len(known)
        return super().size(name)

    def _with_data(self) -> tuple[Sequence[Replica], int]:
        """Who is asked for a data file, in turn: who is near and in sync, the leader, others in sync, any member.

        Data files have names of their own and do not change, so whoever has one has the right one.

        Returns:
            They, and how many of them take turns, file by file; 1: nobody but the first one.
        """
        is_near = self._is_near
        known, turns = nearest_first(
            self.replicas.in_sync(), None if is_near is None else lambda replica: is_near(replica.broker)
        )
        others = (replica for replica in self.replicas.members() if replica not in known)
        return (*known, *others), turns if self._striped else 1

    def _asked_for(self, name: str) -> Sequence[Replica]:
        """Who is asked for a file, in turn."""
        return self.replicas.in_sync() if name.startswith(LOG) else by_turns(*self._with_data(), name)

    def first(self, name: str, read: Callable[[Storage], T]) -> T:
        """Ask for a file: a log file of the leader, a data file as `_with_data` says; then whoever comes next."""
        failed: OSError | None = None
        for replica in self._asked_for(name):
            store = self.replicas.store_of(replica)
            try:
                return read(store)
            except OSError as cause:
                failed = failed if isinstance(cause, FileNotFoundError) and failed is not None else cause
                if name.startswith(LOG) and isinstance(cause, FileNotFoundError) and _is_there(store):
                    # Log files are each replica's own.
                    raise
        raise failed or FileNotFoundError(errno.ENOENT, "there is no such table", f"{self.uri}/{name}")

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new data file, which members get with the version that names it."""
        return pa.PythonFile(BufferedOutput(lambda content: self.replicas.roots.supplies.made(name, content)), "w")

    def replace(self, name: str, content: bytes) -> None:
        """Refused: what is not a version is each replica's own; see `copies`."""
        del content
        raise OSError(errno.EINVAL, f"{name} cannot be replaced on several roots")

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Give a file to another store; to another table with replicas, on each root beside this one's replica."""
        if isinstance(target, ChainStorage):
            return target._take(self, source, name)  # noqa: SLF001 - another of the same class
        return super().copy(source, target, name)

    def _take(self, origin: ChainStorage, source: str, name: str) -> bool:
        """Give each member a file of another table: its root shares or copies it, or another root's is brought.

        Returns:
            Whether it takes no room of its own anywhere.
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
        """Remove a file on all roots that answer; a version is never taken back quietly."""
        self.replicas.roots.supplies.forget(name)
        if quietly and version_in(name) is not None:
            return
        for replica in self.replicas.members():
            store = self.replicas.store_of(replica)
            if quietly or _is_there(store):
                store.remove(name, quietly=quietly)

    def sync(self, name: str) -> None:
        """Make a file survive a power failure; one that is not put yet will, as its version does."""
        if self.replicas.roots.supplies.content_of(name) is not None:
            return
        for store in self.answering():
            with contextlib.suppress(FileNotFoundError):
                store.sync(name)

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        return sorted({name for store in self.answering() for name in store.folders()})


def _is_there(store: Storage) -> bool:
    try:
        store.size(MARK)
    except OSError:
        return False
    return True
