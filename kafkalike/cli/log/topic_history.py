"""`kafkalike history`, `fork`, `forget` and `undo`: read, copy and correct the history of a topic."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_environment, pass_options
from kafkalike.cli.options import cluster_options, key_options, keys_of, version_option, whole_or_time
from kafkalike.cli.output import counted, output_option
from kafkalike.cli.progress import progress
from kafkalike.model.clock import utc_text

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.correction_report import ForgetReport, PartitionPart, UndoReport


@click.command(epilog="Example: kafkalike history orders --kind retention --kind 'log start'")
@click.argument("topic")
@cluster_options
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show these kinds of events only; repeatable.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show the newest N events only.")
@click.option(
    "--restore-as",
    metavar="NEW",
    help="Create topic NEW with the records of TOPIC at --table-version, at the same offsets. A restore in place is "
    "refused, because it would assign offsets twice.",
)
@click.option("--table-version", type=click.IntRange(min=0), metavar="N", help="Version for --restore-as.")
@output_option("event")
@version_option
@pass_environment
def history(
    environment: Environment,
    /,
    *,
    topic: str,
    bootstrap_server: str | None,
    command_config: str | None,
    kinds: tuple[str, ...],
    last: int | None,
    restore_as: str | None,
    table_version: int | None,
    as_json: bool,
) -> None:
    """Show the events of TOPIC: appends, retention, compaction, merges and settings, with their authors.

    The source is the table's log, as far as it reaches back (delta.logRetentionDuration), and the cluster's metadata.
    """
    from kafkalike.maintenance.verify.topic_history import topic_history

    cluster = environment.existing(bootstrap_server, command_config)
    if restore_as is not None or table_version is not None:
        _restore(cluster, topic, restore_as, table_version)
        return
    events = topic_history(cluster, topic)
    shown = [event for event in events if not kinds or event.kind in kinds]
    for event in shown[-last:] if last else shown:
        if as_json:
            click.echo(json.dumps(event.as_dict()))
            continue
        at = utc_text(event.time_ms)
        version = "-" if event.version is None else str(event.version)
        ids = f"append {', '.join(event.appends)}" if event.appends else ""
        by = ", ".join(part for part in (event.by, event.who, ids) if part)
        click.echo(f"{at}  {version:>6}  {event.kind:<10}  {event.what}  ({by})")


def _restore(cluster: Cluster, topic: str, new: str | None, version: int | None) -> None:
    from kafkalike.maintenance.fork import restore_as

    if new is None or version is None:
        raise click.UsageError("--restore-as and --table-version need each other")
    made = restore_as(cluster, topic, version, new, uuid.uuid4().hex)
    click.echo(f"Created topic {made.name} from version {version} of {topic}.")


@click.command(epilog="Example: kafkalike fork orders orders-trial --as-of 2026-01-01T00:00:00Z")
@click.argument("topic")
@click.argument("new")
@cluster_options
@click.option(
    "--as-of",
    metavar="VERSION|TIME",
    help="A version as 'kafkalike history' lists them, or a time in ISO 8601 (without a zone: local time). "
    "Default: now.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="ID",
    help="Group whose committed offsets of TOPIC are set for NEW, too; repeatable.",
)
@output_option("report")
@version_option
@pass_environment
def fork(
    environment: Environment,
    /,
    *,
    topic: str,
    new: str,
    bootstrap_server: str | None,
    command_config: str | None,
    as_of: str | None,
    groups: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create topic NEW from TOPIC at a version or a time, with the same offsets. No record is read.

    On a disk the two topics share files by hard links, which take no space. An object store copies the files on its
    side. Maintenance or deletion of one topic does not affect the other.
    """
    from kafkalike.maintenance.fork import fork as fork_topic

    moment = None if as_of is None else whole_or_time(as_of, "--as-of", "a version")
    cluster = environment.cluster_of(bootstrap_server, command_config)
    with progress(f"fork {topic}"):
        made = fork_topic(topic, new, cluster, as_of=moment, groups=groups, clock=environment.clock)
    if as_json:
        click.echo(json.dumps(made.as_dict()))
        return
    room = "which take no space" if made.shared == made.files else f"{made.shared} of which take no space"
    click.echo(f"Created topic {new} from version {made.version} of {topic}: {counted(made.files, 'file')}, {room}.")
    for group in made.groups:
        click.echo(f"Group {group} has its committed offsets of {topic} in {new}, too.")


HEADS: Final = ("TOPIC", "PARTITION", "RECORDS", "SEGMENTS", "BYTES")
NO_EXECUTE: Final = "Dry run, nothing was changed: --execute does it."


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForgetOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str
    keys: tuple[str, ...]
    key_files: tuple[str, ...]
    key_format: str
    execute: bool
    tombstone: bool
    dead_letters: tuple[str, ...]
    reason: str
    now: bool
    certificate: str | None
    wait_minutes: float | None
    max_minutes: float | None
    as_json: bool


@click.command(epilog="Example: kafkalike forget --topic orders --key-file keys.txt --execute --certificate done.json")
@cluster_options
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@key_options
@click.option("--execute", is_flag=True, help="Do it. Default: only report the records that would be removed.")
@click.option(
    "--tombstone", is_flag=True, help="First write a record with the key and no value, as a sign for readers."
)
@click.option(
    "--dead-letters",
    multiple=True,
    metavar="NAME",
    help="Dead-letter topic with letters of the topic; repeatable. Default: TOPIC.dlq, if there is one.",
)
@click.option("--reason", default="", metavar="TEXT", help="Reason for the table's history.")
@click.option(
    "--now",
    is_flag=True,
    help="Remove the files at once. Clients of kafkalike continue; running queries of other engines may fail.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a certificate for 'kafkalike verify --certificate'. The certificate of an unfinished run is continued.",
)
@click.option(
    "--wait-minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Wait this long for open transactions, so that their records are removed, too. If one stays open, nothing is "
    "changed.",
)
@click.option(
    "--max-minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Start no new work after this time.",
)
@output_option("report")
@version_option
@pass_options(_ForgetOptions)
def forget(environment: Environment, options: _ForgetOptions) -> None:
    """Remove all records of keys from a topic and its dead letters. Other records keep their offsets.

    Records that are appended after the start of the run stay. Producers, consumers and streams continue. Maintenance
    removes the files that held the records after kafkalike.replaced.file.delay.ms.
    """
    from kafkalike.maintenance.forget import ForgetOptions
    from kafkalike.maintenance.forget import forget as run

    keys = keys_of(options.keys, options.key_files, options.key_format)
    if not keys:
        raise click.UsageError("--key or --key-file is needed")
    for flag, given in {
        "certificate": options.certificate,
        "now": options.now,
        "wait-minutes": options.wait_minutes,
    }.items():
        if given and not options.execute:
            raise click.UsageError(f"--{flag} needs --execute")
    cluster = environment.cluster_of(options.bootstrap_server, options.command_config)
    with progress(f"forget {options.topic}"):
        report = run(
            options.topic,
            cluster,
            keys=keys,
            dry_run=not options.execute,
            options=ForgetOptions(
                tombstone=options.tombstone,
                dead_letters=options.dead_letters or None,
                now=options.now,
                certificate=options.certificate,
                wait_ms=(options.wait_minutes or 0) * 60_000,
            ),
            reason=options.reason,
            timeout_ms=None if options.max_minutes is None else options.max_minutes * 60_000,
            spark=environment.spark(),
            clock=environment.clock,
        )
    if options.as_json:
        click.echo(json.dumps(report.as_dict()))
        return
    for line in lines(report, options.certificate):
        click.echo(line)


def lines(report: ForgetReport, certificate: str | None) -> Iterator[str]:
    """Yield the report as text."""
    yield from part_lines(report.parts)
    verb = "removed" if report.executed else "would be removed"
    records = f"{counted(report.records, 'record')} of {counted(report.keys, 'key')}"
    yield f"{records} {verb}; {report.size_bytes} bytes of files are rewritten"
    if report.tombstones:
        yield f"{counted(report.tombstones, 'tombstone')} {'written' if report.executed else 'would be written'}"
    for name in report.open_transactions:
        later = "records that it commits later stay; run this again after it ends, or with --wait-minutes"
        yield f"Transaction {name!r} is open: {later}"
    for names, what in ((report.copies, "was forked or restored from it"), (report.origins, "has the same origin")):
        for name in names:
            yield f"Topic {name} {what}, and {_held(report.held.get(name))}"
    if not report.executed:
        yield NO_EXECUTE
        return
    if report.versions:
        made = "; ".join(f"{topic}: {', '.join(map(str, found))}" for topic, found in report.versions.items())
        yield f"Run {report.run}, table versions {made}"
    if report.files_removed:
        yield f"{counted(report.files_removed, 'file')} removed"
    elif report.versions:
        gone = f"'kafkalike maintain' removes the files from {utc_text(report.gone_after_ms)} on"
        yield f"{gone}; another run with --now removes them at once"
    yield f"Certificate: {certificate}" if certificate else "No certificate was written: use --certificate FILE"


def _held(records: int | None) -> str:
    if records is None:
        return "cannot be read: forget the keys there, too"
    held = counted(records, "record")
    return f"has {held} of the keys: forget them there, too" if records else "has no records of the keys"


def part_lines(parts: Iterable[PartitionPart]) -> Iterator[str]:
    """Yield a table of the records of each partition; nothing without records."""
    rows = [(p.topic, str(p.partition), str(p.records), str(p.segments), str(p.size_bytes)) for p in parts]
    if not rows:
        return
    rows = [HEADS, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        yield "  ".join(cells)


@click.command(epilog="Example: kafkalike undo --topic orders --append 25e7e65ae4844fe68c29f2600105047d --execute")
@cluster_options
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="NAME",
    help="The topic; for an append of a transaction, all its topics; repeatable.",
)
@click.option("--append", required=True, metavar="ID", help="The append, as 'kafkalike history' shows it.")
@click.option("--execute", is_flag=True, help="Do it. Default: only report the records that would be removed.")
@click.option("--reason", default="", metavar="TEXT", help="Reason for the table's history.")
@output_option("report")
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
    """Remove the records of one append. Other records keep their offsets.

    An append of a transaction is undone with all records of the transaction, or not at all. The report names the groups
    that have read such records; their offsets stay.
    """
    from kafkalike.maintenance.undo import undo as undo_append

    cluster = environment.cluster_of(bootstrap_server, command_config)
    with progress(f"undo {', '.join(topics)}"):
        report = undo_append(
            topics,
            append,
            cluster,
            dry_run=not execute,
            reason=reason,
            spark=environment.spark(),
            clock=environment.clock,
        )
    if as_json:
        click.echo(json.dumps(report.as_dict()))
        return
    for line in undo_lines(report):
        click.echo(line)


def undo_lines(report: UndoReport) -> Iterator[str]:
    """Yield the report as text."""
    yield from part_lines(report.parts)
    whose = f"append {report.append}"
    if report.transaction is not None:
        whose += f", part of transaction {report.transaction},"
    yield f"{counted(report.records, 'record')} of {whose} {'removed' if report.executed else 'would be removed'}"
    if report.below_start:
        yield f"Below the log start, so removed already: {report.below_start}"
    if report.missing:
        yield f"Removed before, by compaction or an earlier run: {report.missing}"
    for group in report.groups:
        yield (
            f"Group {group.group_id} has read {group.read} of these offsets in {group.topic}-{group.partition}: "
            f"its committed offset is {group.committed}"
        )
    if not report.executed:
        yield NO_EXECUTE
    elif report.versions:
        made = "; ".join(f"{topic}: {version}" for topic, version in report.versions.items())
        yield f"Run {report.run}, table versions {made}"
