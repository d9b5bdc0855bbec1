"""`kafkalike history`, `fork`, `forget` and `undo`: read, copy and correct the history of a topic."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_environment, pass_options
from kafkalike.cli.options import (
    bootstrap_option,
    command_config_option,
    key_options,
    keys_of,
    version_option,
    whole_or_time,
)
from kafkalike.model.clock import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.correction_report import ForgetReport, PartitionPart, UndoReport


@click.command(epilog="Example: kafkalike history orders --kind retention --kind 'log start'")
@click.argument("topic")
@bootstrap_option()
@command_config_option()
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show these kinds of events only; repeatable.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show the newest N events only.")
@click.option(
    "--restore-as",
    metavar="NEW",
    help="Make topic NEW with what TOPIC held at --table-version, at the same offsets. In place it is refused: offsets "
    "would be given out twice.",
)
@click.option("--table-version", type=click.IntRange(min=0), metavar="N", help="For --restore-as.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each event.")
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
    """Show who appended, retained, compacted, merged and configured what in TOPIC.

    Read from the table's own history, as far as its log reaches back (delta.logRetentionDuration), and from the
    cluster's metadata.
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
        raise click.UsageError("--restore-as and --table-version belong together")
    made = restore_as(cluster, topic, version, new, uuid.uuid4().hex)
    click.echo(f"Created topic {made.name} with what {topic} held at version {version}.")


@click.command(epilog="Example: kafkalike fork orders orders-trial --as-of 2026-01-01T00:00:00Z")
@click.argument("topic")
@click.argument("new")
@bootstrap_option()
@command_config_option()
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
    help="A group that shall stand in NEW where it stands in TOPIC; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    """Make topic NEW with what TOPIC holds, or held, at the same offsets; no record is read.

    On a disk the files are shared by hard links and take no room; an object store copies them by itself. From then on
    the two have nothing in common: neither's maintenance or deletion touches the other.
    """
    from kafkalike.maintenance.fork import fork as fork_topic

    moment = None if as_of is None else whole_or_time(as_of, "--as-of", "a version")
    cluster = environment.cluster_of(bootstrap_server, command_config)
    made = fork_topic(
        topic,
        new,
        cluster,
        as_of=moment,
        groups=groups,
        clock=environment.clock,
    )
    if as_json:
        click.echo(json.dumps(made.as_dict()))
        return
    room = "which take no room" if made.shared == made.files else f"{made.shared} of which take no room"
    click.echo(f"Created topic {new} with what {topic} held at version {made.version}: {made.files} files, {room}.")
    for group in made.groups:
        click.echo(f"Group {group} stands where it stands in {topic}.")


HEADS: Final = ("TOPIC", "PARTITION", "RECORDS", "SEGMENTS", "BYTES")
NO_EXECUTE: Final = "Dry run, nothing was changed: --execute does it."


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str
    keys: tuple[str, ...]
    key_files: tuple[str, ...]
    key_format: str
    execute: bool
    all_partitions: bool
    tombstone: bool
    dead_letters: tuple[str, ...]
    reason: str
    now: bool
    certificate: str | None
    wait_minutes: float | None
    max_minutes: float | None
    as_json: bool


@click.command(epilog="Example: kafkalike forget --topic orders --key-file keys.txt --execute --certificate done.json")
@bootstrap_option()
@command_config_option()
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@key_options
@click.option("--execute", is_flag=True, help="Do it; without it, what would go is said and nothing is changed.")
@click.option(
    "--all-partitions",
    is_flag=True,
    help="Look at all partitions, not only at those that murmur2 names for the keys.",
)
@click.option("--tombstone", is_flag=True, help="Write a record with the key and no value first, so that readers know.")
@click.option(
    "--dead-letters",
    multiple=True,
    metavar="NAME",
    help="Dead-letter topic with letters of the topic; repeatable. Default: TOPIC.dlq, if there is one.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why, for the table's history.")
@click.option(
    "--now",
    is_flag=True,
    help="Remove the files at once. Clients of kafkalike go on; queries of other engines that run now may fail.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write what was done there, for 'kafkalike verify --certificate'; one of an unfinished run is gone on with.",
)
@click.option(
    "--wait-minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Wait so long for transactions that are open now, so that their records go too; where one goes on, nothing is "
    "done.",
)
@click.option(
    "--max-minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Begin nothing new after so long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@version_option
@pass_options(ForgetOptions)
def forget(environment: Environment, options: ForgetOptions) -> None:
    """Take all records of keys out of a topic and its dead letters; the offsets of all others stay.

    Only what is in the topic when the run begins goes. Producers, consumers and streams go on. The files that held the
    records are removed by maintenance after kafkalike.replaced.file.delay.ms.
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
    report = run(
        options.topic,
        cluster,
        keys=keys,
        dry_run=not options.execute,
        options=ForgetOptions(
            all_partitions=options.all_partitions,
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
    """The report for people."""
    yield from part_lines(report.parts)
    keys = f"{report.keys} key{'s' if report.keys != 1 else ''}"
    verb = "gone" if report.executed else "would go"
    yield f"{report.records} records of {keys} {verb}; {report.size_bytes} bytes of files are rewritten"
    if report.tombstones:
        yield f"{report.tombstones} tombstones {'written' if report.executed else 'would be written'}"
    if report.not_looked_at:
        yield (
            f"Not looked at: partitions {', '.join(map(str, report.not_looked_at))}, to which no key hashes; "
            "--all-partitions does"
        )
    for name in report.open_transactions:
        later = "what it commits later is not forgotten; run this again then, or with --wait-minutes"
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
            yield f"{report.files_removed} files removed"
        else:
            yield f"'kafkalike maintain' removes the files from {utc_text(report.gone_after_ms)} on"
    yield f"Certificate: {certificate}" if certificate else "No certificate was kept: --certificate FILE does"


def _held(records: int | None) -> str:
    if records is None:
        return "cannot be read: forget the keys there too"
    return f"has {records} records of the keys: forget them there too" if records else "has no record of the keys"


def part_lines(parts: Iterable[PartitionPart]) -> Iterator[str]:
    """A table of what goes from each partition; nothing when nothing goes."""
    rows = [(p.topic, str(p.partition), str(p.records), str(p.segments), str(p.size_bytes)) for p in parts]
    if not rows:
        return
    rows = [HEADS, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        yield "  ".join(cells)


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
    from kafkalike.maintenance.undo import undo as undo_append

    cluster = environment.cluster_of(bootstrap_server, command_config)
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
