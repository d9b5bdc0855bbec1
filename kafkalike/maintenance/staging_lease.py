"""Staging lease: shows that a Spark job still needs a folder that its processes share.

A Spark job that writes through the format runs in many Python processes, none of which lives as long as the job, so no
process can hold a lock for it. Instead the folder's owner file names the driver's JVM, and each process that works for
the job sets the file's time. The folder may go when that JVM is dead, which only its own machine can tell, or else when
there was no heartbeat for `LEASE_MS`, or none at all for `START_MS` more.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kafkalike.delta.layout import LOCKS, STAGING
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.table_lock import TableLock

OWNER: Final = "owner.json"

LEASE_MS: Final = 24 * 60 * 60 * 1000
"""How long a job on another machine may be silent before its folder is taken for left behind, ms."""

START_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How much longer before its first task is at work, ms: stages that come before may run for days."""

RENEWAL_SECONDS: Final = 60.0
"""Least time between two heartbeats of a task."""

_JVM: Final = "java"


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """The JVM of a Spark driver, so that its machine can tell it from every other process."""

    machine: str
    """Which start of which machine, and which of its namespaces of processes."""
    pid: int
    started: int
    """When the process began, in the machine's ticks: another one may get the same number later."""

    @classmethod
    def above(cls) -> DriverProcess | None:
        """The JVM that has started this Python process or its parents; None where `/proc` does not say."""
        with contextlib.suppress(OSError, ValueError):
            pid = os.getpid()
            while pid > 1:
                found = _process(pid)
                if found.name == _JVM:
                    return cls.of(pid)
                pid = found.parent
        return None

    @classmethod
    def of(cls, pid: int) -> DriverProcess | None:
        """A process of this machine by its number; None where `/proc` does not say."""
        machine = this_machine()
        with contextlib.suppress(OSError, ValueError):
            return None if machine is None else cls(machine, pid, _process(pid).started)
        return None

    def dead(self) -> bool:
        """Whether the process is surely gone. Caller: is on its machine."""
        try:
            now = _process(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return True
        except (OSError, ValueError):
            return False
        return now.ended or now.started != self.started


def this_machine() -> str | None:
    """Names the running start of this machine, and this process's namespace; None where `/proc` does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    ended: bool
    """Dead, and only waits for its parent to notice."""
    parent: int
    started: int


def _process(pid: int) -> _Process:
    """What Linux says of a process."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").partition("(")[2].rpartition(")")
    fields = rest.split()
    return _Process(name=name, ended=fields[0] in {"Z", "X"}, parent=int(fields[1]), started=int(fields[19]))


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A folder below a root's staging folder; travels to the processes of the job."""

    root: str
    name: str
    driver: DriverProcess | None

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{self.root}/{STAGING}/{self.name}"

    @property
    def files(self) -> LocalStorage:
        """What is in it."""
        return LocalStorage(self.path)

    def make(self) -> None:
        """Make it, unless it is there: on the driver, before there are tasks.

        Raises:
            OSError, KafkaStorageError: it cannot be made.
        """
        owner = Path(self.path, OWNER)
        # Who looks for what was left behind must not meet a folder without owner file, nor remove this one now.
        with TableLock(f"{self.root}/{LOCKS}", STAGING).held():
            owner.parent.mkdir(parents=True, exist_ok=True)
            owner.write_text(json.dumps(None if self.driver is None else asdict(self.driver)), "utf-8")
            begun = SYSTEM_CLOCK.now_ms() + START_MS
            os.utime(owner, ns=(begun * 1_000_000, begun * 1_000_000))

    def enter(self) -> Lease:
        """Begin to work in the folder.

        Raises:
            FileNotFoundError: the job is over. A task may outlive it, and nobody would remove what it staged.
        """
        lease = Lease(Path(self.path, OWNER))
        lease.give()
        return lease

    def remove(self) -> None:
        """Remove it with all that is in it; never fails."""
        remove_folder(Path(self.path))


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """A folder of a process that lives as long as the job and holds a lock for it, so nobody else has to show anything.

    See `staging_folder`; travels to the job's tasks.
    """

    path: str

    @property
    def files(self) -> LocalStorage:
        """What is in it."""
        return LocalStorage(self.path)

    def enter(self) -> HeldFolder:
        """Begin to work in the folder."""
        return self

    def renew(self) -> None:
        """Nothing to show."""


class Lease:
    """Gives the heartbeats of one process at work.

    Args:
        owner: the folder's owner file.
        clock: time.
    """

    def __init__(self, owner: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._owner = owner
        self._clock = clock
        self._last = clock.monotonic()

    def give(self) -> None:
        """Give a heartbeat.

        Raises:
            OSError: the folder is gone.
        """
        self._last = self._clock.monotonic()
        os.utime(self._owner)

    def renew(self) -> None:
        """Give a heartbeat, unless the last one is fresh."""
        if self._clock.monotonic() - self._last >= RENEWAL_SECONDS:
            with contextlib.suppress(OSError):
                self.give()


def left_behind(folder: Path, now_ms: int) -> bool | None:
    """Whether the job that made a folder is over; None when the folder is not a `JobFolder`.

    Args:
        folder: a folder below a root's staging folder.
        now_ms: wall-clock time, ms.
    """
    owner = Path(folder, OWNER)
    try:
        seen_ms = owner.stat().st_mtime_ns // 1_000_000
        named = json.loads(owner.read_text("utf-8"))
    except FileNotFoundError:
        return None
    if named is not None:
        driver = DriverProcess(**named)
        if driver.machine == this_machine():
            return driver.dead()
    return now_ms - seen_ms > LEASE_MS


def remove_folder(folder: Path) -> None:
    """Remove a job's folder with all that is in it; never fails."""
    # At once under another name: a task that outlives its job must not add to what is being removed.
    gone = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
