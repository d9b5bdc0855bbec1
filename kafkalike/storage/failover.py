"""Failover storage: several folders with the same files as one, which reads each file from the first that has it.

Spark's tasks read a table with replicas through it: it can be pickled. A writer decides which folders get a new file;
without one the folders can only be read.
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
"""The folders at the moment; the first one is asked first."""


class FailoverWriter(ABC):
    """Which of several folders get a new file."""

    @abstractmethod
    def write(self, write: Callable[[Storage], T]) -> T | None:
        """Write to each folder that is to have a file; returns the first one's answer, None where there is no folder.

        Raises:
            OSError: one of them does not have it.
        """

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file at each of them when it is closed."""
        folder = name.rpartition("/")[0]

        def put(content: bytes) -> None:
            if folder:
                self.write(lambda storage: storage.make_folder(folder))
            self.write(lambda storage: storage.replace(name, content))

        return pa.PythonFile(BufferedOutput(put), "w")

    @abstractmethod
    def at(self, folder: str) -> FailoverWriter:
        """Return the writer of a folder below each of them."""


class FailoverAccess(TaskAccess):
    """How other processes reach several folders: through the first one.

    Args:
        storages: the folders.
    """

    def __init__(self, storages: Storages) -> None:
        self._storages = storages

    def sendable(self, storage: Storage) -> Storage:
        """Return the same, each of which may be sent."""
        assert isinstance(storage, FailoverStorage)
        return storage.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the first one's."""
        return self._storages()[0].tasks.sent_options()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the first one's."""
        return self._storages()[0].tasks.hadoop_settings()

    has_replicas = True

    def replicas(self) -> Sequence[Storage]:
        """Return each by itself."""
        return self._storages()

    def elsewhere(self) -> Sequence[Storage]:
        """Return each by itself."""
        return self._storages()


class FailoverStorage(Storage):
    """Folders that hold the same files.

    Args:
        storages: the folders.
        turns: how many of them, from the first one on, take turns, file by file; see `by_turns`.
        writer: which of them get a new file; None: they can only be read.
        coordination: of the cluster; None: the first one's.
        uri: what it is called while there is no folder.
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
        """Pickle the folders of the moment, to read only."""
        return read_only, (self._storages(), self._turns)

    @property
    def uri(self) -> str:
        """Where the first folder is."""
        found = self._storages()
        return found[0].uri if found else self._uri

    @property
    def coordination(self) -> Coordination:  # type: ignore[override]
        """The cluster's, or the first one's."""
        return self._storages()[0].coordination if self._coordination is None else self._coordination

    def at(self, folder: str) -> FailoverStorage:
        """Return the same folder of each."""
        return FailoverStorage(
            lambda: [storage.at(folder) for storage in self._storages()],
            self._turns,
            writer=None if self._writer is None else self._writer.at(folder),
            coordination=self._coordination,
            uri=f"{self._uri}/{folder}",
        )

    def sendable(self) -> FailoverStorage:
        """Return each as it may be sent to Spark's tasks."""
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
        """List the files of the first folder that has any; of all that answer, where new ones are written."""
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
        """List those of the first folder; of all that answer, where new ones are made."""
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
        """Create a file at each, unless there is one; returns whether the first one had none."""
        write = self._written().write
        return bool(write(lambda storage: storage.put_if_absent(name, content, durable=durable)))

    def replace(self, name: str, content: bytes) -> None:
        """Write a file at each."""
        self._written().write(lambda storage: storage.replace(name, content))

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file."""
        return self._written().open_output(name)

    def make_folder(self, folder: str) -> None:
        """Make a folder at each."""
        self._written().write(lambda storage: storage.make_folder(folder))

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file at each that answers."""
        if quietly and self._writer is None:
            return
        self._written()
        for storage in self._storages():
            storage.remove(name, quietly=quietly)

    def sync(self, name: str) -> None:
        """Make a file survive a power failure at each."""
        self._written().write(lambda storage: storage.sync(name))


def read_only(storages: Sequence[Storage], turns: int = 1) -> FailoverStorage:
    """Return folders as one that can be read; see `FailoverStorage`.

    Raises:
        FileNotFoundError: there is none.
    """
    if not storages:
        raise FileNotFoundError("nobody has the table")
    given = tuple(storages)
    return FailoverStorage(lambda: given, turns)
