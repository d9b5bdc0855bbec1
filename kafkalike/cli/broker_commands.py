"""`kafkalike brokers`, `replicate` and `log-dirs`: storage roots of a cluster, their replicas and sizes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli.environment import Environment, SuggestingGroup, pass_environment
from kafkalike.cli.options import cluster_options, topic_filter, version_option
from kafkalike.cli.output import Row, echo_rows, output_option
from kafkalike.cli.progress import progress
from kafkalike.errors import IllegalArgumentError, KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


HEADS: Final = ("ID", "RACK", "STATE", "LEADS", "REPLICAS", "OUT-OF-SYNC", "ROOT")


@click.group(
    cls=SuggestingGroup,
    epilog="Example: kafkalike brokers add /mnt/d/log --rack east --bootstrap-server /mnt/a/log",
    context_settings={"help_option_names": ["--help"]},
)
@version_option
def brokers() -> None:
    """List, add, drain and remove brokers. A broker is a storage root without a process."""


@brokers.command("list")
@cluster_options
@output_option("broker")
@pass_environment
def list_(
    environment: Environment, /, *, bootstrap_server: str | None, command_config: str | None, as_json: bool
) -> None:
    """Print brokers with the numbers of tables that they lead and replicate."""
    replication = environment.existing(bootstrap_server, command_config).replication
    tables = [replication.replicas(name) for name in replication.tables()]
    found = []
    for broker in replication.brokers():
        held = [table for table in tables if broker.id in {*table.replicas, *table.isr}]
        found.append(
            (
                broker.id,
                broker.rack,
                _state(draining=broker.draining, alive=replication.alive(broker.id)),
                sum(table.leader == broker.id for table in tables),
                len(held),
                sum(broker.id not in table.isr for table in held),
                broker.uri,
            )
        )
    echo_rows(HEADS, found, as_json=as_json)


def _state(*, draining: bool, alive: bool) -> str:
    if not alive:
        return "gives no answer"
    return "draining" if draining else "there"


@brokers.command()
@cluster_options
@click.argument("root")
@click.option("--rack", help="Kafka's broker.rack: readers with this client.rack read from it.")
@click.option("--id", "broker", type=click.IntRange(min=1), help="Id of the broker; default: the next free id.")
@pass_environment
def add(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    root: str,
    rack: str | None,
    broker: int | None,
) -> None:
    """Add a storage root. It gets replicas of new topics, and of topics that are reassigned to it."""
    replication = environment.existing(bootstrap_server, command_config).replication
    made = replication.add_broker(root, rack=rack, id=broker)
    click.echo(f"Added broker {made.id} at {made.uri}.")


@brokers.command()
@cluster_options
@click.argument("broker", type=int)
@pass_environment
def drain(
    environment: Environment, /, *, bootstrap_server: str | None, command_config: str | None, broker: int
) -> None:
    """Give a broker no new replicas, and reassign its replicas to others; `kafkalike replicate` moves them."""
    replication = environment.existing(bootstrap_server, command_config).replication
    left = replication.drain(broker)
    if left:
        click.echo(f"Broker {broker} is being drained; it still has {', '.join(left)}: run kafkalike replicate.")
    else:
        click.echo(f"Broker {broker} is drained: kafkalike brokers remove {broker}.")


@brokers.command()
@cluster_options
@click.argument("broker", type=int)
@click.option("--lost", is_flag=True, help="Remove it even if it has replicas, because it never comes back.")
@pass_environment
def remove(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    broker: int,
    lost: bool,
) -> None:
    """Remove a broker from the cluster. Its files stay."""
    environment.existing(bootstrap_server, command_config).replication.remove_broker(broker, lost=lost)
    click.echo(f"Removed broker {broker}.")


REPLICA_HEADS: Final = ("TABLE", "BROKER", "ROLE", "VERSION", "LAG-VERSIONS", "LAG-BYTES", "LAG-SECONDS")


@click.command(epilog="Example: kafkalike replicate --every 30s")
@cluster_options
@click.option("--topic", metavar="REGEX", help="Topics; default: all topics and the control tables.")
@click.option("--every", metavar="DURATION", help="Repeat at this interval, such as 30s, until SIGTERM or Ctrl-C.")
@click.option("--max-minutes", type=click.FloatRange(min=0, min_open=True), help="Start no new work after this time.")
@click.option("--describe", is_flag=True, help="Print the lag of each replica and change nothing.")
@output_option("run, or each replica")
@version_option
@pass_environment
def replicate(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str | None,
    every: str | None,
    max_minutes: float | None,
    describe: bool,
    as_json: bool,
) -> None:
    """Catch replicas up, add them to the ISR, move reassigned replicas, and return topics to their preferred leaders.

    Writers keep the replicas in sync up to date, and remove a root that does not answer. Only this command adds it
    again once it is back. It can run at any time, also twice at once.

    Exit code 0: done, 1: some steps failed.
    """
    cluster = environment.existing(bootstrap_server, command_config)
    if describe:
        _describe(cluster, topic, as_json=as_json)
        return
    timeout_ms = None if max_minutes is None else max_minutes * 60_000
    if every is None:
        sound = _once(cluster, topic, timeout_ms, as_json=as_json)
        click.get_current_context().exit(0 if sound else 1)
    from kafkalike.maintenance.schedule import every as repeat
    from kafkalike.maintenance.schedule import parse_duration_ms

    def again() -> None:
        try:
            _once(cluster, topic, timeout_ms, as_json=as_json)
        except (KafkaError, OSError) as error:
            click.echo(f"Error: {error}", err=True)

    repeat(parse_duration_ms(every), again)


def _names(cluster: Cluster, topic: str | None) -> list[str]:
    wanted = topic_filter(topic)
    names = [name for name in cluster.replication.tables() if wanted(name)]
    if topic is not None and not names:
        raise UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist as expected")
    return names


def _once(cluster: Cluster, topic: str | None, timeout_ms: float | None, *, as_json: bool) -> bool:
    names = _names(cluster, topic)
    with progress("replicate", lambda: len(names)) as advance:
        report = cluster.replication.replicate(
            names, timeout_ms=timeout_ms, progress=lambda name: advance(name != names[0], name)
        )
    if as_json:
        click.echo(json.dumps(asdict(report), default=list))
        return not report.failed
    for name, brokers in report.joined.items():
        click.echo(f"{name}: in sync on {', '.join(map(str, brokers))}")
    for name, brokers in report.left.items():
        click.echo(f"{name}: removed from {', '.join(map(str, brokers))}")
    for name, leader in report.led.items():
        click.echo(f"{name}: led by {leader}")
    for problem in report.failed:
        click.echo(f"Error: {problem}", err=True)
    return not report.failed


def _describe(cluster: Cluster, topic: str | None, *, as_json: bool) -> None:
    rows = []
    for name in _names(cluster, topic):
        replicas = cluster.replication.replicas(name, ends=True)
        lags = replicas.lags()
        for end in replicas.ends:
            lag = lags[end.broker]
            role = "leader" if end.broker == replicas.leader else "in sync" if end.in_sync else "out of sync"
            rows.append(
                (
                    name,
                    end.broker,
                    role if end.version is not None else f"{role}, gives no answer",
                    end.version,
                    lag.versions,
                    lag.bytes,
                    lag.seconds,
                )
            )
    echo_rows(REPLICA_HEADS, rows, as_json=as_json)


SIZE_HEADS: Final = ("BROKER", "LOG-DIR", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "IS-FUTURE")


def _sizes(described: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the size of each partition on each broker."""
    for entry in described:
        for folder in entry["log_dirs"]:
            where = (entry["broker"], folder["log_dir"])
            for topic in folder["topics"]:
                for p in topic["partitions"]:
                    sizes = (p["partition_size"], p["offset_lag"], p["is_future_key"])
                    yield (*where, topic["name"], p["partition_index"], *sizes)


@click.command("log-dirs", epilog="Example: kafkalike log-dirs --describe --topic-list orders")
@cluster_options
@click.option("--describe", is_flag=True, required=True, help="Print the sizes; the only action.")
@click.option("--topic-list", help="Topics, separated by commas; default: all.")
@click.option("--broker-list", help="Ids of brokers, separated by commas; default: all.")
@output_option("partition of a broker")
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
    as_json: bool,
) -> None:
    """Print bytes by broker and partition. A broker is a storage root with one log directory."""
    del describe
    try:
        brokers = None if broker_list is None else [int(broker) for broker in broker_list.split(",")]
    except ValueError as cause:
        raise IllegalArgumentError(
            f"--broker-list must be broker ids separated by commas, not {broker_list!r}"
        ) from cause
    topics = None if topic_list is None else topic_list.split(",")
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        known = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
        unknown = sorted(set(brokers or ()) - set(known))
        if unknown:
            raise IllegalArgumentError(
                f"ERROR: The given brokers do not exist from --broker-list: {','.join(map(str, unknown))}"
            )
        described = admin.describe_log_dirs(topics, brokers)
    if as_json:
        echo_rows(SIZE_HEADS, _sizes(described), as_json=True)
        return
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
