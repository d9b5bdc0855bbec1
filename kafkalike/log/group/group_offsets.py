"""Group offsets: offsets of a group by partition, committed and looked up, and the topics that they belong to."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import IllegalArgumentError, OffsetMetadataTooLargeError
from kafkalike.log.group.membership import Membership
from kafkalike.model.clock import Clock
from kafkalike.model.row_value import INT32
from kafkalike.model.segments import MAX_OFFSET
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.cluster.control_logs import GroupsLog, MetadataLog


__all__ = ["DEFAULT_METADATA_BYTES", "GroupOffsets", "Membership", "check_offset", "check_position"]

DEFAULT_METADATA_BYTES: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Committed offsets of all groups of a cluster. Thread-safe, as the table of groups is."""

    groups: GroupsLog
    clock: Clock
    """The clock of the rows' times."""
    max_metadata_bytes: int = DEFAULT_METADATA_BYTES
    """Longest metadata string in bytes of UTF-8."""

    @classmethod
    def of(cls, cluster: Cluster, clock: Clock) -> GroupOffsets:
        """The groups of a cluster, with its server's `offset.metadata.max.bytes`."""
        return cls(cluster.groups, clock, int(cluster.server.get("offset.metadata.max.bytes")))

    def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
        timeout_ms: float | None = 60_000,
    ) -> int:
        """Write committed offsets: all of them in one table commit, or none.

        Whether the member is still one is looked at where the rows will stand, by whoever writes them, so a member that
        was stopped and wakes up late cannot overwrite its successor's offsets. A client outside the membership
        (generation -1) may commit only while the group has no members. The rules are
        `kafkalike.model.groups.group_protocol.check_commit`.

        In an object store other processes may write the rows: see decision 029.

        Committing the same offsets again changes nothing but their time. Offsets beyond the log end are taken, as
        Kafka takes them.

        Args:
            membership: in whose name.
            offsets: by partition, the next offset to read; an empty mapping writes nothing.
            topic_ids: by topic, the id of the topic that the offsets belong to.
            timeout_ms: how long concurrent writers may hold the commit up; None without end.

        Returns:
            The group's generation that the offsets were committed in; -1 from outside the membership.

        Raises:
            CommitFailedError: the generation is over, or it is no member any more (then an `UnknownMemberIdError`,
                too); nothing was written.
            FencedInstanceIdError: another process took its static name over; nothing was written.
            RebalanceInProgressError: the member has given up its partitions and waits for new ones; nothing was
                written.
            OffsetMetadataTooLargeError: nothing was written.
            IllegalArgumentError: an offset that is no int from 0 to 2**63-1, a leader epoch that is no int32, or
                metadata that is no valid text.
            TypeError: anything but `TopicPartition` and `OffsetAndMetadata`, or metadata that is no str.
            KafkaTimeoutError: concurrent writers were faster until time ran out; nothing was written.
            UnknownOutcomeError: the write may have happened; committing again is harmless.
        """
        # Those who look at groups and never commit are many.
        from kafkalike.model.offset_commit import OffsetCommit, Position

        checked = {tp: check_position(tp, at, self.max_metadata_bytes) for tp, at in offsets.items()}
        if not checked:
            return membership.generation
        commit = OffsetCommit(
            group_id=membership.group_id,
            generation=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.group_instance_id,
            client_id=membership.client_id,
            time_ms=self.clock.now_ms(),
            positions=tuple(
                Position(tp.topic, topic_ids[tp.topic], tp.partition, at.offset, at.leader_epoch, at.metadata)
                for tp, at in checked.items()
            ),
        )
        self.groups.transact(commit, timeout_ms)
        return self.generation_of(membership, next(iter(checked)))

    def generation_of(self, membership: Membership, tp: TopicPartition) -> int:
        """The generation that a member's last commit of a partition was in; the member's own where that is not known.

        Args:
            membership: whose commit.
            tp: one of its partitions.
        """
        known = self.groups.state.group(membership.group_id).offsets.get(tp)
        # Another member may have committed since, in a generation that this one knows nothing of.
        own = known is not None and known.member_id == membership.member_id
        return known.generation if known is not None and own else membership.generation

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of a group, fresh; only the partitions that have one.

        An offset that was committed for another topic of the same name, one deleted since, does not count.

        Args:
            group_id: the group; it need not exist.
            partitions: whose offsets.
            topic_ids: current id by topic; a topic that is missing here has no offsets.

        Raises:
            KafkaStorageError: nobody can say what they are, as the root that leads the groups gives no answer; ask
                again.
        """
        # An older offset would have records read again, in a transaction too.
        offsets = self.groups.refresh(surely=True).group(group_id).offsets
        found = {}
        for tp in partitions:
            known = offsets.get(tp)
            if known is not None and known.topic_id == topic_ids.get(tp.topic):
                found[tp] = known.position
        return found


def check_position(tp: object, position: object, max_metadata_bytes: int = DEFAULT_METADATA_BYTES) -> OffsetAndMetadata:
    """A position that may be committed; see `GroupOffsets.commit` for the errors. NumPy's integers become Python's."""
    if not isinstance(tp, TopicPartition) or not isinstance(position, OffsetAndMetadata):
        raise TypeError(f"offsets must map TopicPartition to OffsetAndMetadata, not {tp!r} to {position!r}")
    offset = check_offset(position.offset)
    metadata: object = position.metadata
    if metadata is None:
        metadata = ""
    if not isinstance(metadata, str):
        raise TypeError(f"metadata of a committed offset must be a str, not {metadata!r}")
    try:
        size = len(metadata.encode())
    except UnicodeEncodeError as cause:
        raise IllegalArgumentError(f"{tp.topic}-{tp.partition}: metadata is no valid text: {cause}") from cause
    if size > max_metadata_bytes:
        raise OffsetMetadataTooLargeError(
            f"{tp.topic}-{tp.partition}: metadata has {size} bytes; offset.metadata.max.bytes={max_metadata_bytes}"
        )
    leader_epoch = operator.index(position.leader_epoch)
    if leader_epoch not in INT32:
        raise IllegalArgumentError(f"{tp.topic}-{tp.partition}: leader_epoch must be an int32, not {leader_epoch}")
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def check_offset(offset: object) -> int:
    """An offset from 0 to 2**63-1 as a Python int; NumPy's integers are taken.

    Raises:
        IllegalArgumentError: it is no integer, a bool, or outside the bounds.
    """
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise IllegalArgumentError(f"offset must be an int, not {offset!r}")
    number = operator.index(offset)
    if not 0 <= number <= MAX_OFFSET:
        raise IllegalArgumentError(f"offset must be from 0 to {MAX_OFFSET}, not {number}")
    return number


class MetadataOfReader(ConsumerGroupMetadata):
    """The result of `KafkaConsumer.group_metadata()`: equal to a plain one, with the ids of the topics that are read.

    Offsets that a transaction is given with it belong to these topics, and to no other ones of the same names.
    """

    topic_ids: tuple[tuple[str, str], ...] = ()
    """Ids by name, of the topics whose partitions the consumer holds."""

    @classmethod
    def knowing(cls, plain: ConsumerGroupMetadata, topic_ids: tuple[tuple[str, str], ...]) -> MetadataOfReader:
        """Return the metadata with the ids of topics."""
        made = cls(*plain)
        made.topic_ids = topic_ids
        return made

    def __repr__(self) -> str:
        """As a plain one."""
        return repr(ConsumerGroupMetadata(*self))

    def __reduce__(self) -> tuple[object, ...]:
        """A copy in another process is a plain one."""
        return ConsumerGroupMetadata, tuple(self)


def given_ids(metadata: MetadataLog, topics: Collection[str], given_by: object) -> dict[str, str]:
    """Return the id of each topic that offsets are given for: as its reader knows it, else as it is now.

    Args:
        metadata: the cluster's topics.
        topics: their names.
        given_by: the group, as the program named it.

    Returns:
        Ids by name; "", which no topic has, for a topic that does not exist.

    Raises:
        KafkaStorageError: the metadata cannot be read.
    """
    read = dict(given_by.topic_ids) if isinstance(given_by, MetadataOfReader) else {}
    unread = [name for name in topics if name not in read]
    if unread:
        known = metadata.refresh(waiting=True).topics
        if any(name not in known for name in unread):
            # A look of a moment ago will do where one costs money, but somebody may have created the topic just now.
            known = metadata.refresh().topics
        read |= {name: str(known[name].topic_id) if name in known else "" for name in unread}
    return {name: read[name] for name in topics}
