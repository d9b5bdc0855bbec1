"""Retention: topics in; retention, compaction, merging and vacuum applied, or only planned; a table or JSON out.

spark-submit --properties-file conf/spark-defaults.conf jobs/retention.py --help

The same as `kafkalike maintain`, for schedulers that run Spark jobs. On a local root no JVM does any work; in an object
store the table versions are made by Delta in the job's own session.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kafkalike.cli import main as command_line


def main(args: Sequence[str] | None = None) -> int:
    """Run once, or every so often with `--every`.

    Args:
        args: what comes after the script; by default the process's own arguments.

    Returns:
        Exit code: 0 done, 1 something failed, 2 wrong usage, 3 time ran out and the next run goes on.
    """
    return command_line(["maintain", *(sys.argv[1:] if args is None else args)])


if __name__ == "__main__":
    sys.exit(main())
