"""`kafkalike consumer-groups`: list, describe, delete and reset groups, as kafka-consumer-groups does."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.groups import group_report, reset_plan
from kafkalike.cli.options import (
    NO_EXECUTE,
    check_belongs,
    chosen_action,
    cluster_options,
    flag_name,
    is_given,
    refused,
    settings_of,
    version_option,
    without_effect,
)
from kafkalike.cli.output import output_option
from kafkalike.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError
from kafkalike.model.structs import TopicPartition

ACTIONS: Final = ("list", "describe", "delete", "reset_offsets", "delete_offsets")

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
    "as_json": frozenset({"list", "describe", "reset_offsets", "delete_offsets"}),
    "type": frozenset({"list"}),
    "state": frozenset({"list", "describe"}),
    **dict.fromkeys(("offsets", "members", "lag", "verbose"), frozenset({"describe"})),
    **dict.fromkeys((*SCENARIOS, "dry_run", "execute", "export"), frozenset({"reset_offsets"})),
}
"""Actions that accept an option, by option."""


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
    as_json: bool


def check_options(action: str, options: ConsumerGroupsOptions) -> None:
    """Reject combinations of options.

    Raises:
        click.UsageError: two options exclude each other, or one is missing.
    """
    check_belongs(options, action, ALLOWED)
    if action != "list" and bool(options.group) == options.all_groups:
        raise click.UsageError(f'Option "[{flag_name(action)}]" takes one of these options: --group, --all-groups')
    for text in options.topic:
        reset_plan.parse_topic(text)
    if action == "describe":
        _check_describe(options)
    if action == "delete_offsets" and (len(options.group) != 1 or not options.topic):
        raise click.UsageError('Option "[delete-offsets]" takes the following options: --group (once), --topic')
    if action == "reset_offsets":
        _check_reset(options)
    if options.export and options.as_json:
        raise click.UsageError('Option "[export]" can\'t be used with option "[output]"')


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
        raise click.UsageError("--from-file names the partitions itself: leave --topic and --all-topics out")


def _scenarios(options: ConsumerGroupsOptions) -> list[str]:
    return [name for name in SCENARIOS if is_given(getattr(options, name))]


def chosen_scenario(options: ConsumerGroupsOptions, group_ids: Sequence[str]) -> reset_plan.Scenario:
    """Return the scenario of a reset.

    Args:
        options: with one scenario, as checked by `check_options`.
        group_ids: groups that a file may name.

    Raises:
        click.UsageError: the value of the scenario is malformed.
    """
    (name,) = _scenarios(options)
    if options.to_offset is not None:
        return reset_plan.Scenario(name, options.to_offset)
    if options.shift_by is not None:
        return reset_plan.Scenario(name, options.shift_by)
    if options.to_datetime is not None:
        return reset_plan.Scenario(name, reset_plan.parse_datetime(options.to_datetime))
    if options.by_duration is not None:
        return reset_plan.Scenario(name, reset_plan.parse_duration(options.by_duration))
    if options.from_file is not None:
        return reset_plan.Scenario(name, plans=reset_plan.read_plan(options.from_file, group_ids))
    return reset_plan.Scenario(name)


@click.command(epilog="Example: kafkalike consumer-groups --describe --group billing")
@cluster_options
@click.option("--list", "do_list", is_flag=True, help="Print the names of groups.")
@click.option("--describe", "do_describe", is_flag=True, help="Print the offsets, members or state of groups.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete groups with their offsets.")
@click.option("--reset-offsets", "do_reset_offsets", is_flag=True, help="Set the offsets of groups without members.")
@click.option("--delete-offsets", "do_delete_offsets", is_flag=True, help="Delete offsets of a group, with --topic.")
@click.option("--group", multiple=True, help="Group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option("--topic", multiple=True, metavar="TOPIC[:0,1]", help="Topic, or some of its partitions; repeatable.")
@click.option("--all-topics", is_flag=True, help="All partitions that the group has committed.")
@click.option("--offsets", is_flag=True, help="With --describe: offsets and lag, the default.")
@click.option("--members", is_flag=True, help="With --describe: members.")
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[STATES]", help="With --describe: state. With --list: only these."
)
@click.option(
    "--type",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list: only these types; all groups are classic.",
)
@click.option(
    "--lag", is_flag=True, help="With --describe: lag in offsets, records and seconds, rates, time to catch up."
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option("--to-earliest", is_flag=True, help="To the log start.")
@click.option("--to-latest", is_flag=True, help="To the log end.")
@click.option("--to-current", is_flag=True, help="To the committed offset, else the log end.")
@click.option("--to-offset", type=click.IntRange(min=0), help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="By N offsets, back when negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at YYYY-MM-DDTHH:mm:SS.sss (UTC) or later.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first record of that time before now.")
@click.option("--from-file", metavar="CSV", help="To the offsets of a file that --export has made.")
@click.option("--dry-run", is_flag=True, help="Only print the new offsets, the default.")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@click.option("--export", is_flag=True, help="Print the offsets as CSV.")
@output_option("group, partition or member")
@without_effect("--timeout", "the command does not wait")
@refused("--validate-regex", "groups are not subscribed by RE2 expressions")
@refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@version_option
@pass_options(ConsumerGroupsOptions)
def consumer_groups(environment: Environment, options: ConsumerGroupsOptions) -> None:
    """List, describe, delete and reset consumer groups."""
    action = chosen_action(options, ACTIONS)
    check_options(action, options)
    actions = Actions(environment, options)
    run = {
        "list": actions.list,
        "describe": actions.describe,
        "delete": actions.delete,
        "reset_offsets": actions.reset_offsets,
        "delete_offsets": actions.delete_offsets,
    }
    print_lines(run[action]())
    if actions.failed:
        click.get_current_context().exit(1)


STATUS: Final = {
    NoError: "Successful",
    GroupSubscribedToTopicError: "Error: Deleting offsets of a topic is forbidden while the consumer group is actively "
    "subscribed to it.",
}


def print_lines(lines: Iterator[str]) -> None:
    """Print lines with one write."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        click.echo(text, nl=False)


class Actions:
    """Actions of the command, each a method that yields the lines to print.

    Args:
        environment: clock and cluster.
        options: checked options of the command.
    """

    def __init__(self, environment: Environment, options: ConsumerGroupsOptions) -> None:
        settings = settings_of(options.command_config)
        self.failed = False
        """True after a failure; the command exits with 1."""
        self._cluster = environment.connect(options.bootstrap_server, settings)
        self._admin = KafkaAdminClient(clock=environment.clock, bootstrap_servers=self._cluster, **settings)
        self._clock = environment.clock
        self._options = options
        self._beyond_end: Callable[[str], Iterator[str]] = lambda _: iter(())
        """Yields warnings about offsets of a group above the log end, if the report reads lags."""

    def _refuse(self, message: str) -> None:
        self.failed = True
        click.echo(f"Error: {message}", err=True)

    def _groups(self) -> list[str]:
        if self._options.all_groups:
            return [group["group_id"] for group in self._admin.list_groups()]
        return list(dict.fromkeys(self._options.group))

    def list(self) -> Iterator[str]:
        """Yield the names of groups, or the table with types and states."""
        types, states = self._options.type, self._options.state
        groups = self._admin.list_groups(states_filter=_items(states), types_filter=_items(types))
        yield from group_report.listing(
            groups, types=types is not None, states=states is not None, as_json=self._options.as_json
        )

    def describe(self) -> Iterator[str]:
        """Print the report of each group; notices and groups that do not exist go to standard error."""
        groups = []
        for group in self._admin.describe_groups(self._groups()).values():
            if group["group_state"] == "Dead":
                self._refuse(f"Consumer group '{group['group_id']}' does not exist.")
            else:
                groups.append(group)
        report = self._report([group["group_id"] for group in groups])
        for group in groups:
            state = group_report.notice(group)
            if state is not None:
                click.echo(state, err=True)
            print_lines(report(group).lines(as_json=self._options.as_json))
            for line in self._beyond_end(group["group_id"]):
                click.echo(line, err=True)
        yield from ()

    def _report(self, group_ids: Sequence[str]) -> Callable[[group_report.Description], group_report.KafkaTable]:
        """Return the function that makes the report of a group."""
        verbose = self._options.verbose
        if self._options.members:
            return partial(group_report.members, verbose=verbose)
        if self._options.state is not None:
            return partial(group_report.state, coordinator=f"{self._cluster.root} (1)", verbose=verbose)
        from kafkalike.admin.group_lag import Lags

        lags = Lags(self._cluster)
        self._beyond_end = partial(group_report.beyond_end, lags=lags)
        if self._options.lag:
            now_ms = self._clock.now_ms()
            rates = group_report.rates_now(lags, group_ids, now_ms)
            return lambda group: group_report.lag_report(group["group_id"], lags, rates, now_ms)
        return partial(group_report.offsets, lags=lags, verbose=verbose)

    def delete(self) -> Iterator[str]:
        """Delete groups and yield the outcome."""
        done = self._admin.delete_groups(self._groups())
        deleted = ", ".join(f"'{name}'" for name, outcome in done.items() if outcome == "OK")
        failed = {name: outcome for name, outcome in done.items() if outcome != "OK"}
        if not failed:
            yield f"Deletion of requested consumer groups ({deleted}) was successful."
            return
        self._refuse("Deletion of some consumer groups failed:")
        for name, outcome in failed.items():
            yield f"* Group '{name}' could not be deleted due to: {outcome}"
        if deleted:
            yield ""
            yield f"These consumer groups were deleted successfully: {deleted}"

    def delete_offsets(self) -> Iterator[str]:
        """Delete offsets of a group and yield the outcome by partition."""
        (group_id,) = self._options.group
        topics = self._cluster.topics()
        wanted: dict[TopicPartition, str | None] = {}
        for topic, numbers in map(reset_plan.parse_topic, self._options.topic):
            known = topics[topic].partitions if topic in topics else [-1]
            wanted.update({TopicPartition(topic, p): None for p in (known if numbers is None else numbers)})
        try:
            outcomes = self._admin.delete_group_offsets(group_id, wanted)
        except GroupIdNotFoundError:
            self._refuse(f"Consumer group '{group_id}' does not exist.")
            return
        if self._options.as_json:
            self.failed = any(outcome is not NoError for outcome in outcomes.values())
        elif all(outcome is NoError for outcome in outcomes.values()):
            yield f"Request succeeded for deleting offsets from group {group_id}."
        else:
            self._refuse("Encountered some partition-level error, see the follow-up details.")
        rows = [
            (
                tp.topic,
                None if tp.partition < 0 else tp.partition,
                STATUS.get(outcome, "Error: This server does not host this topic-partition."),
            )
            for tp, outcome in sorted(outcomes.items())
        ]
        report = group_report.KafkaTable(("TOPIC", "PARTITION", "STATUS"), rows, (15, 10, 15), {0})
        yield from report.lines(as_json=self._options.as_json)

    # --- resetting -----------------------------------------------------------------------------

    def reset_offsets(self) -> Iterator[str]:
        """Reset groups and yield their new offsets; groups with members are refused."""
        groups = self._groups()
        scenario = chosen_scenario(self._options, groups)
        if not self._options.dry_run and not self._options.execute:
            click.echo(NO_EXECUTE, err=True)
        resetter = reset_plan.Resetter(
            self._admin,
            {name: info.topic_id for name, info in self._cluster.topics().items()},
            self._clock.now_ms(),
            lambda text: click.echo(f"WARN: {text}", err=True),
        )
        described = self._admin.describe_groups(groups)
        # Plan all groups before the first change, so that an impossible plan fails early.
        plans = {
            name: resetter.plan(name, scenario, self._scope(name))
            for name in groups
            if self._is_inactive(name, described[name]["group_state"])
        }
        if self._options.execute:
            plans = {name: plan for name, plan in plans.items() if self._execute(resetter, name, plan)}
        if self._options.export:
            yield from _csv(plans, with_group=len(groups) != 1)
            return
        rows = [
            (name, tp.topic, tp.partition, offset)
            for name, plan in plans.items()
            for tp, offset in sorted(plan.items())
        ]
        report = group_report.KafkaTable(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (30, 30, 10, 15), {0, 1})
        yield from report.lines(as_json=self._options.as_json)

    def _scope(self, group_id: str) -> Sequence[TopicPartition]:
        if self._options.all_topics:
            return sorted(self._admin.list_consumer_group_offsets(group_id))
        chosen: dict[TopicPartition, None] = {}
        for topic, numbers in map(reset_plan.parse_topic, self._options.topic):
            known = self._cluster.topic(topic).partitions
            chosen.update(dict.fromkeys(TopicPartition(topic, p) for p in (known if numbers is None else numbers)))
        return list(chosen)

    def _is_inactive(self, group_id: str, state: str) -> bool:
        if state in {"Empty", "Dead"}:
            return True
        self._refuse(
            f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is {state}."
        )
        return False

    def _execute(self, resetter: reset_plan.Resetter, group_id: str, plan: reset_plan.Plan) -> bool:
        outcomes = resetter.execute(group_id, plan)
        refused = {tp: outcome for tp, outcome in outcomes.items() if outcome is not NoError}
        for tp, outcome in refused.items():
            self._refuse(f"Group '{group_id}', {tp.topic}-{tp.partition} was not reset: {outcome.__name__}")
        return not refused


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _csv(plans: Mapping[str, reset_plan.Plan], *, with_group: bool) -> Iterator[str]:
    for group_id, plan in plans.items():
        for tp, offset in sorted(plan.items()):
            cells = (tp.topic, tp.partition, offset)
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow((group_id, *cells) if with_group else cells)
            yield line.getvalue()
