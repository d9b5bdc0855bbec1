"""Committed offsets: positions of a group in, rows of `__consumer_offsets` out, and back.

A group has one member here: whoever joins takes the group over under the next generation, which fences the member
before it. A full coordinator can take the place of `join` and `leave` and go on with the rest.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafkalike.clock import Clock
from kafkalike.errors import (
    CommitFailedError,
    IllegalArgumentError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
)
from kafkalike.log.port import Cluster, ControlLog
from kafkalike.model.group_state import OFFSET, GroupRow, GroupsState, Member, Roster, roster_row
from kafkalike.model.offsets import MAX_OFFSET
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

GroupsLog = ControlLog[GroupsState, GroupRow]
"""The table `__consumer_offsets`."""

DEFAULT_METADATA_BYTES: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """In whose name offsets are committed."""

    group_id: str
    generation: int = -1
    """Generation of the group; -1 for a client outside the group's membership (manual assignment, admin)."""
    member_id: str = ""
    """Empty outside the membership."""
    client_id: str = ""
    """Name of the client, for people."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Committed offsets and holders of all groups of a cluster. Thread-safe, as the table of groups is."""

    groups: GroupsLog
    clock: Clock
    """Where the rows' times come from."""
    max_metadata_bytes: int = DEFAULT_METADATA_BYTES
    """Longest metadata string in bytes of UTF-8."""

    @classmethod
    def of(cls, cluster: Cluster, clock: Clock) -> GroupOffsets:
        """The groups of a cluster, with its server's `offset.metadata.max.bytes`."""
        return cls(cluster.groups, clock, int(cluster.server.get("offset.metadata.max.bytes")))

    def join(self, group_id: str, member_id: str, client_id: str) -> Membership:
        """Take a group over; whoever held it is fenced: its commits fail from now on.

        Args:
            group_id: the group; it need not exist.
            member_id: id of the new holder; unique and not empty.
            client_id: its name, for people.

        Returns:
            The membership, under a generation one above the last.

        Raises:
            KafkaTimeoutError: nothing was written.
            UnknownOutcomeError: the write may have happened.
        """
        generation = 0

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal generation
            generation = state.group(group_id).generation + 1
            member = Member(member_id=member_id, client_id=client_id, since=generation)
            return [self._row(state, group_id, generation, {member_id: member})]

        self.groups.transact(plan)
        return Membership(group_id=group_id, generation=generation, member_id=member_id, client_id=client_id)

    def leave(self, membership: Membership, timeout_ms: float | None = 60_000) -> None:
        """Give a group up; does nothing when somebody else holds it by now.

        The generation stays, so that the next one to join gets a higher one.
        """

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            if not membership.member_id or not holds(state, membership):
                return []
            return [self._row(state, membership.group_id, membership.generation, {})]

        self.groups.transact(plan, timeout_ms)

    def commit(
        self,
        membership: Membership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
        timeout_ms: float | None = 60_000,
    ) -> None:
        """Write committed offsets: all of them in one table commit, or none.

        Whether the membership is still the current one is looked at inside the transaction, so a member that was
        stopped and wakes up late cannot overwrite its successor's offsets. A client outside the membership
        (generation -1) may commit only while nobody holds the group. That is Kafka's rule: its broker answers
        ILLEGAL_GENERATION to an old generation, UNKNOWN_MEMBER_ID to a foreign member and, while the group has
        members, to a client without membership; clients turn both into `CommitFailedError`. What the broker would
        answer is the error's cause.

        Committing the same offsets again changes nothing but their time. Offsets beyond the log end are taken, as
        Kafka takes them.

        Args:
            membership: in whose name.
            offsets: by partition, the next offset to read; an empty mapping writes nothing.
            topic_ids: by topic, the id of the topic that the offsets belong to.
            timeout_ms: how long rivals may hold the commit up; None without end.

        Raises:
            CommitFailedError: another member holds the group by now; nothing was written.
            OffsetMetadataTooLargeError: nothing was written.
            IllegalArgumentError: an offset that is no int from 0 to 2**63-1, or metadata that is no valid text.
            TypeError: anything but `TopicPartition` and `OffsetAndMetadata`, or metadata that is no str.
            KafkaTimeoutError: rivals were faster until time ran out; nothing was written.
            UnknownOutcomeError: the write may have happened; committing again is harmless.
        """
        checked = {tp: check_position(tp, at, self.max_metadata_bytes) for tp, at in offsets.items()}

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            check_membership(state, membership)
            now = self.clock.now_ms()
            return [
                GroupRow(
                    seq=state.seq + nth,
                    kind=OFFSET,
                    group_id=membership.group_id,
                    topic=tp.topic,
                    topic_id=topic_ids[tp.topic],
                    partition=tp.partition,
                    offset=at.offset,
                    leader_epoch=at.leader_epoch,
                    metadata=at.metadata,
                    generation=membership.generation,
                    member_id=membership.member_id,
                    client_id=membership.client_id,
                    time_ms=now,
                )
                for nth, (tp, at) in enumerate(checked.items(), start=1)
            ]

        if checked:
            self.groups.transact(plan, timeout_ms)

    def committed(
        self, group_id: str, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of a group, fresh; only the partitions that have one.

        An offset that was committed for another topic of the same name, one deleted since, does not count.

        Args:
            group_id: the group; it need not exist.
            partitions: whose offsets.
            topic_ids: current id by topic; a topic that is missing here has no offsets.
        """
        offsets = self.groups.refresh().group(group_id).offsets
        found = {}
        for tp in partitions:
            known = offsets.get(tp)
            if known is not None and known.topic_id == topic_ids.get(tp.topic):
                found[tp] = known.position
        return found

    def _row(self, state: GroupsState, group_id: str, generation: int, members: Mapping[str, Member]) -> GroupRow:
        roster = Roster(generation=generation, members=members, changed_ms=self.clock.now_ms())
        return roster_row(state.seq + 1, group_id, roster)


def holds(state: GroupsState, membership: Membership) -> bool:
    """Whether a member is the one that holds its group, as of a state."""
    group = state.group(membership.group_id)
    return membership.member_id in group.members and group.generation == membership.generation


def check_membership(state: GroupsState, membership: Membership) -> None:
    """Refuse a commit in the name of anyone but the holder. Caller: the plan of a commit, on the current state.

    Raises:
        CommitFailedError: see `GroupOffsets.commit`.
    """
    group = state.group(membership.group_id)
    if membership.generation < 0 and not group.members:
        return
    if holds(state, membership):
        return
    cause: UnknownMemberIdError | IllegalGenerationError
    if membership.member_id in group.members:
        cause = IllegalGenerationError(f"generation {membership.generation} is over; it is {group.generation} now")
    else:
        holders = ", ".join(map(repr, sorted(group.members)))
        holder = f"{holders} hold it in generation {group.generation}" if holders else "it is empty"
        cause = UnknownMemberIdError(f"{membership.member_id!r} is not its member; {holder}")
    raise CommitFailedError(f"group {membership.group_id!r}: offsets were not committed: {cause}") from cause


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
    return OffsetAndMetadata(offset, metadata, operator.index(position.leader_epoch))


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
