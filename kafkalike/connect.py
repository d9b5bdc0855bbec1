"""Connect: what `bootstrap_servers` names in, a cluster out."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from kafkalike.errors import KafkaConfigurationError, KafkaConnectionError, KafkaStorageError
from kafkalike.model.brokers import LEADER, Broker, ReadFrom
from kafkalike.model.config.client_config import default_bootstrap_servers
from kafkalike.model.config.storage_options import Address, StorageOptions, StorageOptionsLike, check_options
from kafkalike.storage.object_root import object_root

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


Access: TypeAlias = Literal["offline", "read", "write", "spark", "spark_write"]
"""What a caller is going to do with a cluster.

* `offline`: nothing yet; its storage is not contacted.
* `read`: write nothing. What is read does not rest on the trial of an object store, which takes up to five requests;
  the table of topics is read instead. A write, should there be one, is preceded by the trial.
* `write`: write, perhaps.
* `spark`: let processes of Spark read it, which reach no cluster in this process's memory.
* `spark_write`: the same, and write: what cannot be written is refused before a row is computed.
"""


def connect(
    bootstrap_servers: Address | None = None,
    storage_options: StorageOptionsLike | None = None,
    *,
    access: Access = "write",
    read_from: ReadFrom = LEADER,
) -> Cluster:
    """Open the cluster that `bootstrap_servers` names; no folder is made before the first write.

    An object store is tried out the first time that this process connects to it: see `Coordination.check_writable`.

    Args:
        bootstrap_servers: a path or URI (`./kafkalike-data`, `s3a://bucket/log`); several of them as a list, or with
            commas between them, which are the brokers of one cluster, and any one that is there suffices once it was
            made; an opened `Cluster`; or None for the environment variable `KAFKALIKE_BOOTSTRAP_SERVERS`, else
            `./kafkalike-data`.
        storage_options: of an object store: a dict by obstore's names. Environment variables
            such as `AWS_ACCESS_KEY_ID` say what it does not. They hold for all roots in object stores; a dict in it,
            under the URI of a root or the beginning of one, holds for that root.
        access: what the caller is going to do; see `Access`.
        read_from: where data files are read in a cluster of several roots. Without effect on a cluster of one root.

    Raises:
        KafkaConfigurationError: for anything else; for several roots that are not of one cluster.
        UnsafeStorageError: when the storage cannot keep several writers apart; to `spark_write`, when the root can only
            be read.
        TopicAuthorizationFailedError: to `spark_write`, when these credentials may not write there.
        KafkaConnectionError: when an object store gives no answer, or has no such bucket.
    """
    cluster = _opened(bootstrap_servers, storage_options, read_from)
    if access == "offline":
        return cluster
    if access in {"spark", "spark_write"}:
        check_spark_reaches(cluster)
    if access == "read" and cluster.store.scheduler.is_remote:
        _look(cluster)
    else:
        # A store that has been tried out is not tried again.
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
        KafkaConfigurationError: it is in memory.
    """
    if cluster.store.coordination.reach == "process":
        raise KafkaConfigurationError(
            f"{cluster.root!r} is a cluster in this process's memory, and Spark needs one that other processes can "
            "reach: use a folder or a bucket"
        )


def _opened(
    bootstrap_servers: Address | None, storage_options: StorageOptionsLike | None, read_from: ReadFrom
) -> Cluster:
    found = _somewhere(bootstrap_servers, storage_options)
    return found if read_from == LEADER else found.reading(read_from)


def _somewhere(bootstrap_servers: Address | None, storage_options: StorageOptionsLike | None) -> Cluster:
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
    # Those of single roots may be of one that is to be added.
    own = options if "://" in root or (options and options.given()) else None
    # Loaded with the first address that is connected to, and not with the clients: Arrow takes 0.15 s of CPU.
    from kafkalike.log.cluster.cluster import open_cluster

    cluster = open_cluster(root, own, add_root=partial(_add_root, root, options))
    if cluster.store.coordination.reach == "machine":
        # Where it takes a request, the first look does it.
        cluster.check_root()
    return cluster


def _add_root(root: str, options: StorageOptions | None, uri: str, rack: str | None, id: int | None) -> Broker:  # noqa: A002
    from kafkalike.replication.cluster.cluster_factory import grow

    return grow(root, uri, rack=rack, id=id, options=options)


def _is_broker(root: str, options: StorageOptions | None) -> bool:
    """Whether a root is one of a cluster that has several."""
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
        # It says so itself when it is asked for more.
        return False


def check_there(cluster: Cluster) -> None:
    """Refuse a cluster whose root is not there: never made, or gone since it was opened.

    A client that knows the tables from before would go on with old figures for ever.

    Raises:
        KafkaConnectionError: the root does not exist, or its tables are gone.
    """
    if cluster.store.coordination.reach == "machine":
        cluster.check_there()


def check_founded(cluster: Cluster) -> None:
    """Refuse a place where no cluster was ever made, such as a misspelt one: it would look like an empty cluster.

    Raises:
        KafkaConnectionError: the root does not exist, or no topic was ever created there.
    """
    check_there(cluster)
    if not cluster.topics() and not cluster.metadata.state.seq:
        raise KafkaConnectionError(f"there is no cluster at {cluster.root}: no topic was ever created there")


def named_root(bootstrap_servers: Address | None = None) -> str:
    """The root that `bootstrap_servers` names, as it was given; nothing is asked or looked at.

    Raises:
        KafkaConfigurationError: it names none.
    """
    found = _root_or_cluster(bootstrap_servers)
    return found if isinstance(found, str) else found.root


def _root_or_cluster(bootstrap_servers: Address | None) -> str | Cluster:
    """The roots that are named, joined by commas, or the opened cluster that was given."""
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
