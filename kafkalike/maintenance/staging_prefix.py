"""Staging prefix: names of a Spark job's records in an object store, and the protocol of all staging places.

An object store has no locks and no folders, and a job needs neither: its files have unique names, and only files that a
task's result names are read. So a job shows no sign of life while it works; the files of a job count as abandoned if
none was added for `IDLE_MS`, by the storage's clock. Python workers import this module, so it imports nothing slow.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kafkalike.delta.layout import STAGING
from kafkalike.errors import KafkaStorageError
from kafkalike.storage.port import Entry, Storage

IDLE_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long a job may add no file before it counts as dead, ms. If it is alive, its commit fails, and it has written
nothing."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The names under which the tasks of one job stage their records; sent to the tasks."""

    files: Storage
    """A storage that can be sent to other processes; see `TaskAccess.sendable`."""

    @classmethod
    def of(cls, store: Storage, name: str | None = None) -> Prefix:
        """Return the prefix of a job; a new one without a name.

        Args:
            store: the cluster's root.
            name: the job's name.
        """
        place = store.at(f"{STAGING}/{name or uuid.uuid4().hex}")
        return cls(place.tasks.sendable(place))

    def make(self) -> None:
        """Do nothing: an object store has no folders."""

    def enter(self) -> Prefix:
        """Start to work at the place."""
        return self

    def renew(self) -> None:
        """Do nothing: the job needs no heartbeat."""

    def remove(self) -> None:
        """Remove all staged files; never fails, and `clear` finds leftovers."""
        with contextlib.suppress(OSError):
            found = [entry.name for entry in self.files.list(deep=True)]
            self.files.scheduler.beside([partial(self.files.remove, name, quietly=True) for name in found])


def clear(store: Storage) -> int:
    """Remove the staged files of killed jobs.

    Args:
        store: the cluster's root.

    Returns:
        The number of jobs.

    Raises:
        KafkaStorageError: the storage does not answer.
    """
    try:
        staged = store.at(STAGING)
        left = abandoned_jobs(staged.list(deep=True), store.coordination.now_ns() // 1_000_000)
        staged.scheduler.beside([partial(staged.remove, name) for names in left for name in names])
    except OSError as cause:
        raise KafkaStorageError(f"{store.uri}/{STAGING}: {cause}") from cause
    return len(left)


def abandoned_jobs(entries: Iterable[Entry], now_ms: int) -> list[list[str]]:
    """Return the files of each job that has added none for `IDLE_MS`.

    Args:
        entries: files of all jobs, named by the job's name, a slash and the file's own name.
        now_ms: the storage's time, ms.
    """
    jobs: dict[str, list[Entry]] = {}
    for entry in entries:
        jobs.setdefault(entry.name.partition("/")[0], []).append(entry)
    return [
        [entry.name for entry in files]
        for files in jobs.values()
        if now_ms - max(entry.modified_ms for entry in files) > IDLE_MS
    ]


class WorkMark(Protocol):
    """Shows that a process works in a folder."""

    def renew(self) -> None:
        """Send a heartbeat if one is due."""


class StagingFolder(Protocol):
    """A place where a job's tasks stage their records; sent to the tasks."""

    @property
    def files(self) -> Storage:
        """The staged files of the job."""

    def enter(self) -> WorkMark:
        """Start to work in the place.

        Raises:
            OSError: the job is over.
        """
