"""`kafkalike metadata-quorum` and `recover`: describe the voters of the metadata, and replace lost voters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, SuggestingGroup, keep_where, pass_environment, where
from kafkalike.cli.options import bootstrap_option, cluster_options, command_config_option, version_option
from kafkalike.cli.output import Cell, Row, echo_rows, output_option

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_protocol import MetadataQuorum, QuorumMember, Recovery


HEADS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


@click.group(
    "metadata-quorum",
    cls=SuggestingGroup,
    epilog="Example: kafkalike metadata-quorum --bootstrap-server /mnt/a,/mnt/b,/mnt/c describe --status",
    context_settings={"help_option_names": ["--help"]},
)
@bootstrap_option("--bootstrap-controller")
@command_config_option()
@version_option
@click.pass_context
def metadata_quorum(context: click.Context, /, *, bootstrap_server: str | None, command_config: str | None) -> None:
    """Describe the voters on the metadata: topics, leaders and brokers.

    Voters are roots without a process. They have no leader: a majority of the roots decides each change.
    """
    keep_where(context, bootstrap_server, command_config)


@metadata_quorum.command(epilog="Example: kafkalike metadata-quorum describe --replication --human-readable")
@click.option("--status", is_flag=True, help="Print the version of the metadata and the voters.")
@click.option("--replication", is_flag=True, help="Print the lag of each voter and each observer.")
@click.option("--human-readable", is_flag=True, help="With --replication: print times as text.")
@output_option("member; one for --status")
@pass_environment
@click.pass_context
def describe(
    context: click.Context,
    environment: Environment,
    /,
    *,
    status: bool,
    replication: bool,
    human_readable: bool,
    as_json: bool,
) -> None:
    """Describe the voters.

    Offsets are versions of the table __cluster_metadata. LeaderId is -1, because voters have no leader. LeaderEpoch
    counts the recoveries with other voters.
    """
    if status == replication:
        raise click.UsageError("One of --status or --replication must be specified with describe sub-command")
    quorum = environment.existing(*where(context, None, None)).replication.quorum()
    if replication:
        echo_rows(HEADS, replication_rows(quorum, human=human_readable), as_json=as_json, separator="\t")
    elif as_json:
        echo_rows(*zip(*status_values(quorum).items(), strict=True), as_json=True)
    else:
        for name, value in status_values(quorum).items():
            click.echo(f"{name + ':':<23} {json.dumps(value) if isinstance(value, list) else value}")


def status_values(quorum: MetadataQuorum) -> dict[str, Cell]:
    """Return the values of `--status`."""
    lags = [quorum.version - m.version for m in quorum.members if m.version is not None]
    return {
        "ClusterId": quorum.cluster_id,
        "LeaderId": -1,
        "LeaderEpoch": quorum.epoch,
        "HighWatermark": quorum.version + 1,
        "MaxFollowerLag": max(lags, default=0),
        "MaxFollowerLagTimeMs": -1 if not any(lags) else max(_lag_ms(quorum, m) for m in quorum.members),
        "CurrentVoters": [_named(m) for m in quorum.members if m.votes],
        "CurrentObservers": [_named(m) for m in quorum.members if not m.votes],
    }


def _lag_ms(quorum: MetadataQuorum, member: QuorumMember) -> int:
    newest = max((m.time_ms for m in quorum.members if m.version == quorum.version and m.time_ms), default=0)
    return 0 if member.version in {None, quorum.version} or not member.time_ms else max(0, newest - member.time_ms)


def _named(member: QuorumMember) -> dict[str, object]:
    return {"id": member.broker, "directoryId": member.id, "endpoints": [member.uri]}


def replication_rows(quorum: MetadataQuorum, *, human: bool) -> Iterator[Row]:
    """Yield the rows of `--replication`: one for each voter and observer, with -1 without an answer."""
    for member in quorum.members:
        answers = member.version is not None
        lag = -1 if member.version is None else quorum.version - member.version
        kind = "Voter" if member.votes else "Observer"
        yield (
            member.broker,
            member.id,
            member.log_end,
            lag,
            _time(member.time_ms, human=human),
            _time(quorum.caught_up_ms(member), human=human),
            kind if answers else f"{kind} (no answer)",
        )


def _time(time_ms: int | None, *, human: bool) -> int | str:
    if time_ms is None:
        return -1
    if not human:
        return time_ms
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


@click.command(epilog="Example: kafkalike recover --from /mnt/a --dry-run")
@cluster_options
@click.option("--from", "source", metavar="ROOT", required=True, help="A remaining root.")
@click.option("--voters", metavar="IDS", help="New voters, such as 1,2,4; default: the remaining voters.")
@click.option("--dry-run", is_flag=True, help="Only print the plan and the loss.")
@output_option("report")
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
    """Replace voters whose roots are lost for good, and remove these roots from all replica chains.

    kafkalike never runs this by itself. A root that does not answer counts as lost. If a majority of the voters is
    only unavailable, they continue on their own when they are back, and the cluster splits in two. So run this only
    for roots that are known to be lost or kept out of use. With a majority of the voters left, it is always safe and
    loses nothing.

    Prints the data that is or may be lost, and records it in the metadata.
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
    """Return the report as lines of text."""
    voters = ", ".join(map(str, found.voters))
    if not found.lost and not found.done:
        said = ["All voters answer: there is nothing to recover."]
    elif dry_run:
        said = [f"Brokers {voters} would vote from now on; the newest version of the metadata is {found.version}."]
    else:
        said = [f"Brokers {voters} vote from version {found.version} of the metadata on."]
    if found.lost:
        said.append(f"Voters without an answer: brokers {', '.join(map(str, found.lost))}.")
    if found.adopted:
        said.append(f"Versions {', '.join(map(str, found.adopted))} were unfinished, and are committed now.")
    said += [f"LOST? {finding}." for finding in found.findings]
    if found.lost and found.sure:
        said.append("A majority of the voters answers, so no decided change is lost.")
    return said
