"""A gateway allocates from what returns freed memory: few arenas of glibc's, for Arrow too."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

ARENAS = """
import ctypes
import threading
from kafkalike.cli.gateway import return_memory

return_memory()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
found, together = [], threading.Barrier(12)

def allocate():
    together.wait()
    found.append(malloc(10_000))
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len({at >> 26 for at in found}))
"""
"""Prints in how many arenas twelve threads allocate; glibc aligns each to 64 MB."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc has arenas")
@pytest.mark.parametrize(
    ("chosen", "most"),
    [({}, 2), ({"MALLOC_ARENA_MAX": "8"}, 8), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"}, 8)],
    ids=["default", "variable", "tunable"],
)
def test_threads_of_a_gateway_allocate_from_two_arenas_unless_the_environment_says_otherwise(
    chosen: dict[str, str], most: int
) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}}
    told = subprocess.run([sys.executable, "-c", ARENAS], capture_output=True, text=True, check=True, env=kept | chosen)

    assert most // 2 < int(told.stdout) <= most


@pytest.mark.parametrize(
    ("chosen", "pool"),
    [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")],
    ids=["default", "variable"],
)
def test_arrow_of_a_gateway_allocates_by_glibc_unless_the_environment_says_otherwise(
    chosen: dict[str, str], pool: str
) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = "from kafkalike.cli import gateway; gateway.return_memory(); import pyarrow as pa; "
    command += "print(pa.default_memory_pool().backend_name)"
    told = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True, env=kept | chosen
    )

    assert told.stdout.strip() == pool
