"""Staging prefix: names of a Spark job's records in an object store, and the protocol of all staging places.

There are no locks and no folders in an object store, and a job needs none: its files have names of their own, and only
those that a task's result names are read. So a job shows nothing while it works; what is left of one that was killed is
what nobody has added to for `IDLE_MS`, by the storage's clock. Python workers import this, so it imports nothing slow.
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
"""After what time without a new file of its own a job is taken for dead, ms. One that is alive all the same fails when
it comes to its commit, and has written nothing."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Where the tasks of one job stage their records; travels to them."""

    files: Storage
    """Such a one as may be sent; see `TaskAccess.sendable`."""

    @classmethod
    def of(cls, store: Storage, name: str | None = None) -> Prefix:
        """One for a job; a new one without a name.

        Args:
            store: the cluster's root.
            name: that of the job.
        """
        place = store.at(f"{STAGING}/{name or uuid.uuid4().hex}")
        return cls(place.tasks.sendable(place))

    def make(self) -> None:
        """There is nothing to make."""

    def enter(self) -> Prefix:
        """Begin to work."""
        return self

    def renew(self) -> None:
        """Nothing to show."""

    def remove(self) -> None:
        """Remove all that is there; never fails, and what stays is found by `clear`."""
        with contextlib.suppress(OSError):
            found = [entry.name for entry in self.files.list(deep=True)]
            self.files.scheduler.beside([partial(self.files.remove, name, quietly=True) for name in found])


def clear(store: Storage) -> int:
    """Remove what jobs that were killed have left.

    Args:
        store: the cluster's root.

    Returns:
        How many jobs.

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
    """The files of each job that nobody has added to for `IDLE_MS`.

    Args:
        entries: files of all jobs, each named by the job's name, a slash and its own.
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
    """Shows that a process is at work in a folder."""

    def renew(self) -> None:
        """Show it again, if it is time to."""


class StagingFolder(Protocol):
    """Where a job's tasks stage their records; travels to them."""

    @property
    def files(self) -> Storage:
        """What is in it."""

    def enter(self) -> WorkMark:
        """Begin to work in it.

        Raises:
            OSError: the job is over.
        """
