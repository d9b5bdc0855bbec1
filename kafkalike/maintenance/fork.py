"""Fork: a new topic that begins with all records of another one; from then on they have nothing in common."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.topic_lineage import cut_at
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.maintenance.handles import opened, past_ms
from kafkalike.maintenance.restore import copy_topic
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_group_id, check_topic_name
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A topic that was made."""

    topic: str
    topic_id: str
    source: str
    version: int
    """Table version of the source that it begins with."""
    files: int
    shared: int
    """How many of them take no room of their own, as they are the source's files by a second name."""
    groups: tuple[str, ...]
    """Groups whose committed offsets were taken over."""

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def fork(
    topic: str,
    new: str,
    bootstrap_servers: Address | None = None,
    *,
    as_of: int | datetime | None = None,
    groups: Iterable[str] = (),
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Forked:
    """Make a new topic with what a topic holds, or held, at the same offsets.

    No record is read. On a disk files are shared by hard links, and take no room; where a file system has none, they
    are copied. An object store copies them by itself. Either way each topic has names of its own for its files: what
    maintenance, a deletion or another engine's VACUUM removes of one is not missing in the other.

    The new topic has the source's settings and partitions as of now.

    Args:
        topic: its topic.
        new: name of the new one.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        as_of: a version of the topic's table, as `kafkalike history` lists them; or a time, as a `datetime` with a
            zone; None for now.
        groups: ids of groups whose committed offsets in the topic they shall have in the new one too; a group with
            members is refused. Offsets above the new topic's end become its end.
        storage_options: who asks an object store; see `kafkalike.connect.connect`.
        clock: time.

    Returns:
        What was made.

    Raises:
        IllegalArgumentError: `new` is `topic`, no such version, or a time without a zone or to
            which the log does not reach.
        UnsafeStorageError: a root that can only be read.
        MirrorTopicError: the topic is a read-only copy of another cluster's.
        UnknownTopicOrPartitionError, TopicAlreadyExistsError, InvalidTopicError, InvalidGroupIdError: bad names.
        UnknownMemberIdError: a group has members; the topic was made, and this group's offsets and those of later ones
            were not taken over.
        KafkaStorageError: files of that version are gone, or the storage refused; nothing was made.
        KafkaTimeoutError: a maintenance run held the topic for a minute.
    """
    wanted = [check_group_id(group) for group in ([groups] if isinstance(groups, str) else groups)]
    cluster = opened(bootstrap_servers, storage_options, writes=True)
    info = cluster.topic(check_topic_name(topic))
    version: int | None
    at_ms: int | None = None
    if isinstance(as_of, datetime):
        at_ms = past_ms(as_of, clock)
        version = cut_at(cluster, [info], at_ms).topics[info.name].version
    elif as_of is not None and (type(as_of) is not int or as_of < 0):
        raise IllegalArgumentError(f"as_of must be a version or a datetime, not {as_of!r}")
    else:
        version = as_of
    run = uuid.uuid4().hex
    copied = copy_topic(cluster, info.name, check_topic_name(new), run, version=version, at_ms=at_ms, work="fork")
    log = cluster.log(new)
    offsets = GroupOffsets.of(cluster, clock)
    ids: dict[str, str] = {info.name: info.topic_id}
    partitions = [TopicPartition(info.name, p) for p in info.partitions]
    for group in wanted:
        known = offsets.committed(group, partitions, ids)
        placed = {
            TopicPartition(new, tp.partition): OffsetAndMetadata(
                min(at.offset, log.log_end(tp.partition)), at.metadata, at.leader_epoch
            )
            for tp, at in known.items()
        }
        offsets.commit(Membership(group_id=group), placed, {new: str(copied.info.topic_id)})
    return Forked(
        topic=new,
        topic_id=str(copied.info.topic_id),
        source=info.name,
        version=copied.version,
        files=copied.files,
        shared=copied.shared,
        groups=tuple(wanted),
    )
