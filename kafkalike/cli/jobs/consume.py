"""Copy records of a topic to files, to a table, or to the console.

spark-submit $(kafkalike job-path consume) --help
"""

from __future__ import annotations

import sys

import click

from kafkalike.cli.jobs import record_options
from kafkalike.cli.jobs.job import cluster_of, pairs, report, run, session_of
from kafkalike.cli.options import cluster_options
from kafkalike.cli.output import output_option
from kafkalike.log.snapshots import Snapshot
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.spark.files.consume import MODES, TARGETS, FileTarget, consume
from kafkalike.spark.files.value_decoder import Decoding
from kafkalike.spark.reads.conditions import EARLIEST, parse_offsets


@click.command(
    "consume.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path consume) --topic orders "
    "--group archive --format parquet --value-format json --schema 'id BIGINT, name STRING' out/orders",
)
@click.argument("path", default="", metavar="[TARGET]")
@cluster_options
@click.option("--topic", required=True, help="Topic to read.")
@click.option(
    "--format",
    "target_format",
    type=click.Choice(TARGETS),
    default="console",
    show_default=True,
    help="What TARGET is: a folder of JSON, CSV or Parquet files; the path of a Delta table; the name of a table in "
    "the catalog. The console takes a line of JSON for each record.",
)
@click.option(
    "--mode", type=click.Choice(MODES), default="append", show_default=True, help="Treatment of existing rows."
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of Spark's writer; repeatable.")
@click.option("--from-beginning", is_flag=True, help="Short for --starting-offsets earliest.")
@click.option(
    "--starting-offsets",
    metavar="OFFSETS",
    help="Start: earliest, or JSON as in Spark's Kafka source. With --group: earliest or latest, for "
    "partitions without a committed offset. Default: earliest.",
)
@click.option("--ending-offsets", metavar="OFFSETS", default="latest", help="End: latest (the default) or JSON.")
@record_options.snapshot_option
@click.option("--group", help="Start at this group's committed offsets, and commit the end after the rows are written.")
@record_options.decoding_options
@record_options.error_options
@output_option("report")
def main(
    *,
    path: str,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    target_format: str,
    mode: str,
    options: tuple[str, ...],
    from_beginning: bool,
    starting_offsets: str | None,
    ending_offsets: str,
    at: Snapshot | None,
    group: str | None,
    decoding: Decoding,
    errors: DeadLetterSettings,
    as_json: bool,
) -> None:
    """Write the records of a topic to TARGET, up to the log end at the start of the job.

    With --group, rows are written at least once: the job writes the rows, then commits the offsets. If it dies in
    between, the next run writes the rows again.

    With --errors-tolerance all, which needs --group, records that cannot be decoded go to a dead-letter topic, each
    once, in one transaction with the offsets.
    """
    console = target_format == "console"
    refused = {
        "--from-beginning and --starting-offsets exclude each other": from_beginning and starting_offsets is not None,
        "--mode and --option are invalid for the console": console and (bool(options) or mode != "append"),
        "--errors-tolerance all needs --group": errors.letters_of(topic) is not None
        and errors.tolerant
        and group is None,
    }
    record_options.check_target(target_format, path, decoding, refused)
    record_options.check_errors(errors, decoding)
    starting = EARLIEST if from_beginning else starting_offsets
    cluster = cluster_of(bootstrap_server, command_config)
    done = consume(
        session_of(f"consume {topic}", command_config, cluster),
        topic,
        FileTarget(format=target_format, path=path, mode=mode, options=pairs(options, "--option"), emit=click.echo),
        cluster,
        starting_offsets=None if starting is None else parse_offsets(starting, topic),
        ending_offsets=parse_offsets(ending_offsets, topic),
        as_of=at,
        group_id=group,
        decoding=decoding,
        dead_letters=errors,
    )
    facts = {"records": done.records, "committed": done.committed}
    if errors.tolerant:
        facts["dead letters"] = done.letters
    # Standard output belongs to the records when they go to the console.
    click.echo(report(facts, done.ranges, as_json=as_json), err=console)


if __name__ == "__main__":
    sys.exit(run(main))
