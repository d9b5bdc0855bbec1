"""Staging folder: gone with its write, whoever still works in it."""

import contextlib
import subprocess
import sys
from pathlib import Path

from kafkalike.maintenance.staging_folder import staging_folder

MANY = 500
"""Files that make the removal long."""

LATE = """
import contextlib, itertools, pathlib, sys
with contextlib.suppress(OSError):
    for number in itertools.count():
        pathlib.Path(sys.argv[1], f"late-{number}").touch()
"""


def test_a_task_that_outlives_its_write_leaves_nothing(tmp_path: Path) -> None:
    """Spark does not wait for an attempt that lost to another one: it may write files while they are removed."""
    with contextlib.ExitStack() as late:
        with staging_folder(str(tmp_path)) as folder:
            for number in range(MANY):
                (folder / f"{number}.arrow").touch()
            task = late.enter_context(subprocess.Popen([sys.executable, "-c", LATE, str(folder)]))
            late.callback(task.kill)
            while not (folder / "late-0").exists():
                assert task.poll() is None

        assert list((tmp_path / "__staging").iterdir()) == []
