"""Failover storage: several folders with the same data files as one, which reads each file from the first that has it.

It can be pickled, and is what Spark's tasks read with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeVar

import pyarrow as pa

from kafkalike.errors import UnsafeStorageError
from kafkalike.model.brokers import by_turns
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.storage.port import Coordination, Entry, Storage, TaskAccess

T = TypeVar("T")


class FailoverAccess(TaskAccess):
    """How other processes reach several folders: through the first one.

    Args:
        storages: the folders, at the moment.
    """

    def __init__(self, storages: Callable[[], Sequence[Storage]]) -> None:
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

    def replicas(self) -> Sequence[Storage]:
        """Return each by itself."""
        return self._storages()

    def elsewhere(self) -> Sequence[Storage]:
        """Return each by itself."""
        return self._storages()


class FailoverStorage(Storage):
    """Folders that hold the same data files. To read only.

    Args:
        storages: at least one; the first one is asked first.
        turns: how many of them, from the first one on, take turns, file by file; see `by_turns`.
    """

    _turns = 1

    def __init__(self, storages: Sequence[Storage], turns: int = 1) -> None:
        if not storages:
            raise FileNotFoundError("nobody has the table")
        self._given = tuple(storages)
        self._turns = turns
        self.tasks = FailoverAccess(self._storages)

    def _storages(self) -> Sequence[Storage]:
        return self._given

    def __reduce__(self) -> tuple[type[FailoverStorage], tuple[Sequence[Storage], int]]:
        """Pickle each of them."""
        return FailoverStorage, (self._storages(), self._turns)

    @property
    def uri(self) -> str:
        """The first one's."""
        return self._storages()[0].uri

    @property
    def coordination(self) -> Coordination:  # type: ignore[override]
        """The first one's."""
        return self._storages()[0].coordination

    def at(self, folder: str) -> FailoverStorage:
        """Return the same folder of each."""
        return FailoverStorage([storage.at(folder) for storage in self._storages()], self._turns)

    def sendable(self) -> FailoverStorage:
        """Return each as it may be sent to Spark's tasks."""
        return FailoverStorage([storage.tasks.sendable(storage) for storage in self._storages()], self._turns)

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
        """List the files of the first one that has any."""
        for storage in self._storages():
            found = storage.list(folder, deep=deep, after=after)
            if found:
                return found
        return []

    def folders(self) -> Sequence[str]:
        """List those of the first one."""
        return self._storages()[0].folders()

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Refuse it."""
        del name, content, durable
        self._refuse()

    def replace(self, name: str, content: bytes) -> None:
        """Refuse it."""
        del name, content
        self._refuse()

    def open_output(self, name: str) -> pa.NativeFile:
        """Refuse it."""
        del name
        self._refuse()

    def make_folder(self, folder: str) -> None:
        """Refuse it."""
        del folder
        self._refuse()

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Refuse it; where failing is harmless, do nothing."""
        del name
        if not quietly:
            self._refuse()

    def sync(self, name: str) -> None:
        """Refuse it."""
        del name
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UnsafeStorageError(f"{self.uri} is read here, and not written")
