"""Replica reader: several folders with the same data files, as a store that reads each file where it is.

It can be pickled, and is what Spark's tasks read with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pyarrow as pa

from kafkalike.errors import UnsafeStorageError
from kafkalike.model.brokers import by_turns
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.groups.sessions import Leases
from kafkalike.storage.near import NearStore
from kafkalike.storage.port import Entry, Reach, Storage

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")


class ReplicaReader(NearStore):
    """Folders that hold the same data files. To read only.

    Args:
        stores: at least one; the first one is asked first.
        turns: how many of them, from the first one on, take turns, file by file; see `by_turns`.
    """

    _turns = 1

    def __init__(self, stores: Sequence[Storage], turns: int = 1) -> None:
        if not stores:
            raise FileNotFoundError("nobody has the table")
        self._given = tuple(stores)
        self._turns = turns

    @property
    def _stores(self) -> Sequence[Storage]:
        return self._given

    @property
    def uri(self) -> str:
        """The first one's."""
        return self._stores[0].uri

    @property
    def reach(self) -> Reach:
        """The first one's."""
        return self._stores[0].reach

    def copies(self) -> Sequence[Storage]:
        """Each for itself."""
        return self._stores

    def elsewhere(self) -> Sequence[Storage]:
        """Each for itself."""
        return self._stores

    def check_writable(self) -> None:
        """Refused."""
        self._refuse()

    def try_out(self) -> None:
        """It is never written to."""

    def at(self, folder: str) -> ReplicaReader:
        """The same folder of each."""
        return ReplicaReader([store.at(folder) for store in self._stores], self._turns)

    def for_tasks(self) -> ReplicaReader:
        """Each as it may be sent."""
        return ReplicaReader([store.for_tasks() for store in self._stores], self._turns)

    def sent_options(self) -> SentOptions | None:
        """The first one's."""
        return self._stores[0].sent_options()

    def hadoop_settings(self) -> Mapping[str, str]:
        """The first one's."""
        return self._stores[0].hadoop_settings()

    def _first(self, name: str, read: Callable[[Storage], T]) -> T:
        failed: OSError | None = None
        for store in by_turns(self._stores, self._turns, name):
            try:
                return read(store)
            except OSError as cause:
                failed = failed or cause
        raise failed or FileNotFoundError(f"nobody has files of {self.uri}")

    def read(self, name: str) -> bytes:
        """Content of a file."""
        return self._first(name, lambda store: store.read(name))

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        return self._first(name, lambda store: store.open_input(name, buffer_size))

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file."""
        return self._first(name, lambda store: store.read_range(name, start, stop))

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._first(name, lambda store: store.size(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of the first one that has any."""
        for store in self._stores:
            found = store.list(folder, deep=deep, after=after)
            if found:
                return found
        return []

    def folders(self) -> Sequence[str]:
        """The first one's."""
        return self._stores[0].folders()

    def now_ns(self) -> int:
        """The first one's clock."""
        return self._stores[0].now_ns()

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Refused."""
        del name, content, durable
        self._refuse()

    def replace(self, name: str, content: bytes) -> None:
        """Refused."""
        del name, content
        self._refuse()

    def open_output(self, name: str) -> pa.NativeFile:
        """Refused."""
        del name
        self._refuse()

    def make_folder(self, folder: str) -> None:
        """Refused."""
        del folder
        self._refuse()

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Give a file to another store."""
        with target.open_output(name) as stream:
            stream.write(self.read(source))
        return False

    def discard(self, name: str) -> None:
        """Refused, which is harmless."""

    def remove(self, name: str) -> None:
        """Refused."""
        del name
        self._refuse()

    def sync(self, name: str) -> None:
        """Refused."""
        del name
        self._refuse()

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """The first one's."""
        return self._stores[0].turn(name, deadline, meanwhile)

    def forget_turns(self, names: Iterable[str]) -> int:
        """The first one's."""
        return self._stores[0].forget_turns(names)

    def leases(self) -> Leases:
        """The first one's."""
        return self._stores[0].leases()

    def _refuse(self) -> NoReturn:
        raise UnsafeStorageError(f"{self.uri} is read here, and not written")
