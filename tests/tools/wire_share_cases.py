"""Cases of the transcripts: requests about share groups, valid and invalid ones."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalike.gateway import api_versions as keys
from tests.tools.wire_cases import NOBODY
from tests.tools.wire_transcript import SECONDS, Transcript

ACCEPT, RELEASE, REJECT, RENEW = range(1, 5)

Said = tuple[int, int, Sequence[int]]
"""First and last offset of a batch of acknowledgements, and their types."""


class ShareMember:
    """A member of the group of a case, with its share session."""

    def __init__(self, to: Transcript, topic: str, number: int = 4) -> None:
        self.member_id = str(uuid.UUID(int=number))
        self.epoch = self.session = 0
        self._to, self._topic = to, topic
        self._id = self._topic_id()

    def _topic_id(self) -> Any:
        asked = {"topics": [{"topic_id": None, "name": self._topic}], "allow_auto_topic_creation": False}
        return self._to.quietly(keys.METADATA, 12, asked).topics[0].topic_id

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

    def request(self, said: Sequence[Said] = (), **more: Any) -> dict[str, Any]:
        """Return the fields of the session's next request, about one partition."""
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in said
        ]
        part = {"partition_index": more.pop("partition", 0), "acknowledgement_batches": batches}
        return {
            "group_id": self._to.name,
            "member_id": self.member_id,
            "share_session_epoch": self.session,
            "topics": [{"topic_id": more.pop("topic_id", self._id), "partitions": [part]}],
            **more,
        }

    def fetch(self, said: Sequence[Said] = (), version: int = 1, **more: Any) -> Any:
        """Fetch without a note."""
        limits: dict[str, Any] = {"max_wait": 200, "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 100}
        limits |= {"batch_size": 100, "forgotten_topics_data": ()}
        if version > 1:
            limits |= {"share_acquire_mode": 0, "is_renew_ack": False}
        found = self._to.quietly(keys.SHARE_FETCH, version, {**limits, **self.request(said, **more)})
        self.session += "share_session_epoch" not in more and not found.error_code
        return found

    def delivered(self, label: str, said: Sequence[Said] = (), **more: Any) -> None:
        """Fetch until there are records; note offset and number of each delivery."""
        end, found = time.monotonic() + SECONDS, self.fetch(said, **more)
        while not any(part.acquired_records for topic in found.responses for part in topic.partitions):
            assert time.monotonic() < end, found
            found = self.fetch(**more)
        self._to.note(label, found)
        for topic in self._to.answers[label]["responses"]:
            for part in topic["partitions"]:
                runs = part["acquired_records"]
                part["acquired_records"] = [
                    [offset, run["delivery_count"]]
                    for run in runs
                    for offset in range(run["first_offset"], run["last_offset"] + 1)
                ]

    def asked(self, label: str, *said: Said, **more: Any) -> None:
        """Fetch no records, and note the answer."""
        self._to.note(label, self.fetch(said, max_records=0, **more))

    def acknowledge(self, label: str, *said: Said, version: int = 1, **more: Any) -> None:
        """Acknowledge, and note the answer."""
        if version > 1:
            more = {"is_renew_ack": False, **more}
        found = self._to.ask(label, keys.SHARE_ACKNOWLEDGE, version, self.request(said, **more))
        self.session += "share_session_epoch" not in more and not found.error_code


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


def share_records(to: Transcript) -> None:
    """Fetches and acknowledgements of share groups."""
    topic = to.topic(1)
    one = ShareMember(to, topic)
    one.asked("no session", share_session_epoch=3)
    one.asked("closes no session", share_session_epoch=-1)
    one.acknowledge("acknowledges without session", (0, 0, [ACCEPT]), share_session_epoch=3)
    one.acknowledge("acknowledges in a new session", (0, 0, [ACCEPT]), share_session_epoch=0)
    to.fill(topic, 8)
    to.quietly(keys.ALTER_SHARE_GROUP_OFFSETS, 0, _start(to.name, topic, 0))
    one.join()
    one.delivered("first", max_records=3)
    one.acknowledge("each type", (0, 2, [ACCEPT, RELEASE, REJECT]))
    one.acknowledge("again", (0, 2, [ACCEPT, RELEASE, REJECT]))
    one.delivered("released", max_records=2)
    one.acknowledge("not acquired", (5, 5, [ACCEPT]))
    one.acknowledge("too many", (1, 6, [ACCEPT]))
    one.acknowledge("behind the end", (90, 95, [ACCEPT]))
    one.acknowledge("renewed", (1, 1, [RENEW]), version=2, is_renew_ack=True)
    one.acknowledge("renewed without flag", (1, 1, [RENEW]), version=2)
    one.acknowledge("renewed by version 1", (1, 1, [RENEW]))
    one.acknowledge("backwards", (3, 1, [ACCEPT]))
    one.acknowledge("negative", (-1, 1, [ACCEPT]))
    one.acknowledge("too few types", (1, 3, [ACCEPT, ACCEPT]))
    one.acknowledge("no types", (1, 3, []))
    one.acknowledge("unknown type", (1, 1, [9]))
    one.acknowledge("overlapping", (1, 3, [ACCEPT]), (3, 4, [ACCEPT]))
    one.acknowledge("unordered", (3, 3, [ACCEPT]), (1, 1, [ACCEPT]))
    one.acknowledge("no partition", (1, 1, [ACCEPT]), partition=9)
    one.acknowledge("unknown topic", (1, 1, [ACCEPT]), topic_id=uuid.UUID(int=7))
    one.acknowledge("wrong session epoch", (1, 1, [ACCEPT]), share_session_epoch=99)
    one.acknowledge("no group", (1, 1, [ACCEPT]), group_id="")
    one.acknowledge("no member", (1, 1, [ACCEPT]), member_id="")
    one.asked("wrong session epoch fetches", share_session_epoch=99)
    one.asked("no member fetches", member_id="")
    one.asked("no partition fetched", partition=9)
    one.asked("unknown topic fetched", topic_id=uuid.UUID(int=7))
    one.delivered("next", [(1, 1, [ACCEPT])], max_records=2)
    one.asked("gap", (3, 3, [0]))
    one.delivered("delivered twice", [(4, 5, [RELEASE])], max_records=1)
    for number in range(3, 7):
        # The sixth delivery is that of the next record.
        one.delivered(f"delivery {number}", [(4, 4, [RELEASE])], max_records=1)
    one.acknowledge("closes", (5, 5, [ACCEPT]), share_session_epoch=-1)
    one.acknowledge("closed", (5, 5, [ACCEPT]))


def _start(group: str, topic: str, offset: int, partition: int = 0) -> dict[str, Any]:
    """Return the fields of a request that sets a start offset."""
    parts = [{"partition_index": partition, "start_offset": offset}]
    return {"group_id": group, "topics": [{"topic_name": topic, "partitions": parts}]}


def share_offsets(to: Transcript) -> None:
    """Start offsets of share groups."""
    topic, group = to.topic(2), to.name
    to.fill(topic, 5)

    def offsets(label: str, name: str | None, *numbers: int, group: str = group) -> None:
        topics = None if name is None else [{"topic_name": name, "partitions": numbers}]
        to.ask(label, keys.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": group, "topics": topics}]})

    def alter(label: str, name: str, offset: int, partition: int = 0, group: str = group) -> None:
        to.ask(label, keys.ALTER_SHARE_GROUP_OFFSETS, 0, _start(group, name, offset, partition))

    def forget(label: str, *names: str, group: str = group) -> None:
        asked = {"group_id": group, "topics": [{"topic_name": name} for name in names]}
        to.ask(label, keys.DELETE_SHARE_GROUP_OFFSETS, 0, asked)

    offsets("of an unknown group", topic, 0, group=NOBODY)
    offsets("of an unknown group, all", None, group=NOBODY)
    offsets("of an empty name", topic, 0, group="")
    alter("alter an empty name", topic, 1, group="")
    forget("forget of an unknown group", topic, group=NOBODY)
    forget("forget of an empty name", topic, group="")
    alter("alter of a new group", topic, 1)
    offsets("of a new group", topic, 0)
    offsets("unknown topic", NOBODY, 0)
    offsets("no partition", topic, 9)
    one = ShareMember(to, topic)
    one.join()
    alter("alter with members", topic, 1)
    forget("forget with members", topic)
    to.quietly(keys.SHARE_GROUP_HEARTBEAT, 1, one.heartbeat(-1))
    alter("alter", topic, 2)
    offsets("altered", topic, 0)
    offsets("all", None)
    alter("alter behind the end", topic, 90)
    offsets("behind the end", topic, 0)
    alter("alter to a negative offset", topic, -5)
    alter("alter no partition", topic, 1, 9)
    alter("alter an unknown topic", NOBODY, 1)
    forget("forget of an unknown topic", NOBODY)
    forget("forget of two", topic, NOBODY)
    forget("forget again", topic)
    offsets("after forgetting", topic, 0)
    to.ask("delete", keys.DELETE_GROUPS, 2, {"groups_names": [group]})


SHARE_CASES: Mapping[str, Callable[[Transcript], None]] = {
    case.__name__: case for case in (share_members, share_records, share_offsets)
}
