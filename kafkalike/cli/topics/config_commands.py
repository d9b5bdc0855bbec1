"""`kafkalike configs`: describe and alter settings, as kafka-configs does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.options import cluster_options, read_properties, refused, version_option
from kafkalike.cli.output import json_lines, output_option
from kafkalike.errors import InvalidConfigurationError
from kafkalike.model.structs import AlterConfigOp, ConfigResource, ConfigResourceType

if TYPE_CHECKING:
    from kafkalike.admin.admin_client import KafkaAdminClient

NO_QUOTAS: Final = "there are no quotas and no users"
_COMMA: Final = re.compile(r",(?![^\[]*\])")
"""Matches a comma outside of square brackets."""

ENTITY_TYPES: Final = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "groups": ConfigResourceType.GROUP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    describe: bool
    alter: bool
    show_all: bool
    entity_type: str | None
    entity_name: str | None
    entity_default: bool
    topic: str | None
    broker: str | None
    broker_defaults: bool
    group: str | None
    add_config: str | None
    add_config_file: str | None
    delete_config: str | None
    as_json: bool


@click.command(
    epilog="Example: kafkalike configs --alter --topic orders --add-config retention.ms=5000,cleanup.policy=[compact]"
)
@cluster_options
@click.option("--describe", is_flag=True, help="Print settings.")
@click.option("--alter", is_flag=True, help="Change settings of a topic, a group or the cluster.")
@click.option("--all", "show_all", is_flag=True, help="With --describe: include settings with their default.")
@click.option(
    "--entity-type",
    type=click.Choice(["topics", "brokers", "groups", "clients", "users", "ips", "broker-loggers", "client-metrics"]),
    help="Owner of the settings: topics, groups or brokers (the cluster's defaults); the others do not exist here.",
)
@click.option("--entity-name", help="Name of the topic or group, or 1 for the only broker.")
@click.option("--entity-default", is_flag=True, help="With --entity-type brokers: the defaults of the whole cluster.")
@click.option("--topic", help="Short for --entity-type topics --entity-name TOPIC.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name ID.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--group", help="Short for --entity-type groups --entity-name GROUP.")
@click.option("--add-config", metavar="K=V,K=[A,B]", help="Settings to set; lists in square brackets.")
@click.option(
    "--add-config-file", type=click.Path(exists=True, dir_okay=False), help="File of settings in .properties form."
)
@click.option("--delete-config", metavar="K,K", help="Settings to reset to their default.")
@refused("--client", NO_QUOTAS)
@refused("--client-defaults", NO_QUOTAS, is_flag=True)
@refused("--user", NO_QUOTAS)
@refused("--user-defaults", NO_QUOTAS, is_flag=True)
@refused("--ip", NO_QUOTAS)
@refused("--ip-defaults", NO_QUOTAS, is_flag=True)
@refused("--broker-logger", "kafkalike has no broker process that logs")
@refused("--client-metrics", "there is no broker to send metrics to")
@refused("--bootstrap-controller", "there is no controller; --bootstrap-server names the storage root")
@refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@output_option("setting")
@version_option
@pass_options(ConfigsOptions)
def configs(environment: Environment, options: ConfigsOptions) -> None:
    """Describe and alter settings of topics and groups, and cluster-wide defaults."""
    if options.describe == options.alter:
        raise click.UsageError("Command must include exactly one action: --describe or --alter")
    kind, name = _entity(options)
    with environment.admin(options.bootstrap_server, options.command_config, existing=True) as admin:
        lines = _alter(admin, kind, name, options) if options.alter else _describe(admin, kind, name, options)
        for line in lines:
            click.echo(line)


def _entity(options: ConfigsOptions) -> tuple[ConfigResourceType, str | None]:
    """Return kind and name; None means all topics, an empty name the cluster's defaults."""
    shorts: list[tuple[ConfigResourceType, str]] = []
    if options.topic is not None:
        shorts.append((ConfigResourceType.TOPIC, options.topic))
    if options.broker is not None:
        shorts.append((ConfigResourceType.BROKER, options.broker))
    if options.group is not None:
        shorts.append((ConfigResourceType.GROUP, options.group))
    if options.broker_defaults:
        shorts.append((ConfigResourceType.BROKER, ""))
    if len(shorts) + (options.entity_type is not None) != 1:
        raise click.UsageError("Give either --entity-type, --topic, --group, --broker or --broker-defaults")
    if options.entity_type is None:
        return shorts[0]
    if options.entity_type not in ENTITY_TYPES:
        raise click.UsageError(
            f"--entity-type {options.entity_type} has no meaning here: only topics, groups and brokers have settings"
        )
    kind = ENTITY_TYPES[options.entity_type]
    if options.entity_default:
        if kind is not ConfigResourceType.BROKER or options.entity_name is not None:
            raise click.UsageError("--entity-default needs --entity-type brokers and excludes --entity-name")
        return kind, ""
    return kind, options.entity_name


def _describe(
    admin: KafkaAdminClient, kind: ConfigResourceType, name: str | None, options: ConfigsOptions
) -> Iterator[str]:
    if options.add_config or options.add_config_file or options.delete_config:
        raise click.UsageError("--add-config, --add-config-file and --delete-config need --alter")
    word = kind.name.lower()
    names = [name] if name is not None else admin.list_config_resources([kind])[word]
    wanted = "all" if options.show_all else "modified"
    described = admin.describe_configs([ConfigResource(kind, n) for n in names], True, wanted)  # noqa: FBT003
    if options.as_json:
        yield from json_lines(
            ("ENTITY-TYPE", "ENTITY-NAME", "NAME", "VALUE", "IS-DEFAULT", "SYNONYMS"),
            [
                (word, entity, setting, entry["value"], entry["is_default"], entry["synonyms"])
                for entity in names
                for setting, entry in described[word][entity].items()
            ],
        )
        return
    for entity in names:
        if entity == "":
            yield f"Default configs for {word}s in the cluster are:"
        else:
            yield f"{'All' if options.show_all else 'Dynamic'} configs for {word} {entity} are:"
        for setting, entry in described[word][entity].items():
            synonyms = ", ".join(f"{s['source']}:{s['name']}={s['value']}" for s in entry["synonyms"])
            yield f"  {setting}={entry['value']} sensitive=false synonyms={{{synonyms}}}"


def _alter(
    admin: KafkaAdminClient, kind: ConfigResourceType, name: str | None, options: ConfigsOptions
) -> Iterator[str]:
    if name is None:
        raise click.UsageError("--alter needs the name of one entity: --entity-name")
    if options.show_all:
        raise click.UsageError("--all needs --describe")
    if options.as_json:
        raise click.UsageError("--output json needs --describe")
    changes: dict[str, tuple[AlterConfigOp, str | None]] = {
        setting: (AlterConfigOp.SET, value) for setting, value in _added(options).items()
    }
    deleted = [item.strip() for item in (options.delete_config or "").split(",") if item.strip()]
    changes.update(dict.fromkeys(deleted, (AlterConfigOp.DELETE, None)))
    if not changes:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    _check_deleted(admin, kind, name, deleted)
    admin.alter_configs([ConfigResource(kind, name, changes)], raise_errors=True)
    if name:
        yield f"Completed updating config for {kind.name.lower()} {name}."
    else:
        yield f"Completed updating default config for {kind.name.lower()}s in the cluster."


def _added(options: ConfigsOptions) -> dict[str, str]:
    if options.add_config and options.add_config_file:
        raise click.UsageError("--add-config and --add-config-file exclude each other")
    if options.add_config_file:
        return read_properties(options.add_config_file)
    return parse_added(options.add_config or "")


def parse_added(text: str) -> dict[str, str]:
    """Parse `k1=v1,k2=[a,b]`; square brackets enclose a list with commas and are dropped.

    Raises:
        click.UsageError: a part has no `=`.

    >>> parse_added("retention.ms=5,cleanup.policy=[compact,delete]")
    {'retention.ms': '5', 'cleanup.policy': 'compact,delete'}
    """
    added = {}
    for pair in filter(None, (part.strip() for part in _COMMA.split(text))):
        name, sign, value = pair.partition("=")
        if not sign:
            raise click.UsageError('Invalid entity config: all configs to be added must be in the format "key=val".')
        added[name.strip()] = value.replace("[", "").replace("]", "").strip()
    return added


def _check_deleted(admin: KafkaAdminClient, kind: ConfigResourceType, name: str, deleted: Sequence[str]) -> None:
    if not deleted or (kind is ConfigResourceType.BROKER and name):
        return
    own = admin.describe_configs([ConfigResource(kind, name)])[kind.name.lower()][name]
    missing = [setting for setting in deleted if setting not in own]
    if missing:
        raise InvalidConfigurationError(f"Invalid config(s): {','.join(missing)}")
