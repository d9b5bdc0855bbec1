"""Control maintenance: the part of a run beside topics: transactions, expired offsets, control tables, leftovers.

Leftovers come from killed deletions of topics, killed Spark writes and dead holders of locks. Every client loads the
control tables when it opens the cluster, so their length determines the cost of a start.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalike.delta.layout import CLUSTER_METADATA, CONTROL_TABLES, DELETED, LOCKS, SCHEMAS, STAGING, TRANSACTIONS
from kafkalike.delta.table_change import turns_of
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.topic_folders import dead_folders, live_topic, remove_folder, suspects, topic_id_of
from kafkalike.log.group.group_expiry import expire_offsets
from kafkalike.maintenance.maintenance_commit import COMMIT_TIMEOUT_MS, only_run
from kafkalike.maintenance.maintenance_report import ControlReport, MaintenanceReport
from kafkalike.maintenance.staging_folder import clear_staging
from kafkalike.maintenance.works.vacuum import Delays, clear_dead_tables, leftovers, vacuum
from kafkalike.model.clock import Clock, Deadline
from kafkalike.model.maintenance.control_rows import kept_group_rows, kept_metadata_rows
from kafkalike.model.schemas.registry_state import kept_schema_rows
from kafkalike.model.transactions.rules import expired
from kafkalike.model.transactions.transaction_views import TransactionState

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.row_value import ControlState
    from kafkalike.storage.port import Storage


CONTROL: Final = "~control"
"""The name of the lock that admits one run at a time to the control tables; `~` cannot be part of a topic's name."""


def maintain_control(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    """Settle transactions, expire offsets, compact the control tables and remove leftovers; fill the report.

    A failure goes into the report and does not stop the other work.
    """
    tables = control_tables(cluster)
    if not tables:
        # The cluster is empty, and a look must not create a folder.
        return
    with only_run(cluster, CONTROL) as mine:
        if not mine:
            return
        folders: Collection[str] = ()
        try:
            folders = cluster.store.folders()
        except (KafkaError, OSError) as error:
            report.problems.append(f"folders of the root: {type(error).__name__}: {error}")
        maintain_transactions(cluster, folders, report, clock)
        _expire(cluster, report, clock)
        for name in tables:
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
            _clear_leftovers(cluster, report)
            if STAGING in folders:
                _clear_staging(cluster, report, clock)


def _clear_staging(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    try:
        clear_staging(cluster.store, Deadline(clock, COMMIT_TIMEOUT_MS), clock)
    except KafkaError as error:
        report.problems.append(f"{STAGING}: {type(error).__name__}: {error}")


def _clear_leftovers(cluster: Cluster, report: MaintenanceReport) -> None:
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
        clear_locks(cluster)
    except (KafkaError, OSError) as error:
        report.problems.append(f"{LOCKS}: {type(error).__name__}: {error}")


def _expire(cluster: Cluster, report: MaintenanceReport, clock: Clock) -> None:
    if report.dry_run:
        return
    try:
        done = expire_offsets(cluster, clock, cluster.groups.state)
    except (KafkaError, OSError) as error:
        report.problems.append(f"offsets: {type(error).__name__}: {error}")
        return
    report.expired_offsets = sum(map(len, done.expired.values())) + sum(map(len, done.orphaned.values()))


TIMEOUT_MS: Final = 600_000
"""How long a run may work on transactions, ms; the next run continues."""

OWNER_MS: Final = 1_000
"""A transaction that was committed more recently is left to its producer, and is not counted as due."""

FINISH: Final = "finish"
ABORT: Final = "abort"
FORGET: Final = "forget"

Due = tuple[str, str, int, int, int]
"""The kind of work, the transactional id, and the producer id, epoch and number of its transaction."""


def maintain_transactions(cluster: Cluster, folders: Collection[str], report: MaintenanceReport, clock: Clock) -> None:
    """Settle the transactions that are due, or only count them in a dry run; fill the report.

    A failure goes into the report and does not stop the other work.

    Args:
        cluster: the cluster.
        folders: the folders of its root. Without a folder of staged files, nothing has to be removed.
        report: gets the counts and problems.
        clock: the time.
    """
    try:
        if not cluster.groups.state.transactions and TRANSACTIONS not in folders:
            return
        before = set(_due(cluster, clock))
        after: set[Due] = set()
        if not report.dry_run:
            # Even with nothing due, because it also removes unneeded files.
            problems = cluster.transactions.maintain(Deadline(clock, TIMEOUT_MS))
            report.problems += [f"transactions: {problem}" for problem in problems]
            after = set(_due(cluster, clock)) if before else set()
    except (KafkaError, OSError) as error:
        report.problems.append(f"transactions: {type(error).__name__}: {error}")
        return
    done = [what for what, *_ in before - after]
    report.finished_transactions = done.count(FINISH)
    report.aborted_transactions = done.count(ABORT)
    report.forgotten_transactional_ids = done.count(FORGET)


def _due(cluster: Cluster, clock: Clock) -> Iterator[Due]:
    transactions = cluster.transactions
    standings = cluster.groups.state.transactions
    if not standings:
        return
    expiration_ms = int(cluster.server.get("transactional.id.expiration.ms"))
    described = transactions.described(standings)
    # Not earlier: the look takes time, and a transaction would seem younger than it is.
    now_ms = clock.now_ms()
    for name, found in described.items():
        attempt = (name, found.producer_id, found.epoch, found.number)
        if found.state is TransactionState.PREPARE_COMMIT and now_ms - found.changed_ms > OWNER_MS:
            yield FINISH, *attempt
        if found.state is TransactionState.ONGOING:
            if now_ms - found.start_ms > found.timeout_ms:
                yield ABORT, *attempt
        elif name in standings and expired(standings[name], expiration_ms, now_ms):
            yield FORGET, *attempt


S = TypeVar("S", bound="ControlState")
R = TypeVar("R")


METADATA_KEEP_MS: Final = 30 * 86_400_000
"""How long, ms, every row of `__cluster_metadata` stays, as a history of changes and of log starts."""

MOVES_KEPT: Final = 10_000
"""Maximum number of log start moves of a partition in that history, because each starting client reads them."""

GROUPS_KEEP_MS: Final = 6 * 3_600_000
GROUPS_KEEP_ROWS: Final = 50_000
"""How long, ms, every row of `__consumer_offsets` stays, and how many at most, as a history of lag."""

MIN_GAIN: Final = 64
"""Minimum number of removed rows, or merged files, that makes a compaction worth a table version."""

READER_MS: Final = 600_000
"""How long, ms, files stay for a client that is reading them; a slower client reads the table again."""


def control_tables(cluster: Cluster) -> list[str]:
    """Return the names of the control tables that exist, after one look at each; their maintenance plans by it.

    The state of topics and defaults that the run read at its start may be hours old.
    """
    return [name for name in CONTROL_TABLES if _is_there(cluster, name)]


def _is_there(cluster: Cluster, table: str) -> bool:
    log = _log_of(cluster, table)
    try:
        log.refresh()
    except KafkaError:
        # The maintenance of this table will report the problem.
        return True
    return log.exists


def compact_control(cluster: Cluster, table: str, *, dry_run: bool) -> tuple[int, int]:
    """Compact a control table to the rows that make up its state, and recent ones.

    Returns:
        The number of rows before and after.

    Raises:
        KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: see `ControlLog.compact`.
    """
    now = cluster.clock.now_ms()
    if table == CLUSTER_METADATA:
        return _compact(
            cluster.metadata, lambda rows: kept_metadata_rows(rows, now - METADATA_KEEP_MS, MOVES_KEPT), dry_run=dry_run
        )
    if table == SCHEMAS:
        return _compact(cluster.schemas, kept_schema_rows, dry_run=dry_run)
    return _compact(
        cluster.groups, lambda rows: kept_group_rows(rows, now - GROUPS_KEEP_MS, GROUPS_KEEP_ROWS), dry_run=dry_run
    )


def _compact(log: ControlLog[S, R], keep: Callable[[Sequence[R]], Sequence[R]], *, dry_run: bool) -> tuple[int, int]:
    log.check_sound()
    count = log.num_rows
    if count < MIN_GAIN:
        # The possible gain is not worth a version, so skip reading rows.
        return count, count
    rows = log.rows
    kept = max(1, len(keep(rows))) if rows else 0
    worth = len(rows) - kept >= MIN_GAIN or len(log.live_files()) >= MIN_GAIN
    if dry_run or not worth:
        return len(rows), kept if worth else len(rows)
    return log.compact(keep)


def vacuum_control(cluster: Cluster, table: str) -> int:
    """Remove data files that the table does not name anymore, and expired entries of its log.

    Returns:
        The number of removed files.
    """
    files = cluster.store.at(table)
    log = _log_of(cluster, table)
    delays = Delays(deleted_ms=READER_MS, replaced_ms=READER_MS)
    due = leftovers(files, log.live_files, cluster.clock.now_ms(), delays, known=log.known_files())
    if due:
        # A writer that paused before its commit and did not wait for the lock may still use it.
        log.fence()
    if cluster.server.is_closed({}):
        log.close()
    gone = list(vacuum(files, due, log.live_files, lambda: log.exclusive(Deadline(cluster.clock, 60_000))))
    log.clean_log()
    return len(gone)


def _log_of(cluster: Cluster, table: str) -> ControlLog[Any, Any]:
    if table == CLUSTER_METADATA:
        return cluster.metadata
    return cluster.schemas if table == SCHEMAS else cluster.groups


def clear_deleted(cluster: Cluster) -> list[str]:
    """Remove the tables in `__deleted`, from deleted topics and failed creations.

    The metadata are read from scratch. A table whose topic exists stays.

    Returns:
        A sentence for each table that stayed, with the reason.

    Raises:
        LogCorruptError: the metadata cannot be read; nothing was removed.
    """
    problems: list[str] = []
    for place in _folders(cluster):
        problems += _clear_deleted(cluster, Path(place.uri, DELETED))
    return problems


def _clear_deleted(cluster: Cluster, folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    found = list(folder.iterdir())
    state = cluster.metadata_on_disk()
    problems = []
    for table in found:
        info = live_topic(state, topic_id_of(table.name))
        if info is None or Path(cluster.root, info.location, "_delta_log").is_dir():
            # If a deleted topic was created again as a mirror of its former copy, this is the table before the
            # deletion.
            shutil.rmtree(table, ignore_errors=True)
        else:
            problems.append(
                f"{DELETED}/{table.name} is the table of topic {info.name!r}, which exists, and was not removed: move "
                f"it back to {info.location}"
            )
    with contextlib.suppress(OSError):
        folder.rmdir()
    return problems


def clear_folders(cluster: Cluster) -> int:
    """Remove tables without a topic, from killed deletions and from creations that were killed or too late.

    The metadata are read from scratch. For roots in object stores see `clear_dead_tables`.

    Returns:
        The number of removed tables.

    Raises:
        LogCorruptError: the metadata cannot be read; nothing was removed.
    """
    return sum(_clear_folders(cluster, place) for place in _folders(cluster))


def _folders(cluster: Cluster) -> list[Storage]:
    """Return the cluster's roots that are folders of this machine."""
    return [place for place in cluster.places() if place.coordination.reach == "machine"]


def _clear_folders(cluster: Cluster, place: Storage) -> int:
    if not suspects(cluster.metadata.state, place.folders()):
        # The next run removes tables that were deleted since the start of this one.
        return 0
    state, now = cluster.metadata_on_disk(), cluster.clock.now_ms()
    found = list(dead_folders(place, state, now))
    if any(open_still for _, _, open_still in found):
        # A creator that paused may still use it.
        cluster.metadata.fence()
        state = cluster.metadata_on_disk()
    count = 0
    for folder, topic_id, _ in found:
        if live_topic(state, topic_id) is None:
            remove_folder(folder, Path(place.uri), topic_id)
            count += 1
    return count


def clear_locks(cluster: Cluster) -> int:
    """Remove the lock files of deleted topics; locks in use stay until the next run.

    Returns:
        The number of removed locks.
    """
    # A new topic may have such a name. Its locks in use stay, and others are created again.
    gone = list(cluster.metadata.state.gone.values())
    return cluster.store.coordination.forget_turns(
        turn for info in gone for place in {info.name, info.location} for turn in turns_of(place)
    )
