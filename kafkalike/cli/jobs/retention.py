"""Run the maintenance of topics in a Spark session, or print its plan.

spark-submit $(kafkalike job-path retention) --help

This is `kafkalike maintain` for schedulers of Spark jobs: the session's tasks read and write data files, several
partitions at a time. Without a session, as with `python -m kafkalike.jobs.retention`, all work runs in this process
and no JVM is started.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kafkalike.cli.app import run
from kafkalike.cli.environment import Environment
from kafkalike.spark.jvm.spark_session import session_at_hand


def main(args: Sequence[str] | None = None) -> int:
    """Run once, or repeatedly with `--every`.

    Args:
        args: arguments after the script; default `sys.argv[1:]`.

    Returns:
        Exit code: 0 done, 1 something failed, 2 wrong usage, 3 time ran out and the next run continues.
    """
    environment = Environment(spark=lambda: session_at_hand("kafkalike maintain"))
    return run(["maintain", *(sys.argv[1:] if args is None else args)], environment)


if __name__ == "__main__":
    sys.exit(main())
