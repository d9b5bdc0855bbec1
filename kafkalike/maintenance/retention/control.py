"""Control: what a run does beside the topics: transactions, offsets, control tables, what the killed have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaError
from kafkalike.log.group.group_expiry import expire_offsets
from kafkalike.maintenance.retention.report import ControlReport, MaintenanceReport
from kafkalike.maintenance.retention.transactions import maintain_transactions
from kafkalike.maintenance.staging.folder import clear_staging
from kafkalike.maintenance.upkeep.change import COMMIT_TIMEOUT_MS, only_run
from kafkalike.maintenance.upkeep.control_tables import (
    DELETED,
    LOCKS,
    STAGING,
    clear_deleted,
    clear_folders,
    clear_locks,
    compact_control,
    control_tables,
    vacuum_control,
)
from kafkalike.maintenance.upkeep.dead_tables import clear_dead_tables
from kafkalike.model.clock import Clock, Deadline

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

CONTROL: Final = "~control"
"""Stands for the control tables where one run at a time is let in; `~` cannot be part of a topic's name."""


def maintain_control(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    """Settle transactions, expire offsets, compact the control tables, remove leftovers of the killed; fill the report.

    A failure is written into the report and keeps nothing else back.
    """
    if not control_tables(cluster):
        # Nothing was ever written here, and looking must not make a folder.
        return
    with only_run(cluster, CONTROL) as mine:
        if not mine:
            return
        maintain_transactions(cluster, report, clock)
        _expire(cluster, report, clock)
        for name in control_tables(cluster):
            table = ControlReport(table=name)
            report.control.append(table)
            try:
                table.rows_before, table.rows_after = compact_control(cluster, name, dry_run=report.dry_run)
                if not report.dry_run:
                    table.vacuumed_files = vacuum_control(cluster, name)
            except (KafkaError, OSError) as error:
                table.problem = f"{type(error).__name__}: {error}"
                report.problems.append(f"{name}: {table.problem}")
        if not report.dry_run:
            _clear_leftovers(cluster, report, clock)


def _clear_leftovers(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    try:
        report.cleared_folders = clear_folders(cluster)
        report.cleared_folders += clear_dead_tables(cluster, report.problems.append)
    except (KafkaError, OSError) as error:
        report.problems.append(f"folders of topics: {type(error).__name__}: {error}")
    try:
        report.problems += clear_deleted(cluster)
    except (KafkaError, OSError) as error:
        report.problems.append(f"{DELETED}: {type(error).__name__}: {error}")
    if cluster.several:
        try:
            report.cleared_replicas = cluster.replication.clear_former()
        except (KafkaError, OSError) as error:
            report.problems.append(f"former replicas: {type(error).__name__}: {error}")
    try:
        clear_staging(cluster.store, Deadline(clock, COMMIT_TIMEOUT_MS), clock)
    except KafkaError as error:
        report.problems.append(f"{STAGING}: {type(error).__name__}: {error}")
    try:
        clear_locks(cluster)
    except (KafkaError, OSError) as error:
        report.problems.append(f"{LOCKS}: {type(error).__name__}: {error}")


def _expire(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    if report.dry_run:
        return
    try:
        done = expire_offsets(cluster, clock)
    except (KafkaError, OSError) as error:
        report.problems.append(f"offsets: {type(error).__name__}: {error}")
        return
    report.expired_offsets = sum(map(len, done.expired.values())) + sum(map(len, done.orphaned.values()))
