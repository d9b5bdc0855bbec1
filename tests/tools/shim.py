"""Shim: orders in, the environment of a child process whose file operations fail, wait or kill out."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faultshim.c")


@pytest.fixture(scope="session")
def faultshim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled injector; without a C compiler the test is skipped."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler: faults below Python and Java cannot be injected")
    library = tmp_path_factory.mktemp("faultshim") / "faultshim.so"
    build = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(build, check=True, capture_output=True, text=True, timeout=60)
    return library


def fault(at: str, do: str, match: str, nth: int = 0, log: str = "") -> dict[str, str]:
    """What the injector is to do; see the head of faultshim.c.

    Args:
        at: the call: rename, link, open, unlink, mkdir, or write for any of them.
        do: delay:<ms>, kill_before, kill_after, enospc, eio or count.
        match: text in the path.
        nth: only the n-th matching call; 0 for every one.
        log: file that lists the matching calls.
    """
    return {"FAULT_AT": at, "FAULT_DO": do, "FAULT_MATCH": match, "FAULT_NTH": str(nth), "FAULT_LOG": log}


def preloaded(library: Path, orders: dict[str, str]) -> dict[str, str]:
    """The same for a child that is to be started."""
    return {"LD_PRELOAD": str(library), **orders}
