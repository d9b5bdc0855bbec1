"""Cases of the transcripts: requests about groups and transactions, valid and invalid ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kafkalike.gateway import api_versions as keys
from kafkalike.model.groups.consumer_protocol import assignment_bytes, subscription_bytes
from tests.tools.wire_cases import CASES, NOBODY, SET, TOPIC
from tests.tools.wire_share_cases import SHARE_CASES
from tests.tools.wire_transcript import Transcript, batch, produced

ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, WRITE_TXN_MARKERS = 43, 45, 46, 27


def _commit(to: Transcript, label: str, group: str, topic: str, partition: int = 0, **more: Any) -> None:
    item = {
        "partition_index": partition,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": "m",
    }
    item |= more.pop("item", {})
    body: dict[str, Any] = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
    }
    body |= {"topics": [{"name": topic, "partitions": [item]}], **more}
    to.ask(label, keys.OFFSET_COMMIT, 9, body)


def _committed(to: Transcript, label: str, group: str, topic: str | None, *numbers: int, **more: Any) -> None:
    topics = None if topic is None else [{"name": topic, "partition_indexes": numbers}]
    asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics, **more}
    to.ask(label, keys.OFFSET_FETCH, 9, {"groups": [asked], "require_stable": False})


def commits(to: Transcript) -> None:
    """Committed offsets of groups without members."""
    topic, group = to.topic(2), to.name
    _committed(to, "unknown group", NOBODY, topic, 0)
    _committed(to, "unknown group, all", NOBODY, None)
    _committed(to, "empty group", "", topic, 0)
    _commit(to, "commit", group, topic)
    _commit(to, "unknown topic", group, NOBODY)
    _commit(to, "no partition", group, topic, 9)
    _commit(to, "negative offset", group, topic, item={"committed_offset": -5})
    _commit(to, "long metadata", group, topic, item={"committed_metadata": "x" * 5000})
    _commit(to, "null metadata", group, topic, 1, item={"committed_metadata": None})
    _commit(to, "empty group commits", "", topic)
    _commit(to, "generation of a group without members", group, topic, generation_id_or_member_epoch=4, member_id="m")
    _commit(to, "generation without member", group, topic, generation_id_or_member_epoch=4)
    _commit(to, "member without generation", group, topic, member_id="m")
    _commit(to, "generation of an unknown group", NOBODY, topic, generation_id_or_member_epoch=4, member_id="m")
    _committed(to, "committed", group, topic, 0, 1, 9)
    _committed(to, "committed, all", group, None)
    _committed(to, "committed, unknown topic", group, NOBODY, 0)
    _committed(to, "committed, unknown member", group, topic, 0, member_id="m", member_epoch=4)
    old = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    to.ask("committed, version 5", keys.OFFSET_FETCH, 5, old)

    def forgotten(label: str, group: str, name: str, *numbers: int) -> None:
        asked = [{"name": name, "partitions": [{"partition_index": n} for n in numbers]}]
        to.ask(label, keys.OFFSET_DELETE, 0, {"group_id": group, "topics": asked})

    forgotten("forget", group, topic, 1)
    forgotten("forget again", group, topic, 1)
    forgotten("forget no partition", group, topic, 9)
    forgotten("forget of an unknown topic", group, NOBODY, 0)
    forgotten("forget of an unknown group", NOBODY, topic, 0)
    to.ask("describe", keys.DESCRIBE_GROUPS, 5, {"groups": [group]})
    to.ask("describe unknown", keys.DESCRIBE_GROUPS, 5, {"groups": [NOBODY]})
    to.ask("describe unknown, version 6", keys.DESCRIBE_GROUPS, 6, {"groups": [NOBODY]})
    to.ask("describe empty name", keys.DESCRIBE_GROUPS, 5, {"groups": [""]})
    to.ask("describe as consumer group", keys.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]})
    to.ask("describe unknown consumer group", keys.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [NOBODY]})
    listed = to.quietly(keys.LIST_GROUPS, 5, {"states_filter": ["Empty"], "types_filter": ["classic"]})
    to.note("listed", next(one for one in listed.groups if one.group_id == group))
    to.ask("listed by unknown state", keys.LIST_GROUPS, 5, {"states_filter": ["Nonsense"], "types_filter": []})
    to.ask("listed by unknown type", keys.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["nonsense"]})
    to.ask("delete unknown", keys.DELETE_GROUPS, 2, {"groups_names": [NOBODY]})
    to.ask("delete empty name", keys.DELETE_GROUPS, 2, {"groups_names": [""]})
    to.ask("delete", keys.DELETE_GROUPS, 2, {"groups_names": [group]})
    to.ask("delete again", keys.DELETE_GROUPS, 2, {"groups_names": [group]})
    _committed(to, "committed after deletion", group, topic, 0)


def _join(group: str, topic: str, member: str = "", **more: Any) -> dict[str, Any]:
    offered = [{"name": "range", "metadata": subscription_bytes([topic])}]
    body: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member,
    }
    return {
        **body,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": offered,
        "reason": None,
        **more,
    }


def classic(to: Transcript) -> None:
    """A member of the classic protocol, and requests of members that are none."""
    topic, group = to.topic(2), to.name
    to.ask("empty group", keys.JOIN_GROUP, 9, _join("", topic))
    to.ask("short session", keys.JOIN_GROUP, 9, _join(group, topic, session_timeout=0))
    to.ask("long session", keys.JOIN_GROUP, 9, _join(group, topic, session_timeout=2**31 - 1))
    to.ask("no protocols", keys.JOIN_GROUP, 9, _join(group, topic, protocols=[]))
    to.ask("no protocol type", keys.JOIN_GROUP, 9, _join(group, topic, protocol_type=""))
    to.ask("unknown member joins", keys.JOIN_GROUP, 9, _join(group, topic, "nobody"))
    required = to.ask("id required", keys.JOIN_GROUP, 9, _join(group, topic))
    joined = to.ask("joined", keys.JOIN_GROUP, 9, _join(group, topic, required.member_id))
    member, generation = joined.member_id, int(joined.generation_id)

    def named(generation: int = generation, member: str = member, **more: Any) -> dict[str, Any]:
        return {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": None, **more}

    def sync(label: str, **more: Any) -> None:
        given = [{"member_id": member, "assignment": assignment_bytes([])}]
        body: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", "assignments": given}
        to.ask(label, keys.SYNC_GROUP, 5, {**named(), **body, **more})

    sync("sync, stale generation", generation_id=generation + 7)
    sync("sync, unknown member", member_id="nobody")
    sync("sync, unknown group", group_id=NOBODY)
    sync("sync, other protocol", protocol_name="sticky")
    sync("sync, other protocol type", protocol_type="connect")
    synced = to.quietly(keys.SYNC_GROUP, 5, {
        **named(), "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": assignment_bytes([])}],
    })  # fmt: skip
    assert synced.error_code == 0, synced
    to.ask("heartbeat", keys.HEARTBEAT, 4, named())
    to.ask("heartbeat, stale generation", keys.HEARTBEAT, 4, named(generation + 7))
    to.ask("heartbeat, unknown member", keys.HEARTBEAT, 4, named(member="nobody"))
    to.ask("heartbeat, unknown group", keys.HEARTBEAT, 4, named(group_id=NOBODY))
    to.ask("heartbeat, unknown instance", keys.HEARTBEAT, 4, named(group_instance_id="nobody"))
    _commit(to, "commit", group, topic, generation_id_or_member_epoch=generation, member_id=member)
    _commit(to, "commit, stale", group, topic, generation_id_or_member_epoch=generation + 7, member_id=member)
    _commit(to, "commit, unknown", group, topic, generation_id_or_member_epoch=generation, member_id="nobody")
    _commit(to, "commit, no member", group, topic)
    described = to.ask("describe", keys.DESCRIBE_GROUPS, 5, {"groups": [group]})
    assert described.groups[0].members
    to.ask("delete", keys.DELETE_GROUPS, 2, {"groups_names": [group]})
    forget = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    to.ask("forget subscribed", keys.OFFSET_DELETE, 0, forget)
    epoch = {"group_id": group, "member_id": str(uuid.UUID(int=9)), "member_epoch": 5, "topic_partitions": None}
    to.ask("heartbeat of the other protocol", keys.CONSUMER_GROUP_HEARTBEAT, 1, {**epoch, "rebalance_timeout": -1})
    to.ask("other protocol type joins", keys.JOIN_GROUP, 9, _join(group, topic, protocol_type="connect"))

    def leave(label: str, *members: tuple[str, str | None], name: str = group) -> None:
        leaving = [{"member_id": m, "group_instance_id": i, "reason": None} for m, i in members]
        to.ask(label, keys.LEAVE_GROUP, 5, {"group_id": name, "members": leaving})

    leave("leave, unknown group", (member, None), name=NOBODY)
    leave("leave, unknown", ("nobody", None))
    leave("leave, unknown instance", ("", "nobody"))
    leave("leave", (member, None))
    leave("leave again", (member, None))
    to.ask("heartbeat after leaving", keys.HEARTBEAT, 4, named())
    to.ask("describe after leaving", keys.DESCRIBE_GROUPS, 5, {"groups": [group]})


def static(to: Transcript) -> None:
    """Static members of the classic protocol."""
    topic, group = to.topic(1), to.name
    first = to.ask("joined", keys.JOIN_GROUP, 9, _join(group, topic, group_instance_id="one"))
    sync: dict[str, Any] = {"group_id": group, "generation_id": int(first.generation_id), "member_id": first.member_id}
    sync |= {"group_instance_id": "one", "protocol_type": "consumer", "protocol_name": "range"}
    given = [{"member_id": first.member_id, "assignment": assignment_bytes([])}]
    assert to.quietly(keys.SYNC_GROUP, 5, {**sync, "assignments": given}).error_code == 0
    second = to.ask("joined again", keys.JOIN_GROUP, 9, _join(group, topic, group_instance_id="one"))
    assert second.member_id != first.member_id
    beat = {"group_id": group, "generation_id": int(first.generation_id), "group_instance_id": "one"}
    to.ask("heartbeat of the former", keys.HEARTBEAT, 4, {**beat, "member_id": first.member_id})
    to.ask("joins as the former", keys.JOIN_GROUP, 9, _join(group, topic, first.member_id, group_instance_id="one"))
    stale = {"generation_id_or_member_epoch": int(first.generation_id), "member_id": first.member_id}
    _commit(to, "commit of the former", group, topic, **stale, group_instance_id="one")
    leaving = [{"member_id": first.member_id, "group_instance_id": "one", "reason": None}]
    to.ask("former leaves", keys.LEAVE_GROUP, 5, {"group_id": group, "members": leaving})
    leaving = [{"member_id": "", "group_instance_id": "one", "reason": None}]
    to.ask("leaves by name", keys.LEAVE_GROUP, 5, {"group_id": group, "members": leaving})


def epochs(to: Transcript) -> None:
    """Members of the consumer protocol (KIP-848)."""
    topic, group = to.topic(1), to.name
    member = str(uuid.UUID(int=4))

    def beat(label: str, epoch: int, member: str = member, **more: Any) -> Any:
        body: dict[str, Any] = {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "rebalance_timeout": 10_000,
        }
        if epoch == 0:
            body |= {"subscribed_topic_names": [topic], "topic_partitions": []}
        else:
            body |= {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout": -1}
        nothing = {"instance_id": None, "rack_id": None, "subscribed_topic_regex": None, "server_assignor": None}
        return to.ask(label, keys.CONSUMER_GROUP_HEARTBEAT, 1, {**nothing, **body, **more})

    beat("empty group", 0, group_id="")
    beat("empty member", 0, member="")
    beat("no subscription", 0, subscribed_topic_names=None)
    beat("no rebalance timeout", 0, rebalance_timeout=-1)
    beat("owns on joining", 0, topic_partitions=[{"topic_id": uuid.UUID(int=7), "partitions": [0]}])
    beat("unknown assignor", 0, server_assignor="nonsense")
    beat("empty assignor", 0, server_assignor="")
    beat("empty instance", 0, instance_id="")
    beat("epoch of an unknown group", 5)
    beat("leaves an unknown group", -1)
    beat("unknown epoch", -9)
    joined = beat("joined", 0)
    epoch = int(joined.member_epoch)
    beat("again", epoch)
    beat("unknown member", epoch, member="nobody")
    beat("later epoch", epoch + 5)
    beat("bad pattern", epoch, subscribed_topic_regex="(")
    _commit(to, "commit", group, topic, generation_id_or_member_epoch=epoch, member_id=member)
    _commit(to, "commit, stale", group, topic, generation_id_or_member_epoch=epoch + 7, member_id=member)
    _commit(to, "commit, unknown", group, topic, generation_id_or_member_epoch=epoch, member_id="nobody")
    _commit(to, "commit, no member", group, topic)
    _committed(to, "committed", group, topic, 0, member_id=member, member_epoch=epoch)
    _committed(to, "committed, stale", group, topic, 0, member_id=member, member_epoch=epoch + 7)
    _committed(to, "committed, unknown", group, topic, 0, member_id="nobody", member_epoch=epoch)
    to.ask("describe", keys.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]})
    to.ask("delete", keys.DELETE_GROUPS, 2, {"groups_names": [group]})
    beat("leaves, unknown", -1, member="nobody")
    beat("leaves statically", -2)
    beat("leaves", -1)
    beat("leaves again", -1)


def transactions(to: Transcript) -> None:  # noqa: PLR0915 - one story
    """Transactions: their states and their epochs."""
    topic, tid = to.topic(2), to.name
    producer, epoch = to.producer(tid)

    def own(epoch: int = epoch, producer: int = producer, tid: str = tid, **more: Any) -> dict[str, Any]:
        return {"transactional_id": tid, "producer_id": producer, "producer_epoch": epoch, **more}

    def add(label: str, *numbers: int, name: str = topic, **more: Any) -> None:
        owner = {f"v3_and_below_{field}": value for field, value in own(**more).items()}
        body: dict[str, Any] = {**owner, "v3_and_below_topics": [{"name": name, "partitions": numbers}]}
        to.ask(label, keys.ADD_PARTITIONS_TO_TXN, 3, body)

    def send(
        label: str, sequence: int, version: int = 11, tid: str | None = tid, epoch: int = epoch, **more: Any
    ) -> None:
        partition = more.pop("partition", 0)
        records = batch(b"t", producer=(producer, epoch), sequence=sequence, transactional=True)
        to.ask(label, keys.PRODUCE, version, produced(topic, partition, records, tid=tid))

    def end(label: str, *, commit: bool, version: int = 4, **more: Any) -> Any:
        return to.ask(label, keys.END_TXN, version, own(committed=commit, **more))

    def offsets(label: str, group: str = tid, name: str = topic, partition: int = 0, **more: Any) -> None:
        item = {
            "partition_index": partition,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body: dict[str, Any] = {
            "group_id": group,
            "generation_id": more.pop("generation", -1),
            "member_id": more.pop("member", ""),
        }
        body |= {"group_instance_id": None, "topics": [{"name": name, "partitions": [item]}]}
        to.ask(label, keys.TXN_OFFSET_COMMIT, 3, {**own(**more), **body})

    end("commit of nothing", commit=True)
    end("abort of nothing", commit=False)
    send("record without partition", 0)
    add("unknown id", 0, tid=NOBODY)
    add("other producer", 0, producer=producer + 7000)
    add("later epoch", 0, epoch=epoch + 5)
    add("no partition", 9)
    add("unknown topic", 0, name=NOBODY)
    add("add", 0)
    add("add again", 0)
    send("record", 0)
    send("record again", 0)
    send("record of another partition", 0, partition=1)
    send("record without id", 1, tid=None)
    to.ask("add offsets, unknown id", keys.ADD_OFFSETS_TO_TXN, 3, own(tid=NOBODY, group_id=tid))
    to.ask("add offsets, later epoch", keys.ADD_OFFSETS_TO_TXN, 3, own(epoch=epoch + 5, group_id=tid))
    to.ask("add offsets", keys.ADD_OFFSETS_TO_TXN, 3, own(group_id=tid))
    offsets("offsets")
    offsets("offsets, unknown member", member="nobody", generation=3)
    offsets("offsets, unknown topic", name=NOBODY)
    offsets("offsets, no partition", partition=9)
    offsets("offsets, later epoch", epoch=epoch + 5)
    described = to.ask("describe open", keys.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [tid]})
    assert described.transaction_states
    to.ask("describe unknown", keys.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [NOBODY]})
    to.ask("describe empty", keys.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [""]})
    filters = {"state_filters": ["Ongoing", "Nonsense"], "producer_id_filters": [producer]}
    to.ask("list", keys.LIST_TRANSACTIONS, 2, {**filters, "duration_filter": -1, "transactional_id_pattern": None})
    to.ask("list, bad pattern", keys.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": "(", "duration_filter": -1})
    end("later epoch ends", commit=True, epoch=epoch + 5)
    end("other producer ends", commit=True, producer=producer + 7000)
    end("unknown id ends", commit=True, tid=NOBODY)
    end("commit", commit=True)
    end("commit again", commit=True)
    end("abort after commit", commit=False)
    asked = {"group_id": tid, "member_id": None, "member_epoch": -1}
    stable = [{**asked, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    to.ask("committed offsets", keys.OFFSET_FETCH, 9, {"groups": stable, "require_stable": True})
    add("add to the next", 1)
    send("record of the next", 0, partition=1)
    send("gap", 7, partition=1)
    fenced = {"transactional_id": tid, "transaction_timeout": 60_000}
    to.ask("other owner", keys.INIT_PRODUCER_ID, 5, {**fenced, "producer_id": producer + 7000, "producer_epoch": 0})
    to.ask("later owner", keys.INIT_PRODUCER_ID, 5, {**fenced, "producer_id": producer, "producer_epoch": epoch + 5})
    again = to.quietly(keys.INIT_PRODUCER_ID, 5, {**fenced, "producer_id": -1, "producer_epoch": -1})
    assert again.error_code == 0, again
    assert int(again.producer_id) == producer
    assert int(again.producer_epoch) > epoch
    add("former adds", 0)
    send("former sends", 1, partition=1)
    end("former commits", commit=True)
    to.ask("former adds offsets", keys.ADD_OFFSETS_TO_TXN, 3, own(group_id=tid))
    offsets("former commits offsets")
    part: dict[str, Any] = {
        "fetch_offset": 0,
        "partition_max_bytes": 10_000,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
    }
    wanted = [{"topic": topic, "partitions": [{**part, "partition": n, "log_start_offset": -1} for n in (0, 1)]}]
    body: dict[str, Any] = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 100_000,
        "isolation_level": 1,
        "session_epoch": -1,
    }
    body |= {"session_id": 0, "rack_id": "", "topics": wanted, "forgotten_topics_data": [], "replica_id": -1}
    to.ask("fetch", keys.FETCH, 12, body)


def bumps(to: Transcript) -> None:
    """Transactions whose end gives the next epoch, and whose partitions need not be added (KIP-890)."""
    topic, tid = to.topic(1), to.name
    producer, epoch = to.producer(tid)

    def send(label: str, sequence: int, epoch: int) -> None:
        records = batch(b"t", producer=(producer, epoch), sequence=sequence, transactional=True)
        to.ask(label, keys.PRODUCE, 12, produced(topic, 0, records, tid=tid))

    def end(label: str, epoch: int, *, commit: bool) -> int:
        body: dict[str, Any] = {
            "transactional_id": tid,
            "producer_id": producer,
            "producer_epoch": epoch,
            "committed": commit,
        }
        ended = to.ask(label, keys.END_TXN, 5, body)
        del to.answers[label]["producer_epoch"]
        to.answers[f"{label}, epoch"] = int(ended.producer_epoch) - first
        return int(ended.producer_epoch)

    first = epoch
    send("record", 0, epoch)
    second = end("commit", epoch, commit=True)
    assert end("commit again", epoch, commit=True) == second
    send("former epoch", 1, epoch)
    end("former epoch aborts", epoch, commit=False)
    send("next begins anew", 0, second)
    third = end("abort", second, commit=False)
    end("abort of nothing", third, commit=False)
    end("later epoch", third + 9, commit=True)
    fourth = to.producer(tid)[1]
    end("commit of nothing", fourth, commit=True)
    fifth = to.producer(tid)[1]
    item = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    body: dict[str, Any] = {"transactional_id": tid, "producer_id": producer, "producer_epoch": fifth, "group_id": tid}
    body |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
    to.ask("offsets", keys.TXN_OFFSET_COMMIT, 5, {**body, "topics": [{"name": topic, "partitions": [item]}]})
    end("commit of offsets", fifth, commit=True)
    # It depends on what happened before.
    del to.answers["commit of offsets, epoch"]


def leaders(to: Transcript) -> None:
    """Elections and moves of replicas on one broker."""
    topic = to.topic(1)

    def elect(label: str, kind: int, name: str | None, *numbers: int) -> None:
        asked = None if name is None else [{"topic": name, "partitions": numbers}]
        to.ask(label, ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": asked, "timeout": 5000})

    elect("elect", 0, topic, 0)
    elect("elect uncleanly", 1, topic, 0)
    elect("elect no partition", 0, topic, 9)
    elect("elect of an unknown topic", 0, NOBODY, 0)

    def move(label: str, name: str, partition: int, replicas: list[int] | None) -> None:
        item = [{"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        to.ask(label, ALTER_REASSIGNMENTS, 0, {"timeout": 5000, "topics": item})

    move("cancel", topic, 0, None)
    move("move to an unknown broker", topic, 0, [77])
    move("move to nobody", topic, 0, [])
    move("move twice", topic, 0, [77, 77])
    move("move negative", topic, 0, [-1])
    move("move no partition", topic, 9, [77])
    move("move an unknown topic", NOBODY, 0, [77])
    to.ask("moves of all", LIST_REASSIGNMENTS, 0, {"timeout": 5000, "topics": None})
    named = [{"name": topic, "partition_indexes": [0]}, {"name": NOBODY, "partition_indexes": [0]}]
    to.ask("moves of topics", LIST_REASSIGNMENTS, 0, {"timeout": 5000, "topics": named})
    resources = {"resource_types": [TOPIC]}
    listed = to.quietly(keys.LIST_CONFIG_RESOURCES, 1, resources)
    assert topic in {one.resource_name for one in listed.config_resources}
    to.ask("resources of an unknown type", keys.LIST_CONFIG_RESOURCES, 1, {"resource_types": [SET + 99]})


EVERY_CASE: Mapping[str, Callable[[Transcript], None]] = {
    **CASES,
    **{case.__name__: case for case in (commits, classic, static, epochs, transactions, bumps, leaders)},
    **SHARE_CASES,
}
"""All cases, those of `wire_cases` and `wire_share_cases` included."""
