"""Import the files that `export_topic.py` has written into a topic.

spark-submit $(kafkalike job-path import_topic) --help
"""

from __future__ import annotations

import sys

import click

from kafkalike.cli.jobs.job import cluster_of, pairs, report, run, session_of
from kafkalike.cli.options import cluster_options
from kafkalike.cli.output import output_option
from kafkalike.spark.files.topic_export import FORMATS, import_topic


@click.command(
    "import_topic.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path import_topic) --topic orders --format parquet exports/orders",
)
@click.argument("path", metavar="SOURCE")
@cluster_options
@click.option(
    "--topic", required=True, help="Topic; if missing, created with the number of partitions of the exported topic."
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="Format of the files.",
)
@click.option("--partitions", type=click.IntRange(min=1), help="Partitions of a new topic.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Setting of a new topic; repeatable.")
@click.option(
    "--txn-id",
    metavar="NAME",
    help="Name of this import: a repeated import with the same name adds nothing. Default: derived from SOURCE.",
)
@output_option("report")
def main(
    *,
    path: str,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    file_format: str,
    partitions: int | None,
    configs: tuple[str, ...],
    txn_id: str | None,
    as_json: bool,
) -> None:
    """Write the records of SOURCE into a topic in one table commit: partition, timestamp, key, value, headers, order.

    The topic assigns new offsets. In an empty topic they equal the old ones, if the export had all records from offset
    0. A killed import has written nothing, and a repeated import adds nothing.
    """
    written = import_topic(
        session_of(f"import {topic}", command_config),
        path,
        topic,
        cluster_of(bootstrap_server, command_config),
        file_format=file_format,
        partitions=partitions,
        configs=pairs(configs, "--config"),
        txn_id=txn_id,
    )
    records = 0 if written.duplicate else sum(map(len, written.values()))
    click.echo(report({"records": records, "duplicate": written.duplicate}, written, as_json=as_json))
    if written.duplicate:
        click.echo("Nothing was added: it was imported before.", err=True)


if __name__ == "__main__":
    sys.exit(run(main))
