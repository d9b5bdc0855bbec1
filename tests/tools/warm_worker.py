"""Warm worker: Spark's daemon of Python workers, which imports what they need before it forks them.

Spark starts its daemons as `PYTHON -m pyspark.daemon WORKER_MODULE`, and each worker that one forks imports pandas,
PyArrow, PySpark and kafkalike anew: half a second of a processor, for tasks of a few milliseconds. The tests' Spark has
`python()` as its Python: it imports them once, starts nothing, and goes on as PySpark's daemon.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Final

DAEMON: Final = "pyspark.daemon"

LOADED: Final = (
    "kafkalike.spark.format.format",
    "kafkalike.spark.format.batch_plan",
    "kafkalike.spark.format.stream_reader",
    "kafkalike.spark.format.sink",
    "kafkalike.spark.writes.staged_files",
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
)
"""What workers import. Nothing of it starts threads."""


def python(folder: Path) -> str:
    """Make a Python in a folder whose daemons are warm; all else it runs as this Python does."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def _main() -> None:
    if sys.argv[1:3] != ["-m", DAEMON]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606 - this Python
    # As `python -m` has it.
    sys.path[0] = str(Path.cwd())
    del sys.argv[1:3]
    for name in (*LOADED, *sys.argv[1:]):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    runpy.run_module(DAEMON, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
