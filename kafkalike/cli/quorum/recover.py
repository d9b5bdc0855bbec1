"""`kafkalike recover`: others take over from roots that are lost, and what is lost with them is said."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_members import Recovery


@click.command(epilog="Example: kafkalike recover --from /mnt/a --dry-run")
@bootstrap_option()
@command_config_option()
@click.option("--from", "source", metavar="ROOT", required=True, help="A root that is left.")
@click.option("--voters", metavar="IDS", help="Brokers that vote from then on, such as 1,2,4; default: those left.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done, and what is lost.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@version_option
@pass_environment
def recover(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    source: str,
    voters: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Have other voters take over from roots that are lost for good, and take these out of all chains.

    It is never run by itself. A root that does not answer counts as lost: where that is not so, and a majority of the
    voters is among them, they go on by themselves when they are back, and the cluster is two. So it is to be run when
    they are known to be lost, or are kept from being used. With a majority of the voters left, nothing can be lost, and
    nothing can go wrong.

    What is, or may be, lost is printed, and written into the metadata.
    """
    ids = None if voters is None else [_id(part) for part in voters.split(",")]
    cluster = environment.existing(bootstrap_server or source, command_config)
    found = cluster.replication.recover(source, ids, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(asdict(found)))
        return
    for line in lines(found, dry_run=dry_run):
        click.echo(line)


def _id(part: str) -> int:
    if not part.strip().isdecimal():
        raise click.UsageError(f"--voters must be ids of brokers, such as 1,2,3; not {part!r}")
    return int(part)


def lines(found: Recovery, *, dry_run: bool) -> list[str]:
    """What is printed."""
    voters = ", ".join(map(str, found.voters))
    if not found.lost and not found.done:
        said = ["All voters answer: there is nothing to recover."]
    elif dry_run:
        said = [f"Brokers {voters} would vote from here on; the newest version of the metadata is {found.version}."]
    else:
        said = [f"Brokers {voters} vote from version {found.version} of the metadata on."]
    if found.lost:
        said.append(f"Voters that give no answer: brokers {', '.join(map(str, found.lost))}.")
    if found.adopted:
        said.append(f"Versions {', '.join(map(str, found.adopted))} were under way, and are there now.")
    said += [f"LOST? {finding}." for finding in found.findings]
    if found.lost and found.sure:
        said.append("A majority of the voters answers: nothing that was decided is lost.")
    return said
