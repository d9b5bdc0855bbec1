"""Replicated storage: a table at several roots as one storage.

A protocol makes and reads versions: the chain of a topic's replicas (`ChainStorage`), or the voters that hold the
cluster's metadata (`QuorumStorage`). All other files are read from the first root that has them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

import pyarrow as pa

from kafkalike.delta.actions import version_of
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, Pace

T = TypeVar("T")

LOG: Final = "_delta_log/"


def version_in(name: str) -> int | None:
    """Return the version that a file of a table commits; None for any other file."""
    return version_of(name.removeprefix(LOG)) if name.startswith(LOG) else None


class ReplicatedStorage(Storage):
    """A table at several roots, whose versions are made by a protocol."""

    @abstractmethod
    def look_at_version(self, version: int, pace: Pace) -> bytes | None:
        """Return a version's file as the protocol sees it; None while the version does not exist."""

    @abstractmethod
    def put_version(self, version: int, content: bytes, *, durable: bool) -> bool:
        """Make a version by the protocol, unless there is one; see `Storage.put_if_absent`."""

    @abstractmethod
    def put_file(self, name: str, content: bytes, *, durable: bool) -> bool:
        """Create a file other than a version; see `Storage.put_if_absent`."""

    @abstractmethod
    def first(self, name: str, read: Callable[[Storage], T]) -> T:
        """Read a file at the first root that has it."""

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Return the content of a file that may not exist yet."""
        version = version_in(name)
        return super().look(name, pace) if version is None else self.look_at_version(version, pace)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Make a version, or create another file."""
        version = version_in(name)
        if version is None:
            return self.put_file(name, content, durable=durable)
        return self.put_version(version, content, durable=durable)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        return self.first(name, lambda folder: folder.read_range(name, start, stop))

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        return self.first(name, lambda folder: folder.open_input(name, buffer_size))

    def size(self, name: str) -> int:
        """Return the size of a file, bytes."""
        return self.first(name, lambda folder: folder.size(name))
