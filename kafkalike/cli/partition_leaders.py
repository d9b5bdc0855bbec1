"""`kafkalike leader-election` and `reassign-partitions`: elect leaders, and move replicas to other brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, pass_environment, pass_options
from kafkalike.errors import ElectionNotNeededError, IllegalArgumentError, NoReassignmentInProgressError
from kafkalike.model.replication.replica_assignment import assigned
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.admin.admin_client import KafkaAdminClient


NO_THROTTLE = "copying is not throttled"

Assignment = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    generate: bool
    execute: bool
    verify: bool
    cancel: bool
    do_list: bool
    topics_to_move_json_file: str | None
    broker_list: str | None
    disable_rack_aware: bool
    reassignment_json_file: str | None
    additional: bool
    preserve_throttles: bool


@click.command(
    "reassign-partitions",
    epilog="Example: kafkalike reassign-partitions --execute --reassignment-json-file move.json",
)
@flags.cluster_options
@click.option("--generate", is_flag=True, help="Print the brokers of the topics' replicas, and a proposal.")
@click.option("--execute", is_flag=True, help="Reassign replicas; kafkalike replicate moves them.")
@click.option("--verify", is_flag=True, help="Check that replicas have moved.")
@click.option("--cancel", is_flag=True, help="Cancel unfinished moves.")
@click.option("--list", "do_list", is_flag=True, help="Print unfinished moves.")
@click.option("--topics-to-move-json-file", type=click.Path(exists=True, dir_okay=False), help="With --generate.")
@click.option("--broker-list", help="With --generate: ids of brokers, separated by commas.")
@click.option("--disable-rack-aware", is_flag=True, help="With --generate: ignore the racks.")
@click.option(
    "--reassignment-json-file", type=click.Path(exists=True, dir_okay=False), help="File with the output of --generate."
)
@click.option("--additional", is_flag=True, help="Without effect: other moves always continue.")
@click.option("--preserve-throttles", is_flag=True, hidden=True)
@flags.without_effect("--throttle", NO_THROTTLE)
@flags.without_effect("--replica-alter-log-dirs-throttle", NO_THROTTLE)
@flags.without_effect("--timeout", "the command does not wait")
@flags.version_option
@pass_options(ReassignOptions)
def reassign_partitions(environment: Environment, options: ReassignOptions) -> None:
    """Move replicas to other brokers. All partitions of a topic have the same brokers."""
    actions = [name for name in ("generate", "execute", "verify", "cancel", "do_list") if getattr(options, name)]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"
        )
    (action,) = actions
    file = options.reassignment_json_file
    runs = {"execute": _execute, "verify": _verify, "cancel": _cancel}
    if action in runs and file is None:
        raise click.UsageError(f'Missing required argument "[reassignment-json-file]" for --{action}')
    with environment.admin(options.bootstrap_server, options.command_config, existing=True) as admin:
        if action == "generate":
            aware = not options.disable_rack_aware
            _generate(admin, options.topics_to_move_json_file, options.broker_list, aware=aware)
        elif action == "do_list":
            _list(admin)
        else:
            assert file is not None, "checked before"
            sound = runs[action](admin, parse_reassignment(Path(file).read_bytes()))
            click.get_current_context().exit(0 if sound else 1)


def _generate(admin: KafkaAdminClient, file: str | None, brokers: str | None, *, aware: bool) -> None:
    if file is None or brokers is None:
        raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
    topics = parse_topics(Path(file).read_bytes())
    racks = {b["broker_id"]: b["rack"] if aware else None for b in admin.describe_cluster()["brokers"]}
    try:
        wanted = {int(broker): racks[int(broker)] for broker in brokers.split(",")}
    except (ValueError, KeyError) as cause:
        raise IllegalArgumentError(
            f"--broker-list must name brokers of the cluster, {sorted(racks)}, not {brokers!r}"
        ) from cause
    current = _current(admin, topics)
    factors = {tp.topic: len(replicas) for tp, replicas in current.items()}
    proposed: dict[TopicPartition, list[int]] = {}
    for number, topic in enumerate(topics):
        # A topic is one table, so its partitions move together. Topics are assigned round-robin.
        (replicas,) = assigned(wanted, 1, factors[topic], start=number, shift=number // len(wanted))
        proposed |= {tp: list(replicas) for tp in current if tp.topic == topic}
    click.echo("Current partition replica assignment")
    click.echo(as_json(current))
    click.echo("\nProposed partition reassignment configuration")
    click.echo(as_json(proposed))


def _current(admin: KafkaAdminClient, topics: Sequence[str]) -> dict[TopicPartition, list[int]]:
    found = {}
    for topic in admin.describe_topics(topics):
        if topic["error_code"]:
            raise IllegalArgumentError(f"Topic {topic['name']} not found")
        for p in topic["partitions"]:
            found[TopicPartition(topic["name"], p["partition_index"])] = list(p["replica_nodes"])
    return found


def _execute(admin: KafkaAdminClient, wanted: Assignment) -> bool:
    current = _current(admin, sorted({tp.topic for tp in wanted}))
    click.echo("Current partition replica assignment\n")
    click.echo(as_json({tp: current[tp] for tp in wanted if tp in current}))
    click.echo("\nSave this to use as the --reassignment-json-file option during rollback")
    return _said(admin.alter_partition_reassignments(wanted), wanted, "started partition reassignments for")


def _cancel(admin: KafkaAdminClient, wanted: Assignment) -> bool:
    results = admin.alter_partition_reassignments(dict.fromkeys(wanted))
    left = {tp: None if error is NoReassignmentInProgressError else error for tp, error in results.items()}
    return _said(left, wanted, "cancelled partition reassignments for")


def _said(results: Mapping[TopicPartition, Any], wanted: Assignment, what: str) -> bool:
    failed = {tp: error for tp, error in results.items() if error is not None}
    for tp, error in sorted(failed.items()):
        click.echo(f"Error: {tp.topic}-{tp.partition}: {error.__name__}: {(error.__doc__ or '').strip()}", err=True)
    done = [f"{tp.topic}-{tp.partition}" for tp in sorted(wanted) if tp not in failed]
    if done:
        click.echo(f"Successfully {what} {','.join(done)}")
    return not failed


def _verify(admin: KafkaAdminClient, wanted: Assignment) -> bool:
    click.echo("Status of partition reassignment:")
    moving = admin.list_partition_reassignments()
    current = _current(admin, sorted({tp.topic for tp in wanted}))
    sound = True
    for tp, replicas in sorted(wanted.items()):
        where = f"Reassignment of partition {tp.topic}-{tp.partition}"
        if tp in moving:
            click.echo(f"{where} is still in progress.")
        elif current.get(tp) == list(replicas):
            click.echo(f"{where} is completed.")
        else:
            sound = False
            now = ",".join(map(str, current.get(tp, [])))
            click.echo(
                f"There is no active reassignment of partition {tp.topic}-{tp.partition}, but replica set is {now} "
                f"rather than {','.join(map(str, replicas))}."
            )
    return sound


def _list(admin: KafkaAdminClient) -> None:
    moving = admin.list_partition_reassignments()
    if not moving:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for tp, found in sorted(moving.items()):
        parts = [f"{tp.topic}-{tp.partition}: replicas: {','.join(map(str, found['replicas']))}."]
        changing = [(name, found[f"{name}_replicas"]) for name in ("adding", "removing")]
        parts += [f"{name}: {','.join(map(str, brokers))}." for name, brokers in changing if brokers]
        click.echo(" ".join(parts))


def as_json(assignment: Assignment) -> str:
    """Return Kafka's JSON of an assignment."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas), "log_dirs": ["any"] * len(replicas)}
        for tp, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def parse_reassignment(content: bytes) -> dict[TopicPartition, list[int]]:
    """Parse Kafka's JSON of replicas by partition.

    Raises:
        IllegalArgumentError: the JSON is malformed, of another version, empty, or repeats a partition or a replica.
    """
    data = _parsed(content)
    try:
        pairs = [
            (
                TopicPartition(str(entry["topic"]), int(entry["partition"])),
                [int(broker) for broker in entry["replicas"]],
            )
            for entry in data["partitions"]
        ]
    except (KeyError, TypeError, ValueError) as cause:
        raise IllegalArgumentError(f"The reassignment json file is malformed: {cause!r}") from cause
    found = dict(pairs)
    if not found:
        raise IllegalArgumentError("Partition reassignment list cannot be empty")
    if len(found) < len(pairs):
        raise IllegalArgumentError("Partition reassignment contains duplicate topic partitions")
    doubled = [tp for tp, replicas in found.items() if len(set(replicas)) < len(replicas)]
    if doubled:
        raise IllegalArgumentError(
            f"Partition replica lists may not contain duplicate entries: {doubled[0].topic}-{doubled[0].partition}"
        )
    return found


def parse_topics(content: bytes) -> list[str]:
    """Parse the topics of Kafka's `--topics-to-move-json-file`.

    Raises:
        IllegalArgumentError: the JSON is malformed, of another version, or empty.
    """
    data = _parsed(content)
    try:
        found = [str(entry["topic"]) for entry in data["topics"]]
    except (KeyError, TypeError) as cause:
        raise IllegalArgumentError(f"The topics json file is malformed: {cause!r}") from cause
    if not found:
        raise IllegalArgumentError("The topics json file has no topics")
    return list(dict.fromkeys(found))


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        data = json.loads(content)
    except ValueError as cause:
        raise IllegalArgumentError(f"The json file is malformed: {cause}") from cause
    if not isinstance(data, dict) or data.get("version", 1) != 1:
        raise IllegalArgumentError("The json file must be an object of version 1")
    return data


@click.command(
    "leader-election", epilog="Example: kafkalike leader-election --election-type preferred --all-topic-partitions"
)
@flags.bootstrap_option()
@flags.command_config_option("--admin.config")
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(("preferred", "unclean"), case_sensitive=False),
    help="preferred: the first replica leads. unclean: a replica out of sync leads if no replica in sync answers.",
)
@click.option("--topic", help="With --partition: a topic.")
@click.option("--partition", type=int, help="A partition of the topic; all partitions of a topic have one leader.")
@click.option("--all-topic-partitions", is_flag=True, help="All topics.")
@click.option(
    "--path-to-json-file",
    type=click.Path(exists=True, dir_okay=False),
    help='File: {"partitions": [{"topic": "foo", "partition": 1}]}.',
)
@flags.version_option
@pass_environment
def leader_election(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: str | None,
) -> None:
    """Elect leaders. All partitions of a topic have one leader, so an election concerns the whole topic."""
    given = [topic is not None, all_topic_partitions, path_to_json_file is not None]
    if sum(given) != 1:
        raise click.UsageError("Give either --topic, --all-topic-partitions or --path-to-json-file")
    if (topic is None) is not (partition is None):
        raise click.UsageError("--topic and --partition need each other")
    wanted: Mapping[str, Sequence[int]] | None = None
    if topic is not None and partition is not None:
        wanted = {topic: [partition]}
    elif path_to_json_file is not None:
        wanted = parse_partitions(Path(path_to_json_file).read_bytes())
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        found = admin.elect_leaders(election_type, wanted, raise_errors=False)
    code = 0
    for result in found["replica_election_results"]:
        done = [(entry["partition_id"], entry) for entry in result["partition_result"]]
        for p, entry in done:
            where = f"{result['topic']}-{p}"
            if entry["error_code"] == 0:
                click.echo(f"Successfully completed leader election ({election_type.upper()}) for partition {where}")
            elif entry["error_code"] == ElectionNotNeededError.errno:
                click.echo(f"Valid replica already elected for partition {where}")
            else:
                click.echo(
                    f"Error completing leader election for partition {where}: {entry['error_message']}", err=True
                )
                code = 1
    click.get_current_context().exit(code)


def parse_partitions(content: bytes) -> dict[str, list[int]]:
    """Parse Kafka's JSON of partitions by topic.

    Raises:
        IllegalArgumentError: the JSON is malformed, empty, or repeats a partition.
    """
    try:
        data: Any = json.loads(content)
        pairs = [(str(entry["topic"]), int(entry["partition"])) for entry in data["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise IllegalArgumentError(f"The partitions json file is malformed: {cause!r}") from cause
    if len(set(pairs)) < len(pairs) or not pairs:
        raise IllegalArgumentError("The partitions json file has no partitions, or a duplicate")
    found: dict[str, list[int]] = {}
    for name, p in pairs:
        found.setdefault(name, []).append(p)
    return found
