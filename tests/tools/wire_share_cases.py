"""Cases of the transcripts: members of share groups, their heartbeats and descriptions, valid and invalid ones."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kafkalike.gateway import api_versions as keys
from tests.tools.wire_cases import NOBODY
from tests.tools.wire_transcript import SECONDS, Transcript


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


SHARE_CASES: Mapping[str, Callable[[Transcript], None]] = {share_members.__name__: share_members}
