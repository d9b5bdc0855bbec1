"""Connect: open the cluster that `bootstrap_servers` names."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, KafkaStorageError
from kafkalike.model.brokers import LEADER, AddRoot, Broker, ReadFrom
from kafkalike.model.config.client_config import default_bootstrap_servers
from kafkalike.model.config.storage_options import Address, StorageOptions, StorageOptionsLike, check_options
from kafkalike.storage.object_root import object_root

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


Access: TypeAlias = Literal["offline", "read", "write", "spark", "spark_write"]
"""The use that a caller intends to make of a cluster.

* `offline`: nothing yet; the storage is not contacted.
* `read`: only read. Reading does not need the trial of an object store, which takes up to five requests; the table of
  topics is read instead. A later write starts with the trial.
* `write`: read and possibly write.
* `spark`: let Spark's processes read the cluster, so it may not be in this process's memory.
* `spark_write`: as `spark`, and write; a root that cannot be written to is rejected before any row is computed."""


def connect(
    bootstrap_servers: Address | None = None,
    storage_options: StorageOptionsLike | None = None,
    *,
    access: Access = "write",
    read_from: ReadFrom = LEADER,
) -> Cluster:
    """Open the cluster that `bootstrap_servers` names; no folder is created before the first write.

    The first time that this process connects to an object store, it is tried out: see `Coordination.check_writable`.

    Args:
        bootstrap_servers: a path or URI (`./kafkalike-data`, `s3a://bucket/log`); several of them, as a list or
            separated by commas, which are the brokers of one cluster (any reachable one suffices once the cluster
            exists); an opened `Cluster`; or None for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else
            `./kafkalike-data`.
        storage_options: options of the object stores of all roots, by obstore's names. A dict under the URI of a root,
            or under the beginning of one, applies to that root. Environment variables such as `AWS_ACCESS_KEY_ID`
            supply missing options.
        access: what the caller intends to do; see `Access`.
        read_from: which replica serves data files in a cluster of several roots; no effect on a cluster of one root.

    Raises:
        KafkaConfigurationError: `bootstrap_servers` is anything else, or names several roots that are not of one
            cluster.
        UnsafeStorageError: the storage cannot keep several writers apart; for `spark_write`, the root can only be read.
        TopicAuthorizationFailedError: for `spark_write`, these credentials may not write there.
        KafkaConnectionError: an object store does not answer, or does not have the bucket.
    """
    cluster = _opened(bootstrap_servers, storage_options, read_from)
    if access == "offline":
        return cluster
    if access in {"spark", "spark_write"}:
        check_spark_reaches(cluster)
    if access == "read" and cluster.store.scheduler.is_remote:
        _look(cluster)
    else:
        # A store is tried out once in a process.
        cluster.store.coordination.check_writable(required=access == "spark_write")
    if access != "read":
        cluster.defaults.record_early()
    return cluster


def _look(cluster: Cluster) -> None:
    try:
        cluster.metadata.look_once()
    except KafkaStorageError as cause:
        raise KafkaConnectionError(f"{cluster.root} gives no answer: {cause}") from None


def check_spark_reaches(cluster: Cluster) -> None:
    """Refuse a cluster in this process's memory, which Spark's processes cannot read.

    Raises:
        KafkaConfigurationError: the cluster is in memory.
    """
    if cluster.store.coordination.reach == "process":
        raise KafkaConfigurationError(
            f"{cluster.root!r} is a cluster in this process's memory, which Spark's processes cannot "
            "reach: use a folder or a bucket"
        )


def _opened(
    bootstrap_servers: Address | None, storage_options: StorageOptionsLike | None, read_from: ReadFrom
) -> Cluster:
    found = _somewhere(bootstrap_servers, storage_options)
    return found if read_from == LEADER else found.reading(read_from)


def _somewhere(bootstrap_servers: Address | None, storage_options: StorageOptionsLike | None) -> Cluster:
    options = None
    if storage_options is not None:
        try:
            options = check_options(storage_options)
        except ValueError as cause:
            raise KafkaConfigurationError(f"invalid value for setting 'storage_options': {cause}") from None
    root = _root_or_cluster(bootstrap_servers)
    if not isinstance(root, str):
        if options:
            raise KafkaConfigurationError("storage_options are for a root, and bootstrap_servers is an opened cluster")
        return root
    roots = _split(root)
    if len(roots) > 1 or _is_broker(root, options):
        from kafkalike.replication.cluster.cluster_factory import open_several

        return open_several(roots, storage_options=options)
    # Options under the URI of another root may belong to a root that is added later.
    own = options if "://" in root or (options and options.given()) else None
    cluster = open_cluster(root, own, add_root=partial(_add_root, root, options))
    if cluster.store.coordination.reach == "machine":
        # In an object store, the first look at the metadata does this check.
        cluster.check_root()
    return cluster


def open_cluster(
    root: str, storage_options: StorageOptions | None = None, *, add_root: AddRoot | None = None
) -> Cluster:
    """Open the cluster at a path or URI. Nothing is created before the first write.

    Args:
        root: a path or URI.
        storage_options: options of an object store; environment variables supply the rest.
        add_root: see `Cluster`.

    Raises:
        KafkaConfigurationError, UnsafeStorageError: see `normalise_root`, `resolve_options` and `object_root`.
    """
    # Arrow takes 0.15 s of CPU, so it is imported with the first connection and not with the clients.
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.storage.local import LocalStorage
    from kafkalike.storage.root_uri import normalise_root

    normalised, local = normalise_root(root)
    if local:
        if storage_options:
            raise KafkaConfigurationError(
                f"storage_options are for object stores, and {root} is a folder of this machine"
            )
        return Cluster(LocalStorage(normalised), add_root=add_root)
    # Imported late because obstore takes 0.1 s and starts threads that do not survive a fork.
    from kafkalike.storage.objects import open_objects

    objects = open_objects(root, storage_options)
    assert objects is not None, "a root that is not a folder is in an object store"
    return Cluster(objects, add_root=add_root)


def _add_root(root: str, options: StorageOptions | None, uri: str, rack: str | None, id: int | None) -> Broker:  # noqa: A002
    from kafkalike.replication.cluster.cluster_factory import grow

    return grow(root, uri, rack=rack, id=id, options=options)


def _is_broker(root: str, options: StorageOptions | None) -> bool:
    """True if a root belongs to a cluster of several roots."""
    from kafkalike.delta.layout import BROKERS

    if "://" not in root:
        return os.path.exists(f"{root}/{BROKERS}")  # noqa: PTH110 - quick
    if object_root(root) is None:
        return False
    from kafkalike.storage.objects import open_objects

    store = open_objects(root, options)
    try:
        return store is not None and store.look(BROKERS) is not None
    except OSError:
        # The first look at the metadata raises this error again.
        return False


def check_there(cluster: Cluster) -> None:
    """Refuse a cluster whose root does not exist, because a client with older copies of the tables would not notice.

    Raises:
        KafkaConnectionError: the root does not exist, or its tables have disappeared.
    """
    if cluster.store.coordination.reach == "machine":
        cluster.check_there()


def check_founded(cluster: Cluster) -> None:
    """Refuse a place without a cluster, such as a misspelled path, which would look like an empty cluster.

    Raises:
        KafkaConnectionError: the root does not exist, or no topic was ever created there.
    """
    check_there(cluster)
    if not cluster.topics() and not cluster.metadata.state.seq:
        raise KafkaConnectionError(
            f"{cluster.root} does not hold a cluster: no topic was ever created there; check bootstrap_servers"
        )


def named_root(bootstrap_servers: Address | None = None) -> str:
    """Return the root that `bootstrap_servers` names, as given, without contacting it.

    Raises:
        KafkaConfigurationError: it names no root.
    """
    found = _root_or_cluster(bootstrap_servers)
    return found if isinstance(found, str) else found.root


def _root_or_cluster(bootstrap_servers: Address | None) -> str | Cluster:
    """Return the named roots, joined by commas, or the opened cluster that was passed."""
    named = default_bootstrap_servers() if bootstrap_servers is None else bootstrap_servers
    if hasattr(named, "metadata") and hasattr(named, "ensure_topic"):
        return cast("Cluster", named)
    roots = [part for item in (named if isinstance(named, (list, tuple)) else [named]) for part in _split(item)]
    if not roots:
        raise KafkaConfigurationError(f"bootstrap_servers must name a storage root, or several: {named!r}")
    return ",".join(roots)


def _split(item: object) -> list[str]:
    if not hasattr(item, "__fspath__") and not isinstance(item, str):
        raise KafkaConfigurationError(f"bootstrap_servers must be a path or URI, not {item!r}")
    return [part.strip() for part in str(item).split(",") if part.strip()]
