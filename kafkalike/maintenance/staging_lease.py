"""Staging lease: shows that a Spark job still needs a folder that its processes share.

A Spark job that writes through the format runs in many short-lived Python processes, so no process can hold a lock for
it. Instead, the folder's owner file names the driver's JVM, and each process of the job updates the file's time. The
folder may be removed once that JVM is dead, which only its own machine can tell, or after `LEASE_MS` without a
heartbeat, with `START_MS` more before the first one.
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
"""How long a job on another machine may be silent before its folder counts as abandoned, ms."""

START_MS: Final = 7 * 24 * 60 * 60 * 1000
"""Additional time before the first task starts, ms, because earlier stages may run for days."""

RENEWAL_SECONDS: Final = 60.0
"""Minimum time between two heartbeats of a task."""

_JVM: Final = "java"


@dataclass(frozen=True, slots=True)
class DriverProcess:
    """The JVM of a Spark driver, identified among all processes of all machines."""

    machine: str
    """The boot id of the machine, and its process namespace."""
    pid: int
    started: int
    """Start time of the process, in the machine's ticks, because process numbers are reused."""

    @classmethod
    def above(cls) -> DriverProcess | None:
        """Return the JVM that started this Python process or its parents; None if `/proc` does not tell."""
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
        """Return a process of this machine by its number; None if `/proc` does not tell."""
        machine = this_machine()
        with contextlib.suppress(OSError, ValueError):
            return None if machine is None else cls(machine, pid, _process(pid).started)
        return None

    def dead(self) -> bool:
        """Return whether the process has surely ended. Caller: runs on its machine."""
        try:
            now = _process(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return True
        except (OSError, ValueError):
            return False
        return now.ended or now.started != self.started


def this_machine() -> str | None:
    """Return an id of this machine's boot and of this process's namespace; None if `/proc` does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class _Process:
    name: str
    ended: bool
    """Dead, and waiting for its parent to collect it."""
    parent: int
    started: int


def _process(pid: int) -> _Process:
    """Read a process from Linux's `/proc`."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").partition("(")[2].rpartition(")")
    fields = rest.split()
    return _Process(name=name, ended=fields[0] in {"Z", "X"}, parent=int(fields[1]), started=int(fields[19]))


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A folder below a root's staging folder; sent to the processes of the job."""

    root: str
    name: str
    driver: DriverProcess | None

    @property
    def path(self) -> str:
        """The path of the folder."""
        return f"{self.root}/{STAGING}/{self.name}"

    @property
    def files(self) -> LocalStorage:
        """The files in the folder."""
        return LocalStorage(self.path)

    def make(self) -> None:
        """Create the folder unless it exists: on the driver, before the tasks start.

        Raises:
            OSError, KafkaStorageError: it cannot be created.
        """
        owner = Path(self.path, OWNER)
        # Cleaning looks for abandoned folders, and must not find this one without its owner file.
        with TableLock(f"{self.root}/{LOCKS}", STAGING).held():
            owner.parent.mkdir(parents=True, exist_ok=True)
            owner.write_text(json.dumps(None if self.driver is None else asdict(self.driver)), "utf-8")
            begun = SYSTEM_CLOCK.now_ms() + START_MS
            os.utime(owner, ns=(begun * 1_000_000, begun * 1_000_000))

    def enter(self) -> Lease:
        """Start to work in the folder.

        Raises:
            FileNotFoundError: the job is over. A task may outlive it, and its files would never be removed.
        """
        lease = Lease(Path(self.path, OWNER))
        lease.give()
        return lease

    def remove(self) -> None:
        """Remove the folder with all files; never fails."""
        remove_folder(Path(self.path))


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """A folder of a process that lives as long as the job and holds a lock for it, so no heartbeat is needed.

    See `staging_folder`; sent to the job's tasks.
    """

    path: str

    @property
    def files(self) -> LocalStorage:
        """The files in the folder."""
        return LocalStorage(self.path)

    def enter(self) -> HeldFolder:
        """Start to work in the folder."""
        return self

    def renew(self) -> None:
        """Do nothing: the lock is enough."""


class Lease:
    """Sends the heartbeats of one process.

    Args:
        owner: the folder's owner file.
        clock: time.
    """

    def __init__(self, owner: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._owner = owner
        self._clock = clock
        self._last = clock.monotonic()

    def give(self) -> None:
        """Send a heartbeat.

        Raises:
            OSError: the folder was removed.
        """
        self._last = self._clock.monotonic()
        os.utime(self._owner)

    def renew(self) -> None:
        """Send a heartbeat, unless the last one is recent."""
        if self._clock.monotonic() - self._last >= RENEWAL_SECONDS:
            with contextlib.suppress(OSError):
                self.give()


def left_behind(folder: Path, now_ms: int) -> bool | None:
    """Return whether the job that made a folder is over; None if the folder is not a `JobFolder`.

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
    """Remove a job's folder with all files; never fails."""
    # Rename it first, so that a task that outlives its job cannot add files during the removal.
    gone = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
