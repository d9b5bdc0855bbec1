"""`kafkalike share-groups`: list, describe, delete and reset share groups, as kafka-share-groups does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import click

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.admin.share_group_operations import SharePartitionReport
from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.groups.group_report import KafkaTable, shown
from kafkalike.cli.groups.reset_plan import parse_datetime, parse_topic
from kafkalike.cli.options import (
    NO_EXECUTE,
    check_belongs,
    chosen_action,
    cluster_options,
    flag_name,
    refused,
    settings_of,
    version_option,
    without_effect,
)
from kafkalike.cli.output import output_option
from kafkalike.errors import KafkaError
from kafkalike.model.clock import utc_text
from kafkalike.model.structs import OffsetSpec, OffsetTimestamp, TopicPartition

ACTIONS: Final = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
SCENARIOS: Final = ("to_earliest", "to_latest", "to_datetime")

ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "group": frozenset({"describe", "delete", "reset_offsets", "delete_offsets"}),
    "all_groups": frozenset({"describe", "delete"}),
    "topic": frozenset({"reset_offsets", "delete_offsets"}),
    "all_topics": frozenset({"reset_offsets"}),
    "state": frozenset({"list", "describe"}),
    "as_json": frozenset({"list", "describe", "reset_offsets"}),
    **dict.fromkeys(("offsets", "members", "records", "verbose"), frozenset({"describe"})),
    **dict.fromkeys((*SCENARIOS, "dry_run", "execute"), frozenset({"reset_offsets"})),
}
"""Actions that accept an option, by option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupsOptions:
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
    records: bool
    state: str | None
    verbose: bool
    to_earliest: bool
    to_latest: bool
    to_datetime: str | None
    dry_run: bool
    execute: bool
    as_json: bool


def action_of(options: ShareGroupsOptions) -> str:
    """Return the action after checking the combination of options.

    Raises:
        click.UsageError: no action or several, or options that do not belong together.
    """
    action = chosen_action(options, ACTIONS)
    check_belongs(options, action, ALLOWED)
    one = action in {"reset_offsets", "delete_offsets"}
    if action != "list" and (len(options.group) != 1 if one else bool(options.group) == options.all_groups):
        wanted = "--group (once)" if one else "one of these options: --group, --all-groups"
        raise click.UsageError(f'Option "[{flag_name(action)}]" takes {wanted}')
    if sum((options.offsets, options.members, options.records, options.state is not None)) > 1:
        raise click.UsageError(
            'Option "[describe]" takes at most one of these options: --offsets, --members, --records, --state'
        )
    if action == "describe" and options.state:
        raise click.UsageError('Option "[describe]" does not take a value for "[state]"')
    if action == "delete_offsets" and not options.topic:
        raise click.UsageError('Option "[delete-offsets]" takes the option: --topic')
    if action == "reset_offsets":
        _check_reset(options)
    return action


def _check_reset(options: ShareGroupsOptions) -> None:
    if options.dry_run and options.execute:
        raise click.UsageError('Option "[reset-offsets]" only accepts one of --execute and --dry-run')
    if sum((options.to_earliest, options.to_latest, options.to_datetime is not None)) != 1:
        raise click.UsageError(
            'Option "[reset-offsets]" requires one of the following scenarios: --to-datetime, --to-earliest, '
            "--to-latest"
        )
    if bool(options.topic) == options.all_topics:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


@click.command(epilog="Example: kafkalike share-groups --describe --group work")
@cluster_options
@click.option("--list", "do_list", is_flag=True, help="Print the names of share groups.")
@click.option("--describe", "do_describe", is_flag=True, help="Print start offsets and lag, members, records or state.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete share groups without members.")
@click.option("--reset-offsets", "do_reset_offsets", is_flag=True, help="Set the start offsets of a group.")
@click.option("--delete-offsets", "do_delete_offsets", is_flag=True, help="Forget the state of topics, with --topic.")
@click.option("--group", multiple=True, help="Share group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option("--topic", multiple=True, metavar="TOPIC[:0,1]", help="Topic, or some of its partitions; repeatable.")
@click.option("--all-topics", is_flag=True, help="All partitions of the group.")
@click.option("--offsets", is_flag=True, help="With --describe: start offsets and lag, the default.")
@click.option("--members", is_flag=True, help="With --describe: members.")
@click.option(
    "--records", is_flag=True, help="With --describe: the holder of each record, since when, and its deliveries."
)
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[STATES]", help="With --describe: state. With --list: only these."
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option("--to-earliest", is_flag=True, help="To the log start.")
@click.option("--to-latest", is_flag=True, help="To the log end.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at YYYY-MM-DDTHH:mm:SS.sss (UTC) or later.")
@click.option("--dry-run", is_flag=True, help="Only print the new offsets, the default.")
@click.option("--execute", is_flag=True, help="Set the offsets.")
@output_option("group, partition, member or run of records")
@without_effect("--timeout", "the command does not wait")
@refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@version_option
@pass_options(ShareGroupsOptions)
def share_groups(environment: Environment, options: ShareGroupsOptions) -> None:
    """List, describe, delete and reset share groups."""
    action = action_of(options)
    actions = ShareGroupActions(environment, options)
    run = {
        "list": actions.list,
        "describe": actions.describe,
        "delete": actions.delete,
        "reset_offsets": actions.reset_offsets,
        "delete_offsets": actions.delete_offsets,
    }
    for line in run[action]():
        click.echo(line)
    if actions.failed:
        click.get_current_context().exit(1)


class ShareGroupActions:
    """Actions of the command, each a method that yields the lines to print.

    Args:
        environment: clock and cluster.
        options: checked options of the command.
    """

    def __init__(self, environment: Environment, options: ShareGroupsOptions) -> None:
        settings = settings_of(options.command_config)
        self.failed = False
        """True after a failure; the command exits with 1."""
        self._cluster = environment.connect(options.bootstrap_server, settings)
        self._admin = KafkaAdminClient(clock=environment.clock, bootstrap_servers=self._cluster, **settings)
        self._options = options

    def _refuse(self, message: str) -> None:
        self.failed = True
        click.echo(f"Error: {message}", err=True)

    def _groups(self) -> Sequence[str]:
        if self._options.all_groups:
            return [group["group_id"] for group in self._admin.list_share_groups()]
        return list(dict.fromkeys(self._options.group))

    def list(self) -> Iterator[str]:
        """Yield the names of groups, or the table with states."""
        states = [state for state in (self._options.state or "").split(",") if state]
        groups = self._admin.list_share_groups([state.strip() for state in states])
        if self._options.state is None and not self._options.as_json:
            yield from (shown(group["group_id"]) for group in groups)
            return
        rows = [(group["group_id"], group["group_state"]) for group in groups]
        yield from KafkaTable(("GROUP", "STATE"), rows, (15, 10), {0}).lines(as_json=self._options.as_json)

    def describe(self) -> Iterator[str]:
        """Yield the report of each group; notices and groups that do not exist go to standard error."""
        for group_id, group in self._admin.describe_share_groups(self._groups()).items():
            if group["group_state"] == "Dead":
                self._refuse(f"Share group '{group_id}' does not exist.")
                continue
            if not group["members"]:
                click.echo(f"\nShare group '{group_id}' has no active members.", err=True)
            report = self._report(group)
            if self._options.records and not report.rows:
                none = "holds no records: each record below its log end is finished or new"
                click.echo(f"Share group '{group_id}' {none}.", err=True)
            yield from report.lines(as_json=self._options.as_json)

    def _report(self, group: Mapping[str, Any]) -> KafkaTable:
        group_id, verbose = group["group_id"], self._options.verbose
        if self._options.state is not None:
            return state_report(group, f"{self._cluster.root} (1)", verbose=verbose)
        if self._options.members:
            return members_report(group)
        reports = self._admin.list_share_group_offsets([group_id])[group_id].values()
        return records_report(reports) if self._options.records else offsets_report(reports, verbose=verbose)

    def delete(self) -> Iterator[str]:
        """Delete groups and yield the outcome."""
        done = self._admin.delete_share_groups(self._groups())
        for group_id, error in done.items():
            if error is not None:
                self._refuse(f"Group '{group_id}' could not be deleted due to: {error}")
        deleted = ", ".join(f"'{shown(name)}'" for name, error in done.items() if error is None)
        if deleted:
            yield f"Deletion of requested share groups ({deleted}) was successful."

    def delete_offsets(self) -> Iterator[str]:
        """Forget topics of a group and yield the outcome."""
        (group_id,) = self._options.group
        try:
            self._admin.delete_share_group_offsets(group_id, self._options.topic)
        except KafkaError as error:
            self._refuse(str(error))
            return
        yield f"Request succeeded for deleting offsets from share group {shown(group_id)}."

    def reset_offsets(self) -> Iterator[str]:
        """Reset a group and yield its new start offsets; a group with members is refused."""
        (group_id,) = self._options.group
        spec: OffsetSpec | OffsetTimestamp = OffsetSpec.EARLIEST
        if self._options.to_latest:
            spec = OffsetSpec.LATEST
        if self._options.to_datetime is not None:
            spec = OffsetTimestamp(parse_datetime(self._options.to_datetime))
        offsets = self._admin.resolve_offsets(dict.fromkeys(self._scope(group_id), spec))
        if self._options.execute:
            try:
                self._admin.alter_share_group_offsets(group_id, offsets)
            except KafkaError as error:
                self._refuse(str(error))
                return
        elif not self._options.dry_run:
            click.echo(NO_EXECUTE, err=True)
        rows = [(group_id, *tp, offset) for tp, offset in sorted(offsets.items())]
        report = KafkaTable(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (30, 30, 10, 15), {0, 1})
        yield from report.lines(as_json=self._options.as_json)

    def _scope(self, group_id: str) -> Sequence[TopicPartition]:
        if self._options.all_topics:
            return sorted(self._admin.list_share_group_offsets([group_id])[group_id])
        return [
            TopicPartition(topic, p)
            for topic, numbers in map(parse_topic, self._options.topic)
            for p in (self._cluster.topic(topic).partitions if numbers is None else numbers)
        ]


def _assigned(member: Mapping[str, Any]) -> str | None:
    """Return a member's partitions in Kafka's form: `orders:0,1;payments:2`; None without any."""
    by_topic = groupby(member["assignment"], key=lambda tp: tp.topic)
    return ";".join(f"{topic}:{','.join(str(tp.partition) for tp in run)}" for topic, run in by_topic) or None


def state_report(group: Mapping[str, Any], coordinator: str, *, verbose: bool) -> KafkaTable:
    """Return the report of `--describe --state`."""
    heads = ("GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH", "#MEMBERS")
    row = (group["group_id"], coordinator, group["group_state"], group["group_epoch"], len(group["members"]))
    return KafkaTable(heads, [row], (15, 25, 15, 15, 0), {0, 1}, () if verbose else (3,))


def members_report(group: Mapping[str, Any]) -> KafkaTable:
    """Return the report of `--describe --members`."""
    heads = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    rows = [
        (group["group_id"], m["member_id"], m["client_host"], m["client_id"], len(m["assignment"]), _assigned(m))
        for m in group["members"]
    ]
    return KafkaTable(heads, rows, (15, 15, 15, 15, 15, 0), {0, 1, 2, 3}, needs_rows=True)


def offsets_report(reports: Iterable[SharePartitionReport], *, verbose: bool) -> KafkaTable:
    """Return the report of `--describe --offsets`."""
    heads = ("GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG", "LOG-END-OFFSET", "ACQUIRED", "SCHEDULED")
    rows = [
        (found.group_id, *found.tp, found.start_offset, found.lag, found.log_end, found.acquired, found.scheduled)
        for found in reports
    ]
    hidden = () if verbose else (5, 6, 7)
    return KafkaTable(heads, rows, (15, 15, 10, 15, 15, 15, 10, 0), {0, 1}, hidden, needs_rows=True)


def records_report(reports: Iterable[SharePartitionReport]) -> KafkaTable:
    """Return the report of `--describe --records`, which Kafka does not have."""
    heads = (
        *("GROUP", "TOPIC", "PARTITION", "FIRST-OFFSET", "LAST-OFFSET", "STATE", "DELIVERY-COUNT", "CONSUMER-ID"),
        *("SINCE", "UNTIL"),
    )
    rows = [
        (
            *(found.group_id, *found.tp, run.first, run.last, run.state.name.lower(), run.deliveries),
            run.member_id or None,
            utc_text(run.since_ms) if run.since_ms else None,
            utc_text(run.until_ms) if run.until_ms else None,
        )
        for found in reports
        for run in found.share.runs
    ]
    return KafkaTable(heads, rows, (15, 15, 10, 15, 15, 13, 15, 15, 25, 0), {0, 1, 7}, needs_rows=True)
