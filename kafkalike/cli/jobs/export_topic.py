"""Export a topic with all parts of its records to files for `import_topic.py`.

spark-submit $(kafkalike job-path export_topic) --help
"""

from __future__ import annotations

import sys

import click

from kafkalike.cli.jobs.job import cluster_of, report, run, session_of
from kafkalike.cli.jobs.record_options import snapshot_option
from kafkalike.cli.options import cluster_options
from kafkalike.cli.output import output_option
from kafkalike.log.snapshots import Snapshot
from kafkalike.spark.files.consume import MODES
from kafkalike.spark.files.topic_export import FORMATS, export_topic
from kafkalike.spark.reads.conditions import parse_offsets


@click.command(
    "export_topic.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path export_topic) --topic orders --format parquet exports/orders",
)
@click.argument("path", metavar="TARGET")
@cluster_options
@click.option("--topic", required=True, help="Topic to read.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="Format of the files in the folder TARGET. JSON and CSV have keys, values and headers in base64.",
)
@click.option(
    "--mode", type=click.Choice(MODES), default="error", show_default=True, help="Treatment of existing files."
)
@click.option("--starting-offsets", metavar="OFFSETS", default="earliest", show_default=True, help="Start; or JSON.")
@click.option("--ending-offsets", metavar="OFFSETS", default="latest", show_default=True, help="End; or JSON.")
@snapshot_option
@output_option("report")
def main(
    *,
    path: str,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    file_format: str,
    mode: str,
    starting_offsets: str,
    ending_offsets: str,
    at: Snapshot | None,
    as_json: bool,
) -> None:
    """Write records with partition, offset, timestamp, key, value and headers to TARGET.

    The end is the log end at the start of the job. The job fails if a record of the range is missing.
    """
    cluster = cluster_of(bootstrap_server, command_config)
    done = export_topic(
        session_of(f"export {topic}", command_config, cluster),
        topic,
        path,
        cluster,
        file_format=file_format,
        mode=mode,
        starting_offsets=parse_offsets(starting_offsets, topic),
        ending_offsets=parse_offsets(ending_offsets, topic),
        as_of=at,
    )
    click.echo(report({"records": done.records}, done.ranges, as_json=as_json))


if __name__ == "__main__":
    sys.exit(run(main))
