"""Maintenance of control tables: `__cluster_metadata` and `__consumer_offsets` in, only rows that still matter left.

Also removes what killed deletions of topics have left. A control table is loaded by every client that opens the
cluster, so it is its length that a start costs.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.clock import Deadline
from kafkalike.log.delta_cluster import live_topic
from kafkalike.log.layout import CLUSTER_METADATA, CONSUMER_OFFSETS, DELETED
from kafkalike.log.storage import LocalFiles
from kafkalike.log.vacuum import Delays, leftovers, vacuum
from kafkalike.model.control_rows import kept_group_rows, kept_metadata_rows

if TYPE_CHECKING:
    from kafkalike.log.control import DeltaControlLog
    from kafkalike.log.delta_cluster import DeltaCluster
    from kafkalike.model.cluster_state import MetadataRow
    from kafkalike.model.group_state import GroupRow

METADATA_KEEP_MS: Final = 30 * 86_400_000
"""How long, ms, every row of `__cluster_metadata` stays: who changed what, and why log starts moved."""

GROUPS_KEEP_MS: Final = 6 * 3_600_000
GROUPS_KEEP_ROWS: Final = 50_000
"""How long, ms, every row of `__consumer_offsets` stays, and how many at most: how lag moved over the last hours."""

MIN_GAIN: Final = 64
"""Rows that must go, or files that must be merged, for a compaction to be worth a table version."""

READER_MS: Final = 600_000
"""How long, ms, files stay for a client that is just reading them; one that comes too late reads the table anew."""


def control_tables(cluster: DeltaCluster) -> list[str]:
    """Names of the control tables that exist; none where maintenance cannot reach them."""
    names = (CLUSTER_METADATA, CONSUMER_OFFSETS)
    return [n for n in names if cluster.local and Path(cluster.root, n, "_delta_log").is_dir()]


def compact_control(cluster: DeltaCluster, table: str, *, dry_run: bool) -> tuple[int, int]:
    """Keep the rows that make up the state, and recent ones.

    Returns:
        Rows before and after.

    Raises:
        KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `DeltaControlLog.compact`.
    """
    now = cluster.clock.now_ms()

    def metadata(rows: Sequence[MetadataRow]) -> Sequence[MetadataRow]:
        return kept_metadata_rows(rows, now - METADATA_KEEP_MS)

    def groups(rows: Sequence[GroupRow]) -> Sequence[GroupRow]:
        return kept_group_rows(rows, now - GROUPS_KEEP_MS, GROUPS_KEEP_ROWS)

    if table == CLUSTER_METADATA:
        return _compact(cluster.metadata, metadata, dry_run=dry_run)
    return _compact(cluster.groups, groups, dry_run=dry_run)


def _compact(log: DeltaControlLog, keep, *, dry_run: bool) -> tuple[int, int]:  # type: ignore[no-untyped-def,type-arg] # noqa: ANN001
    rows = log.rows
    kept = max(1, len(keep(rows))) if rows else 0
    worth = len(rows) - kept >= MIN_GAIN or len(log.live_files()) >= MIN_GAIN
    if dry_run or not worth:
        return len(rows), kept if worth else len(rows)
    before, after = log.compact(keep)
    return int(before), int(after)


def vacuum_control(cluster: DeltaCluster, table: str) -> int:
    """Remove data files that the table no longer names, and entries of its log past their retention.

    Returns:
        How many files went.
    """
    files = LocalFiles(f"{cluster.root}/{table}")
    log = cluster.metadata if table == CLUSTER_METADATA else cluster.groups
    delays = Delays(deleted_ms=READER_MS, replaced_ms=READER_MS)
    due = leftovers(files, log.live_files, cluster.clock.now_ms(), delays)
    if due:
        # A writer that was stopped before its commit, and did not wait for the lock, may have one of them in hand.
        log.fence()
    gone = list(vacuum(files, due, log.live_files, lambda: log.exclusive(Deadline(cluster.clock, 60_000))))
    log.tidy()
    return len(gone)


def clear_deleted(cluster: DeltaCluster) -> list[str]:
    """Remove the tables in `__deleted`: of deleted topics, and what creations of topics have put aside.

    The metadata are read from nothing for it; a table whose topic is alive stays.

    Returns:
        What stayed and why, one sentence for each such table.

    Raises:
        LogCorruptError: the metadata cannot be read; nothing was removed.
    """
    folder = Path(cluster.root, DELETED)
    if not cluster.local or not folder.is_dir():
        return []
    found = list(folder.iterdir())
    state = cluster.metadata_on_disk()
    problems = []
    for table in found:
        info = live_topic(state, table.name)
        if info is None:
            shutil.rmtree(table, ignore_errors=True)
        else:
            problems.append(
                f"{DELETED}/{table.name} is the table of topic {info.name!r}, which exists, and was not removed: move "
                f"it back to {info.location}"
            )
    with contextlib.suppress(OSError):
        folder.rmdir()
    return problems
