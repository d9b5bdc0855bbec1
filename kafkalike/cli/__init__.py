"""Command line: Kafka's commands and flags in, Kafka's columns, messages and exit codes out."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        args: what comes after `kafkalike`; by default the process's own arguments.

    Returns:
        Exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 the reader of the output went away.
    """
    from kafkalike.cli.app import run

    return run(args)
