"""Folder port: what the tasks of a Spark write need to know of the folder that they stage records in.

Python workers import this, so it imports nothing that takes time.
"""

from __future__ import annotations

from typing import Protocol

from kafkalike.storage.port import Storage


class Lease(Protocol):
    """Shows that a process is at work in a folder."""

    def renew(self) -> None:
        """Show it again, if it is time to."""


class Folder(Protocol):
    """Where a job's tasks stage their records; travels to them."""

    @property
    def files(self) -> Storage:
        """What is in it."""

    def enter(self) -> Lease:
        """Begin to work in it.

        Raises:
            OSError: the job is over.
        """
