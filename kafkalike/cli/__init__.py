"""Command line: Kafka's commands and flags in, Kafka's columns, messages and exit codes out."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        args: what comes after `kafkalike`; by default the process's own arguments.

    Returns:
        Exit code: 0 done, 1 failed, 130 interrupted by Ctrl-C, 143 ended by SIGTERM, 141 the reader of the output went
        away. Wrong usage is 1 for commands that Kafka has, as there, and 2 for the others.
    """
    from kafkalike.cli.app import run

    return run(args)
