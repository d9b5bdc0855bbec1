"""Cluster mirror: keeps read-only copies of topics and groups of one cluster in another one, at the same offsets.

A mirror is what MirrorMaker 2 is for Kafka, but for three things: offsets are the same, committed offsets need no
translation, and what a target is promoted to is one moment of its source: of each transaction all or nothing.
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
"""A regular expression that must match the whole name, or names."""


class Mirror:
    """Copies topics, and the committed offsets of groups, from one cluster to another. Use it from one thread.

    Several mirrors of the same topics may run at once, in any processes, and each may be killed at any time: whoever
    comes goes on.

    Args:
        source: root of the cluster that is copied; see `kafkalike.connect.connect`. Its records are only read; a
            decided transaction that is not in all of its topics is brought there first.
        target: root of the cluster that gets the copies, of any kind. Where it has several, all mirrors are at one of
            them, and have one replica until they are promoted.
        topics: which ones; all by default. A topic that exists at the target and is no mirror is left alone, and said.
        groups: whose committed offsets, of the mirrored topics, are copied; all by default, `()` for none. A group that
            has members at the target, or offsets of its own there, keeps what it has.
        source_storage_options: of the source's object store.
        target_storage_options: of the target's.

    Raises:
        KafkaConfigurationError, KafkaConnectionError, UnsafeStorageError: see `kafkalike.connect.connect`.
        MirrorError: both are the same cluster.
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
        """Make one pass: bring the target to a moment of the source.

        What is at the target when this is cut off anywhere is brought to its end by the next pass, or by `promote`.

        Returns:
            What was done for each topic; `problem` says why one did not get further. The others did.

        Raises:
            KafkaStorageError, KafkaTimeoutError, LogCorruptError: a cluster cannot be read or written.
            UnknownOutcomeError: the pass may be decided; the next one goes on from what is.
        """
        return self._mirroring.run()


def promote(
    bootstrap_servers: Address | None,
    topics: Names,
    *,
    force: bool = False,
    storage_options: StorageOptionsLike | None = None,
) -> dict[str, int]:
    """Make mirrors topics like any others, that can be written. Their source is not asked.

    What the mirror had decided comes first, in all topics and groups. After the call nothing of the source comes any
    more, also by mirrors that wake up late. One that was cut off may be made again.

    Args:
        bootstrap_servers: root of the cluster with the mirrors; see `kafkalike.connect.connect`.
        topics: a regular expression, or names; they are promoted together.
        force: also one that somebody has written to, so that it cannot be brought to a moment of its source.
        storage_options: of an object store.

    Returns:
        By topic, the version of the source's table that it has.

    Raises:
        UnknownTopicOrPartitionError: there is no such mirror.
        MirrorError: a topic is no mirror; or cannot be brought to a moment of its source, and `force` is not set.
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
    """How mirrors stand.

    Args:
        bootstrap_servers: root of the cluster with the mirrors; see `kafkalike.connect.connect`.
        topics: which ones.
        source: root of their source, to be asked how far it is; None asks none: then lags are not known.
        source_storage_options: of the source's object store.
        storage_options: of the object store with the mirrors.
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
        raise IllegalArgumentError(f"{names!r} is no regular expression: {cause}") from cause
    return lambda name: pattern.fullmatch(name) is not None
