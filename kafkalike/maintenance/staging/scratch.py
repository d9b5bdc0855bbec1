"""Scratch: keeps what a job of this machine stages for an object store on this machine's disk.

Staged in the store, the records would go over the network three times: there, back to the process that numbers them,
and there again as segments. Where the tasks and that process share a disk, only the last of these is left (decision
076). When the disk is nearly full, the rest goes to the store after all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from kafkalike.errors import KafkaStorageError
from kafkalike.maintenance.staging.staging_lease import remove_folder
from kafkalike.maintenance.staging.staging_prefix import Prefix
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage

ROOM_OF_A_CORE: Final = 512 * 1024 * 1024
"""Bytes that must be free on the disk for each core when a task begins a file there, which ends soon after half of
them (`SEGMENT_BYTES`)."""

_OVERFLOWN: Final = "overflown"
"""A file that says that some of the job's records are in the store."""


class ScratchStore(LocalStorage):
    """A folder of this machine whose files go to another store when the disk is nearly full.

    Args:
        uri: the folder.
        beyond: that store.
    """

    def __init__(self, uri: str, beyond: Storage) -> None:
        super().__init__(uri)
        self.beyond = beyond

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file: here, or in the other store."""
        if shutil.disk_usage(self.uri).free >= ROOM_OF_A_CORE * (os.cpu_count() or 1):
            return super().open_output(name)
        Path(self.uri, _OVERFLOWN).touch()
        return self.beyond.open_output(name)

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file, wherever it is."""
        try:
            return super().read_range(name, start, stop)
        except FileNotFoundError:
            if not self.overflown():
                raise
            return self.beyond.read_range(name, start, stop)

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file."""
        super().remove(name, quietly=quietly)
        if self.overflown():
            self.beyond.remove(name, quietly=quietly)

    def overflown(self) -> bool:
        """Whether there may be files in the other store."""
        return Path(self.uri, _OVERFLOWN).exists()


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
    def files(self) -> ScratchStore:
        """What is in it."""
        return ScratchStore(self.path, self.beyond.files)

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
        if self.files.overflown():
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
