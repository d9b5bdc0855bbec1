"""Group options: the options of `kafkalike consumer-groups`, which go together, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from kafkalike.cli.groups.reset_plan import Scenario, parse_datetime, parse_duration, parse_topic, read_plan
from kafkalike.cli.options import check_belongs, flag_name, is_given

SCENARIOS: Final = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)

ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "group": frozenset({"describe", "delete", "reset_offsets", "delete_offsets"}),
    "all_groups": frozenset({"describe", "delete", "reset_offsets"}),
    "topic": frozenset({"reset_offsets", "delete_offsets"}),
    "all_topics": frozenset({"reset_offsets"}),
    "type": frozenset({"list"}),
    "state": frozenset({"list", "describe"}),
    **dict.fromkeys(("offsets", "members", "lag", "verbose"), frozenset({"describe"})),
    **dict.fromkeys((*SCENARIOS, "dry_run", "execute", "export"), frozenset({"reset_offsets"})),
}
"""Which actions an option belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupsOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    do_list: bool
    do_describe: bool
    do_delete: bool
    do_reset_offsets: bool
    do_delete_offsets: bool
    group: tuple[str, ...]
    all_groups: bool
    topic: tuple[str, ...]
    all_topics: bool
    offsets: bool
    members: bool
    state: str | None
    type: str | None
    lag: bool
    verbose: bool
    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    from_file: str | None
    dry_run: bool
    execute: bool
    export: bool


def chosen_action(options: ConsumerGroupsOptions) -> str:
    """What the command is to do: the name of a method of `Actions`.

    Raises:
        click.UsageError: nothing, or more than one thing.
    """
    flags = {
        "list": options.do_list,
        "describe": options.do_describe,
        "delete": options.do_delete,
        "reset_offsets": options.do_reset_offsets,
        "delete_offsets": options.do_delete_offsets,
    }
    chosen = [action for action, flag in flags.items() if flag]
    if len(chosen) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets or --delete-offsets"
        )
    return chosen[0]


def check_options(action: str, options: ConsumerGroupsOptions) -> None:
    """Refuse options that do not go together.

    Raises:
        click.UsageError: saying which.
    """
    check_belongs(options, action, ALLOWED)
    if action != "list" and bool(options.group) == options.all_groups:
        raise click.UsageError(f'Option "[{flag_name(action)}]" takes one of these options: --group, --all-groups')
    for text in options.topic:
        parse_topic(text)
    if action == "describe":
        _check_describe(options)
    if action == "delete_offsets" and (len(options.group) != 1 or not options.topic):
        raise click.UsageError('Option "[delete-offsets]" takes the following options: --group (once), --topic')
    if action == "reset_offsets":
        _check_reset(options)


def _check_describe(options: ConsumerGroupsOptions) -> None:
    reports = (options.offsets, options.members, options.state, options.lag)
    if sum(map(is_given, reports)) > 1:
        raise click.UsageError(
            'Option "[describe]" takes at most one of these options: --offsets, --members, --state, --lag'
        )
    if options.state:
        raise click.UsageError('Option "[describe]" does not take a value for "[state]"')


def _check_reset(options: ConsumerGroupsOptions) -> None:
    if options.dry_run and options.execute:
        raise click.UsageError('Option "[reset-offsets]" only accepts one of --execute and --dry-run')
    chosen = _scenarios(options)
    if len(chosen) != 1:
        flags = ", ".join(f"--{flag_name(scenario)}" for scenario in SCENARIOS)
        raise click.UsageError(f'Option "[reset-offsets]" requires one of the following scenarios: {flags}')
    if chosen != ["from_file"] and bool(options.topic) == options.all_topics:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if chosen == ["from_file"] and (options.topic or options.all_topics):
        raise click.UsageError("--from-file names its own partitions; it goes without --topic and --all-topics")


def _scenarios(options: ConsumerGroupsOptions) -> list[str]:
    return [name for name in SCENARIOS if is_given(getattr(options, name))]


def chosen_scenario(options: ConsumerGroupsOptions, group_ids: Sequence[str]) -> Scenario:
    """What a reset is to do.

    Args:
        options: with one scenario, as `check_options` has found.
        group_ids: the groups that a file may name.

    Raises:
        click.UsageError: its value is not understood.
    """
    (name,) = _scenarios(options)
    if options.to_offset is not None:
        return Scenario(name, options.to_offset)
    if options.shift_by is not None:
        return Scenario(name, options.shift_by)
    if options.to_datetime is not None:
        return Scenario(name, parse_datetime(options.to_datetime))
    if options.by_duration is not None:
        return Scenario(name, parse_duration(options.by_duration))
    if options.from_file is not None:
        return Scenario(name, plans=read_plan(options.from_file, group_ids))
    return Scenario(name)
