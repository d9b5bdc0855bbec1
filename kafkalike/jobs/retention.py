"""Run the maintenance of topics in a Spark session, or print its plan.

spark-submit $(kafkalike job-path retention) --help

The same as `kafkalike maintain`, for schedulers that run Spark jobs: data files are read and written by the session's
tasks, several partitions at a time. Where there is no session, as with `python -m kafkalike.jobs.retention`, no JVM is
started and all is done in this process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment
from kafkalike.spark.jvm.spark_session import session_at_hand


def main(args: Sequence[str] | None = None) -> int:
    """Run once, or every so often with `--every`.

    Args:
        args: what comes after the script; by default the process's own arguments.

    Returns:
        Exit code: 0 done, 1 something failed, 2 wrong usage, 3 time ran out and the next run goes on.
    """
    environment = Environment(spark=lambda: session_at_hand("kafkalike maintain"))
    return run(["maintain", *(sys.argv[1:] if args is None else args)], environment)


if __name__ == "__main__":
    sys.exit(main())
