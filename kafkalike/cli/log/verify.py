"""`kafkalike verify`: find damage in a cluster's logs; `--repair` repairs tables."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import cluster_options, key_options, keys_of, topic_filter, version_option
from kafkalike.cli.output import output_option
from kafkalike.cli.progress import progress
from kafkalike.errors import KafkaError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.model.clock import Deadline

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.verify.table_damage import DamagedTable
    from kafkalike.maintenance.verify.verify_report import Report
    from kafkalike.model.transactions.transaction_views import LostPart


@click.command(epilog="Example: kafkalike verify --topic 'orders.*' --output json")
@cluster_options
@click.option("--topic", metavar="REGEX", help="Topics to check; default all.")
@output_option("report")
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option(
    "--replicas",
    is_flag=True,
    help="Also compare the replicas of each table, byte by byte, up to the published version.",
)
@click.option("--repair", is_flag=True, help="Print how damaged tables would be repaired; --execute repairs them.")
@click.option("--execute", is_flag=True, help="Repair them, then check.")
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Check only the certificate of 'kafkalike forget'; with its keys, also that no record with a key is left.",
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
    offsets and generations of groups. A record in another partition than its key hashes to is a warning, because an
    explicit partition or another partitioner may have chosen it.

    With --repair, damaged files of table logs and control tables are listed with their repair. With --execute, the
    files are moved to `__damaged` below the root, and the tables become readable and writable again.

    With --certificate, the files that held forgotten records must be removed, and no such record may be back. With the
    keys, no file of these topics may have a record with a key; their bytes elsewhere, as in values, are a warning.

    With --replicas, all replicas in sync must have the same versions and data files. Replicas out of sync, and roots
    that do not answer, are a warning.

    Exit code 0: sound, 1: findings.
    """
    from kafkalike.maintenance.verify import verify as verify_run

    check_flags(repair=repair, execute=execute, as_json=as_json)
    cluster = environment.existing(bootstrap_server, command_config)
    named = keys_of(keys, key_files, key_format)
    if certificate is not None:
        if repair or topic is not None:
            raise click.UsageError("--certificate names the topics to check itself: leave --topic and --repair out")
        _print(_certified(cluster, certificate, named), as_json=as_json, strict=strict)
        return
    if named:
        raise click.UsageError("keys need --certificate")
    allowed = topic_filter(topic)
    if repair:
        sound = repair_tables(cluster, allowed, control=topic is None, execute=execute, say=click.echo)
        if not execute:
            click.get_current_context().exit(0 if sound else 1)
    names = sorted(name for name in verify_run.known_topics(cluster) if allowed(name))
    if topic is not None and not names:
        raise UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist as expected")
    with progress("verify", lambda: verify_run.total_bytes(cluster, names), in_bytes=True) as advance:
        report = verify_run.verify(cluster, names, lambda size: advance(size, ""))
    if replicas:
        from kafkalike.maintenance.verify.repair import check_replicas

        with progress("verify: replicas"):
            report.findings += check_replicas(cluster, allowed)
    _print(report, as_json=as_json, strict=strict)


def _print(report: Report, *, as_json: bool, strict: bool) -> None:
    """Print the findings; exit with 1 after errors."""
    if as_json:
        click.echo(json.dumps(_as_json(report, strict=strict)))
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
    with progress("verify: certificate"):
        return check_certificate(cluster, parse_certificate(text), keys)


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
"""Timeout (ms) of a transaction's repair in the queue of writers of the groups' table."""

NO_EXECUTE = "WARN: No action will be performed as the --execute option is missing."


def repair_tables(
    cluster: Cluster, allowed: Callable[[str], bool], *, control: bool, execute: bool, say: Callable[[str], None]
) -> bool:
    """Repair damaged tables, first the control tables, which list the topics.

    Args:
        cluster: the cluster.
        allowed: filter of topic names.
        control: repair the control tables, too.
        execute: repair; else only print the plan.
        say: prints a line.

    Returns:
        True if nothing is damaged, or all damage was repaired.
    """
    with contextlib.suppress(LogCorruptError):
        # Refuses a root of a newer format, whose files only look damaged to this release.
        cluster.metadata.refresh()
    sound = _whole_replicas(cluster, allowed, execute=execute, say=say)
    for table in _damaged(cluster, allowed, control=control, say=say):
        for line in table.plan():
            say(f"DAMAGED {line}")
        sound = (execute and _repaired(cluster, table, say)) and sound
    # A damaged table of the groups is repaired here, or its damage is printed.
    with contextlib.suppress(LogCorruptError):
        for lost in cluster.transactions.damaged() if control else ():
            say(f"DAMAGED {_sentence(lost)}")
            sound = (execute and _left_out(cluster, lost, say)) and sound
    if sound and not execute:
        say("There is no damage that a repair could mend.")
    elif not execute:
        say(NO_EXECUTE)
    return sound


def _whole_replicas(
    cluster: Cluster, allowed: Callable[[str], bool], *, execute: bool, say: Callable[[str], None]
) -> bool:
    """Repair replicas from each other first, so that no data is dropped that a replica still has."""
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
        say("The topics are unknown until the cluster's metadata are repaired.")
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
        "later transactions enter the topic without them"
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
    """Reject combinations of flags.

    Raises:
        click.UsageError: the flags exclude each other.
    """
    if execute and not repair:
        raise click.UsageError("--execute needs --repair")
    if repair and as_json:
        raise click.UsageError("--repair prints text; leave --output json out")
