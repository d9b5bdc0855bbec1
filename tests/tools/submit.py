"""Submit: a job and its arguments in; the job as spark-submit runs it, with what it printed, out."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kafkalike.cli.paths import CONF, JOBS

REPOSITORY = Path(__file__).parents[2]
SMALL = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}


def submit(
    job: str, *args: str, conf: Mapping[str, str] | None = None, folder: Path = REPOSITORY
) -> subprocess.CompletedProcess[str]:
    """Run a job as its documents say, on two cores; from another folder where one is named."""
    command = [str(Path(sys.executable).with_name("spark-submit"))]
    for name, value in {**SMALL, **(conf or {})}.items():
        command += ["--conf", f"{name}={value}"]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | {
        "SPARK_CONF_DIR": str(CONF)
    }
    return subprocess.run(
        [*command, str(JOBS / f"{job}.py"), *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
