"""Verify: read a cluster and report damage.

Files are read in batches of about 16 MiB. Records that are appended during the run are ignored.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalike.connect import check_there, connect
from kafkalike.delta.layout import SCHEMAS, TOPIC_SCHEMA
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.delta.table_state import load_table
from kafkalike.errors import BrokerResponseError, KafkaError, KafkaStorageError, LogCorruptError
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.maintenance.verify import log_rules
from kafkalike.maintenance.verify.file_check import check_segment, files_of, misplaced_keys
from kafkalike.maintenance.verify.topic_history import list_commits
from kafkalike.maintenance.verify.verify_report import Finding, VerifyReport
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


Progress = Callable[[int], None]


def verify(
    bootstrap_servers: Address | None = None,
    topics: str | Iterable[str] | None = None,
    progress: Progress = lambda _: None,
    *,
    groups: bool = True,
    storage_options: StorageOptionsLike | None = None,
) -> VerifyReport:
    """Read a cluster's files, and report damage.

    Every partition must hold every offset from log start to log end once, readable and in order. Also checked: file
    statistics, the tables' columns, commits by foreign writers, committed offsets, and schemas.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        topics: the name of an existing topic, or names; None: all topics.
        progress: called with the bytes of each file after it was read.
        groups: whether to check the rows of the offsets table, for all topics, and the schemas.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.

    Raises:
        UnknownTopicOrPartitionError: a topic does not exist.
        KafkaConnectionError: the root does not exist.

    Example:
        >>> from kafkalike import KafkaProducer, verify
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     _ = producer.send("orders", b"tea")
        >>> report = verify(cluster)
        >>> report.records, report.errors()
        (1, 0)
    """
    # Offline, because a damaged cluster may not even open.
    cluster = connect(bootstrap_servers, storage_options, access="offline")
    if cluster is not bootstrap_servers:
        check_there(cluster)
    report = VerifyReport()
    for name in known_topics(cluster) if topics is None else [topics] if isinstance(topics, str) else topics:
        verify_topic(cluster, name, report, progress)
    if groups:
        verify_groups(cluster, report)
        verify_schemas(cluster, report)
    return report


def known_topics(cluster: Cluster) -> list[str]:
    """Return the names of all topics; none if the metadata cannot be read, which `verify` reports."""
    try:
        return sorted(cluster.topics())
    except LogCorruptError:
        return []


def total_bytes(cluster: Cluster, topics: Iterable[str]) -> int:
    """Return the bytes of all files that a run over these topics reads; topics that cannot be opened count as 0."""
    total = 0
    for name in topics:
        try:
            total += sum(cluster.disk_usage(name).values())
        except KafkaError:
            # The run itself reports the problem.
            continue
    return total


def verify_topic(cluster: Cluster, name: str, report: VerifyReport, progress: Progress = lambda _: None) -> None:
    """Check one topic: its table's schema and commits, its partitions, every file, and the offsets committed in it.

    A topic whose storage does not answer is a finding, and later topics are still checked.

    Args:
        cluster: the cluster.
        name: an existing topic.
        report: receives the findings and counts.
        progress: called with the bytes of each file after it was read.
    """
    report.topics += 1
    try:
        _check_topic(cluster, name, report, progress)
    except (KafkaStorageError, OSError) as error:
        report.findings.append(Finding(kind="table", message=_unread(error), topic=name))


def _unread(error: KafkaStorageError | OSError) -> str:
    return str(error) if isinstance(error, KafkaStorageError) else f"its storage gives no answer: {error}"


def _check_topic(cluster: Cluster, name: str, report: VerifyReport, progress: Progress) -> None:
    try:
        log = cluster.log(name)
        log.refresh()
    except (LogCorruptError, BrokerResponseError) as error:
        report.findings += _damaged(cluster, cluster.topic(name)) or [
            Finding(kind="table", message=str(error), topic=name)
        ]
        return
    info = log.info
    live = {p: range(log.log_start(p), log.log_end(p)) for p in info.partitions}
    report.findings += _damaged(cluster, info)
    report.findings += [
        Finding(kind="foreign-rule", message=f"its table: {refusal}", topic=name)
        for refusal in getattr(log, "foreign_rules", list)()
    ]
    report.findings += _table_findings(cluster, info)
    for partition in info.partitions:
        report.partitions += 1
        segments = tuple(log.segments(partition))
        holes = log.holes_below(partition)
        report.findings += log_rules.check_coverage(name, partition, segments, live[partition], holes_below=holes)
        checks = []
        for segment in segments:
            report.findings += log_rules.check_place(name, segment)
            checks.append(check_segment(cluster, log, segment, report))
            report.segments += 1
            report.records += checks[-1].records
            progress(segment.size_bytes)
        report.findings += misplaced_keys(name, partition, checks)
    with contextlib.suppress(LogCorruptError):
        # The check of the offsets table reports it.
        groups = cluster.groups.refresh()
        report.findings += log_rules.check_committed(groups, name, info.topic_id, live)
        report.findings += log_rules.check_ahead(name, log.last_transaction, groups.seq)


def verify_groups(cluster: Cluster, report: VerifyReport) -> None:
    """Check the offsets table: numbers, generations, commits of replaced members, and transactions.

    Metadata that cannot be read although their files are intact are a finding, too.
    """
    try:
        damaged = _damaged(cluster, None)
        report.findings += damaged
    except (KafkaStorageError, OSError) as error:
        report.findings.append(Finding(kind="groups-table", message=_unread(error)))
        return
    except LogCorruptError as error:
        # With several roots, the metadata name the locations of the other tables.
        report.findings.append(Finding(kind="table", message=str(error)))
        return
    try:
        cluster.metadata.refresh()
    except LogCorruptError as error:
        if not damaged:
            report.findings.append(Finding(kind="table", message=str(error)))
    try:
        rows = cluster.groups.rows
        report.findings += [*log_rules.check_group_rows(rows), *log_rules.check_transaction_rows(rows)]
        report.findings += log_rules.check_lost(cluster.transactions.damaged())
    except LogCorruptError as error:
        if not damaged:
            report.findings.append(Finding(kind="groups-table", message=str(error)))
    except (KafkaStorageError, OSError) as error:
        report.findings.append(Finding(kind="groups-table", message=_unread(error)))


def verify_schemas(cluster: Cluster, report: VerifyReport) -> None:
    """Check the schemas' table: numbers, ids and references."""
    try:
        report.findings += log_rules.check_schema_rows(cluster.schemas.rows)
    except LogCorruptError as error:
        if not any(finding.message.startswith(f"{SCHEMAS}/") for finding in report.findings):
            report.findings.append(Finding(kind="schemas-table", message=str(error)))
    except (KafkaStorageError, OSError) as error:
        report.findings.append(Finding(kind="schemas-table", message=_unread(error)))


def _damaged(cluster: Cluster, info: TopicInfo | None) -> list[Finding]:
    """Return findings about damaged files of a topic's table log, or of the control tables."""
    from kafkalike.maintenance.verify.table_damage import damaged_tables

    tables = damaged_tables(cluster, [] if info is None else [info], control=info is None)
    return [finding for table in tables for finding in table.findings()]


def _table_findings(cluster: Cluster, info: TopicInfo) -> list[Finding]:
    files = files_of(cluster, info)
    if files is None:
        return []
    try:
        snapshot = load_snapshot(files)
        found = _delta_kinds(json.loads(snapshot.metadata()["schemaString"]))
        live = load_table(files, segment_of).index
        return [
            *log_rules.check_schema(info.name, "its table", found, _delta_kinds(TOPIC_SCHEMA)),
            *log_rules.check_partitions(info.name, sorted({s.partition for s in live}), info.num_partitions),
            *log_rules.check_commits(info.name, list_commits(cluster, info.name)),
        ]
    except (KafkaError, OSError, KeyError, ValueError) as error:
        return [Finding(kind="table-log", message=str(error), topic=info.name)]


def _delta_kinds(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a table in Delta's schema, with their types."""
    return {str(field["name"]): json.dumps(field["type"]) for field in schema["fields"]}
