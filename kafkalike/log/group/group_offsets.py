"""Group offsets: commit and look up the offsets of a group by partition, with the ids of their topics."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import IllegalArgumentError, KafkaError, OffsetMetadataTooLargeError
from kafkalike.log.group.membership import Membership
from kafkalike.model.clock import Clock
from kafkalike.model.groups.partition_split import holds
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
    """Source of the rows' times."""
    max_metadata_bytes: Callable[[], int] = lambda: DEFAULT_METADATA_BYTES
    """Longest metadata string in bytes of UTF-8. Called for metadata only, because it may take a request."""

    @classmethod
    def of(cls, cluster: Cluster, clock: Clock) -> GroupOffsets:
        """Return the offsets of a cluster's groups, with its server's `offset.metadata.max.bytes`."""
        return cls(cluster.groups, clock, lambda: int(cluster.server.get("offset.metadata.max.bytes")))

    def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
        timeout_ms: float | None = 60_000,
    ) -> int:
        """Write committed offsets: all of them in one table commit, or none.

        The writer of the rows checks the membership against the version that it writes. So a member that was stopped
        and wakes up late cannot overwrite its successor's offsets. A client outside the membership (generation -1) may
        commit only while the group has no members. The rules are `kafkalike.model.groups.roster.check_commit`.

        In an object store other processes may write the rows: see decision 029.

        Committing the same offsets again changes only their time. Offsets beyond the log end are accepted, as in Kafka.

        Args:
            membership: the member that commits.
            offsets: by partition, the next offset to read; an empty mapping writes nothing.
            topic_ids: by topic, the id of the topic that the offsets belong to.
            timeout_ms: how long concurrent writers may delay the commit; None waits without limit.

        Returns:
            The group's generation in which the offsets were committed; -1 from outside the membership.

        Raises:
            CommitFailedError: the generation has ended, or the member was removed (then an `UnknownMemberIdError`,
                too); nothing was written.
            FencedInstanceIdError: another process took over its static name; nothing was written.
            RebalanceInProgressError: the member has given up its partitions and waits for new ones; nothing was
                written.
            OffsetMetadataTooLargeError: nothing was written.
            IllegalArgumentError: an offset is not an int from 0 to 2**63-1, a leader epoch is not an int32, or metadata
                is not valid text.
            TypeError: the mapping has other types than `TopicPartition` and `OffsetAndMetadata`, or metadata is not a
                str.
            KafkaTimeoutError: concurrent writers prevented the commit until the timeout; nothing was written.
            UnknownOutcomeError: the write may have happened; committing again is harmless.
        """
        return self.commit_checked(membership, self.checked(offsets), topic_ids, timeout_ms)

    def commit_checked(
        self,
        membership: Membership,
        checked: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
        timeout_ms: float | None,
    ) -> int:
        """Write positions that `checked` has returned; otherwise as `commit`."""
        # Imported late, because many clients read groups and never commit.
        from kafkalike.model.offset_commit import OffsetCommit, Position

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

    def checked(self, offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return valid positions to commit, by partition; errors as in `commit`."""
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets must map TopicPartition to OffsetAndMetadata, not {offsets!r}")
        has_metadata = any(getattr(position, "metadata", None) for position in offsets.values())
        most = self.max_metadata_bytes() if has_metadata else 0
        return {tp: check_position(tp, at, most) for tp, at in offsets.items()}

    def generation_of(self, membership: Membership, tp: TopicPartition) -> int:
        """Return the generation of a member's last commit of a partition; the member's generation if that is unknown.

        Args:
            membership: the member that committed.
            tp: a partition of that commit.
        """
        try:
            known = self.groups.state.group(membership.group_id).offsets.get(tp)
        except KafkaError:
            # Another thread has lost the state, and it cannot be read now. The commit is there all the same.
            known = None
        # Another member may have committed since, in a generation unknown to this one.
        own = known is not None and known.member_id == membership.member_id
        return known.generation if known is not None and own else membership.generation

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Look up the committed offsets of a group; partitions without one are left out.

        An offset that was committed for a deleted topic of the same name does not count.

        Args:
            group_id: the group; it need not exist.
            partitions: the partitions to look up.
            topic_ids: current id by topic; a topic that is missing here has no offsets.

        Raises:
            KafkaStorageError: the root that leads the table of groups does not answer; retry.
        """
        # With an older offset, records would be read again, even in a transaction.
        state = self.groups.refresh(surely=True)
        offsets = state.group(group_id).offsets
        found = {}
        for tp in partitions:
            known = offsets.get(tp)
            if known is not None and holds(state.groups, known.topic_id, tp.topic, topic_ids.get(tp.topic)):
                found[tp] = known.position
        return found


def check_position(tp: object, position: object, max_metadata_bytes: int = DEFAULT_METADATA_BYTES) -> OffsetAndMetadata:
    """Return a valid position to commit, with NumPy's integers converted; errors as in `GroupOffsets.commit`."""
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
        raise IllegalArgumentError(f"{tp.topic}-{tp.partition}: metadata is not valid text: {cause}") from cause
    if size > max_metadata_bytes:
        raise OffsetMetadataTooLargeError(
            f"{tp.topic}-{tp.partition}: metadata has {size} bytes; offset.metadata.max.bytes={max_metadata_bytes}"
        )
    leader_epoch = operator.index(position.leader_epoch)
    if leader_epoch not in INT32:
        raise IllegalArgumentError(f"{tp.topic}-{tp.partition}: leader_epoch must be an int32, not {leader_epoch}")
    return OffsetAndMetadata(offset, metadata, leader_epoch)


def check_offset(offset: object) -> int:
    """Return an offset from 0 to 2**63-1 as a Python int; NumPy's integers are accepted.

    Raises:
        IllegalArgumentError: the offset is not an integer, is a bool, or is outside the bounds.
    """
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise IllegalArgumentError(f"offset must be an int, not {offset!r}")
    number = operator.index(offset)
    if not 0 <= number <= MAX_OFFSET:
        raise IllegalArgumentError(f"offset must be from 0 to {MAX_OFFSET}, not {number}")
    return number


class MetadataOfReader(ConsumerGroupMetadata):
    """The result of `KafkaConsumer.group_metadata()`: equal to a plain one, with the ids of the topics that are read.

    Offsets sent to a transaction with it belong to these topics, not to others of the same names.
    """

    topic_ids: tuple[tuple[str, str], ...] = ()
    """Ids of the topics whose partitions the consumer holds, with their names."""

    @classmethod
    def knowing(cls, plain: ConsumerGroupMetadata, topic_ids: tuple[tuple[str, str], ...]) -> MetadataOfReader:
        """Return the metadata with the ids of topics."""
        made = cls(*plain)
        made.topic_ids = topic_ids
        return made

    def __repr__(self) -> str:
        """Return the text of a plain tuple."""
        return repr(ConsumerGroupMetadata(*self))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as a plain tuple, because the ids apply to this process only."""
        return ConsumerGroupMetadata, tuple(self)


def given_ids(metadata: MetadataLog, topics: Collection[str], given_by: object) -> dict[str, str]:
    """Return the id of each topic that offsets are given for: the reader's id of it, else the current one.

    Args:
        metadata: the cluster's topics.
        topics: their names.
        given_by: the program's group argument.

    Returns:
        Ids by name; "" for a topic that does not exist, which is never a topic's id.

    Raises:
        KafkaStorageError: the metadata cannot be read.
    """
    read = dict(given_by.topic_ids) if isinstance(given_by, MetadataOfReader) else {}
    unread = [name for name in topics if name not in read]
    if unread:
        known = metadata.refresh(waiting=True).topics
        if any(name not in known for name in unread):
            # The shared look may be a moment old, and the topic may have been created since.
            known = metadata.refresh().topics
        read |= {name: str(known[name].topic_id) if name in known else "" for name in unread}
    return {name: read[name] for name in topics}
