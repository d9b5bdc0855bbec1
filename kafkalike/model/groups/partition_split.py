"""Partition split: the rules by which a topic is repartitioned. Offsets stay, so positions need no translation table.

The new number of partitions is a multiple of the old one. Then the default partitioner, murmur2 of the key modulo the
number of partitions, sends the keys of an old partition to the partitions of its *family* alone: those whose number has
the old one as its remainder. Each record moves within the family and keeps its offset; the offsets of the records that
went elsewhere are legitimate gaps, as after compaction. A position in the old partition is therefore the same position
in each partition of the family: a group that has read up to offset 7 of partition 1 has read all records below 7 in
each of them, and no other ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafkalike.errors import InvalidPartitionsError, RebalanceInProgressError
from kafkalike.model.murmur2 import partitions_for_keys
from kafkalike.model.names import REPARTITIONS_GROUP
from kafkalike.model.structs import CommittedOffset, TopicPartition


def check_split(topic: str, before: int, after: int) -> None:
    """Reject a number of partitions that would mix records of several partitions.

    Raises:
        InvalidPartitionsError: it is not a higher multiple of the present number.
    """
    if after <= before or after % before:
        raise InvalidPartitionsError(
            f"topic {topic!r} has {before} partitions, and {after} is not a multiple of that: choose {2 * before}, "
            f"{3 * before} or another multiple, so that the records of a partition stay together in order"
        )


def family(partition: int, before: int, after: int) -> range:
    """Return the partitions to which the records of a partition go.

    >>> list(family(1, 2, 8))
    [1, 3, 5, 7]
    """
    return range(partition, after, before)


def parent(partition: int, before: int) -> int:
    """Return the partition that the records of a new partition came from.

    >>> parent(5, 2)
    1
    """
    return partition % before


def split_rows(keys: Sequence[bytes | None], partitions: Sequence[int], before: int, after: int) -> list[int]:
    """Return the new partition of each record, within the family of its old one.

    A key's records in one partition go to one partition, wherever a client's own partitioner had put them. A record
    without a key, or without a partition yet (-1), keeps its number.

    Args:
        keys: serialized keys.
        partitions: the partition of each record, chosen among `before`.
        before: the old number of partitions.
        after: the new number, a multiple of the old one.

    >>> split_rows([b"alice", b"alice", None], [0, 1, 1], 2, 8)
    [4, 5, 1]
    """
    hashed = partitions_for_keys(keys, after)
    return [
        old if new is None or old < 0 else old + before * (new // before)
        for old, new in zip(partitions, hashed, strict=True)
    ]


class OffsetsOwner(Protocol):
    """A group with its committed offsets."""

    @property
    def offsets(self) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets by partition."""
        ...


def successor(groups: Mapping[str, OffsetsOwner], topic: str, topic_id: str) -> str | None:
    """Return the id of the topic that holds a topic's committed offsets since its repartition; None before it.

    Until the name belongs to the successor, the successor's offsets are those of the old topic, too.

    Args:
        groups: all groups, by id.
        topic: name of the topic.
        topic_id: its id.
    """
    reserved = groups.get(REPARTITIONS_GROUP)
    for tp, at in reserved.offsets.items() if reserved is not None else ():
        if tp.topic == topic and at.topic_id == topic_id:
            return at.position.metadata
    return None


def holds(groups: Mapping[str, OffsetsOwner], committed_id: str, topic: str, topic_id: str | None) -> bool:
    """Return whether an offset committed for an id belongs to the topic with the other id, or to its successor."""
    return committed_id == topic_id or (topic_id is not None and committed_id == successor(groups, topic, topic_id))


def check_open(groups: Mapping[str, OffsetsOwner], topic: str, topic_id: str) -> None:
    """Reject a commit of offsets or records for a topic whose committed offsets were moved to its successor.

    Raises:
        RebalanceInProgressError: nothing may be committed for that id any more.
    """
    if successor(groups, topic, topic_id) is not None:
        raise RebalanceInProgressError(
            f"topic {topic!r} is being repartitioned: nothing was committed, and the records after the last commit are "
            "delivered again; abort the transaction if there is one, and poll again"
        )
