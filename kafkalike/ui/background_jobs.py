"""Background jobs: work in a thread that outlasts a request, with its progress for pages."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.model.clock import WallClock

KEPT: Final = 20
"""Maximum number of remembered jobs."""


@dataclass(slots=True, kw_only=True)
class BackgroundJob:
    """A job; its thread sets the fields, pages read them."""

    id: str
    what: str
    """Name of the job, or the statement."""
    begun_ms: int
    said: str = ""
    """Name of the current step."""
    done: float = 0.0
    total: float = 0.0
    """In the unit of `done`; 0 if unknown."""
    result: Any = None
    problem: str = ""
    ended_ms: int | None = None
    cancel: Callable[[], object] | None = None
    """Requests the end of the job; None if it cannot be canceled."""
    thread: threading.Thread = field(default_factory=threading.current_thread, repr=False)
    """Thread that runs the job."""

    @property
    def share(self) -> float:
        """Return the finished share, from 0 to 1."""
        if self.ended_ms is not None:
            return 1.0
        return min(1.0, self.done / self.total) if self.total else 0.0


class TooManyJobsError(RuntimeError):
    """Another job is running."""


class BackgroundJobs:
    """Jobs of a console, of which one runs at a time. Thread-safe."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, BackgroundJob] = OrderedDict()

    def start(
        self, what: str, work: Callable[[BackgroundJob], Any], cancel: Callable[[], object] | None = None
    ) -> BackgroundJob:
        """Start a job.

        Args:
            what: name of the job, or the statement.
            work: returns the result; sets the progress of the job.
            cancel: requests the end of the job.

        Raises:
            TooManyJobsError: another job is running.
        """
        with self._lock:
            if any(job.ended_ms is None for job in self._jobs.values()):
                raise TooManyJobsError("another job is running: wait until it ends")
            job = BackgroundJob(id=secrets.token_hex(8), what=what, begun_ms=self._clock.now_ms(), cancel=cancel)
            self._jobs[job.id] = job
            while len(self._jobs) > KEPT:
                self._jobs.popitem(last=False)
        job.thread = threading.Thread(target=self._run, args=(job, work), name=f"kafkalike-ui-{what}", daemon=True)
        job.thread.start()
        return job

    def _run(self, job: BackgroundJob, work: Callable[[BackgroundJob], Any]) -> None:
        try:
            job.result = work(job)
        except Exception as error:  # noqa: BLE001 - the page shows it
            job.problem = f"{type(error).__name__}: {error}"
        finally:
            job.ended_ms = self._clock.now_ms()

    def get(self, id: str) -> BackgroundJob | None:  # noqa: A002
        """Return a job; None if it is unknown or forgotten."""
        with self._lock:
            return self._jobs.get(id)

    def all(self) -> list[BackgroundJob]:
        """Return all jobs, newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))
