"""File tasks: jobs that read data files and write new ones, in this process or in tasks of Spark.

Spark may repeat a task, run it twice at once, or stop it midway. Each attempt writes files with unique names, and only
files whose names reach the driver are ever committed. VACUUM removes the others.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafkalike.errors import CorruptRecordError, IllegalArgumentError, KafkaStorageError
from kafkalike.errors.kafka_error import innermost
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


AT_ONCE: Final = 64
"""Maximum number of parallel jobs on a cluster of any size, because the driver has a thread for each."""

_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", re.MULTILINE)
"""The end of a task's Python traceback in the text of Spark's error."""


class SparkTasks:
    """Runs each job as a Spark job of one task, as many in parallel as the session has cores.

    So the caller has the pieces of a job as soon as it ends, and pieces that are committed stay, even if other jobs
    fail.

    Args:
        spark: the session. Executors on other machines must reach the root under the same address, and have this
            package.

    Raises:
        IllegalArgumentError: a session of Spark Connect, which has no SparkContext.
    """

    def __init__(self, spark: SparkSession) -> None:
        from pyspark.errors import PySparkException

        try:
            self._context = spark.sparkContext
        except PySparkException as cause:
            raise IllegalArgumentError(
                "maintenance runs tasks in a session with a SparkContext; a session of Spark Connect has none"
            ) from cause

    def run(self, work: Work[Job, Piece], jobs: Iterable[Job], budget: Deadline) -> Iterator[Piece]:
        """Run jobs, see `Tasks.run`; Spark retries a failed task as often as the session is configured to.

        Raises:
            CorruptRecordError: the work found a damaged file.
            KafkaStorageError: a task failed too often.
        """
        from py4j.protocol import Py4JError

        tag = f"kafkalike-{uuid.uuid4().hex}"
        width = max(1, min(AT_ONCE, self._context.defaultParallelism))
        waiting = iter(jobs)
        running: set[Future[_Outcome[Piece]]] = set()
        pool = ThreadPoolExecutor(width, thread_name_prefix="kafkalike-tasks")
        try:
            while True:
                running |= {pool.submit(self._one, tag, work, j, budget) for j in islice(waiting, width - len(running))}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from _unpacked(future.result())
        finally:
            if running:
                with suppress(Py4JError, OSError):
                    self._context.cancelJobsWithTag(tag)
            pool.shutdown(cancel_futures=True)

    def _one(self, tag: str, work: Work[Job, Piece], job: Job, budget: Deadline) -> _Outcome[Piece]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        left = budget.remaining()
        # The job travels with the function: parallelized data are written to a file first, and a job contains a
        # storage.
        task = partial(_attempt, work, None if math.isinf(left) else left * 1000, job)
        self._context.addJobTag(tag)
        try:
            (outcome,) = self._context.parallelize([0], 1).map(task).collect()
        except (*(PySparkException, Py4JError), OSError) as cause:
            said = _PYTHON_ERROR.findall(str(cause))
            raise KafkaStorageError(
                f"a Spark task of maintenance failed: {said[-1] if said else innermost(cause)}"
            ) from cause
        return outcome


_Outcome = tuple[list[Piece], str | None]
"""The pieces of a job, and a description of damage; damage is returned because a retry would not help."""


def _attempt(work: Work[Job, Piece], left_ms: float | None, job: Job, _: int) -> _Outcome[Piece]:
    """In the task: finish the job."""
    pieces: list[Piece] = []
    try:
        pieces.extend(work(job, Deadline(SYSTEM_CLOCK, left_ms)))
    except CorruptRecordError as error:
        return pieces, str(error)
    return pieces, None


def _unpacked(outcome: _Outcome[Piece]) -> Iterator[Piece]:
    pieces, damage = outcome
    yield from pieces
    if damage is not None:
        raise CorruptRecordError(damage)
