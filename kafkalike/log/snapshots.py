"""Snapshot: several topics and groups as of one moment of all transactions, and its form as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.row_value import UNREADABLE
from kafkalike.model.structs import CommittedOffset, OffsetAndMetadata, TopicPartition

FORMAT: Final = 1
"""Version of the JSON format. Later ones are rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """A topic as of a snapshot."""

    topic_id: str
    """Id of the topic, which differs between topics of one name."""
    version: int
    """Table version, for `VERSION AS OF`."""
    ends: Mapping[int, int]
    """Log ends of that version by partition: the offset after the last record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Several topics and groups as of one moment: of each transaction they show all or nothing.

    A value that can be stored as JSON and used by other processes while the topics' tables keep the versions.
    """

    root: str
    """Root of the topics' cluster."""
    taken_ms: int
    """The moment, ms: when it was taken, or the requested time."""
    seq: int
    """Number of the last included row of the groups' table."""
    topics: Mapping[str, TopicSnapshot]
    """Topics of the snapshot by name."""
    groups_version: int | None = None
    """Table version of `__consumer_offsets`; None in a snapshot as of a time."""
    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """Committed offsets of the requested groups."""

    def topic(self, name: str) -> TopicSnapshot:
        """Return a topic of the snapshot.

        Raises:
            IllegalArgumentError: the snapshot does not have the topic.
        """
        found = self.topics.get(name)
        if found is None:
            known = ", ".join(sorted(self.topics)) or "none"
            raise IllegalArgumentError(f"the snapshot has no topic {name!r}; it has {known}")
        return found

    def version_of(self, name: str, topic_id: str) -> int:
        """Return the version of a topic's table, if the topic is the snapshot's.

        Args:
            name: the topic.
            topic_id: its current id.

        Raises:
            IllegalArgumentError: the snapshot does not have the topic, or has another topic of that name.
        """
        found = self.topic(name)
        if found.topic_id != topic_id:
            raise IllegalArgumentError(
                f"the snapshot has topic {name!r} with id {found.topic_id}, which was deleted; the current topic of "
                f"that name has id {topic_id}"
            )
        return found.version

    def to_json(self) -> str:
        """Return the snapshot as JSON text, for `from_json`."""
        return json.dumps(
            {
                "v": FORMAT,
                "root": self.root,
                "taken_ms": self.taken_ms,
                "seq": self.seq,
                "groups_version": self.groups_version,
                "topics": {
                    name: {"id": at.topic_id, "version": at.version, "ends": {str(p): n for p, n in at.ends.items()}}
                    for name, at in sorted(self.topics.items())
                },
                "offsets": {
                    group: [_dump_offset(tp, found) for tp, found in sorted(offsets.items())]
                    for group, offsets in sorted(self.offsets.items())
                },
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Read the result of `to_json`.

        Raises:
            IllegalArgumentError: the text is not a snapshot, or a later version of kafkalike wrote it.
        """
        try:
            found = json.loads(text)
            version = found["v"]
            if version == FORMAT:
                return _load(found)
        except UNREADABLE as cause:
            raise IllegalArgumentError(f"this is not the JSON of a snapshot: {cause!r}") from cause
        raise IllegalArgumentError(f"the snapshot has format {version!r}, and this version of kafkalike knows {FORMAT}")


def _load(found: Mapping[str, Any]) -> Snapshot:
    groups_version = found["groups_version"]
    return Snapshot(
        root=str(found["root"]),
        taken_ms=int(found["taken_ms"]),
        seq=int(found["seq"]),
        groups_version=None if groups_version is None else int(groups_version),
        topics={
            str(name): TopicSnapshot(
                topic_id=str(at["id"]),
                version=int(at["version"]),
                ends={int(p): int(end) for p, end in at["ends"].items()},
            )
            for name, at in found["topics"].items()
        },
        offsets={
            str(group): dict(_load_offset(offset) for offset in offsets) for group, offsets in found["offsets"].items()
        },
    )


def _dump_offset(tp: TopicPartition, found: CommittedOffset) -> dict[str, Any]:
    at = found.position
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": at.offset,
        "metadata": at.metadata,
        "leader_epoch": at.leader_epoch,
        "topic_id": found.topic_id,
        "time_ms": found.time_ms,
        "member_id": found.member_id,
        "client_id": found.client_id,
    }


def _load_offset(found: Mapping[str, Any]) -> tuple[TopicPartition, CommittedOffset]:
    return TopicPartition(str(found["topic"]), int(found["partition"])), CommittedOffset(
        position=OffsetAndMetadata(int(found["offset"]), str(found["metadata"]), int(found["leader_epoch"])),
        topic_id=str(found["topic_id"]),
        time_ms=int(found["time_ms"]),
        member_id=str(found["member_id"]),
        client_id=str(found["client_id"]),
    )
