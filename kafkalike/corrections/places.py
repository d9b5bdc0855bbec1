"""Places: where corrections are made: the cluster, and its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalike.errors import IllegalArgumentError, UnsafeStorageError
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.log.connect import check_there, connect
from kafkalike.log.upkeep.tasks import IN_PROCESS, Tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(bootstrap_servers: Any, storage_options: Any, *, writes: bool) -> DeltaCluster:  # noqa: ANN401 - see `connect`
    """The cluster.

    Raises:
        IllegalArgumentError: one in memory, whose topics have no files.
        UnsafeStorageError: it has several roots, or can only be read and is to be written.
    """
    cluster = connect(bootstrap_servers, storage_options)
    if not isinstance(cluster, DeltaCluster):
        raise IllegalArgumentError("topics of a cluster in memory have no files that could be written anew")
    check_there(cluster)
    if len(cluster.replication.brokers()) > 1:
        message = (
            f"{cluster.root} has several roots: records are not forgotten, undone or forked there, as nothing would "
            "say whether replicas that are away still have them"
        )
        raise UnsafeStorageError(message)
    if writes:
        cluster.store.check_writable()
    return cluster


def lies_below(path: Path, cluster: DeltaCluster) -> bool:
    """Whether a file of this machine lies below one of the cluster's roots."""
    if cluster.store.reach != "machine":
        return False
    return any(path.resolve().is_relative_to(Path(root).resolve()) for root in cluster.root.split(","))


def tasks_of(spark: SparkSession | None) -> Tasks:
    """Where files are read and written."""
    if spark is None:
        return IN_PROCESS
    from kafkalike.log.jvm.tasks_spark import SparkTasks

    return SparkTasks(spark)
