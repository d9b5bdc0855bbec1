"""`kafkalike undo`: the id of an append in, its records out of the topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.log.forget import NO_EXECUTE, part_lines
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option

if TYPE_CHECKING:
    from kafkalike.maintenance.corrections.report import UndoReport


@click.command(epilog="Example: kafkalike undo --topic orders --append 25e7e65ae4844fe68c29f2600105047d --execute")
@bootstrap_option()
@command_config_option()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="NAME",
    help="The topic; all topics of its transaction, where it is part of one.",
)
@click.option("--append", required=True, metavar="ID", help="The append, as 'kafkalike history' shows it.")
@click.option("--execute", is_flag=True, help="Do it; without it, what would go is said and nothing is changed.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the table's history.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@version_option
@pass_environment
def undo(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topics: tuple[str, ...],
    append: str,
    execute: bool,
    reason: str,
    as_json: bool,
) -> None:
    """Take the records of one append out again; the offsets of all others stay.

    An append that is part of a transaction is undone with all that the transaction has written, or not at all. Groups
    that have read such records are named, and stay where they are.
    """
    from kafkalike.maintenance.corrections.undo import undo as run

    cluster = environment.cluster_of(bootstrap_server, command_config)
    report = run(
        topics,
        append,
        cluster,
        execute=execute,
        reason=reason,
        spark=environment.spark(),
        clock=environment.clock,
    )
    if as_json:
        click.echo(json.dumps(report.as_dict()))
        return
    for line in lines(report):
        click.echo(line)


def lines(report: UndoReport) -> Iterator[str]:
    """The report for people."""
    yield from part_lines(report.parts)
    whose = f"append {report.append}"
    if report.transaction is not None:
        whose += f", part of transaction {report.transaction},"
    yield f"{report.records} records of {whose} {'gone' if report.executed else 'would go'}"
    if report.below_start:
        yield f"{report.below_start} are below the log start: gone already"
    if report.missing:
        yield f"{report.missing} are not there any more: compaction, or an earlier run, has taken them"
    for group in report.groups:
        yield (
            f"Group {group.group_id} has read {group.read} of these offsets in {group.topic}-{group.partition}: "
            f"it stands at {group.committed}"
        )
    if not report.executed:
        yield NO_EXECUTE
    elif report.versions:
        made = "; ".join(f"{topic}: {version}" for topic, version in report.versions.items())
        yield f"Run {report.run}, table versions {made}"
