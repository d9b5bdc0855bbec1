"""Job: a command for spark-submit in, an exit code out; what `kafkalike.jobs` share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.structs import TopicPartition


def run(command: click.Command, args: Sequence[str] | None = None) -> int:
    """Run a job's command.

    Args:
        command: parses the arguments and makes one call.
        args: what comes after the script; by default the process's own arguments.

    Returns:
        Exit code: 0 done, 1 failed with one line on standard error, 2 wrong usage. With the environment variable
        KAFKALIKE_DEBUG=1 errors are raised.
    """
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # PySpark prints a page of JSON for an error before it raises it.
        PySparkLogger.getLogger(name).disabled = True
    try:
        command.main(args, standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else command.name
        click.echo(f"Error: {error.format_message()} (see '{path} --help')", err=True)
        return 2
    except click.Abort:
        return 130
    except Exception as error:  # the end of the line: nothing may become a traceback
        if os.environ.get("KAFKALIKE_DEBUG", "") not in {"", "0"}:
            raise
        click.echo(f"Error: {first_line(error)}", err=True)
        return 1
    return 0


def cluster_of(bootstrap_server: str | None, command_config: str | None) -> Cluster:
    """The cluster of a job, as the commands find theirs; see `Environment.cluster_of`."""
    from kafkalike.cli.environment import Environment

    return Environment().cluster_of(bootstrap_server, command_config)


def session_of(app_name: str, command_config: str | None, reads: Cluster | None = None) -> SparkSession:
    """The session of a job, whose formats ask object stores with the options of a file.

    Args:
        app_name: name shown by Spark.
        command_config: the file; None for the environment.
        reads: a cluster whose tables the job reads with Spark's own means, which take Hadoop's client for its storage.
    """
    from kafkalike.cli.options import client_settings, read_properties
    from kafkalike.spark import session

    options = client_settings(read_properties(command_config)).get("storage_options")
    return session(app_name, bootstrap_servers=None if reads is None else reads.root, storage_options=options)


def first_line(error: BaseException) -> str:
    """What went wrong, in one line: Spark's errors go on with a plan and Java's stack.

    Where Java names causes, in the error or in what caused it, the last one says most: the line that could not be
    parsed, not the job that was aborted. A Python function that Spark has called says more than Spark does.
    """
    from kafkalike.errors.java_errors import java_causes, python_error

    raised = python_error(str(error))
    if raised is not None:
        return raised
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    causes = java_causes(str(error))
    if causes:
        return causes[-1]
    behind = java_causes(str(error.__cause__))
    return f"{message} ({behind[-1]})" if behind else message


def pairs(given: Sequence[str], flag: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dict."""
    from kafkalike.cli.options import key_values

    return key_values(given, flag)


def report(facts: Mapping[str, Any], ranges: Mapping[TopicPartition, range], *, as_json: bool) -> str:
    """What a job has done: a table of offsets by partition, or one JSON object.

    Args:
        facts: said below the table, or members of the object.
        ranges: offsets, half-open.
        as_json: the object; its offsets have the form that `--starting-offsets` and `--ending-offsets` take.
    """
    from kafkalike.spark.partition_offsets import offsets_json

    if as_json:
        starts = offsets_json({tp: run.start for tp, run in ranges.items()})
        ends = offsets_json({tp: run.stop for tp, run in ranges.items()})
        return json.dumps({**facts, "starting_offsets": starts, "ending_offsets": ends})
    rows = [("TOPIC", "PARTITION", "START", "END", "OFFSETS")]
    rows += [
        (tp.topic, str(tp.partition), str(run.start), str(run.stop), str(len(run)))
        for tp, run in sorted(ranges.items())
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join([*table, *(f"{name}: {value}" for name, value in facts.items())])
