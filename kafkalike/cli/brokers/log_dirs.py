"""`kafkalike log-dirs`: sizes of replicas by broker as Kafka's JSON, as kafka-log-dirs does."""

from __future__ import annotations

import json

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option
from kafkalike.errors import IllegalArgumentError


@click.command("log-dirs", epilog="Example: kafkalike log-dirs --describe --topic-list orders")
@bootstrap_option()
@command_config_option()
@click.option("--describe", is_flag=True, required=True, help="Print them; there is no other action.")
@click.option("--topic-list", help="Topics, by commas; default all.")
@click.option("--broker-list", help="Ids of brokers, by commas; default all.")
@version_option
@pass_environment
def log_dirs(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    describe: bool,
    topic_list: str | None,
    broker_list: str | None,
) -> None:
    """Print bytes by broker and partition. A broker is a storage root, with one log directory."""
    del describe
    try:
        brokers = None if broker_list is None else [int(broker) for broker in broker_list.split(",")]
    except ValueError as cause:
        raise IllegalArgumentError(f"--broker-list {broker_list!r} is no list of ids") from cause
    topics = None if topic_list is None else topic_list.split(",")
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        known = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
        unknown = sorted(set(brokers or ()) - set(known))
        if unknown:
            raise IllegalArgumentError(
                f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}"
            )
        described = admin.describe_log_dirs(topics, brokers)
    found = {
        "version": 1,
        "brokers": [
            {
                "broker": entry["broker"],
                "logDirs": [
                    {
                        "logDir": folder["log_dir"],
                        "error": None if not folder["error_code"] else "the root gives no answer",
                        "partitions": [
                            {
                                "partition": f"{topic['name']}-{p['partition_index']}",
                                "size": p["partition_size"],
                                "offsetLag": p["offset_lag"],
                                "isFuture": p["is_future_key"],
                            }
                            for topic in folder["topics"]
                            for p in topic["partitions"]
                        ],
                    }
                    for folder in entry["log_dirs"]
                ],
            }
            for entry in described
        ],
    }
    click.echo("Querying brokers for log directories information")
    click.echo(f"Received log directory information from brokers {','.join(str(e['broker']) for e in described)}")
    click.echo(json.dumps(found, separators=(",", ":")))
