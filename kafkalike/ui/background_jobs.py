"""Background jobs: work that takes longer than a page may; begun in a thread, watched by pages."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.model.clock import WallClock

KEPT: Final = 20
"""Jobs that are remembered; the oldest ended one goes first."""


@dataclass(slots=True, kw_only=True)
class BackgroundJob:
    """One piece of work. Its fields are set by its thread and read by pages."""

    id: str
    what: str
    """For people."""
    begun_ms: int
    said: str = ""
    """What it does now."""
    done: float = 0.0
    total: float = 0.0
    """Of the same unit as `done`; 0 where it is not known."""
    result: Any = None
    problem: str = ""
    ended_ms: int | None = None
    cancel: Callable[[], object] | None = None
    """Ends it soon; None where it cannot be ended."""
    thread: threading.Thread = field(default_factory=threading.current_thread, repr=False)
    """Does it."""

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.ended_ms is not None:
            return 1.0
        return min(1.0, self.done / self.total) if self.total else 0.0


class TooManyJobsError(RuntimeError):
    """Another piece of work goes on."""


class BackgroundJobs:
    """The work of a console, one piece at a time. Thread-safe.

    Args:
        clock: time.
    """

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, BackgroundJob] = OrderedDict()

    def start(
        self, what: str, work: Callable[[BackgroundJob], Any], cancel: Callable[[], object] | None = None
    ) -> BackgroundJob:
        """Begin a piece of work.

        Args:
            what: for people.
            work: does it; gets the job, to say how far it is, and gives its result.
            cancel: ends it soon.

        Raises:
            TooManyJobsError: another one has not ended.
        """
        with self._lock:
            if any(job.ended_ms is None for job in self._jobs.values()):
                raise TooManyJobsError("another one is running; wait until it has ended")
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
        """A job; None when it is not known (any more)."""
        with self._lock:
            return self._jobs.get(id)

    def all(self) -> list[BackgroundJob]:
        """All jobs, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))
