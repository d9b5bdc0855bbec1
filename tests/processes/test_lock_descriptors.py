"""A lock where the process has no free descriptor, and has not loaded filelock yet, which it would need then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, resource, sys
from kafkalike.errors import KafkaStorageError
from kafkalike.storage.table_lock import TableLock

assert "filelock" not in sys.modules
lock = TableLock(sys.argv[1], "t")
free = os.dup(0)
os.close(free)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
removed = lock.discard()
try:
    with lock.held():
        found = "held"
except KafkaStorageError:
    found = "refused"
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
with lock.held():
    print(removed, found, "held")
"""


def test_lock_without_a_free_descriptor_is_refused_by_a_storage_error(tmp_path: Path) -> None:
    """A producer retries it; the lock can be taken as soon as there is a descriptor."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.returncode) == ("False refused held\n", 0), done.stderr
