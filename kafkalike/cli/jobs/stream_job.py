"""Stream job: a streaming query in, lines about its batches and an exit code out; what the streaming jobs share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kafkalike.cli.interrupt import Interrupt
from kafkalike.cli.jobs.record_options import Command, with_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 1
"""How often a running query is asked for news."""

_STREAMS = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


def trigger_options(command: Command) -> Command:
    """`--checkpoint`, `--available-now` and `--interval`."""
    return with_options(
        command,
        click.option(
            "--checkpoint",
            required=True,
            metavar="FOLDER",
            help="Folder or URI of the query's checkpoint: one per query, and kept for as long as the query lives.",
        ),
        click.option("--available-now", is_flag=True, help="Take what is there, in batches, and end."),
        click.option("--interval", metavar="TIME", help="How often a batch starts, such as '10 seconds'."),
        click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each batch."),
    )


def source_options(command: Command) -> Command:
    """`--starting-offsets` and `--max-offsets-per-trigger` of a stream over topics; see `topics_stream`."""
    return with_options(
        command,
        click.option(
            "--starting-offsets",
            metavar="OFFSETS",
            default="earliest",
            show_default=True,
            help="Where a new checkpoint begins: earliest, latest, or JSON as Spark's Kafka source takes it.",
        ),
        click.option("--max-offsets-per-trigger", type=click.IntRange(min=1), help="Most records of one batch."),
    )


def topics_stream(
    spark: SparkSession, root: str, topics: str, starting_offsets: str, max_offsets_per_trigger: int | None
) -> DataFrame:
    """The records of topics as they grow, headers included."""
    reader = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root)
    reader = reader.option("subscribe", topics).option("startingOffsets", starting_offsets)
    reader = reader.option("includeHeaders", "true")
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    return reader.load()


def check_trigger(*, available_now: bool, interval: str | None) -> None:
    """Refuse two triggers at once.

    Raises:
        click.UsageError: both are given.
    """
    if available_now and interval is not None:
        raise click.UsageError("--available-now and --interval exclude each other")


def trigger(*, available_now: bool, interval: str | None) -> dict[str, Any]:
    """Arguments of Spark's `DataStreamWriter.trigger`."""
    check_trigger(available_now=available_now, interval=interval)
    if available_now:
        return {"availableNow": True}
    # What Spark does by itself: the next batch starts when the last one is done.
    return {"processingTime": interval or "0 seconds"}


def watch(
    query: StreamingQuery,
    *,
    as_json: bool,
    each_look: Callable[[], object] | None = None,
    to_stderr: bool = False,
) -> None:
    """Print each batch until the query ends; SIGINT and SIGTERM end it, which is no error.

    Args:
        query: it runs.
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
            ended = interrupt.seen or bool(query.awaitTermination(_LOOK_SECONDS))
            if interrupt.seen:
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
    """Keep Spark from printing Java's stack for a failed query before the job says its one line."""
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
    return f"batch {progress.batchId}: {progress.numInputRows} rows in {took} ms"
