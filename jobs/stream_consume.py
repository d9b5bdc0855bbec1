"""Stream consume: a topic as it grows in; files, a table or lines out.

spark-submit --properties-file conf/spark-defaults.conf jobs/stream_consume.py --help
"""

from __future__ import annotations

import sys

import click
from pyspark.sql import DataFrame

from kafkalike.cli.jobs.job import cluster_of, pairs, run, session_of
from kafkalike.cli.jobs.record_options import check_target, decoding_options
from kafkalike.cli.jobs.stream_job import source_options, topics_stream, trigger, trigger_options, watch
from kafkalike.cli.options import bootstrap_option, command_config_option
from kafkalike.spark import CheckpointProgress
from kafkalike.spark.batch import TYPED, Decoding, decoded
from kafkalike.spark.files import Target, save

TARGETS = ("console", "json", "csv", "parquet", "delta", "table")


@click.command(
    "stream_consume.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit --properties-file conf/spark-defaults.conf jobs/stream_consume.py --topic orders "
    "--group archive --format delta --value-format json --schema 'id BIGINT, name STRING' --malformed null "
    "--interval '1 minute' --checkpoint checkpoints/archive out/orders",
)
@click.argument("path", default="", metavar="[TARGET]")
@bootstrap_option()
@command_config_option()
@click.option("--topic", "topics", required=True, help="Topics to read, with commas.")
@click.option(
    "--format",
    "target_format",
    type=click.Choice(TARGETS),
    default="console",
    show_default=True,
    help="What TARGET is: a folder of JSON, CSV or Parquet files; the path of a Delta table; the name of a table in "
    "the catalog. Each record is there once; on the console, a line of JSON each, the last batch may come again.",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of Spark's writer; repeatable.")
@source_options
@click.option("--group", help="Commit the progress to this consumer group, which must have no members.")
@decoding_options
@trigger_options
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
    checkpoint: str,
    available_now: bool,
    interval: str | None,
    as_json: bool,
) -> None:
    """Write the records of topics to TARGET as they come, until the job is stopped.

    With --group the committed offsets follow the batches that are written: about a second behind, never ahead.
    """
    console = target_format == "console"
    refused = {
        "the console takes no --option": console and bool(options),
        "records of several topics have schemas of their own: name one topic": "," in topics
        and bool({decoding.value_format, decoding.key_format} & TYPED.keys()),
    }
    check_target(target_format, path, decoding, refused)
    how = trigger(available_now=available_now, interval=interval)
    cluster = cluster_of(bootstrap_server, command_config)
    spark = session_of(f"stream_consume {topics}", command_config)
    progress = None if group is None else CheckpointProgress(spark, checkpoint, group, cluster)
    rows = decoded(
        topics_stream(spark, cluster.root, topics, starting_offsets, max_offsets_per_trigger), decoding, topics, cluster
    )
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(**how)
    writer = writer.queryName(f"stream_consume {topics}").options(**pairs(options, "--option"))
    match target_format:
        case "console":
            query = writer.foreachBatch(show).start()
        case "table":
            query = writer.format("delta").toTable(path)
        case _:
            query = writer.format(target_format).start(path)
    # Standard output belongs to the records when they go to the console.
    watch(query, as_json=as_json, each_look=None if progress is None else progress.catch_up, to_stderr=console)


def show(frame: DataFrame, batch_id: int) -> None:
    """Print a batch."""
    del batch_id
    save(frame, Target(format="console", emit=click.echo))


if __name__ == "__main__":
    sys.exit(run(main))
