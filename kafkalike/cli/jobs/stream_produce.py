"""Append files as they arrive, or a Delta table as it grows, to a topic, each record exactly once.

spark-submit $(kafkalike job-path stream_produce) --help
"""

from __future__ import annotations

import sys
from dataclasses import replace

import click
from pyspark.sql import DataFrame, SparkSession

from kafkalike.cli.jobs.job import check_trigger, cluster_of, pairs, run, session_of, trigger_options, watch
from kafkalike.cli.jobs.record_options import column_options, schema_options
from kafkalike.cli.options import cluster_options
from kafkalike.model.config.topic_config import CODECS
from kafkalike.spark import ProducerOptions, QueryOptions, RecordSchemas, write_stream
from kafkalike.spark.files.consume import STRICT
from kafkalike.spark.record_columns import RecordColumns, record_columns

FORMATS = ("json", "csv", "parquet", "text", "delta")


@click.command(
    "stream_produce.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path stream_produce) --topic orders "
    "--format json --schema 'id BIGINT, name STRING' --key-column id --checkpoint checkpoints/orders incoming/",
)
@click.argument("path", metavar="SOURCE")
@cluster_options
@click.option("--topic", required=True, help="Topic; created with the server's defaults when it is missing.")
@click.option(
    "--format",
    "source_format",
    type=click.Choice(FORMATS),
    required=True,
    help="What SOURCE is: a folder that JSON lines, CSV with a header, Parquet or text files are moved into; or the "
    "path of an append-only Delta table.",
)
@click.option("--schema", metavar="DDL", help="Columns of JSON, CSV or Parquet, such as 'id BIGINT, name STRING'.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of Spark's reader, such as maxFilesPerTrigger=10; repeatable.",
)
@column_options
@schema_options
@click.option("--compression-codec", type=click.Choice(CODECS), default="none", help="Compression of the data files.")
@click.option(
    "--txn-id",
    metavar="NAME",
    help="Name of the stream: a new checkpoint with a used name is an error, instead of a duplicate of all records.",
)
@trigger_options
def main(
    *,
    path: str,
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
    checkpoint: str,
    available_now: bool,
    interval: str | None,
    as_json: bool,
) -> None:
    """Write every new row of SOURCE to a topic, exactly once, until the job is stopped.

    The job may be killed at any moment. Restarted with the same checkpoint, it resumes at its last batch.
    """
    check_trigger(available_now=available_now, interval=interval)
    if (schema is None) != (source_format in {"text", "delta"}):
        raise click.UsageError("--schema is required for json, csv and parquet, and invalid for text and delta")
    rows = load_stream(
        session_of(f"stream_produce {topic}", command_config), path, source_format, schema, pairs(options, "--option")
    )
    columns = replace(columns, plain_value=schemas.value is None, plain_key=schemas.key is None)
    query = write_stream(
        record_columns(rows, columns),
        topic,
        cluster_of(bootstrap_server, command_config),
        checkpoint=checkpoint,
        available_now=available_now,
        query_options=QueryOptions(processing_time=interval, query_name=f"stream_produce {topic}"),
        txn_id=txn_id,
        producer_options=ProducerOptions(compression_type=compression_codec),
        schemas=schemas,
    )
    watch(query, as_json=as_json)


def load_stream(
    spark: SparkSession, path: str, source_format: str, schema: str | None, options: dict[str, str]
) -> DataFrame:
    """Return the rows as a stream; a line that cannot be parsed fails the job."""
    reader = spark.readStream.format(source_format).options(**{**STRICT.get(source_format, {}), **options})
    return (reader if schema is None else reader.schema(schema)).load(path)


if __name__ == "__main__":
    sys.exit(run(main))
