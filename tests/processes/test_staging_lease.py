"""Staging lease: a job's folder goes when its driver is dead, or nobody has been seen for long."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.maintenance.staging_folder import clear_staging
from kafkalike.maintenance.staging_lease import (
    LEASE_MS,
    OWNER,
    RENEWAL_SECONDS,
    START_MS,
    DriverProcess,
    JobFolder,
    Lease,
)
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.storage.local import LocalStorage

SOON = Deadline(SYSTEM_CLOCK, 60_000)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a driver."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def folder(root: Path, driver: DriverProcess | None) -> JobFolder:
    made = JobFolder(str(root), "job", driver)
    made.make()
    made.enter()
    Path(made.path, "run.arrow").write_bytes(b"x")
    return made


def after(ms: int) -> ManualClock:
    return ManualClock((SYSTEM_CLOCK.now_ms() + ms) / 1000)


def test_the_folder_of_a_live_driver_stays_however_long_it_is_silent(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """Its tasks may wait for a machine for days."""
    job = folder(tmp_path, DriverProcess.of(process.pid))

    assert clear_staging(LocalStorage(str(tmp_path)), SOON, after(10 * LEASE_MS)) == 0
    assert Path(job.path, "run.arrow").exists()


def test_the_folder_of_a_killed_driver_goes_at_once(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    """Before its parent has taken note of its death, and afterwards."""
    killed, gone = (
        folder(tmp_path / "a", DriverProcess.of(process.pid)),
        folder(tmp_path / "b", DriverProcess.of(process.pid)),
    )
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert clear_staging(LocalStorage(str(tmp_path / "a")), SOON) == 1
    process.wait()
    assert clear_staging(LocalStorage(str(tmp_path / "b")), SOON) == 1
    assert not Path(killed.path).exists()
    assert not Path(gone.path).exists()


def test_another_process_under_the_number_of_the_driver_is_not_the_driver(tmp_path: Path) -> None:
    """Numbers of processes are given out again."""
    own = DriverProcess.of(os.getpid())
    assert own is not None
    folder(tmp_path, replace(own, started=own.started - 1))

    assert clear_staging(LocalStorage(str(tmp_path)), SOON) == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_driver_that_cannot_be_looked_for_has_a_lease(tmp_path: Path, *, known: bool) -> None:
    """It runs on another machine, or has no `/proc`."""
    own = DriverProcess.of(os.getpid())
    assert own is not None
    folder(tmp_path, replace(own, machine="another") if known else None)

    assert clear_staging(LocalStorage(str(tmp_path)), SOON, after(LEASE_MS - 60_000)) == 0
    assert clear_staging(LocalStorage(str(tmp_path)), SOON, after(LEASE_MS + 60_000)) == 1


def test_a_job_without_a_task_yet_has_a_longer_lease(tmp_path: Path) -> None:
    """Its first stages may take days."""
    JobFolder(str(tmp_path), "job", None).make()

    assert clear_staging(LocalStorage(str(tmp_path)), SOON, after(START_MS + LEASE_MS - 60_000)) == 0
    assert clear_staging(LocalStorage(str(tmp_path)), SOON, after(START_MS + LEASE_MS + 60_000)) == 1


def test_a_task_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    """Spark lets tasks of a failed job run on: neither a late one nor one at work brings the folder back."""
    job = folder(tmp_path, None)
    lease = Lease(Path(job.path, OWNER), ManualClock(0))
    with Path(job.path, "late.arrow").open("wb") as at_work:
        job.remove()
        at_work.write(b"x")
    lease.renew()

    with pytest.raises(FileNotFoundError):
        job.enter()
    assert list(Path(job.path).parent.iterdir()) == []


def test_a_task_at_work_renews_the_lease(tmp_path: Path) -> None:
    """Not at each batch of rows."""
    owner = Path(folder(tmp_path, None).path, OWNER)
    clock = ManualClock(0)
    lease = Lease(owner, clock)
    os.utime(owner, (1, 1))

    lease.renew()
    assert owner.stat().st_mtime == 1
    clock.sleep(RENEWAL_SECONDS)
    lease.renew()
    assert owner.stat().st_mtime > 1


def test_this_python_has_no_jvm_above_it() -> None:
    """Only Spark's workers have."""
    assert DriverProcess.above() is None
