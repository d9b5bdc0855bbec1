"""Cluster mirror: maintains read-only copies of topics and groups in another cluster, at the same offsets.

It corresponds to Kafka's MirrorMaker 2, but keeps offsets, so committed offsets need no translation, and a promoted
target is a consistent state of its source, with each transaction complete or absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.replication.mirrors import promotion as promoting
from kafkalike.replication.mirrors.mirror_lag import MirrorLag, mirror_lags
from kafkalike.replication.mirrors.mirror_sync import MirrorSync, SyncResult, TopicSync

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


__all__ = ["Mirror", "MirrorLag", "SyncResult", "TopicSync", "describe", "promote"]

Names = str | Iterable[str]
"""A regular expression that matches whole names, or a collection of names."""


class Mirror:
    """Copies topics, and the committed offsets of groups, from one cluster to another. Use it from one thread.

    Several mirrors of the same topics may run at once, in any processes, and each may be killed at any time: the next
    pass continues its work.

    Args:
        source: root of the source cluster; see `kafkalike.connect.connect`. Its records are only read, but a committed
            transaction is first applied to all of its topics.
        target: root of the target cluster, of any kind. In a cluster with several roots, all mirrors are stored at one
            of them and have one replica until they are promoted.
        topics: the topics; all by default. A topic of the target that is not a mirror is left unchanged and reported.
        groups: the groups whose committed offsets of mirrored topics are copied; all by default, `()` for none. A group
            with members or own offsets at the target keeps its offsets.
        source_storage_options: options of the source's object store.
        target_storage_options: options of the target's object store.

    Raises:
        KafkaConfigurationError, KafkaConnectionError, UnsafeStorageError: see `kafkalike.connect.connect`.
        MirrorError: source and target are the same cluster.
    """

    def __init__(
        self,
        source: Address,
        target: Address,
        topics: Names = ".*",
        groups: Names = ".*",
        *,
        source_storage_options: StorageOptionsLike | None = None,
        target_storage_options: StorageOptionsLike | None = None,
    ) -> None:
        self._mirroring = MirrorSync(
            connect(source, source_storage_options, access="offline"),
            _writable(target, target_storage_options),
            _filter(topics),
            _filter(groups),
        )

    def run(self) -> SyncResult:
        """Make one pass: bring the target to a consistent state of the source.

        If a pass is interrupted anywhere, the next pass or `promote` completes it.

        Returns:
            The result for each topic; `problem` gives the reason if a topic could not be copied further. Other topics
            are unaffected.

        Raises:
            KafkaStorageError, KafkaTimeoutError, LogCorruptError: a cluster cannot be read or written.
            UnknownOutcomeError: the pass may have been decided; the next pass continues from the actual state.
        """
        return self._mirroring.run()


def promote(
    bootstrap_servers: Address | None,
    topics: Names,
    *,
    force: bool = False,
    storage_options: StorageOptionsLike | None = None,
) -> dict[str, int]:
    """Turn mirrors into writable topics. The source is not contacted.

    Passes that were decided are completed first, for all topics and groups. After the call the mirrors receive nothing
    from the source, even from a mirror process that wakes up late. An interrupted call may be repeated.

    Args:
        bootstrap_servers: root of the cluster with the mirrors; see `kafkalike.connect.connect`.
        topics: a regular expression, or names; all are promoted together.
        force: also promote a mirror that foreign writes have changed, so that it has no consistent state of its source.
        storage_options: options of an object store.

    Returns:
        By topic, the version of the source's table that the mirror has.

    Raises:
        UnknownTopicOrPartitionError: no such mirror exists.
        MirrorError: a topic is not a mirror; or it has no consistent state of its source, and `force` is not set.
    """
    cluster = _writable(bootstrap_servers, storage_options)
    if isinstance(topics, str):
        wanted = _filter(topics)
        names = [name for name, info in sorted(cluster.topics().items()) if info.mirror is not None and wanted(name)]
        if not names:
            raise UnknownTopicOrPartitionError(f"no mirror at {cluster.root} matches {topics!r}")
    else:
        names = list(topics)
    return promoting.promote(cluster, names, force=force)


def describe(
    bootstrap_servers: Address | None = None,
    topics: Names = ".*",
    *,
    source: Address | None = None,
    source_storage_options: StorageOptionsLike | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> list[MirrorLag]:
    """Return the progress of mirrors.

    Args:
        bootstrap_servers: root of the cluster with the mirrors; see `kafkalike.connect.connect`.
        topics: the topics; all by default.
        source: root of the source cluster, to compute lags; without it, lags are unknown.
        source_storage_options: options of the source's object store.
        storage_options: options of the object store with the mirrors.
    """
    theirs = None if source is None else connect(source, source_storage_options, access="offline")
    return mirror_lags(connect(bootstrap_servers, storage_options), theirs, _filter(topics))


def _writable(target: Address | None, options: StorageOptionsLike | None) -> Cluster:
    cluster = connect(target, options)
    cluster.store.coordination.check_writable()
    return cluster


def _filter(names: Names) -> Callable[[str], bool]:
    if not isinstance(names, str):
        return frozenset(names).__contains__
    try:
        pattern = re.compile(names)
    except re.error as cause:
        raise IllegalArgumentError(f"{names!r} is not a regular expression: {cause}") from cause
    return lambda name: pattern.fullmatch(name) is not None
