"""Data file copier: copies data files and checkpoints of a table to replicas that lack them.

A data file has a unique name and never changes, so any copy is valid.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from kafkalike.delta.actions import Add
from kafkalike.delta.log_files import LAST_CHECKPOINT, READ_BESIDE, LogFiles
from kafkalike.delta.replica_files import LostFile, finish_notes, note_beginning
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.model import faults
from kafkalike.model.replication.registration import Replica
from kafkalike.storage.parquet import ParquetInput
from kafkalike.storage.port import Storage

BYTES_BESIDE: Final = 64 << 20
"""Bytes of data files in memory at the same time; a larger file is copied alone."""


class DataFileCopier:
    """The data files of this process and of replicas.

    Args:
        store_of: maps a replica to the folder of its table.
        there: does the same after checking that the replica is there; raises `OSError` if it is not.
        in_sync: returns the replicas that have all published versions.
    """

    def __init__(
        self,
        store_of: Callable[[Replica], Storage],
        there: Callable[[Replica], Storage],
        in_sync: Callable[[], Sequence[Replica]],
    ) -> None:
        self._store_of = store_of
        self._there = there
        self._in_sync = in_sync
        self._made: dict[str, bytes] = {}
        self._brought: set[tuple[Replica, str]] = set()
        """Files of this process that replicas already have."""

    def made(self, path: str, content: bytes) -> None:
        """Keep a data file that a later version of this process adds."""
        self._made[path] = content

    def forget(self, path: str) -> None:
        """Drop a data file that was kept: its version is published, or will not be made."""
        self._made.pop(path, None)
        self._brought = {known for known in self._brought if known[1] != path}

    def content_of(self, path: str) -> bytes | None:
        """Return the content of a data file that is still kept; None for other files."""
        return self._made.get(path)

    def bring_new(self, replicas: Sequence[Replica], adds: Sequence[Add]) -> None:
        """Copy files of this process to several replicas in parallel, where requests take long.

        Errors are ignored here; `supply` raises them.
        """
        stores = {replica: self._store_of(replica) for replica in replicas}
        far = [replica for replica, store in stores.items() if store.scheduler.is_remote]
        new = {add.path: self._made[add.path] for add in adds if add.path in self._made}
        if not far or not new or len(far) * len(new) <= 1:
            return

        def bring(replica: Replica, path: str) -> None:
            with contextlib.suppress(OSError):
                stores[replica].replace(path, new[path])
                self._brought.add((replica, path))

        stores[far[0]].scheduler.beside([partial(bring, replica, path) for replica in far for path in new])

    def supply(
        self, replica: Replica, adds: Sequence[Add], source: Replica | None, *, partly: bool, durable: bool
    ) -> None:
        """Ensure that a replica has data files.

        Args:
            replica: the target.
            adds: the files.
            source: the replica to copy from; None: this process made the files.
            partly: whether to skip files that no replica has.
            durable: whether they must survive a power failure.

        Raises:
            OSError: the replica, or the source, does not answer; or a file is lost.
        """
        store = self._store_of(replica)

        def bring(add: Add) -> None:
            # A new file has a unique name, so copy it without checking whether it exists.
            new, brought = source is None and add.path in self._made, (replica, add.path) in self._brought
            if new and brought and store.scheduler.is_remote:
                return
            if (new and (store.scheduler.is_remote or not brought)) or not _has(store, add):
                content = self._content(add, replica, source, partly=partly)
                if content is not None:
                    self.put(replica, add.path, content)
                    if durable:
                        store.sync(add.path)
                    if new and not store.scheduler.is_remote:
                        self._brought.add((replica, add.path))

        for some in beside_each_other(adds):
            store.scheduler.beside([partial(bring, add) for add in some])

    def _content(self, add: Add, besides: Replica, source: Replica | None, *, partly: bool) -> bytes | None:
        """Return a file's content; None if the replica does not need it."""
        if source is None:
            # This process did not make it: the change uses copied files, or files of earlier versions.
            return self._made.get(add.path) or self._held(add, besides)
        try:
            return self._store_of(source).read(add.path)
        except FileNotFoundError:
            # Maintenance removes files after the last version that names them.
            if add.path not in load_snapshot(self._there(source)).live_files():
                return None
        try:
            return self._held(add, besides)
        except OSError:
            if partly:
                return None
            raise

    def _held(self, add: Add, besides: Replica) -> bytes:
        """Return the content of a file from any replica in sync."""
        for other in self._in_sync():
            with contextlib.suppress(OSError):
                if other != besides:
                    return self._there(other).read(add.path)
        raise FileNotFoundError(add.path)

    def put(self, replica: Replica, path: str, content: bytes) -> None:
        """Store a file at a replica atomically, because another copier may write the same file.

        Raises:
            OSError: the replica does not answer.
        """
        store = self._store_of(replica)
        try:
            store.replace(path, content)
        except FileNotFoundError:
            self._there(replica)
            store.make_folder(posixpath.dirname(path))
            store.replace(path, content)

    def missing(self, replica: Replica) -> tuple[LostFile, ...]:
        """Return the data files that a replica's log names, as of its last version, and that the replica lacks."""
        store = self._there(replica)
        snapshot = load_snapshot(store)
        sizes = {entry.name: entry.size for entry in store.list(deep=True)}
        lacking = [add for path, add in sorted(snapshot.live_files().items()) if sizes.get(path) != add.size]
        if not lacking:
            return ()
        txns = {str(txn["appId"]): int(txn["version"]) for txn in snapshot.of_kind("txn")}
        for commit in snapshot.committed:
            txns |= commit.txns
        return tuple(LostFile(add, txns) for add in lacking)

    def copy_checkpoint(self, source: Replica, replica: Replica, *, partly: bool, durable: bool) -> int:
        """Copy the newest checkpoint of another replica, after the data files that are live in it.

        Args:
            source: the replica that has the checkpoint.
            replica: the replica that receives it.
            partly: whether to skip data files that no replica has.
            durable: whether the data files must survive a power failure.

        Returns:
            The checkpoint's version.
        """
        origin, target = self._there(source), self._there(replica)
        files = LogFiles.listed(origin).checkpoints
        version = max(files)
        live = tuple(load_snapshot(origin, version).live_files().values())
        self.supply(replica, live, source, partly=partly, durable=durable)
        note_beginning(target, version)
        for name in files[version]:
            target.replace(f"_delta_log/{name}", origin.read(f"_delta_log/{name}"))
        # Delta's readers start at the checkpoint that this file names.
        target.replace(LAST_CHECKPOINT, b'{"version":%d,"size":%d}' % (version, 1))
        faults.point("replicas.before_finishing_notes")
        finish_notes(target, origin)
        return version

    def fill(self, replica: Replica, source: Replica, *, durable: bool) -> None:
        """Copy data files that a replica's log names and it lacks, and finish an interrupted `copy_checkpoint`.

        Args:
            replica: the replica that receives them.
            source: the replica that has them. Files that no replica has are skipped.
            durable: whether they must survive a power failure.
        """
        lacking = [lost.add for lost in self.missing(replica)]
        self.supply(replica, lacking, source, partly=True, durable=durable)
        finish_notes(self._there(replica), self._there(source))


def beside_each_other(adds: Sequence[Add]) -> Iterator[Sequence[Add]]:
    """Group files to copy in parallel, in order, limited by count and by bytes in memory.

    Args:
        adds: the files; one above the byte limit is copied alone.
    """
    some: list[Add] = []
    for add in adds:
        if some and (len(some) == READ_BESIDE or sum(other.size for other in some) + add.size > BYTES_BESIDE):
            yield some
            some = []
        some.append(add)
    if some:
        yield some


def _has(store: Storage, add: Add) -> bool:
    try:
        return store.size(add.path) == add.size
    except FileNotFoundError:
        return False


def txns_of(store: Storage, names: Sequence[str]) -> dict[str, int]:
    """Return the versions of Delta's `txn` actions in a checkpoint's files, by application id."""
    found: dict[str, int] = {}
    for name in names:
        with store.open_input(f"_delta_log/{name}") as stream:
            read = ParquetInput(stream).read(["txn"], use_threads=False)
            for txn in read.column("txn").to_pylist():
                if txn is not None and txn["appId"] is not None:
                    found[str(txn["appId"])] = int(txn["version"])
    return found
