"""Append files or a table to a topic, and print the offsets of the records.

spark-submit $(kafkalike job-path produce) --help
"""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from kafkalike.cli.jobs.job import cluster_of, pairs, report, run, session_of
from kafkalike.cli.jobs.record_options import column_options, schema_options
from kafkalike.cli.options import cluster_options
from kafkalike.cli.output import output_option
from kafkalike.model.config.topic_config import CODECS
from kafkalike.spark import ProducerOptions, RecordSchemas, write
from kafkalike.spark.files.consume import SOURCES, FileSource, load
from kafkalike.spark.record_columns import RecordColumns, record_columns


@click.command(
    "produce.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path produce) --topic orders "
    "--format csv --key-column id --timestamp-column ordered_at --txn-id orders-daily "
    "--txn-version 20240131 data/*.csv",
)
@click.argument("paths", nargs=-1, required=True, metavar="SOURCE...")
@cluster_options
@click.option("--topic", required=True, help="Topic; created with the server's defaults when it is missing.")
@click.option(
    "--format",
    "source_format",
    type=click.Choice(SOURCES),
    required=True,
    help="What SOURCE is: files or folders of JSON lines, CSV with a header, Parquet or text; the path of a Delta "
    "table; the name of a table in the catalog.",
)
@click.option("--schema", metavar="DDL", help="Columns of JSON or CSV, such as 'id BIGINT, name STRING'.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader; repeatable.")
@column_options
@schema_options
@click.option("--compression-codec", type=click.Choice(CODECS), default="none", help="Compression of the data files.")
@click.option("--txn-id", metavar="NAME", help="Name of this application; with --txn-version a rerun adds nothing.")
@click.option("--txn-version", type=click.IntRange(min=0), help="Number of this write; must rise from write to write.")
@output_option("report")
def produce(
    *,
    paths: tuple[str, ...],
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    source_format: str,
    schema: str | None,
    options: tuple[str, ...],
    columns: RecordColumns,
    schemas: RecordSchemas,
    compression_codec: str,
    txn_id: str | None,
    txn_version: int | None,
    as_json: bool,
) -> None:
    """Write all rows of SOURCE to a topic in one table commit.

    A line that cannot be parsed fails the job, and nothing is written.
    """
    if (txn_id is None) != (txn_version is None):
        raise click.UsageError("--txn-id and --txn-version need each other")
    source = FileSource(format=source_format, paths=paths, schema=schema, options=pairs(options, "--option"))
    spark = session_of(f"produce {topic}", command_config)
    columns = replace(columns, plain_value=schemas.value is None, plain_key=schemas.key is None)
    written = write(
        record_columns(load(spark, source), columns),
        topic,
        cluster_of(bootstrap_server, command_config),
        producer_options=ProducerOptions(compression_type=compression_codec),
        schemas=schemas,
        txn_id=txn_id,
        txn_version=txn_version,
    )
    records = 0 if written.duplicate else sum(map(len, written.values()))
    click.echo(report({"records": records, "duplicate": written.duplicate}, written, as_json=as_json))
    if written.duplicate:
        click.echo(f"Nothing was added: {txn_id} has already written version {txn_version}.", err=True)


if __name__ == "__main__":
    sys.exit(run(produce))
