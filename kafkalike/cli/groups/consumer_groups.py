"""`kafkalike consumer-groups`: groups listed, described, deleted and reset, as kafka-consumer-groups does."""

from __future__ import annotations

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.groups.group_actions import Actions, print_lines
from kafkalike.cli.groups.group_options import ConsumerGroupsOptions, check_options, chosen_action
from kafkalike.cli.options import bootstrap_option, command_config_option, refused, version_option, without_effect


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
@pass_options(ConsumerGroupsOptions)
def consumer_groups(environment: Environment, options: ConsumerGroupsOptions) -> None:
    """List, describe, delete and reset consumer groups."""
    action = chosen_action(options)
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
