"""`kafkalike verify`: find damage in a cluster's logs; `--repair` repairs tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import cluster_options, key_options, keys_of, topic_filter, version_option
from kafkalike.cli.output import counted, output_option
from kafkalike.cli.progress import progress
from kafkalike.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.verify.verify_report import VerifyReport


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
        _print(_certified(cluster, certificate, named), ("topics", "segments"), as_json=as_json, strict=strict)
        return
    if named:
        raise click.UsageError("keys need --certificate")
    allowed = topic_filter(topic)
    if repair:
        from kafkalike.maintenance.verify.repair import repair_tables

        sound = repair_tables(cluster, allowed, control=topic is None, execute=execute, say=click.echo)
        if not execute:
            click.get_current_context().exit(0 if sound else 1)
    names = sorted(name for name in verify_run.known_topics(cluster) if allowed(name))
    if topic is not None and not names:
        raise UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist as expected")
    with progress("verify", lambda: verify_run.total_bytes(cluster, names), in_bytes=True) as advance:
        report = verify_run.verify(cluster, names, lambda size: advance(size, ""))
    if replicas:
        from kafkalike.maintenance.verify.replica_check import check_replicas

        with progress("verify: replicas"):
            report.findings += check_replicas(cluster, allowed)
    _print(report, ("topics", "partitions", "segments", "records"), as_json=as_json, strict=strict)


def _print(report: VerifyReport, extent: Sequence[str], *, as_json: bool, strict: bool) -> None:
    """Print the findings and the extent of the check; exit with 1 after errors."""
    if as_json:
        click.echo(json.dumps(_as_json(report, strict=strict)))
    else:
        for line in _lines(report, extent, strict=strict):
            click.echo(line)
    if report.errors(strict=strict):
        click.get_current_context().exit(1)


def _certified(cluster: Cluster, path: str, keys: Sequence[bytes]) -> VerifyReport:
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


def _counts(report: VerifyReport, *, strict: bool) -> dict[str, int]:
    errors = report.errors(strict=strict)
    return {
        "topics": report.topics,
        "partitions": report.partitions,
        "segments": report.segments,
        "records": report.records,
        "errors": errors,
        "warnings": len(report.findings) - errors,
    }


def _as_json(report: VerifyReport, *, strict: bool) -> dict[str, object]:
    return {
        "sound": report.errors(strict=strict) == 0,
        **_counts(report, strict=strict),
        "findings": [finding.as_dict() for finding in report.findings],
    }


def _lines(report: VerifyReport, extent: Sequence[str], *, strict: bool) -> Iterator[str]:
    yield from map(str, report.findings)
    counts = _counts(report, strict=strict)
    for begin, names in (("Checked ", extent), ("", ("errors", "warnings"))):
        yield begin + ", ".join(counted(counts[name], name.removesuffix("s")) for name in names)


def check_flags(*, repair: bool, execute: bool, as_json: bool) -> None:
    """Reject combinations of flags.

    Raises:
        click.UsageError: the flags exclude each other.
    """
    if execute and not repair:
        raise click.UsageError("--execute needs --repair")
    if repair and as_json:
        raise click.UsageError("--repair prints text; leave --output json out")
