"""Import topics of a Kafka cluster into topics of the same names.

spark-submit --jars "$(python -m kafkalike.jobs.kafka_jars)" \
    "$(kafkalike job-path import_kafka)" --help
"""

from __future__ import annotations

import sys

import click

from kafkalike.cli.jobs.job import cluster_of, pairs, run, session_of, watch
from kafkalike.cli.options import cluster_options
from kafkalike.cli.output import output_option
from kafkalike.spark.kafka_import import REFUSED_OPTIONS, import_kafka


@click.command(
    "import_kafka.py",
    context_settings={"max_content_width": 120},
    epilog='Example: spark-submit --jars "$(python -m kafkalike.jobs.kafka_jars)" '
    "$(kafkalike job-path import_kafka) --kafka broker:9092 "
    "--topic orders --topic-config retention.ms=-1 --checkpoint checkpoints/import-orders",
)
@cluster_options
@click.option("--kafka", required=True, metavar="HOST:PORT", help="Kafka's bootstrap.servers.")
@click.option("--topic", "topics", metavar="TOPICS", help="Topics to read, separated by commas.")
@click.option("--topic-pattern", metavar="REGEX", help="Topics to read, as a regular expression.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of Spark's Kafka source, such as kafka.security.protocol=SSL or failOnDataLoss=false; repeatable.",
)
@click.option(
    "--starting-offsets",
    metavar="OFFSETS",
    default="earliest",
    show_default=True,
    help="Start of a new checkpoint: earliest, latest or JSON.",
)
@click.option(
    "--max-offsets-per-trigger",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Maximum number of records of a batch, which is one table commit per topic.",
)
@click.option(
    "--topic-config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of topics that the import creates; repeatable. retention.ms (default 7 days) applies to old records.",
)
@click.option("--offset-header", metavar="NAME", help="Keep a record's offset in Kafka in a header of this name.")
@click.option("--txn-id", metavar="NAME", help="Name of the import: a new checkpoint with a used name is an error.")
@click.option("--checkpoint", required=True, metavar="FOLDER", help="Folder or URI of the checkpoint.")
@click.option("--follow", is_flag=True, help="Run until stopped. Default: import the available records, and end.")
@output_option("batch")
def main(
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    kafka: str,
    topics: str | None,
    topic_pattern: str | None,
    options: tuple[str, ...],
    starting_offsets: str,
    max_offsets_per_trigger: int,
    configs: tuple[str, ...],
    offset_header: str | None,
    txn_id: str | None,
    checkpoint: str,
    follow: bool,
    as_json: bool,
) -> None:
    """Copy topics of a Kafka cluster, keeping partition, timestamp, key, value, headers and order.

    Each batch is a range of offsets of each partition, written once. The job may be killed and restarted with the same
    checkpoint. The topic assigns new offsets without gaps from 0; --offset-header keeps the old ones.
    """
    if (topics is None) == (topic_pattern is None):
        raise click.UsageError("give either --topic or --topic-pattern")
    given = pairs(options, "--option")
    refused = [name for name in given if name.lower() in REFUSED_OPTIONS]
    if refused:
        raise click.UsageError(f"--option {refused[0]} would split partitions over tasks, and lose their order")
    reader = session_of("import_kafka", command_config).readStream.format("kafka").options(**given)
    reader = reader.option("kafka.bootstrap.servers", kafka).option("includeHeaders", "true")
    reader = reader.option("startingOffsets", starting_offsets).option("maxOffsetsPerTrigger", max_offsets_per_trigger)
    reader = reader.option("subscribe" if topics else "subscribePattern", topics or topic_pattern or "")
    query = import_kafka(
        reader.load(),
        cluster_of(bootstrap_server, command_config),
        checkpoint=checkpoint,
        txn_id=txn_id,
        topic_configs=pairs(configs, "--topic-config"),
        offset_header=offset_header,
        follow=follow,
    )
    watch(query, as_json=as_json)


if __name__ == "__main__":
    sys.exit(run(main))
