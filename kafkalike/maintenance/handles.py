"""Handles: open the cluster of a correction, check its arguments, and choose the tasks for its data files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.connect import check_there, connect
from kafkalike.errors import BrokerNotAvailableError, IllegalArgumentError
from kafkalike.maintenance.file_tasks import IN_PROCESS, SparkTasks, Tasks
from kafkalike.model.clock import Clock, utc_text
from kafkalike.model.config.storage_options import Address, StorageOptionsLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def opened(bootstrap_servers: Address | None, storage_options: StorageOptionsLike | None, *, writes: bool) -> Cluster:
    """Open the cluster.

    Raises:
        UnsafeStorageError: `writes` is set, and the root is read-only here.
    """
    cluster = connect(bootstrap_servers, storage_options)
    check_there(cluster)
    if writes:
        cluster.store.coordination.check_writable()
    return cluster


def past_ms(as_of: datetime, clock: Clock) -> int:
    """Convert a time that a user gave to ms since the epoch.

    Args:
        as_of: the time, with a zone.
        clock: the current time.

    Raises:
        IllegalArgumentError: it has no zone, or is in the future.
    """
    if as_of.tzinfo is None:
        raise IllegalArgumentError(f"the time {as_of} needs a zone, such as datetime.now(UTC) has")
    # A float would lose a millisecond.
    found = (as_of - _EPOCH) // timedelta(milliseconds=1)
    if found > clock.now_ms():
        raise IllegalArgumentError(f"{utc_text(found)} is in the future; leave the time out for now")
    return found


def lies_below(path: Path, cluster: Cluster) -> bool:
    """Return whether a file of this machine lies below any root of the cluster."""
    folders = [root for root in cluster.root.split(",") if "://" not in root]
    return any(path.resolve().is_relative_to(Path(root).resolve()) for root in folders)


def check_in_sync(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise if a replica of the topics may keep records that are about to be removed.

    Raises:
        BrokerNotAvailableError: a replica is out of sync, or its root does not answer.
    """
    for topic in topics:
        found = cluster.replication.replicas(topic)
        away = sorted({*found.replicas, *found.isr} - (set(found.isr) - set(found.offline)))
        if away:
            raise BrokerNotAvailableError(
                f"{topic}: broker {', '.join(map(str, away))} gives no answer or is not in sync, and would keep the "
                "records. Bring it back and run `kafkalike replicate`, or have its replica elsewhere "
                "(`kafkalike reassign-partitions`), then try again; nothing was done"
            )


def tasks_of(spark: SparkSession | None) -> Tasks:
    """Return the tasks that read and write files: Spark's, or this process."""
    if spark is None:
        return IN_PROCESS
    return SparkTasks(spark)
