"""Copy records, unchanged or transformed, from topic to topic, each exactly once.

spark-submit $(kafkalike job-path copy_topic) --help
"""

from __future__ import annotations

import sys

import click

from kafkalike.cli.jobs import job
from kafkalike.cli.options import cluster_options
from kafkalike.spark import QueryOptions, write_stream

UNCHANGED = ("key", "value", "headers", "timestamp")


@click.command(
    "copy_topic.py",
    context_settings={"max_content_width": 120},
    epilog="Example: spark-submit $(kafkalike job-path copy_topic) --from orders --to big "
    "--where \"CAST(value AS STRING):amount > 100\" --select key --select 'upper(CAST(value AS STRING)) AS value' "
    "--group big-orders --checkpoint checkpoints/big-orders",
)
@cluster_options
@click.option("--from", "source", required=True, metavar="TOPICS", help="Topics to read, separated by commas.")
@click.option(
    "--from-server", metavar="ROOT", help="Storage root of the topics to read. Default: the root of the target."
)
@click.option("--to", "target", metavar="TOPIC", help="Topic to write. Default: the selected column `topic`.")
@click.option(
    "--select",
    "expressions",
    multiple=True,
    metavar="SQL",
    help="Expression of one column of the record to write: key, value, headers, timestamp, partition, topic; "
    "repeatable. Default: key, value, headers and timestamp as they are.",
)
@click.option("--where", "condition", metavar="SQL", help="Copy only the records with this condition.")
@click.option(
    "--keep-partitions", is_flag=True, help="Keep the partition of each record, instead of partitioning by key."
)
@job.source_options
@click.option("--group", help="Commit the progress to this consumer group, which must have no members.")
@click.option("--txn-id", metavar="NAME", help="Name of the copy: a new checkpoint with a used name is an error.")
@job.trigger_options
def main(
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    source: str,
    from_server: str | None,
    target: str | None,
    expressions: tuple[str, ...],
    condition: str | None,
    keep_partitions: bool,
    starting_offsets: str,
    max_offsets_per_trigger: int | None,
    group: str | None,
    txn_id: str | None,
    checkpoint: str,
    available_now: bool,
    interval: str | None,
    as_json: bool,
) -> None:
    """Copy records from topic to topic, exactly once, until the job is stopped.

    Columns for --select and --where: key, value, topic, partition, offset, timestamp, timestampType, headers.
    """
    job.check_trigger(available_now=available_now, interval=interval)
    if keep_partitions and expressions:
        raise click.UsageError("--keep-partitions excludes --select: add --select partition instead")
    if target is None and not expressions:
        raise click.UsageError("give --to, or a --select that ends in AS topic")
    read = job.cluster_of(from_server or bootstrap_server, command_config)
    frame = job.topics_stream(
        job.session_of(f"copy {source}", command_config), read.root, source, starting_offsets, max_offsets_per_trigger
    )
    if condition is not None:
        frame = frame.where(condition)
    query = write_stream(
        frame.selectExpr(*(expressions or (*UNCHANGED, *(["partition"] if keep_partitions else [])))),
        target,
        job.cluster_of(bootstrap_server, command_config),
        checkpoint=checkpoint,
        available_now=available_now,
        query_options=QueryOptions(processing_time=interval, query_name=f"copy {source}"),
        txn_id=txn_id,
        group_id=group,
        group_bootstrap_servers=None if group is None else read,
    )
    job.watch(query, as_json=as_json)


if __name__ == "__main__":
    sys.exit(job.run(main))
