"""Scratch: keeps what a job of this machine stages for an object store on this machine's disk.

Staged in the store, the records would go over the network three times: there, back to the process that numbers them,
and there again as segments. Where the tasks and that process share a disk, only the last of these is left (decision
076). When the disk is nearly full, the rest goes to the store after all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaStorageError
from kafkalike.maintenance.staging.staging_lease import remove_folder
from kafkalike.maintenance.staging.staging_prefix import Prefix
from kafkalike.storage.failover import FailoverStorage, FailoverWriter
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage

T = TypeVar("T")

ROOM_OF_A_CORE: Final = 512 * 1024 * 1024
"""Bytes that must be free on the disk for each core when a task begins a file there, which ends soon after half of
them (`SEGMENT_BYTES`)."""

_OVERFLOWN: Final = "overflown"
"""A file that says that some of the job's records are in the store."""


class OverflowWriter(FailoverWriter):
    """Writes to a folder of this machine, and to another storage when the disk is nearly full.

    Args:
        local: the folder.
        beyond: that storage.
    """

    def __init__(self, local: Storage, beyond: Storage) -> None:
        self._local = local
        self._beyond = beyond

    def _chosen(self) -> Storage:
        if shutil.disk_usage(self._local.uri).free >= ROOM_OF_A_CORE * (os.cpu_count() or 1):
            return self._local
        Path(self._local.uri, _OVERFLOWN).touch()
        return self._beyond

    def write(self, write: Callable[[Storage], T]) -> T:
        """Write to the one that has room."""
        return write(self._chosen())

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file where there is room."""
        return self._chosen().open_output(name)

    def at(self, folder: str) -> OverflowWriter:
        """Return the writer of a folder below."""
        return OverflowWriter(self._local.at(folder), self._beyond.at(folder))


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one job; travels to its tasks."""

    path: str
    beyond: Prefix
    """Where what the disk has no room for goes."""

    @classmethod
    def of(cls, above: str, store: Storage, name: str | None = None) -> Scratch:
        """One for a job; a new one without a name.

        Args:
            above: a folder that all tasks of the job can write to, and that goes with Spark's JVM.
            store: the cluster's root.
            name: that of the job.
        """
        beyond = Prefix.of(store, name)
        return cls(f"{above}/kafkalike-{beyond.files.uri.rpartition('/')[2]}", beyond)

    @property
    def files(self) -> FailoverStorage:
        """The files in it: on the disk, and in the storage once the disk is nearly full."""
        local, beyond = LocalStorage(self.path), self.beyond.files
        return FailoverStorage(
            lambda: [local, beyond] if self.overflown() else [local], writer=OverflowWriter(local, beyond)
        )

    def overflown(self) -> bool:
        """Whether there may be files in the storage."""
        return Path(self.path, _OVERFLOWN).exists()

    def make(self) -> None:
        """Make it, unless it is there: on the driver, before there are tasks.

        Raises:
            KafkaStorageError: it cannot be made.
        """
        try:
            Path(self.path).mkdir(exist_ok=True)
        except OSError as cause:
            raise KafkaStorageError(
                f"{self.path}: the disk refused the records, nothing was written: {cause}"
            ) from cause

    def enter(self) -> Scratch:
        """Begin to work in it.

        Raises:
            FileNotFoundError: the job is over. A task may outlive it, and nobody would remove what it staged.
        """
        Path(self.path).stat()
        return self

    def renew(self) -> None:
        """Nothing to show."""

    def remove(self) -> None:
        """Remove all that is there; never fails."""
        if self.overflown():
            self.beyond.remove()
        remove_folder(Path(self.path))


@contextmanager
def scratch_folder(above: str, store: Storage) -> Iterator[Scratch]:
    """One of this write's own, gone afterwards; see `Scratch.of`."""
    scratch = Scratch.of(above, store)
    scratch.make()
    try:
        yield scratch
    finally:
        scratch.remove()
