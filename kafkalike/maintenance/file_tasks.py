"""File tasks: jobs that read data files and write new ones, in this process or in tasks of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from kafkalike.model.clock import Deadline
from kafkalike.storage.port import Storage

Job = TypeVar("Job")
Piece = TypeVar("Piece")

Work = Callable[[Job, Deadline], Iterator[Piece]]
"""Does one job piece by piece: reads files, and writes new ones with unique names. It commits nothing, so it may run
twice or be interrupted. When the budget has run out it starts nothing new, and its last piece tells so."""


class Tasks(Protocol):
    """Runs jobs. The caller commits the files that the pieces name."""

    def run(self, work: Work[Job, Piece], jobs: Iterable[Job], budget: Deadline) -> Iterator[Piece]:
        """Run jobs, one by one or in parallel.

        Args:
            work: does a job.
            jobs: drawn in the calling thread, each one when it can start.
            budget: passed to the work.

        Yields:
            The pieces, in order within each job, in the calling thread.

        Raises:
            KafkaError: raised by the work, after its earlier pieces. Jobs that ran in parallel yield no more pieces,
                and no commit names their files.
        """
        ...


class InProcess:
    """Runs one job after another in the calling thread, and yields each piece before it starts the next."""

    def run(self, work: Work[Job, Piece], jobs: Iterable[Job], budget: Deadline) -> Iterator[Piece]:
        """Run jobs in this thread; see `Tasks.run`."""
        for job in jobs:
            yield from work(job, budget)


IN_PROCESS = InProcess()


def where_possible(tasks: Tasks, files: Storage) -> Tasks:
    """Return these tasks if they can write a table's files; only this process can write to replicas."""
    return IN_PROCESS if files.tasks.has_replicas else tasks
