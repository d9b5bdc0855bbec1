"""Topic snapshots: several topics, and committed offsets of groups, at one moment of all transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.topic_lineage import cut_at
from kafkalike.log.snapshots import Snapshot, TopicSnapshot
from kafkalike.maintenance.handles import past_ms
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.transactions.transaction_views import Cut

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


def snapshot(
    topics: str | Iterable[str],
    bootstrap_servers: Address | None = None,
    *,
    groups: str | Iterable[str] = (),
    as_of: datetime | None = None,
    timeout_ms: float = 60_000,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Snapshot:
    """Take a snapshot of several topics, and of the committed offsets of groups, at one moment.

    The snapshot contains each transaction completely or not at all, in all topics and groups. Writers continue
    meanwhile; a decided transaction is first applied to all of its topics.

    Args:
        topics: names, or one name.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        groups: ids of groups, or one id, whose committed offsets are included; an unknown group has none.
        as_of: None: now. A `datetime` with a zone: each topic at that time by its table's log, or slightly later, to
            include transactions completely. The logs limit how far back it reaches (a day, by default); groups have no
            such history.
        timeout_ms: how long to wait for the storage, ms.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.
        clock: the time.

    Returns:
        The snapshot: a value for the parameter `at` of `kafkalike.spark.read`, `register_sql` and others. It is valid
            as long as the tables keep these versions and their files.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError, InvalidGroupIdError: unknown topics, or bad names.
        IllegalArgumentError: no topic; groups and a time; or a time before a topic's log.
        KafkaTimeoutError, KafkaStorageError: the storage did not answer.
        LogCorruptError: a decided transaction cannot be applied to a topic; names the file.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     for key in (b"alice", b"bob", b"alice"):
        ...         _ = producer.send("orders", b"tea", key=key)
        >>> snapshot("orders", cluster).topics["orders"].ends
        {0: 3}
    """
    names = [check_topic_name(name) for name in _several(topics)]
    wanted = [check_group_id(group) for group in _several(groups)]
    if not names:
        raise IllegalArgumentError("at least one topic is needed")
    if as_of is not None:
        if not isinstance(as_of, datetime):
            raise IllegalArgumentError(f"as_of must be a datetime, not {as_of!r}: topics have no version in common")
        if wanted:
            raise IllegalArgumentError(
                "a snapshot as of a time has no groups, because only current committed offsets are kept. Leave the "
                "groups out, or take a snapshot without a time and keep it"
            )
        return _as_of(names, past_ms(as_of, clock), connect(bootstrap_servers, storage_options), timeout_ms, clock)
    cluster: Cluster = connect(bootstrap_servers, storage_options)
    now = clock.now_ms()
    cut = cluster.transactions.cut(names, Deadline(clock, timeout_ms))
    known = cluster.groups.state
    state = known if not wanted or known.seq == cut.seq else cluster.groups.state_at(cut.groups_version)
    return Snapshot(
        root=cluster.root,
        taken_ms=now,
        seq=cut.seq,
        topics=_topics(cut),
        groups_version=cut.groups_version,
        offsets={group: dict(state.group(group).offsets) for group in wanted},
    )


def _as_of(names: Sequence[str], time_ms: int, cluster: Cluster, timeout_ms: float, clock: Clock) -> Snapshot:
    # Apply all transactions that were decided by then to their topics.
    cluster.transactions.cut(names, Deadline(clock, timeout_ms))
    cut = cut_at(cluster, [cluster.topic(name) for name in names], time_ms)
    return Snapshot(root=cluster.root, taken_ms=time_ms, seq=cut.seq, topics=_topics(cut))


def _topics(cut: Cut) -> dict[str, TopicSnapshot]:
    return {
        name: TopicSnapshot(topic_id=at.topic_id, version=at.version, ends=dict(at.ends))
        for name, at in cut.topics.items()
    }


def _several(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(dict.fromkeys(given))
