"""Jobs for spark-submit: run a command, open its cluster and session, and report a streaming query."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkalike.cli.environment import Interrupt
from kafkalike.cli.jobs.record_options import Command, with_options
from kafkalike.cli.output import counted, output_option
from kafkalike.errors import KafkaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.structs import TopicPartition


def run(command: click.Command, args: Sequence[str] | None = None) -> int:
    """Run a job's command.

    Args:
        command: the job's click command.
        args: arguments after the script; default `sys.argv[1:]`.

    Returns:
        Exit code: 0 done, 1 failed with one line on standard error, 2 wrong usage, 130 interrupted. Unexpected errors
        are raised, and with the environment variable KAFKALIKE_DEBUG=1 all errors.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
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
    except (KafkaError, PySparkException, Py4JError, ImportError, OSError, ValueError, click.ClickException) as error:
        if os.environ.get("KAFKALIKE_DEBUG", "") not in {"", "0"}:
            raise
        click.echo(f"Error: {first_line(error)}", err=True)
        return 1
    return 0


def cluster_of(bootstrap_server: str | None, command_config: str | None) -> Cluster:
    """Open the cluster of a job; see `Environment.cluster_of`."""
    from kafkalike.cli.environment import Environment

    return Environment().cluster_of(bootstrap_server, command_config)


def session_of(app_name: str, command_config: str | None, reads: Cluster | None = None) -> SparkSession:
    """Return the session of a job, with the storage options of a file for its data sources.

    Args:
        app_name: name shown by Spark.
        command_config: the file; None for the environment.
        reads: cluster whose tables Spark's own readers read, so the session configures Hadoop's client for its storage.
    """
    from kafkalike.cli.options import settings_of
    from kafkalike.spark import session

    options = settings_of(command_config).get("storage_options")
    return session(app_name, bootstrap_servers=None if reads is None else reads.root, storage_options=options)


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line, without the plan and Java's stack that Spark appends.

    The last cause that Java names, in the error or in its own cause, is the most specific: the line that could not be
    parsed rather than the aborted job. An exception of a Python function that Spark called takes precedence.
    """
    from kafkalike.errors.kafka_error import java_causes, python_error

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
    """Parse `NAME=VALUE` texts."""
    from kafkalike.cli.options import key_values

    return key_values(given, flag)


def report(facts: Mapping[str, Any], ranges: Mapping[TopicPartition, range], *, as_json: bool) -> str:
    """Format the result of a job as a table of offsets by partition, or as one JSON object.

    Args:
        facts: lines below the table, or members of the object.
        ranges: half-open offset ranges by partition.
        as_json: return the object, whose offsets have the form of `--starting-offsets` and `--ending-offsets`.
    """
    from kafkalike.spark.format.positions import offsets_json

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


_LOOK_SECONDS = 1
"""Interval at which the progress of a running query is read."""

_STREAMS = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


def trigger_options(command: Command) -> Command:
    """Add `--checkpoint`, `--available-now`, `--interval` and `--json`."""
    return with_options(
        command,
        click.option(
            "--checkpoint",
            required=True,
            metavar="FOLDER",
            help="Folder or URI of the query's checkpoint: one per query, kept as long as the query is used.",
        ),
        click.option("--available-now", is_flag=True, help="Process the available records in batches, then end."),
        click.option("--interval", metavar="TIME", help="Interval between starts of batches, such as '10 seconds'."),
        output_option("batch"),
    )


def source_options(command: Command) -> Command:
    """Add `--starting-offsets` and `--max-offsets-per-trigger` of a stream over topics; see `topics_stream`."""
    return with_options(
        command,
        click.option(
            "--starting-offsets",
            metavar="OFFSETS",
            default="earliest",
            show_default=True,
            help="Start of a new checkpoint: earliest, latest, or JSON as in Spark's Kafka source.",
        ),
        click.option(
            "--max-offsets-per-trigger", type=click.IntRange(min=1), help="Maximum number of records of a batch."
        ),
    )


def topics_stream(
    spark: SparkSession, root: str, topics: str, starting_offsets: str, max_offsets_per_trigger: int | None
) -> DataFrame:
    """Return the records of topics as a stream, with headers."""
    reader = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root)
    reader = reader.option("subscribe", topics).option("startingOffsets", starting_offsets)
    reader = reader.option("includeHeaders", "true")
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return reader.load()


def check_trigger(*, available_now: bool, interval: str | None) -> None:
    """Reject two triggers.

    Raises:
        click.UsageError: both are given.
    """
    if available_now and interval is not None:
        raise click.UsageError("--available-now and --interval exclude each other")


def trigger(*, available_now: bool, interval: str | None) -> dict[str, Any]:
    """Return the arguments of Spark's `DataStreamWriter.trigger`."""
    check_trigger(available_now=available_now, interval=interval)
    if available_now:
        return {"availableNow": True}
    # Spark's default: the next batch starts when the last one is done.
    return {"processingTime": interval or "0 seconds"}


def watch(
    query: StreamingQuery,
    *,
    as_json: bool,
    each_look: Callable[[], object] | None = None,
    to_stderr: bool = False,
) -> None:
    """Print each batch until the query ends; SIGINT and SIGTERM end it without an error.

    Args:
        query: a started query.
        as_json: one JSON object per batch instead of a line.
        each_look: called about once a second, and once more after the query's end.
        to_stderr: print on standard error.

    Raises:
        StreamingQueryException: the query failed.
    """
    _leave_errors_to_the_caller()
    seen = -1
    rows = 0
    with Interrupt() as interrupt:
        ended = False
        while not ended:
            ended = interrupt.is_requested or bool(query.awaitTermination(_LOOK_SECONDS))
            if interrupt.is_requested:
                query.stop()
            for progress in query.recentProgress:
                if progress.batchId > seen:
                    seen = progress.batchId
                    rows += progress.numInputRows
                    click.echo(_line(progress, as_json=as_json), err=to_stderr)
            if each_look is not None:
                each_look()
    if not as_json:
        click.echo(f"rows: {rows}\nlast batch: {'none' if seen < 0 else seen}", err=to_stderr)


def _leave_errors_to_the_caller() -> None:
    """Keep Spark from logging Java's stack for a failed query, which the job reports in one line."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no public way to set one logger
    if context is not None and context._jvm is not None:  # noqa: SLF001
        log4j: Any = context._jvm.org.apache.logging.log4j  # noqa: SLF001
        log4j.core.config.Configurator.setLevel(_STREAMS, log4j.Level.OFF)


def _line(progress: Any, *, as_json: bool) -> str:  # noqa: ANN401 - Spark's progress
    took = progress.batchDuration
    if as_json:
        ends = [source.endOffset for source in progress.sources]
        return json.dumps({"batch": progress.batchId, "rows": progress.numInputRows, "ms": took, "ends": ends})
    return f"batch {progress.batchId}: {counted(progress.numInputRows, 'row')} in {took} ms"
