"""`kafkalike mirror`: copy topics and groups to another cluster, describe the lag of the copies, promote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kafkalike.cli.environment import Environment, SuggestingGroup, checked, pass_environment
from kafkalike.cli.options import settings_of, topic_filter, version_option
from kafkalike.cli.output import Row, counted, echo_rows, output_option
from kafkalike.cli.progress import progress
from kafkalike.errors import KafkaError, UnknownTopicOrPartitionError
from kafkalike.model.clock import utc_text

if TYPE_CHECKING:
    from kafkalike.admin.cluster_mirror import MirrorLag, SyncResult
    from kafkalike.log.cluster.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])

HEADS: Final = (
    "TOPIC",
    "PHASE",
    "VERSION",
    "SOURCE-VERSION",
    "LAG-VERSIONS",
    "LAG-BYTES",
    "LAG-SECONDS",
    "LAST-IN-STEP",
    "SOURCE",
)


def _target(command: F) -> F:
    """Add the options that name the cluster with the copies."""
    for option in (
        click.option(
            "--command-config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="Settings of both clusters, unless --source-config or --target-config is given.",
        ),
        click.option(
            "--target-config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="Settings of the target; storage.options.NAME=VALUE is for object stores.",
        ),
        click.option(
            "--target",
            "--bootstrap-server",
            "target",
            metavar="ROOT",
            help="Root of the cluster with the mirrors. Default: $KAFKALIKE_BOOTSTRAP_SERVERS, else ./kafkalike-data.",
        ),
    ):
        command = option(command)
    return command


def _topics(text: str) -> Callable[[F], F]:
    return click.option("--topic", "--topics", "topics", metavar="REGEX", help=text)


@dataclass(frozen=True, slots=True)
class _Settings:
    """Files of settings of the two clusters."""

    command: str | None
    source: str | None
    target: str | None

    def open(self, environment: Environment, root: str | None, own: str | None) -> Cluster:
        """Open the source or the target."""
        from kafkalike.connect import connect

        settings = settings_of(own or self.command)
        checked(settings)
        named, options = settings.pop("bootstrap_servers", None), settings.pop("storage_options", None)
        found: Any = environment.cluster if root is None and environment.cluster is not None else root or named
        return connect(found, options, access="spark")


@click.group(
    "mirror",
    cls=SuggestingGroup,
    invoke_without_command=True,
    epilog="Example: kafkalike mirror --source s3://near/log --target /mnt/far/log --topic 'orders.*' --every 10s",
    context_settings={"help_option_names": ["--help"]},
)
@click.option("--source", metavar="ROOT", help="Root of the cluster to copy.")
@_target
@click.option(
    "--source-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Settings of the source; storage.options.NAME=VALUE is for object stores.",
)
@_topics("Topics to mirror or describe; default: all.")
@click.option("--groups", "--group", "groups", metavar="REGEX", help="Groups whose offsets are copied; default: all.")
@click.option("--no-groups", is_flag=True, help="Do not copy committed offsets.")
@click.option("--every", metavar="DURATION", help="Repeat at this interval, such as 10s, until SIGTERM or Ctrl-C.")
@click.option("--describe", is_flag=True, help="Print the state of the mirrors; with --source, also their lag.")
@output_option("pass, or each mirror")
@version_option
@click.pass_context
def mirror(
    context: click.Context,
    /,
    *,
    source: str | None,
    target: str | None,
    command_config: str | None,
    source_config: str | None,
    target_config: str | None,
    topics: str | None,
    groups: str | None,
    no_groups: bool,
    every: str | None,
    describe: bool,
    as_json: bool,
) -> None:
    """Copy topics of another cluster, at the same offsets, with the committed offsets of its groups.

    All clients can read a copy; only its mirror writes to it until it is promoted. Each pass brings the target to one
    consistent moment of the source, with all or nothing of each transaction. Passes may overlap and may be killed: the
    next pass, or `kafkalike mirror promote`, finishes an interrupted one.

    Exit code 0: done, 1: a topic could not be mirrored.
    """
    environment = context.find_object(Environment) or Environment()
    settings = _Settings(command_config, source_config, target_config)
    if context.invoked_subcommand is not None:
        context.meta["mirror"] = (target, settings)
        return
    if describe:
        _describe(environment, settings, source, target, topics, as_json=as_json)
        return
    if source is None:
        raise click.UsageError('Missing required argument "[source]"')
    if no_groups and groups is not None:
        raise click.UsageError('Option "[groups]" can\'t be used with option "[no-groups]"')
    from kafkalike.replication.mirrors.mirror_sync import MirrorSync

    mirroring = MirrorSync(
        settings.open(environment, source, source_config),
        settings.open(environment, target, target_config),
        topic_filter(topics),
        (lambda _: False) if no_groups else topic_filter(groups),
    )
    if every is None:
        files = count(1)
        with progress("mirror") as advance:
            passed = mirroring.run(
                lambda step: advance(0, f"{counted(next(files), 'file')} copied") if step == "copied" else None
            )
        _say(passed, as_json=as_json)
        if topics is not None and not passed.topics:
            raise UnknownTopicOrPartitionError(f"Topic '{topics}' does not exist as expected")
        context.exit(0 if passed.sound else 1)
    from kafkalike.maintenance.schedule import every as repeat
    from kafkalike.maintenance.schedule import parse_duration_ms

    def again() -> None:
        try:
            _say(mirroring.run(), as_json=as_json, changes_only=True)
        except (KafkaError, OSError) as error:
            click.echo(f"Error: {error}", err=True)

    repeat(parse_duration_ms(every), again)


@mirror.command(epilog="Example: kafkalike mirror promote --target /mnt/far/log --topic 'orders.*'")
@_target
@_topics("Mirrors to promote together.")
@click.option("--all", "everything", is_flag=True, help="Promote all mirrors of the cluster.")
@click.option("--force", is_flag=True, help="Also promote a mirror with foreign writes, with the records that it has.")
@pass_environment
@click.pass_context
def promote(
    context: click.Context,
    environment: Environment,
    /,
    *,
    target: str | None,
    target_config: str | None,
    command_config: str | None,
    topics: str | None,
    everything: bool,
    force: bool,
) -> None:
    """Turn mirrors into writable topics. The source is not contacted, and later records of it are not copied.

    If a promotion is interrupted, run it again.
    """
    if (topics is None) is not everything:
        raise click.UsageError("give either --topic or --all")
    outer, settings = context.meta["mirror"]
    from kafkalike.admin import cluster_mirror as mirrors

    own = target_config or settings.target or command_config
    cluster = settings.open(environment, target or outer, own)
    wanted = topic_filter(topics)
    names = [name for name, info in sorted(cluster.topics().items()) if info.mirror is not None and wanted(name)]
    if not names:
        raise UnknownTopicOrPartitionError(
            f"{cluster.root} has no mirrors" + (f" that match '{topics}'" if topics else "")
        )
    for name, version in mirrors.promote(cluster, names, force=force).items():
        click.echo(f"Promoted topic {name} at version {version} of its source.")


def _describe(
    environment: Environment,
    settings: _Settings,
    source: str | None,
    target: str | None,
    topics: str | None,
    *,
    as_json: bool,
) -> None:
    from kafkalike.replication.mirrors.mirror_lag import mirror_lags

    cluster = settings.open(environment, target, settings.target)
    theirs = None if source is None else settings.open(environment, source, settings.source)
    found = mirror_lags(cluster, theirs, topic_filter(topics))
    if as_json:
        for standing in found:
            click.echo(json.dumps(asdict(standing)))
        return
    echo_rows(HEADS, map(_row, found), as_json=False)
    for standing in found:
        if standing.problem:
            click.echo(f"{standing.topic}: {standing.problem}", err=True)


def _row(standing: MirrorLag) -> Row:
    return (
        standing.topic,
        standing.phase,
        standing.version,
        standing.source_version,
        standing.lag_versions,
        standing.lag_bytes,
        standing.lag_seconds,
        None if standing.seen_ms is None else utc_text(standing.seen_ms),
        standing.source,
    )


def _say(passed: SyncResult, *, as_json: bool, changes_only: bool = False) -> None:
    """Print the result of a pass; problems go to standard error."""
    if as_json:
        click.echo(json.dumps(asdict(passed)))
        return
    for name, topic in passed.topics.items():
        if topic.problem:
            click.echo(f"Error: {name}: {topic.problem}", err=True)
        elif topic.version != topic.before or not changes_only:
            restarted = ", restarted at a checkpoint" if topic.restarted else ""
            click.echo(f"{name}: version {topic.before} -> {topic.version}, {topic.bytes} bytes{restarted}")
    if passed.offsets:
        click.echo(counted(passed.offsets, "committed offset"))
    if passed.held and not changes_only:
        click.echo(f"unchanged at the target: groups {', '.join(passed.held)}")
