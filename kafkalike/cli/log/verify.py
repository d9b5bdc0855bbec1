"""`kafkalike verify`: says what is wrong with a cluster's logs, and where; `--repair` mends damaged tables."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import (
    bootstrap_option,
    command_config_option,
    key_options,
    keys_of,
    topic_filter,
    version_option,
)
from kafkalike.errors import KafkaError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.model.clock import Deadline

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.verify.table_damage import DamagedTable
    from kafkalike.maintenance.verify.verify_report import Report
    from kafkalike.model.transactions.transaction_views import LostPart


@click.command(epilog="Example: kafkalike verify --topic 'orders.*' --json")
@bootstrap_option()
@command_config_option()
@click.option("--topic", metavar="REGEX", help="Topics to check; default all.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option(
    "--replicas", is_flag=True, help="Also compare the replicas of each table, byte by byte, up to what is published."
)
@click.option("--repair", is_flag=True, help="Say how damaged tables would be repaired; do it with --execute.")
@click.option("--execute", is_flag=True, help="Repair them, then check.")
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Check what 'kafkalike forget' has written there, and nothing else; with its keys, also that none is left.",
)
@key_options
@version_option
@pass_environment
def verify(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str | None,
    as_json: bool,
    strict: bool,
    replicas: bool,
    repair: bool,
    execute: bool,
    certificate: str | None,
    keys: tuple[str, ...],
    key_files: tuple[str, ...],
    key_format: str,
) -> None:
    """Check that every partition holds every offset from log start to log end once, readable and in order.

    Reads all data files. Also checked: file statistics, the tables' columns, commits by foreign writers, committed
    offsets and generations of groups. Records in another partition than the one their key hashes to are a warning, as
    an explicit partition or another partitioner may have put them there.

    With --repair, damaged files of table logs and control tables are listed with what would be done about each; with
    --execute, the files are moved to `__damaged` below the root and the tables made readable and writable again.

    With --certificate, the files that held forgotten records must be gone, and no such record be back. With the keys
    also: no record with one in any file of these topics. Their bytes elsewhere, as in values, are a warning.

    With --replicas, all replicas in sync must have the same versions and data files; those that are not in sync, or
    whose root gives no answer, are a warning.

    Exit code 0: sound, 1: something is wrong.
    """
    from kafkalike.maintenance.verify import verify as verify_run

    check_flags(repair=repair, execute=execute, as_json=as_json)
    cluster = environment.existing(bootstrap_server, command_config)
    named = keys_of(keys, key_files, key_format)
    if certificate is not None:
        if repair or topic is not None:
            raise click.UsageError("--certificate says itself what is checked: leave --topic and --repair out")
        _print(_certified(cluster, certificate, named), as_json=as_json, strict=strict)
        return
    if named:
        raise click.UsageError("keys belong to --certificate")
    allowed = topic_filter(topic)
    if repair:
        sound = repair_tables(cluster, allowed, control=topic is None, execute=execute, say=click.echo)
        if not execute:
            click.get_current_context().exit(0 if sound else 1)
    names = sorted(name for name in verify_run.known_topics(cluster) if allowed(name))
    if topic is not None and not names:
        raise UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist as expected")
    with _progress(cluster, names, verify_run.total_bytes) as advance:
        report = verify_run.verify(cluster, names, advance)
    if replicas:
        from kafkalike.maintenance.verify.repair import check_replicas

        report.findings += check_replicas(cluster, allowed)
    _print(report, as_json=as_json, strict=strict)


def _print(report: Report, *, as_json: bool, strict: bool) -> None:
    """Print what was found; errors make exit code 1."""
    if as_json:
        click.echo(json.dumps(_as_json(report, strict=strict), indent=2))
    else:
        for line in _lines(report, strict=strict):
            click.echo(line)
    if report.errors(strict=strict):
        click.get_current_context().exit(1)


def _certified(cluster: Cluster, path: str, keys: Sequence[bytes]) -> Report:
    """Check a certificate.

    Raises:
        click.ClickException: it cannot be read, or the cluster has no tables.
    """
    from kafkalike.maintenance.verify.certificate_file import check_certificate
    from kafkalike.model.maintenance.record_removal import parse_certificate

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as cause:
        raise click.ClickException(f"{path} cannot be read: {cause}") from cause
    return check_certificate(cluster, parse_certificate(text), keys)


@contextmanager
def _progress(
    cluster: Cluster, names: Sequence[str], measure: Callable[[Cluster, Sequence[str]], int]
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, when that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = ("Reading", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("read", total=measure(cluster, names))
        yield lambda size: bar.advance(task, size)


def _counts(report: Report, *, strict: bool) -> dict[str, int]:
    errors = report.errors(strict=strict)
    return {
        "topics": report.topics,
        "partitions": report.partitions,
        "segments": report.segments,
        "records": report.records,
        "errors": errors,
        "warnings": len(report.findings) - errors,
    }


def _as_json(report: Report, *, strict: bool) -> dict[str, object]:
    return {
        "sound": report.errors(strict=strict) == 0,
        **_counts(report, strict=strict),
        "findings": [finding.as_dict() for finding in report.findings],
    }


def _lines(report: Report, *, strict: bool) -> Iterator[str]:
    yield from map(str, report.findings)
    counts = _counts(report, strict=strict)
    yield "Checked " + ", ".join(f"{counts[what]} {what}" for what in ("topics", "partitions", "segments", "records"))
    yield f"{counts['errors']} errors, {counts['warnings']} warnings"


TIMEOUT_MS = 60_000
"""How long a repair of a transaction queues behind the writers of the groups' table, ms."""

NO_EXECUTE = "WARN: No action will be performed as the --execute option is missing."


def repair_tables(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, execute: bool, say: Callable[[str], None]
) -> bool:
    """Repair what is damaged, the control tables first: they say which topics there are.

    Args:
        cluster: where.
        allowed: which topics.
        control: whether the control tables are looked at too.
        execute: do it; else only say it.
        say: prints a line.

    Returns:
        Whether there is nothing damaged, or all of it was repaired.
    """
    with contextlib.suppress(LogCorruptError):
        # A root of a newer format is refused here: what looks damaged may be what this release does not know.
        cluster.metadata.refresh()
    sound = _whole_replicas(cluster, allowed, execute=execute, say=say)
    for table in _damaged(cluster, allowed, control=control, say=say):
        for line in table.plan():
            say(f"DAMAGED {line}")
        sound = (execute and _repaired(cluster, table, say)) and sound
    # A groups' table that was damaged is readable again now, or is not, which was said.
    with contextlib.suppress(LogCorruptError):
        for lost in cluster.transactions.damaged() if control else ():
            say(f"DAMAGED {_sentence(lost)}")
            sound = (execute and _left_out(cluster, lost, say)) and sound
    if sound and not execute:
        say("Nothing is damaged that a repair could mend.")
    elif not execute:
        say(NO_EXECUTE)
    return sound


def _whole_replicas(
    cluster: Cluster, allowed: Callable[[str], bool], *, execute: bool, say: Callable[[str], None]
) -> bool:
    """Before anything is given up: what one replica has damaged, another one may have whole."""
    from kafkalike.maintenance.verify.repair import repair_replicas

    sound = True
    for line in repair_replicas(cluster, allowed, dry_run=not execute):
        say(f"{'REPAIRED' if execute else 'DAMAGED'} {line}")
        sound = execute
    return sound


def _damaged(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, say: Callable[[str], None]
) -> Iterator[DamagedTable]:
    from kafkalike.maintenance.verify.table_damage import damaged_tables

    if control:
        yield from damaged_tables(cluster, [])
    try:
        topics = cluster.topics()
    except LogCorruptError:
        say("The topics are not known before the cluster's metadata are repaired.")
        return
    yield from damaged_tables(cluster, [topics[n] for n in sorted(topics) if allowed(n)], control=False)


def _repaired(cluster: Cluster, table: DamagedTable, say: Callable[[str], None]) -> bool:
    from kafkalike.maintenance.verify.repair import repair

    try:
        for line in repair(cluster, table):
            say(f"REPAIRED {line}")
    except KafkaError as error:
        say(f"NOT REPAIRED {error}")
        return False
    return True


def _sentence(lost: LostPart) -> str:
    return (
        f"{lost.why}; {sum(lost.counts.values())} records of transactional id {lost.transactional_id!r} are lost, and "
        "later transactions come into the topic without them"
    )


def _left_out(cluster: Cluster, lost: LostPart, say: Callable[[str], None]) -> bool:
    try:
        cluster.transactions.leave_out(lost, Deadline(cluster.clock, TIMEOUT_MS))
    except KafkaError as error:
        say(f"NOT REPAIRED {error}")
        return False
    say(f"REPAIRED transaction {lost.seq} leaves topic {lost.topic!r} out")
    return True


def check_flags(*, repair: bool, execute: bool, as_json: bool) -> None:
    """Refuse flags that mean nothing together.

    Raises:
        click.UsageError: saying which.
    """
    if execute and not repair:
        raise click.UsageError("--execute needs --repair")
    if repair and as_json:
        raise click.UsageError("--repair prints text; leave --json out")
