"""Stream consume: a topic as it grows in; files, a table or lines out.

spark-submit --properties-file conf/spark-defaults.conf jobs/stream_consume.py --help
"""

from __future__ import annotations

import sys

import click
from pyspark.sql import DataFrame

from kafkalike.cli.job import pairs, run
from kafkalike.cli.options import bootstrap_option
from kafkalike.cli.stream_job import trigger, trigger_options, watch
from kafkalike.log.connect import connect
from kafkalike.spark import CheckpointProgress, session
from kafkalike.spark.batch import VALUE_FORMATS, Decoding, decoded
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
@click.option(
    "--starting-offsets",
    metavar="OFFSETS",
    default="earliest",
    show_default=True,
    help="Where a new checkpoint begins: earliest, latest, or JSON as Spark's Kafka source takes it.",
)
@click.option("--max-offsets-per-trigger", type=click.IntRange(min=1), help="Most records of one batch.")
@click.option("--group", help="Commit the progress to this consumer group, which must have no members.")
@click.option(
    "--value-format", type=click.Choice(VALUE_FORMATS), default="string", show_default=True, help="Of values."
)
@click.option("--schema", metavar="DDL", help="Fields of JSON values, such as 'id BIGINT, name STRING'.")
@click.option(
    "--malformed",
    type=click.Choice(["fail", "null"]),
    default="fail",
    show_default=True,
    help="What a value that is not such JSON does.",
)
@click.option("--value-only", is_flag=True, help="Write values without key, partition, offset and timestamp.")
@click.option("--include-headers", is_flag=True, help="Write the headers too.")
@trigger_options
def main(
    *,
    path: str,
    bootstrap_server: str | None,
    topics: str,
    target_format: str,
    options: tuple[str, ...],
    starting_offsets: str,
    max_offsets_per_trigger: int | None,
    group: str | None,
    value_format: str,
    schema: str | None,
    malformed: str,
    value_only: bool,
    include_headers: bool,
    checkpoint: str,
    available_now: bool,
    interval: str | None,
    as_json: bool,
) -> None:
    """Write the records of topics to TARGET as they come, until the job is stopped.

    With --group the committed offsets follow the batches that are written: about a second behind, never ahead.
    """
    check_usage(target_format, path, value_format, schema, malformed, has_options=bool(options))
    how = trigger(available_now=available_now, interval=interval)
    root = connect(bootstrap_server).root
    spark = session(f"stream_consume {topics}")
    progress = None if group is None else CheckpointProgress(spark, checkpoint, group, root)
    reader = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root)
    reader = reader.option("subscribe", topics).option("startingOffsets", starting_offsets)
    reader = reader.option("includeHeaders", "true")
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    how_decoded = Decoding(
        value_format=value_format, schema=schema, malformed=malformed, value_only=value_only, headers=include_headers
    )
    rows = decoded(reader.load(), how_decoded)
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
    quiet = target_format == "console"
    watch(query, as_json=as_json, each_look=None if progress is None else progress.catch_up, to_stderr=quiet)


def show(frame: DataFrame, batch_id: int) -> None:
    """Print a batch."""
    del batch_id
    save(frame, Target(format="console", emit=click.echo))


def check_usage(
    target_format: str, path: str, value_format: str, schema: str | None, malformed: str, *, has_options: bool
) -> None:
    """Options that do not go together.

    Raises:
        click.UsageError: some do.
    """
    console, is_json = target_format == "console", value_format == "json"
    refused = {
        "the console takes no TARGET": console and bool(path),
        f"--format {target_format} needs a TARGET": not console and not path,
        "the console takes no --option": console and has_options,
        "--value-format json needs --schema": is_json and schema is None,
        "--schema and --malformed are for --value-format json": not is_json
        and (schema is not None or malformed != "fail"),
    }
    for problem, holds in refused.items():
        if holds:
            raise click.UsageError(problem)


if __name__ == "__main__":
    sys.exit(run(main))
