"""`kafkalike consumer-groups`: groups listed, described, deleted and reset, as kafka-consumer-groups does."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from kafkalike.admin import KafkaAdminClient
from kafkalike.cli import group_report
from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import (
    bootstrap_option,
    client_settings,
    command_config_option,
    read_properties,
    refused,
    version_option,
    without_effect,
)
from kafkalike.cli.reset_plan import Plan, Resetter, parse_datetime, parse_duration, parse_topic, read_plan
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

REPORTS: Final = ("offsets", "members", "state", "lag")

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

STATUS: Final = {
    NoError: "Successful",
    GroupSubscribedToTopicError: "Error: Deleting offsets of a topic is forbidden while the consumer group is actively "
    "subscribed to it.",
}

NO_EXECUTE: Final = "WARN: No action will be performed as the --execute option is missing."


@click.command(epilog="Example: kafkalike consumer-groups --describe --group billing")
@bootstrap_option()
@command_config_option()
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
    "--type", is_flag=False, flag_value="", metavar="[TYPES]", help="With --list: only these; all are classic."
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
@click.option("--execute", is_flag=True, help="Set them.")
@click.option("--export", is_flag=True, help="Print them as CSV.")
@without_effect("--timeout", "nothing is waited for")
@refused("--validate-regex", "groups are not subscribed by RE2 expressions")
@refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@version_option
@pass_environment
def consumer_groups(
    environment: Environment,
    /,
    bootstrap_server: str | None,
    command_config: str | None,
    **given: Any,  # noqa: ANN401 - click's
) -> None:
    """List, describe, delete and reset consumer groups."""
    action = _action(given)
    _check(action, given)
    settings = client_settings(read_properties(command_config))
    command = Command(environment, bootstrap_server, settings, given)
    _print(getattr(command, action)())
    if command.failed:
        click.get_current_context().exit(1)


def _action(given: Mapping[str, Any]) -> str:
    chosen = [action for action in ACTIONS if given[f"do_{action}"]]
    if len(chosen) != 1:
        message = (
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets or --delete-offsets"
        )
        raise click.UsageError(message)
    return chosen[0]


def _check(action: str, given: Mapping[str, Any]) -> None:
    for option, actions in ALLOWED.items():
        if _is_given(given[option]) and action not in actions:
            message = f'Option "[{_flag(option)}]" can\'t be used with option "[{_flag(action)}]"'
            raise click.UsageError(message)
    if action != "list" and bool(given["group"]) == given["all_groups"]:
        message = f'Option "[{_flag(action)}]" takes one of these options: --group, --all-groups'
        raise click.UsageError(message)
    for text in given["topic"]:
        parse_topic(text)
    if action == "describe":
        _check_describe(given)
    if action == "delete_offsets" and (len(given["group"]) != 1 or not given["topic"]):
        message = 'Option "[delete-offsets]" takes the following options: --group (once), --topic'
        raise click.UsageError(message)
    if action == "reset_offsets":
        _check_reset(given)


def _check_describe(given: Mapping[str, Any]) -> None:
    if sum(_is_given(given[report]) for report in REPORTS) > 1:
        message = 'Option "[describe]" takes at most one of these options: --offsets, --members, --state, --lag'
        raise click.UsageError(message)
    if given["state"]:
        message = 'Option "[describe]" does not take a value for "[state]"'
        raise click.UsageError(message)


def _check_reset(given: Mapping[str, Any]) -> None:
    if given["dry_run"] and given["execute"]:
        message = 'Option "[reset-offsets]" only accepts one of --execute and --dry-run'
        raise click.UsageError(message)
    chosen = [scenario for scenario in SCENARIOS if _is_given(given[scenario])]
    if len(chosen) != 1:
        flags = ", ".join(f"--{_flag(scenario)}" for scenario in SCENARIOS)
        message = f'Option "[reset-offsets]" requires one of the following scenarios: {flags}'
        raise click.UsageError(message)
    if chosen != ["from_file"] and bool(given["topic"]) == given["all_topics"]:
        message = "One of the reset scopes should be defined: --all-topics, --topic."
        raise click.UsageError(message)
    if chosen == ["from_file"] and (given["topic"] or given["all_topics"]):
        message = "--from-file names its own partitions; it goes without --topic and --all-topics"
        raise click.UsageError(message)


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _print(lines: Iterator[str]) -> None:
    """Print lines with one write."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        click.echo(text, nl=False)


class Command:
    """One run; a method for each action, which gives the lines to print.

    Args:
        environment: clock and cluster.
        bootstrap_server: names the cluster, unless the settings do.
        settings: of the admin client.
        given: the options.
    """

    def __init__(
        self,
        environment: Environment,
        bootstrap_server: str | None,
        settings: dict[str, Any],
        given: Mapping[str, Any],
    ) -> None:
        named = bootstrap_server or settings.pop("bootstrap_servers", None)
        self.failed = False
        """Whether anything was refused."""
        self._cluster = environment.connect(named)
        self._admin = KafkaAdminClient(clock=environment.clock, bootstrap_servers=self._cluster, **settings)
        self._clock = environment.clock
        self._given = given
        self._beyond_end: Callable[[str], Iterator[str]] = lambda _: iter(())
        """What is said of a group's offsets above the log end, where lags are looked at."""

    def _refuse(self, message: str) -> None:
        self.failed = True
        click.echo(f"Error: {message}", err=True)

    def _groups(self) -> list[str]:
        if self._given["all_groups"]:
            return [group["group_id"] for group in self._admin.list_groups()]
        return list(dict.fromkeys(self._given["group"]))

    def list(self) -> Iterator[str]:
        """Lines of `--list`."""
        types, states = self._given["type"], self._given["state"]
        groups = self._admin.list_groups(states_filter=_items(states), types_filter=_items(types))
        if types is None and states is None:
            yield from (group_report.shown(group["group_id"]) for group in groups)
        else:
            yield from group_report.listing(groups, types=types is not None, states=states is not None)

    def describe(self) -> Iterator[str]:
        """Lines of `--describe`; groups that do not exist, and the state of the others, go to standard error."""
        groups = []
        for group in self._admin.describe_groups(self._groups()).values():
            if group["group_state"] == "Dead":
                self._refuse(f"Consumer group '{group['group_id']}' does not exist.")
            else:
                groups.append(group)
        report = self._report([group["group_id"] for group in groups])
        for group in groups:
            told = group_report.notice(group)
            if told is not None:
                click.echo(told, err=True)
            _print(report(group))
            for line in self._beyond_end(group["group_id"]):
                click.echo(line, err=True)
        yield from ()

    def _report(self, group_ids: Sequence[str]) -> Callable[[group_report.Description], Iterator[str]]:
        """What makes the lines of a group."""
        verbose = self._given["verbose"]
        if self._given["members"]:
            return partial(group_report.members, verbose=verbose)
        if self._given["state"] is not None:
            return partial(group_report.state, coordinator=f"{self._cluster.root} (1)", verbose=verbose)
        from kafkalike.lag.measure import Lags

        lags = Lags(self._cluster)
        self._beyond_end = partial(group_report.beyond_end, lags=lags)
        if self._given["lag"]:
            from kafkalike.cli.lag_report import lag_lines, rates_now

            rates = rates_now(lags, group_ids, self._clock.now_ms())
            return lambda group: lag_lines(group["group_id"], lags, rates)
        return partial(group_report.offsets, lags=lags, verbose=verbose)

    def delete(self) -> Iterator[str]:
        """Lines of `--delete`."""
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
        """Lines of `--delete-offsets`."""
        (group_id,) = self._given["group"]
        topics = self._cluster.topics()
        wanted: dict[TopicPartition, str | None] = {}
        for topic, numbers in map(parse_topic, self._given["topic"]):
            known = topics[topic].partitions if topic in topics else [-1]
            wanted.update({TopicPartition(topic, p): None for p in (known if numbers is None else numbers)})
        try:
            outcomes = self._admin.delete_group_offsets(group_id, wanted)
        except GroupIdNotFoundError:
            self._refuse(f"Consumer group '{group_id}' does not exist.")
            return
        if all(outcome is NoError for outcome in outcomes.values()):
            yield f"Request succeeded for deleting offsets from group {group_id}."
        else:
            self._refuse("Encountered some partition-level error, see the follow-up details.")
        rows = [
            (
                tp.topic,
                group_report.MISSING if tp.partition < 0 else str(tp.partition),
                STATUS.get(outcome, "Error: This server does not host this topic-partition."),
            )
            for tp, outcome in sorted(outcomes.items())
        ]
        yield from group_report.table(("TOPIC", "PARTITION", "STATUS"), rows, (15, 10, 15), {0})

    # --- resetting -----------------------------------------------------------------------------

    def reset_offsets(self) -> Iterator[str]:
        """Lines of `--reset-offsets`; a group with members is refused, the others are reset."""
        groups = self._groups()
        scenario = next(name for name in SCENARIOS if _is_given(self._given[name]))
        value = self._value(scenario, groups)
        if not self._given["dry_run"] and not self._given["execute"]:
            click.echo(NO_EXECUTE, err=True)
        resetter = Resetter(
            self._admin,
            {name: info.topic_id for name, info in self._cluster.topics().items()},
            self._clock.now_ms(),
            lambda text: click.echo(f"WARN: {text}", err=True),
        )
        described = self._admin.describe_groups(groups)
        # All plans first: what cannot be done for one group is known before another is changed.
        plans = {
            name: resetter.plan(name, scenario, value, self._scope(name))
            for name in groups
            if self._is_inactive(name, described[name]["group_state"])
        }
        if self._given["execute"]:
            plans = {name: plan for name, plan in plans.items() if self._execute(resetter, name, plan)}
        if self._given["export"]:
            yield from _csv(plans, with_group=len(groups) != 1)
            return
        rows = [
            (name, tp.topic, str(tp.partition), str(offset))
            for name, plan in plans.items()
            for tp, offset in sorted(plan.items())
        ]
        yield from group_report.table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (30, 30, 10, 15), {0, 1})

    def _value(self, scenario: str, groups: Sequence[str]) -> Any:  # noqa: ANN401 - of any option
        given = self._given[scenario]
        if scenario == "to_datetime":
            return parse_datetime(given)
        if scenario == "by_duration":
            return parse_duration(given)
        return read_plan(given, groups) if scenario == "from_file" else given

    def _scope(self, group_id: str) -> Sequence[TopicPartition]:
        if self._given["all_topics"]:
            return sorted(self._admin.list_consumer_group_offsets(group_id))
        chosen: dict[TopicPartition, None] = {}
        for topic, numbers in map(parse_topic, self._given["topic"]):
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

    def _execute(self, resetter: Resetter, group_id: str, plan: Plan) -> bool:
        outcomes = resetter.execute(group_id, plan)
        refused = {tp: outcome for tp, outcome in outcomes.items() if outcome is not NoError}
        for tp, outcome in refused.items():
            self._refuse(f"Group '{group_id}', {tp.topic}-{tp.partition} was not reset: {outcome.__name__}")
        return not refused


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _csv(plans: Mapping[str, Plan], *, with_group: bool) -> Iterator[str]:
    for group_id, plan in plans.items():
        for tp, offset in sorted(plan.items()):
            cells = (tp.topic, tp.partition, offset)
            line = io.StringIO()
            csv.writer(line, lineterminator="").writerow((group_id, *cells) if with_group else cells)
            yield line.getvalue()
