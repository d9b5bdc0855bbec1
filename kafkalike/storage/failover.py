"""Failover storage: several folders with the same files as one storage; each file is read from the first that has it.

Spark's tasks read a replicated table through it, because it can be pickled. A writer decides which folders get a new
file; without a writer the folders are read-only.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from kafkalike.errors import UnsafeStorageError
from kafkalike.model.brokers import by_turns
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.storage.port import BufferedOutput, Coordination, Entry, Storage, TaskAccess

T = TypeVar("T")

Storages = Callable[[], Sequence[Storage]]
"""Returns the folders of the moment; the first one is read first."""


class FailoverWriter(ABC):
    """Decides which of several folders get a new file."""

    @abstractmethod
    def write(self, write: Callable[[Storage], T]) -> T | None:
        """Write to each folder that must have a file; return the first answer, or None without any folder.

        Raises:
            OSError: a folder does not have the file.
        """

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that creates a new file in each folder when it is closed."""
        folder = name.rpartition("/")[0]

        def put(content: bytes) -> None:
            if folder:
                self.write(lambda storage: storage.make_folder(folder))
            self.write(lambda storage: storage.replace(name, content))

        return pa.PythonFile(BufferedOutput(put), "w")

    @abstractmethod
    def at(self, folder: str) -> FailoverWriter:
        """Return the writer for a folder below each of them."""


class FailoverAccess(TaskAccess):
    """Gives other processes access to several folders, through the first one.

    Args:
        storages: the folders.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages

    def sendable(self, storage: Storage) -> Storage:
        """Return a storage of the same folders, each of which can be sent."""
        assert isinstance(storage, FailoverStorage)
        return storage.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the first folder's options."""
        return self._storages()[0].tasks.sent_options()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the first folder's settings."""
        return self._storages()[0].tasks.hadoop_settings()

    has_replicas = True

    def replicas(self) -> Sequence[Storage]:
        """Return each folder as a storage of its own."""
        return self._storages()

    def elsewhere(self) -> Sequence[Storage]:
        """Return each folder as a storage of its own."""
        return self._storages()


class FailoverStorage(Storage):
    """Folders that hold the same files.

    Args:
        storages: the folders.
        turns: number of folders, from the first one on, that take turns by file; see `by_turns`.
        writer: decides which folders get a new file; None makes them read-only.
        coordination: the cluster's; None takes the first folder's.
        uri: its name while `storages` returns none.
    """

    def __init__(
        self,
        storages: Storages,
        turns: int = 1,
        *,
        writer: FailoverWriter | None = None,
        coordination: Coordination | None = None,
        uri: str = "",
    ) -> None:
        self._storages = storages
        self._turns = turns
        self._writer = writer
        self._coordination = coordination
        self._uri = uri
        self.tasks = FailoverAccess(storages)

    def __reduce__(self) -> tuple[Callable[..., FailoverStorage], tuple[Sequence[Storage], int]]:
        """Pickle the current folders, read-only."""
        return read_only, (self._storages(), self._turns)

    @property
    def uri(self) -> str:
        """Location of the first folder."""
        found = self._storages()
        return found[0].uri if found else self._uri

    @property
    def coordination(self) -> Coordination:  # type: ignore[override]
        """The cluster's, or the first folder's."""
        return self._storages()[0].coordination if self._coordination is None else self._coordination

    def at(self, folder: str) -> FailoverStorage:
        """Return the storage of a folder below each of them."""
        return FailoverStorage(
            lambda: [storage.at(folder) for storage in self._storages()],
            self._turns,
            writer=None if self._writer is None else self._writer.at(folder),
            coordination=self._coordination,
            uri=f"{self._uri}/{folder}",
        )

    def sendable(self) -> FailoverStorage:
        """Return a read-only storage of the folders, each as it can be sent to Spark's tasks."""
        return read_only([storage.tasks.sendable(storage) for storage in self._storages()], self._turns)

    def _first(self, name: str, read: Callable[[Storage], T]) -> T:
        failed: OSError | None = None
        for storage in by_turns(self._storages(), self._turns, name):
            try:
                return read(storage)
            except OSError as cause:
                failed = failed or cause
        raise failed or FileNotFoundError(f"nobody has files of {self.uri}")

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self._first(name, lambda storage: storage.read(name))

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        return self._first(name, lambda storage: storage.open_input(name, buffer_size))

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        return self._first(name, lambda storage: storage.read_range(name, start, stop))

    def size(self, name: str) -> int:
        """Return the size of a file, bytes."""
        return self._first(name, lambda storage: storage.size(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the first folder that has files; with a writer, the files of all folders that answer."""
        if self._writer is None:
            listed = (storage.list(folder, deep=deep, after=after) for storage in self._storages())
            return next((found for found in listed if found), [])
        found: dict[str, Entry] = {}
        for storage in self._storages():
            with contextlib.suppress(OSError):
                for entry in storage.list(folder, deep=deep, after=after):
                    found.setdefault(entry.name, entry)
        return list(found.values())

    def folders(self) -> Sequence[str]:
        """List the folders below the first folder; with a writer, below all folders that answer."""
        if self._writer is None:
            return self._storages()[0].folders()
        found: set[str] = set()
        for storage in self._storages():
            with contextlib.suppress(OSError):
                found.update(storage.folders())
        return sorted(found)

    # --- writing -------------------------------------------------------------------------------

    def _written(self) -> FailoverWriter:
        if self._writer is None:
            raise UnsafeStorageError(f"{self.uri} is read here, and not written")
        return self._writer

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file in each folder, unless it exists; return whether the first folder had none."""
        write = self._written().write
        return bool(write(lambda storage: storage.put_if_absent(name, content, durable=durable)))

    def replace(self, name: str, content: bytes) -> None:
        """Write a file in each folder."""
        self._written().write(lambda storage: storage.replace(name, content))

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that creates a new file."""
        return self._written().open_output(name)

    def make_folder(self, folder: str) -> None:
        """Create a folder below each of them."""
        self._written().write(lambda storage: storage.make_folder(folder))

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file from each folder that answers."""
        if quietly and self._writer is None:
            return
        self._written()
        for storage in self._storages():
            storage.remove(name, quietly=quietly)

    def sync(self, name: str) -> None:
        """Make a file survive a power failure in each folder."""
        self._written().write(lambda storage: storage.sync(name))


def read_only(storages: Sequence[Storage], turns: int = 1) -> FailoverStorage:
    """Return several folders as a read-only storage; see `FailoverStorage`.

    Raises:
        FileNotFoundError: `storages` is empty.
    """
    if not storages:
        raise FileNotFoundError("nobody has the table")
    given = tuple(storages)
    return FailoverStorage(lambda: given, turns)
