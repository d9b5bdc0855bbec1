"""`kafkalike maintain`: plan or run retention, compaction, merging and vacuum, and print the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.options import cluster_options, topic_filter, version_option
from kafkalike.cli.output import counted, output_option
from kafkalike.cli.progress import progress
from kafkalike.errors import KafkaError, UnknownTopicOrPartitionError
from kafkalike.model.clock import utc_text

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.maintenance_run import MaintenanceReport, TopicReport

WORKS: Final = ("retention", "compaction", "merge", "vacuum", "control")
HEADS: Final = ("TOPIC", "WORK", "SEGMENTS", "RECORDS", "BYTES", "DETAILS")
SERVER_DEFAULT: Final = "default"
"""`--every` without a duration: the server's `log.retention.check.interval.ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str | None
    only: tuple[str, ...]
    dry_run: bool
    max_minutes: float | None
    every: str | None
    as_json: bool
    report_file: str | None
    metrics_file: str | None


@click.command(epilog="Example: kafkalike maintain --topic 'orders.*' --dry-run")
@cluster_options
@click.option("--topic", metavar="REGEX", help="Topics to maintain; default all.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(WORKS),
    help="Do this only; repeatable. control: transactions, expired offsets, control tables, files of deleted topics.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print the work that is due, and when retention has more; change nothing."
)
@click.option(
    "--max-minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Start no new work after this time (exit code 3).",
)
@click.option(
    "--every",
    is_flag=False,
    flag_value=SERVER_DEFAULT,
    metavar="DURATION",
    help="Repeat at this interval, such as 30s, 5m or 1h, until SIGTERM or Ctrl-C. Default of DURATION: the server's "
    "log.retention.check.interval.ms.",
)
@output_option("run")
@click.option(
    "--report", "report_file", metavar="FILE", type=click.Path(dir_okay=False), help="Write the report as JSON."
)
@click.option(
    "--metrics-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write figures for Prometheus's textfile collector.",
)
@version_option
@pass_options(MaintainOptions)
def maintain(environment: Environment, options: MaintainOptions) -> None:
    """Apply the settings of topics: retention, compaction, file sizes and removal of files.

    \b
    retention   retention.ms, retention.bytes, records below the log start
    compaction  cleanup.policy=compact: the last value of each key
    merge       adjacent small files into large ones
    vacuum      unreferenced files, after file.delete.delay.ms
    control     hanging transactions, control tables, expired offsets

    Runs may overlap and may be killed: a topic is maintained by one run at a time, and the next run finishes an
    interrupted one.

    Exit code 0: done, 1: something failed, 3: time ran out and the next run continues.
    """  # noqa: D301 - click wants the backspace itself
    cluster = environment.existing(options.bootstrap_server, options.command_config)
    if options.every is None:
        code = _once(environment, cluster, options)
        click.get_current_context().exit(code)
    from kafkalike.maintenance.schedule import every, parse_duration_ms

    text = options.every
    check = cluster.server.get("log.retention.check.interval.ms")
    every(
        int(check) if text == SERVER_DEFAULT else parse_duration_ms(text), lambda: _again(environment, cluster, options)
    )


def _again(environment: Environment, cluster: Cluster, options: MaintainOptions) -> None:
    """Run once for `--every`; print an error as one line, so that the next turn follows."""
    from kafkalike.connect import check_there

    try:
        check_there(cluster)
        _once(environment, cluster, options)
    except (KafkaError, OSError) as error:
        click.echo(f"Error: {error}", err=True)


def _once(environment: Environment, cluster: Cluster, options: MaintainOptions) -> int:
    from kafkalike.maintenance.maintenance_report import write_metrics
    from kafkalike.maintenance.maintenance_run import maintain

    allowed = topic_filter(options.topic)
    names = sorted(name for name in cluster.topics() if allowed(name))
    if options.topic is not None and not names:
        raise UnknownTopicOrPartitionError(f"Topic '{options.topic}' does not exist as expected")
    with progress("maintain", lambda: len(names)) as advance:
        report = maintain(
            cluster,
            names,
            clock=environment.clock,
            works=options.only or WORKS,
            dry_run=options.dry_run,
            timeout_ms=None if options.max_minutes is None else options.max_minutes * 60_000,
            spark=environment.spark(),
            progress=lambda topic, what: advance(what == "finished", f"{topic}: {what}"),
        )
    if options.report_file:
        Path(options.report_file).write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
    if options.metrics_file:
        write_metrics(report, options.metrics_file)
    if options.as_json:
        click.echo(json.dumps(report.as_dict()))
    else:
        for line in lines(report):
            click.echo(line)
    return report.exit_code


def lines(report: MaintenanceReport) -> Iterator[str]:
    """Yield the report as text: a table of the work, problems, one line of totals."""
    from kafkalike.maintenance.maintenance_report import DONE

    rows = [row for topic in report.topics for row in _rows(topic)]
    if report.dry_run:
        later = [(topic.topic, topic.next_retention_ms) for topic in report.topics]
        rows += [
            (name, "next", "", "", "", f"retention, from {utc_text(ms)} on") for name, ms in later if ms is not None
        ]
    rows += [
        (c.table, "control", f"{c.vacuumed_files}", f"{c.rows_before} -> {c.rows_after}", "", "rows")
        for c in report.control
        if c.rows_after != c.rows_before or c.vacuumed_files
    ]
    if rows:
        yield from _table([HEADS, *rows])
    for topic in report.topics:
        for problem in topic.problems:
            yield f"{topic.topic}: {problem}"
    yield from report.problems
    statuses = ["due" if report.dry_run and topic.status == DONE else topic.status for topic in report.topics]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    what = "Dry run, nothing was changed" if report.dry_run else f"Run {report.run}"
    others = "".join(f", {counted(count, noun)} {text}" for count, noun, text in _beside_topics(report) if count)
    yield f"{what}: {counted(len(statuses), 'topic')} ({counts or 'none'}){others}, {report.seconds:.1f} s"


def _beside_topics(report: MaintenanceReport) -> Iterator[tuple[int, str, str]]:
    """Yield the work outside of topics: number and noun of the things, and their fate."""
    yield report.finished_transactions, "transaction", "finished"
    yield report.aborted_transactions, "transaction", "aborted after their timeout"
    yield report.forgotten_transactional_ids, "transactional id", "forgotten"
    yield report.expired_offsets, "offset", "expired"
    yield report.cleared_folders, "folder", "of deleted topics"
    yield report.cleared_replicas, "unassigned replica", "removed"


Row = tuple[str, str, str, str, str, str]


def _rows(topic: TopicReport) -> Iterator[Row]:
    name = topic.topic
    if topic.log_starts or topic.deleted_segments:
        moved = ", ".join(f"{p}: {start} -> {stop}" for p, (start, stop) in sorted(topic.log_starts.items()))
        details = f"log start {moved}" if moved else "below the log start"
        counts = (f"{topic.deleted_segments}", f"{topic.deleted_records}", f"{topic.deleted_bytes}")
        yield (name, "retention", *counts, details)
    if topic.held_segments:
        yield name, "held", f"{topic.held_segments}", "", "", f"unread by {', '.join(topic.held_by)}"
    if topic.compaction_reasons:
        why = ", ".join(f"{p}: {reason}" for p, reason in sorted(topic.compaction_reasons.items()))
        counts = (f"{topic.compacted_segments}", f"{topic.compacted_records}", f"{topic.compacted_bytes}")
        yield (name, "compaction", *counts, why)
    if topic.merged_segments:
        files = f"{topic.merged_segments} -> {topic.merged_files}"
        yield name, "merge", files, "", f"{topic.merged_bytes}", ""
    if topic.vacuumed_files:
        yield name, "vacuum", f"{topic.vacuumed_files}", "", f"{topic.vacuumed_bytes}", "files"


def _table(rows: Sequence[Row]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        left = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        right = [text.rjust(width) for text, width in zip(row[2:5], widths[2:5], strict=True)]
        yield "  ".join([*left, *right, row[5]]).rstrip()
