"""File tasks: jobs that read data files and write new ones, and where they run: in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from kafkalike.model.clock import Deadline
from kafkalike.storage.port import Storage

Job = TypeVar("Job")
Piece = TypeVar("Piece")

Work = Callable[[Job, Deadline], Iterator[Piece]]
"""Does one job, piece by piece: reads files, and writes new ones under names that nobody else has. It commits nothing,
so it may be done twice, or half. It begins nothing new when the budget has run out, and says so in its pieces."""


class Tasks(Protocol):
    """Where jobs are done. The caller commits what the pieces name."""

    def run(self, work: Work[Job, Piece], jobs: Iterable[Job], budget: Deadline) -> Iterator[Piece]:
        """Do jobs, one by one or several at a time.

        Args:
            work: what to do with each job.
            jobs: drawn by the calling thread, each one when it can begin.
            budget: handed on to the work.

        Yields:
            The pieces, those of one job in their order; to the calling thread.

        Raises:
            KafkaError: what the work has raised, after the pieces that came before it. Of jobs that ran at the same
                time nothing more comes; files that they have written are named by nobody.
        """
        ...


class InProcess:
    """One job after another in the calling thread; each piece is handed over before the next one is begun."""

    def run(self, work: Work[Job, Piece], jobs: Iterable[Job], budget: Deadline) -> Iterator[Piece]:
        """See `Tasks`."""
        for job in jobs:
            yield from work(job, budget)


IN_PROCESS = InProcess()


def where_possible(tasks: Tasks, files: Storage) -> Tasks:
    """These tasks, where they can write a table's files; replicas are written by this process, which knows them."""
    return IN_PROCESS if files.tasks.has_replicas else tasks
