"""Copy a topic as it grows to files, to a table, or to the console.

spark-submit $(kafkalike job-path stream_consume) --help
"""

from __future__ import annotations

import sys

import click
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from kafkalike.cli.jobs import job
from kafkalike.cli.jobs.record_options import check_errors, check_target, decoding_options, error_options
from kafkalike.cli.options import cluster_options
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.spark import CheckpointProgress, QueryOptions, write_stream
from kafkalike.spark.dead_letter_frames import ensure_topics
from kafkalike.spark.files.consume import FileTarget, save
from kafkalike.spark.files.value_decoder import Decoding, decode_rows, decode_rows_and_letters
from kafkalike.spark.typed.decode import FORMATS as TYPED

TARGETS = ("console", "json", "csv", "parquet", "delta", "table")


@click.command(
    "stream_consume.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path stream_consume) --topic orders "
    "--group archive --format delta --value-format json --schema 'id BIGINT, name STRING' --malformed null "
    "--interval '1 minute' --checkpoint checkpoints/archive out/orders",
)
@click.argument("path", default="", metavar="[TARGET]")
@cluster_options
@click.option("--topic", "topics", required=True, help="Topics to read, separated by commas.")
@click.option(
    "--format",
    "target_format",
    type=click.Choice(TARGETS),
    default="console",
    show_default=True,
    help="What TARGET is: a folder of JSON, CSV or Parquet files; the path of a Delta table; the name of a table in "
    "the catalog. Each record is written once; on the console, as lines of JSON, the last batch may repeat.",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of Spark's writer; repeatable.")
@job.source_options
@click.option("--group", help="Commit the progress to this consumer group, which must have no members.")
@decoding_options
@error_options
@job.trigger_options
def main(
    *,
    path: str,
    bootstrap_server: str | None,
    command_config: str | None,
    topics: str,
    target_format: str,
    options: tuple[str, ...],
    starting_offsets: str,
    max_offsets_per_trigger: int | None,
    group: str | None,
    decoding: Decoding,
    errors: DeadLetterSettings,
    checkpoint: str,
    available_now: bool,
    interval: str | None,
    as_json: bool,
) -> None:
    """Write new records of topics to TARGET, until the job is stopped.

    With --group, the committed offsets follow the written batches by about a second and are never ahead.

    With --errors-tolerance all, records that cannot be decoded go to a dead-letter topic, each once. A second query
    with a checkpoint in a subfolder writes them.
    """
    console = target_format == "console"
    refused = {
        "--option is invalid for the console": console and bool(options),
        "several topics have different schemas: name one topic": "," in topics
        and bool({decoding.value_format, decoding.key_format} & set(TYPED)),
    }
    check_target(target_format, path, decoding, refused)
    check_errors(errors, decoding)
    how = job.trigger(available_now=available_now, interval=interval)
    cluster = job.cluster_of(bootstrap_server, command_config)
    spark = job.session_of(f"stream_consume {topics}", command_config)
    progress = None if group is None else CheckpointProgress(spark, checkpoint, group, cluster)
    records = job.topics_stream(spark, cluster.root, topics, starting_offsets, max_offsets_per_trigger)
    aside: StreamingQuery | None = None
    if errors.tolerant:
        rows, letters = decode_rows_and_letters(records, decoding, topics, cluster, errors, "stream_consume")
        if letters is not None:
            ensure_topics(cluster, errors, [topic.strip() for topic in topics.split(",")])
            aside = write_stream(
                letters,
                None,
                cluster,
                checkpoint=f"{checkpoint.rstrip('/')}/dead-letters",
                available_now=available_now,
                query_options=QueryOptions(
                    processing_time=interval, query_name=f"stream_consume {topics} dead letters"
                ),
            )
    else:
        rows = decode_rows(records, decoding, topics, cluster)
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(**how)
    writer = writer.queryName(f"stream_consume {topics}").options(**job.pairs(options, "--option"))
    match target_format:
        case "console":
            query = writer.foreachBatch(show).start()
        case "table":
            query = writer.format("delta").toTable(path)
        case _:
            query = writer.format(target_format).start(path)
    # With --format console, standard output has the records, so reports go to standard error.

    def each_look() -> None:
        if progress is not None:
            progress.catch_up()
        if aside is not None:
            follow(aside, query, available_now=available_now)

    job.watch(query, as_json=as_json, each_look=each_look, to_stderr=console)


def follow(aside: StreamingQuery, query: StreamingQuery, *, available_now: bool) -> None:
    """End the query of dead letters with the main query, and the main query if it fails."""
    if not query.isActive and available_now and query.exception() is None:
        aside.awaitTermination()
    failed = aside.exception()
    if failed is not None:
        query.stop()
        raise failed
    if not query.isActive:
        aside.stop()


def show(frame: DataFrame, batch_id: int) -> None:
    """Print the rows of a batch to the console."""
    del batch_id
    save(frame, FileTarget(format="console", emit=click.echo))


if __name__ == "__main__":
    sys.exit(job.run(main))
