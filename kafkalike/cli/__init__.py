"""Command line with Kafka's commands, flags, columns, messages and exit codes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        args: arguments after `kafkalike`; default `sys.argv[1:]`.

    Returns:
        Exit code: 0 done, 1 failed, 130 interrupted by Ctrl-C, 143 ended by SIGTERM, 141 if the reader of the output
        closed the pipe. Wrong usage is 1 for Kafka's commands, as in Kafka, and 2 for the others.
    """
    from kafkalike.cli.app import run

    return run(args)
