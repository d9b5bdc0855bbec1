"""Cases of the transcripts: heartbeats, descriptions and sessions of share groups, valid and invalid ones."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalike.gateway import api_versions as keys
from tests.tools.wire_cases import NOBODY
from tests.tools.wire_transcript import SECONDS, Transcript

Acks = tuple[int, ...]
"""First offset, last offset, and types of a run of records."""


class ShareMember:
    """A member of the group of a case."""

    def __init__(self, to: Transcript, topic: str, number: int = 4) -> None:
        self.member_id = str(uuid.UUID(int=number))
        self.epoch = 0
        self._to, self._topic = to, topic

    def heartbeat(self, epoch: int, **more: Any) -> dict[str, Any]:
        """Return the fields of a heartbeat."""
        names = (self._topic,) if epoch == 0 else None
        body = {"group_id": self._to.name, "member_id": self.member_id, "member_epoch": epoch, "rack_id": None}
        return {**body, "subscribed_topic_names": names, **more}

    def join(self) -> None:
        """Send heartbeats until the member has its partitions."""
        end = time.monotonic() + SECONDS
        while not ((found := self.beat().assignment) is not None and found.topic_partitions):
            assert time.monotonic() < end, "the member gets no partitions"
            time.sleep(0.05)

    def beat(self) -> Any:
        """Send a heartbeat without a note."""
        found = self._to.quietly(keys.SHARE_GROUP_HEARTBEAT, 1, self.heartbeat(self.epoch))
        assert found.error_code == 0, found
        self.epoch = int(found.member_epoch)
        return found


def share_members(to: Transcript) -> None:
    """Heartbeats and descriptions of share groups."""
    topic, group = to.topic(2), to.name
    one = ShareMember(to, topic)

    def beat(label: str, epoch: int, **more: Any) -> None:
        to.ask(label, keys.SHARE_GROUP_HEARTBEAT, 1, one.heartbeat(epoch, **more))

    def describe(label: str, name: str = group) -> None:
        to.ask(label, keys.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [name], "include_authorized_operations": False})

    beat("empty group", 0, group_id="")
    beat("empty member", 0, member_id="")
    beat("no topics", 0, subscribed_topic_names=None)
    beat("empty rack", 0, rack_id="")
    beat("unknown epoch", -9)
    beat("epoch of an unknown group", 5)
    beat("leaves an unknown group", -1)
    describe("describe unknown", NOBODY)
    describe("describe empty name", "")
    one.join()
    beat("heartbeat", one.epoch)
    beat("later epoch", one.epoch + 5)
    beat("unknown member", one.epoch, member_id="nobody")
    beat("unknown topic", one.epoch, subscribed_topic_names=(NOBODY, topic))
    one.beat()
    describe("describe")
    found = to.answers["describe"]["groups"][0]["members"][0]
    assert found["assignment"]["topic_partitions"]
    to.ask("describe as consumer group", keys.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]})
    to.ask("describe as classic group", keys.DESCRIBE_GROUPS, 6, {"groups": [group]})
    listed = to.quietly(keys.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]})
    to.note("listed", next(one for one in listed.groups if one.group_id == group))
    to.ask("delete with members", keys.DELETE_GROUPS, 2, {"groups_names": [group]})
    two = ShareMember(to, topic, 5)
    two.join()
    two_leaves = {**two.heartbeat(-1)}
    to.ask("second leaves", keys.SHARE_GROUP_HEARTBEAT, 1, two_leaves)
    beat("leaves, unknown", -1, member_id="nobody")
    beat("leaves", -1)
    beat("leaves again", -1)
    beat("heartbeat after leaving", one.epoch)
    describe("describe after leaving")
    to.ask("delete", keys.DELETE_GROUPS, 2, {"groups_names": [group]})
    describe("describe after deletion")


class ShareReader:
    """A member of the group of a case that fetches and acknowledges; it counts the epochs of its session."""

    def __init__(self, to: Transcript, topic: str, number: int) -> None:
        self.member = ShareMember(to, topic, number)
        self.member.join()
        named = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
        self.topic_id = to.quietly(keys.METADATA, 12, named).topics[0].topic_id
        self.epoch = 0
        # A broker keeps one session for each connection.
        self._to, self._client = to, to.other()

    def _ask(self, label: str, key: int, version: int, body: Mapping[str, Any]) -> None:
        self._to.note(label, self._client.ask(key, version, body))

    def _asked(self, epoch: int | None, items: Sequence[Acks], **more: Any) -> dict[str, Any]:
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        runs = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, *types in items
        ]
        partition = {"partition_index": more.pop("partition", 0), "acknowledgement_batches": runs}
        topics = [{"topic_id": more.pop("topic_id", self.topic_id), "partitions": [partition]}]
        body = {"group_id": self._to.name, "member_id": self.member.member_id, "share_session_epoch": epoch}
        return {**body, "topics": topics, **more}

    def fetch(self, label: str, *items: Acks, epoch: int | None = None, version: int = 2, **more: Any) -> None:
        """Ask for records, and acknowledge earlier ones: first offset, last offset and types of each run."""
        limits: dict[str, Any] = {
            "max_wait": 10_000 if epoch is None and not items else 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
        }
        limits |= {"max_records": 100, "batch_size": 100, "forgotten_topics_data": ()}
        self._ask(label, keys.SHARE_FETCH, version, self._asked(epoch, items, **{**limits, **more}))

    def acknowledge(self, label: str, *items: Acks, epoch: int | None = None, version: int = 2, **more: Any) -> None:
        """Acknowledge records."""
        self._ask(label, keys.SHARE_ACKNOWLEDGE, version, self._asked(epoch, items, **more))


def share_fetches(to: Transcript) -> None:
    """Share sessions: records, acknowledgements, and what clients must not send."""
    topic = to.topic(2)
    one, two = ShareReader(to, topic, 4), ShareReader(to, topic, 5)

    one.fetch("empty group", epoch=0, group_id="")
    one.fetch("empty member", epoch=0, member_id="")
    one.fetch("epoch without session", epoch=5)
    one.fetch("end without session", epoch=-1)
    one.fetch("acknowledges without session", (0, 0, 1), epoch=0)
    one.acknowledge("acknowledgement without session", (0, 0, 1), epoch=5)
    one.acknowledge("first acknowledgement", (0, 0, 1), epoch=0)
    one.acknowledge("last acknowledgement without session", (0, 0, 1), epoch=-1)
    one.fetch("unknown topic", epoch=0, topic_id=uuid.UUID(int=7))
    one.fetch("unknown partition", epoch=0, partition=9)
    # Its first fetch sets the start of the group, here at the end of an empty topic.
    one.fetch("nothing yet", max_wait=3000)
    to.fill(topic, 8)
    one.fetch("records")
    one.fetch("later epoch", epoch=one.epoch + 5)
    two.fetch("others get nothing", max_wait=0)
    one.acknowledge("accept", (0, 0, 1))
    one.acknowledge("accept again", (0, 0, 1))
    one.fetch("earlier epoch", epoch=1)
    two.acknowledge("of the other member", (1, 1, 1))
    one.acknowledge("release and reject", (1, 1, 2), (2, 2, 3))
    one.fetch("released again")
    one.acknowledge("several types", (6, 7, 1, 2))
    one.acknowledge("several types, and a settled record", (1, 3, 1, 2, 1))
    one.acknowledge("not acquired", (100, 101, 1))
    one.acknowledge("of a partition that it does not fetch", (0, 0, 1), partition=1)
    one.acknowledge("of an unknown partition", (0, 0, 1), partition=9)
    one.acknowledge("of an unknown topic", (0, 0, 1), topic_id=uuid.UUID(int=7))
    _malformed(one)
    one.acknowledge("renew by the old version", (4, 4, 4), version=1)
    one.acknowledge("renew without saying so", (4, 4, 4))
    one.acknowledge("renew", (4, 4, 4), is_renew_ack=True)
    one.acknowledge("of old version", (4, 4, 2), version=1)
    one.fetch("acknowledges and fetches", (5, 5, 1), max_wait=10_000)
    one.fetch("acknowledges wrongly and fetches", (90, 90, 1))
    one.fetch("acknowledges an unknown type and fetches", (4, 4, 9))
    one.fetch("renews and fetches", (4, 4, 4))
    one.fetch("gap", (3, 3, 0))
    one.acknowledge("end", epoch=-1)
    one.acknowledge("after the end", (4, 4, 1))
    two.fetch("given back")
    two.fetch("end of the second", (4, 4, 1), epoch=-1)
    two.fetch("after the end of the second", epoch=2)


def _malformed(one: ShareReader) -> None:
    one.acknowledge("unknown type", (4, 4, 9))
    one.acknowledge("no types", (4, 4))
    one.acknowledge("too few types", (3, 5, 1, 1))
    one.acknowledge("backwards", (5, 4, 1))
    one.acknowledge("negative", (-1, 4, 1))
    one.acknowledge("overlaps", (4, 5, 1), (5, 5, 1))


SHARE_CASES: Mapping[str, Callable[[Transcript], None]] = {
    case.__name__: case for case in (share_members, share_fetches)
}
