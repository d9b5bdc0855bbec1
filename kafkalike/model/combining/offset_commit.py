"""Offset commit: offsets that a member of a group commits in; the rows that say so, if it still may, out.

It is a value, so it can wait in a file and be written by another process: the rule goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.model.combining.checked_json import INT32, list_of, text, whole
from kafkalike.model.group_state import OFFSET, GroupRow, GroupsState
from kafkalike.model.groups.protocol import check_commit
from kafkalike.model.offsets import MAX_OFFSET

KIND: Final = "offsets"

_COUNT: Final = range(MAX_OFFSET + 1)
_FIELDS: Final = ("group", "member", "client")


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of one partition."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    """Next offset to read."""
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets of one group; see `Unit`."""

    group_id: str
    generation: int
    """The one that the member knows; -1 from outside the membership."""
    member_id: str
    """Empty from outside the membership."""
    group_instance_id: str | None
    client_id: str
    time_ms: int
    positions: tuple[Position, ...]

    def __call__(self, state: GroupsState) -> Sequence[GroupRow]:
        """The rows after a state.

        Raises:
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: see `check_commit`.
        """
        roster = state.group(self.group_id).roster
        check_commit(roster, self.group_id, self.member_id, self.generation, self.group_instance_id)
        generation = -1 if self.generation < 0 else roster.generation
        return [
            GroupRow(
                seq=state.seq + nth,
                kind=OFFSET,
                group_id=self.group_id,
                topic=at.topic,
                topic_id=at.topic_id,
                partition=at.partition,
                offset=at.offset,
                leader_epoch=at.leader_epoch,
                metadata=at.metadata,
                generation=generation,
                member_id=self.member_id,
                client_id=self.client_id,
                time_ms=self.time_ms,
            )
            for nth, at in enumerate(self.positions, start=1)
        ]

    def dumped(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "kind": KIND,
            "group": self.group_id,
            "generation": self.generation,
            "member": self.member_id,
            "instance": self.group_instance_id,
            "client": self.client_id,
            "time": self.time_ms,
            "offsets": [
                [at.topic, at.topic_id, at.partition, at.offset, at.leader_epoch, at.metadata] for at in self.positions
            ],
        }


def load_commit(found: Mapping[str, Any]) -> OffsetCommit:
    """A commit that waits. Whoever wrote it, each value is of its type and within its bounds.

    Raises:
        ValueError, TypeError, LookupError: it is none, or only a newer release can read it.
    """
    if found["kind"] != KIND:
        raise ValueError("another kind of unit")
    group_id, member_id, client_id = (text(found[name]) for name in _FIELDS)
    instance = found["instance"]
    return OffsetCommit(
        group_id=group_id,
        generation=whole(found["generation"], INT32),
        member_id=member_id,
        group_instance_id=None if instance is None else text(instance),
        client_id=client_id,
        time_ms=whole(found["time"], range(2**48)),
        positions=tuple(_position(each) for each in list_of(found["offsets"])),
    )


def _position(found: Any) -> Position:  # noqa: ANN401 - any JSON
    topic, topic_id, partition, offset, leader_epoch, metadata = list_of(found)
    return Position(
        text(topic),
        text(topic_id),
        whole(partition, range(INT32.stop)),
        whole(offset, _COUNT),
        whole(leader_epoch, INT32),
        text(metadata),
    )
