"""`kafkalike topics`: create, list, describe, alter and delete topics, as kafka-topics does."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.options import (
    check_belongs,
    chosen_action,
    cluster_options,
    key_values,
    refused,
    topic_filter,
    version_option,
    without_effect,
)
from kafkalike.cli.output import Row, counted, json_lines, output_option
from kafkalike.cli.progress import progress
from kafkalike.errors import IllegalArgumentError, TopicAlreadyExistsError

if TYPE_CHECKING:
    from kafkalike.admin.admin_client import KafkaAdminClient
    from kafkalike.model.replication.replicas import Replicas

ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "partitions": frozenset({"create", "alter", "repartition"}),
    "replication_factor": frozenset({"create"}),
    "replica_assignment": frozenset({"create"}),
    "config": frozenset({"create"}),
    "if_not_exists": frozenset({"create"}),
    "if_exists": frozenset({"alter", "delete", "describe"}),
    "topic_id": frozenset({"describe"}),
    "topics_with_overrides": frozenset({"describe"}),
    "under_replicated_partitions": frozenset({"describe"}),
    "unavailable_partitions": frozenset({"describe"}),
    "under_min_isr_partitions": frozenset({"describe"}),
    "at_min_isr_partitions": frozenset({"describe"}),
    "exclude_internal": frozenset({"list", "describe"}),
    "as_json": frozenset({"list", "describe"}),
}
"""Actions that accept an option, by option."""

COLLISIONS: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To "
    "avoid issues it is best to use either, but not both."
)
"""Kafka's warning about a topic name with a period or underscore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    do_list: bool
    do_describe: bool
    do_create: bool
    do_alter: bool
    do_delete: bool
    do_repartition: bool
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    config: tuple[str, ...]
    if_not_exists: bool
    if_exists: bool
    exclude_internal: bool
    topics_with_overrides: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    as_json: bool


@click.command(epilog="Example: kafkalike topics --create --topic orders --partitions 3 --config retention.ms=3600000")
@cluster_options
@click.option("--list", "do_list", is_flag=True, help="Print the names of topics.")
@click.option("--describe", "do_describe", is_flag=True, help="Print topics with their settings and partitions.")
@click.option("--create", "do_create", is_flag=True, help="Create a topic.")
@click.option("--alter", "do_alter", is_flag=True, help="Raise the number of partitions.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete topics and their data.")
@click.option(
    "--repartition",
    "do_repartition",
    is_flag=True,
    help="Move a topic's records to more --partitions, a multiple of the present number; keys stay in order.",
)
@click.option(
    "--topic", help="Topic; for --list, --describe, --alter and --delete a regular expression of the whole name."
)
@click.option("--topic-id", help="Topic by id, as --describe prints it or as a UUID, with --describe.")
@click.option("--partitions", type=int, help="Number of partitions; default num.partitions of the server, 1.")
@click.option(
    "--replication-factor", type=int, help="Number of replicas; default default.replication.factor of the server, 1."
)
@click.option(
    "--replica-assignment",
    metavar="IDS",
    help="Brokers of each partition, the leader first, such as 1:2,1:2: the same for all partitions of a topic.",
)
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="Setting of the new topic; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="With --create: do nothing when the topic exists.")
@click.option("--if-exists", is_flag=True, help="Do nothing when no topic matches.")
@click.option("--exclude-internal", is_flag=True, help="Without effect: kafkalike's own tables are not topics.")
@click.option("--topics-with-overrides", is_flag=True, help="With --describe: only topics with settings of their own.")
@click.option(
    "--under-replicated-partitions", is_flag=True, help="With --describe: only partitions that lack a replica."
)
@click.option(
    "--unavailable-partitions", is_flag=True, help="With --describe: only partitions whose leader does not answer."
)
@click.option("--under-min-isr-partitions", is_flag=True, help="With --describe: only below min.insync.replicas.")
@click.option("--at-min-isr-partitions", is_flag=True, help="With --describe: only at min.insync.replicas.")
@without_effect("--partition-size-limit-per-response", "there are no responses to page")
@refused("--delete-config", "settings are altered with 'kafkalike configs --alter --delete-config'")
@refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@output_option("topic")
@version_option
@pass_options(TopicsOptions)
def topics(environment: Environment, options: TopicsOptions) -> None:
    """Create, list, describe, alter and delete topics."""
    action = chosen_action(options, ("list", "describe", "create", "alter", "delete", "repartition"))
    _check(action, options)
    if action == "repartition":
        for line in _repartition(environment, options):
            click.echo(line)
        return
    with environment.admin(options.bootstrap_server, options.command_config, existing=not options.do_create) as admin:
        for line in RUN[action](admin, options):
            click.echo(line)


def _check(action: str, options: TopicsOptions) -> None:
    check_belongs(options, action, ALLOWED)
    if action in {"create", "alter", "delete", "repartition"} and not options.topic:
        raise click.UsageError(f'Missing required argument "[topic]" for --{action}')
    if action == "alter" and options.partitions is None:
        raise click.UsageError(
            "Missing required argument \"[partitions]\" for --alter; settings are altered with 'kafkalike configs'"
        )
    if action == "repartition" and options.partitions is None:
        raise click.UsageError('Missing required argument "[partitions]" for --repartition')
    if options.topic and options.topic_id:
        raise click.UsageError("--topic and --topic-id exclude each other")
    if len(_reports(options)) + options.topics_with_overrides > 1:
        raise click.UsageError("The reports of --describe exclude each other")


def _reports(options: TopicsOptions) -> list[str]:
    """Return the requested reports about partitions."""
    flags = {
        "under_replicated_partitions": options.under_replicated_partitions,
        "unavailable_partitions": options.unavailable_partitions,
        "under_min_isr_partitions": options.under_min_isr_partitions,
        "at_min_isr_partitions": options.at_min_isr_partitions,
    }
    return [report for report, flag in flags.items() if flag]


def _matching(admin: KafkaAdminClient, options: TopicsOptions, *, required: bool = True) -> list[str]:
    allowed = topic_filter(options.topic)
    names = [name for name in admin.list_topics() if allowed(name)]
    if not names and options.topic and required and not options.if_exists:
        raise IllegalArgumentError(f"Topic '{options.topic}' does not exist as expected")
    return names


def _list(admin: KafkaAdminClient, options: TopicsOptions) -> Iterator[str]:
    names = _matching(admin, options, required=False)
    yield from json_lines(("TOPIC",), [(name,) for name in names]) if options.as_json else names


def _create(admin: KafkaAdminClient, options: TopicsOptions) -> Iterator[str]:
    assert options.topic is not None, "checked before"
    if "." in options.topic or "_" in options.topic:
        yield COLLISIONS
    spec: dict[str, Any] = {"configs": key_values(options.config, "--config")}
    if options.partitions is not None:
        if options.partitions < 1:
            raise IllegalArgumentError("The partitions must be greater than 0")
        spec["num_partitions"] = options.partitions
    if options.replication_factor is not None:
        spec["replication_factor"] = options.replication_factor
    if options.replica_assignment is not None:
        if options.partitions is not None or options.replication_factor is not None:
            other = "partitions" if options.partitions is not None else "replication-factor"
            raise click.UsageError(f'Option "[replica-assignment]" can\'t be used with option "[{other}]"')
        spec["assignments"] = parse_assignment(options.replica_assignment)
    try:
        admin.create_topics({options.topic: spec})
    except TopicAlreadyExistsError:
        if options.if_not_exists:
            return
        raise
    yield f"Created topic {options.topic}."


def _alter(admin: KafkaAdminClient, options: TopicsOptions) -> Iterator[str]:
    assert options.partitions is not None, "checked before"
    admin.create_partitions(dict.fromkeys(_matching(admin, options), options.partitions))
    yield from ()


def _delete(admin: KafkaAdminClient, options: TopicsOptions) -> Iterator[str]:
    admin.delete_topics(_matching(admin, options))
    yield from ()


def _repartition(environment: Environment, options: TopicsOptions) -> Iterator[str]:
    assert options.topic is not None, "checked before"
    assert options.partitions is not None, "checked before"
    from kafkalike.maintenance.repartition import repartition

    cluster = environment.cluster_of(options.bootstrap_server, options.command_config)
    with progress(f"repartition {options.topic}"):
        done = repartition(options.topic, options.partitions, cluster, clock=environment.clock)
    partitions = f"{counted(done.partitions, 'partition')} instead of {done.before}"
    yield f"Topic {done.topic} has {partitions}; {counted(done.records, 'record')} moved."


def _describe(admin: KafkaAdminClient, options: TopicsOptions) -> Iterator[str]:
    described = admin.describe_topics()
    if options.topic_id:
        described = [
            topic for topic in described if options.topic_id in {topic["topic_id"], kafka_uuid(topic["topic_id"])}
        ]
        if not described and not options.if_exists:
            raise IllegalArgumentError(f"TopicId '{options.topic_id}' does not exist as expected")
    else:
        names = set(_matching(admin, options))
        described = [topic for topic in described if topic["name"] in names]
    overrides = _overrides(admin, [topic["name"] for topic in described])
    report = next(iter(_reports(options)), None)
    for topic in described:
        own = overrides.get(topic["name"], {})
        if options.as_json:
            if _is_wanted(admin, topic["name"], report) and (own or not options.topics_with_overrides):
                yield from json_lines(JSON_FIELDS, [_json_row(topic, own)])
            continue
        if report is None and (own or not options.topics_with_overrides):
            yield _topic_line(topic, own)
        shows_partitions = report is not None or not options.topics_with_overrides
        if shows_partitions and _is_wanted(admin, topic["name"], report):
            yield from (_partition_line(topic["name"], partition) for partition in topic["partitions"])


def _is_wanted(admin: KafkaAdminClient, topic: str, report: str | None) -> bool:
    return report is None or REPORTS[report](admin.replicas_of(topic))


JSON_FIELDS: Final = ("topic", "topic_id", "partition_count", "replication_factor", "configs", "partitions")


def _json_row(topic: Mapping[str, Any], configs: dict[str, Any]) -> Row:
    partitions = [
        {
            "partition": partition["partition_index"],
            "leader": None if partition["leader_id"] < 0 else partition["leader_id"],
            "replicas": list(partition["replica_nodes"]),
            "isr": list(partition["isr_nodes"]),
        }
        for partition in topic["partitions"]
    ]
    factor = len(topic["partitions"][0]["replica_nodes"])
    return (topic["name"], kafka_uuid(topic["topic_id"]), len(partitions), factor, configs, partitions)


def _overrides(admin: KafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """Return the settings that differ from Kafka's defaults, by topic; from the topic or server.properties."""
    from kafkalike.model.structs import ConfigResource, ConfigResourceType

    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    described = admin.describe_configs(resources, config_filter="all").get("topic", {})
    return {
        topic: {name: entry["value"] for name, entry in entries.items() if not entry["is_default"]}
        for topic, entries in described.items()
    }


def kafka_uuid(topic_id: str) -> str:
    """Format a UUID as Kafka does, as 22 characters of base64; return any other text unchanged.

    >>> kafka_uuid("a1e76a0c-8ed9-4ebf-a7a5-5bd5a0b9b6a2")
    'oedqDI7ZTr-npVvVoLm2og'
    """
    try:
        return urlsafe_b64encode(UUID(topic_id).bytes).decode().rstrip("=")
    except ValueError:
        return topic_id


def _topic_line(topic: Mapping[str, Any], configs: Mapping[str, str]) -> str:
    fields = (
        f"Topic: {topic['name']}",
        f"TopicId: {kafka_uuid(topic['topic_id'])}",
        f"PartitionCount: {len(topic['partitions'])}",
        f"ReplicationFactor: {len(topic['partitions'][0]['replica_nodes'])}",
        f"Configs: {','.join(f'{name}={value}' for name, value in configs.items())}",
    )
    return "\t".join(fields)


def _partition_line(topic: str, partition: Mapping[str, Any]) -> str:
    fields = (
        "",
        f"Topic: {topic}",
        f"Partition: {partition['partition_index']}",
        f"Leader: {'none' if partition['leader_id'] < 0 else partition['leader_id']}",
        f"Replicas: {','.join(map(str, partition['replica_nodes']))}",
        f"Isr: {','.join(map(str, partition['isr_nodes']))}",
        "Elr: ",
        "LastKnownElr: ",
    )
    return "\t".join(fields)


REPORTS: Final[Mapping[str, Callable[[Replicas], bool]]] = {
    "under_replicated_partitions": lambda replicas: replicas.under_replicated,
    "unavailable_partitions": lambda replicas: replicas.leader < 0,
    "under_min_isr_partitions": lambda replicas: len(replicas.isr) < replicas.min_isr,
    "at_min_isr_partitions": lambda replicas: len(replicas.isr) == replicas.min_isr,
}
"""Condition of a topic's replicas, by report."""


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Parse Kafka's `--replica-assignment`: partitions separated by commas, their brokers by colons.

    Raises:
        IllegalArgumentError: the text is malformed.

    >>> parse_assignment("1:2,1:2")
    {0: [1, 2], 1: [1, 2]}
    """
    try:
        found = [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError as cause:
        raise IllegalArgumentError(f"a replica assignment is a list such as 1:2,1:2, not {text!r}") from cause
    return dict(enumerate(found))


RUN: Final = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
}
