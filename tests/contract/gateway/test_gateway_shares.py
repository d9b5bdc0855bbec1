"""Confluent's share consumer at the gateway: what it gets, and what becomes of its acknowledgements."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType as Foreign
from confluent_kafka import ShareConsumer
from prometheus_client import CollectorRegistry

from kafkalike import KafkaAdminClient, KafkaProducer, KafkaShareConsumer, TopicPartition, errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.gateway.handlers import share_sessions
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.groups.consumer_protocol import subscription_bytes
from tests.tools.wire_client import WireClient

Served = tuple[Cluster, str]
Create = Callable[[int], str]
PATIENCE = 60.0


@contextmanager
def foreign(address: str, topic: str, **settings: Any) -> Iterator[ShareConsumer]:
    """Confluent's share consumer, in the group named as the topic."""
    conf = {"bootstrap.servers": address, "group.id": topic, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({**conf, **settings})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def filled(cluster: Cluster, topic: str, count: int) -> None:
    """A queue whose group starts at its first record."""
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        partitions = cluster.topic(topic).partitions
        admin.alter_share_group_offsets(topic, {TopicPartition(topic, p): 0 for p in partitions})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for n in range(count):
            producer.send(topic, str(n).encode(), partition=n % len(partitions))


def until(consumer: ShareConsumer, count: int, judge: Callable[[Any], Foreign]) -> list[tuple[str, int | None]]:
    """Poll until there were so many deliveries; return value and number of each delivery."""
    found: list[tuple[str, int | None]] = []
    limit = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < limit, found
        messages = consumer.poll(1.0)
        for message in messages:
            assert message.error() is None
            value: Any = message.value()
            found.append((value.decode(), message.delivery_count()))
            consumer.acknowledge(message, judge(message))
        if messages:
            assert set(consumer.commit_sync(10).values()) == {None}
    return found


def test_foreign_consumer_works_through_a_queue(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(2)
    filled(cluster, name, 20)
    released: list[str] = []

    def judge(message: Any) -> Foreign:
        value = message.value().decode()
        if value == "7" and value not in released:
            released.append(value)
            return Foreign.RELEASE
        return Foreign.REJECT if value == "8" else Foreign.ACCEPT

    with foreign(address, name) as consumer:
        found = until(consumer, 21, judge)
        members = cluster.groups.refresh().group(name).members
    assert sorted(found) == sorted([*((str(n), 1) for n in range(20)), ("7", 2)])
    assert len(members) == 1
    assert {tp.partition: (share.start, share.runs) for tp, share in cluster.groups.refresh().shares[name].items()} == {
        0: (10, ()),
        1: (10, ()),
    }
    assert cluster.groups.state.group(name).members == {}


def test_closed_foreign_consumer_gives_its_records_back(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 4)
    with foreign(address, name) as consumer:
        limit = time.monotonic() + PATIENCE
        while not (messages := list(consumer.poll(1.0))):
            assert time.monotonic() < limit
        consumer.acknowledge(messages[0], Foreign.ACCEPT)
        for message in messages[1:]:
            consumer.acknowledge(message, Foreign.RELEASE)
        consumer.commit_sync(10)
    with KafkaShareConsumer(name, bootstrap_servers=cluster, group_id=name) as native:
        again = [(record.value, record.delivery_count) for record in native.poll(timeout_ms=10_000)]
    assert again == [(b"1", 2), (b"2", 2), (b"3", 2)]


def test_native_and_foreign_consumers_share_a_queue(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 10)
    with KafkaShareConsumer(name, bootstrap_servers=cluster, group_id=name, max_poll_records=4) as native:
        mine = [record.value.decode() for record in native.poll(timeout_ms=10_000)]
        with foreign(address, name) as consumer:
            theirs = [value for value, _ in until(consumer, 6, lambda _: Foreign.ACCEPT)]
        native.commit()
    assert mine == ["0", "1", "2", "3"]
    assert sorted(theirs) == ["4", "5", "6", "7", "8", "9"]
    assert cluster.groups.refresh().shares[name][TopicPartition(name, 0)].start == 10


@pytest.mark.slow
def test_foreign_consumer_moves_to_another_gateway(served: Served, topic: Create) -> None:
    """The first gateway ends; the locks and the member are in the table."""
    cluster, _ = served
    name = topic(1)
    filled(cluster, name, 6)
    first, second = GatewayServer(cluster), GatewayServer(cluster)
    first.start()
    second.start()
    addresses = f"{first.bootstrap_servers},{second.bootstrap_servers}"
    try:
        with foreign(addresses, name) as consumer:
            found = until(consumer, 6, lambda _: Foreign.ACCEPT)
            first.stop()
            with KafkaProducer(bootstrap_servers=cluster) as producer:
                producer.send(name, b"later", partition=0)
            found += until(consumer, 1, lambda _: Foreign.ACCEPT)
    finally:
        first.stop()
        second.stop()
    assert [value for value, _ in found] == ["0", "1", "2", "3", "4", "5", "later"]


# --- what no library sends -----------------------------------------------------------------------


class Raw:
    """A member of a share group by single requests."""

    def __init__(self, wire: WireClient, cluster: Cluster, topic: str) -> None:
        self.wire, self._group, self._member = wire, topic, str(uuid.uuid4())
        self._id = uuid.UUID(cluster.topic(topic).topic_id)

    def body(self, epoch: int, batches: Any = (), **more: Any) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "member_id": self._member,
            "share_session_epoch": epoch,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 10_000_000,
            "max_records": 100,
            "batch_size": 100,
            "topics": [
                {
                    "topic_id": self._id,
                    "partitions": [{"partition_index": 0, "acknowledgement_batches": list(batches)}],
                }
            ],
            "forgotten_topics_data": (),
            **more,
        }

    def send(self, key: int, epoch: int, batches: Any = (), **more: Any) -> None:
        self.wire.send(key, 1, self.body(epoch, batches, **more))

    def ask(self, key: int, epoch: int, batches: Any = (), **more: Any) -> Any:
        self.send(key, epoch, batches, **more)
        return self.wire.receive(key, 1)

    def fetch(self, epoch: int, batches: Any = (), **more: Any) -> Any:
        return self.ask(keys.SHARE_FETCH, epoch, batches, **more)

    def acknowledge(self, epoch: int, batches: Any) -> Any:
        return self.ask(keys.SHARE_ACKNOWLEDGE, epoch, batches)


@pytest.fixture
def raw(served: Served, topic: Create) -> Iterator[Raw]:
    """A member whose queue has four records."""
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 4)
    with WireClient(address) as wire:
        yield Raw(wire, cluster, name)


def batch(first: int, last: int, *types: int) -> dict[str, Any]:
    return {"first_offset": first, "last_offset": last, "acknowledge_types": types}


def test_fetch_delivers_and_acknowledges_in_one_request(raw: Raw) -> None:
    first = raw.fetch(0, max_records=2).responses[0].partitions[0]
    second = raw.fetch(1, [batch(0, 1, 1, 2)]).responses[0].partitions[0]
    third = raw.fetch(2, [batch(1, 3, 1)], max_records=0).responses[0].partitions[0]
    assert [(r.first_offset, r.last_offset, r.delivery_count) for r in first.acquired_records] == [(0, 1, 1)]
    assert [(r.first_offset, r.last_offset, r.delivery_count) for r in second.acquired_records] == [
        (1, 1, 2),
        (2, 3, 1),
    ]
    assert (second.acknowledge_error_code, third.acknowledge_error_code) == (0, 0)
    assert third.acquired_records == ()


def test_refused_acknowledgement_leaves_its_partition_as_it_is(raw: Raw) -> None:
    raw.fetch(0, max_records=2)
    refused = raw.acknowledge(1, [batch(0, 3, 1)]).responses[0].partitions[0]
    accepted = raw.acknowledge(2, [batch(0, 1, 1)]).responses[0].partitions[0]
    assert (int(refused.error_code), int(accepted.error_code)) == (errors.InvalidRecordStateError.errno, 0)


def test_session_has_an_epoch(raw: Raw) -> None:
    unknown = raw.fetch(3)
    raw.fetch(0)
    wrong = raw.fetch(7)
    closed = raw.acknowledge(-1, [batch(0, 0, 1)])
    gone = raw.acknowledge(1, [batch(1, 1, 1)])
    again = raw.fetch(0).responses[0].partitions[0]
    assert int(unknown.error_code) == errors.ShareSessionNotFoundError.errno
    assert int(wrong.error_code) == errors.InvalidShareSessionEpochError.errno
    assert (int(closed.error_code), int(gone.error_code)) == (0, errors.ShareSessionNotFoundError.errno)
    assert [(r.first_offset, r.delivery_count) for r in again.acquired_records] == [(1, 2)]


def test_session_takes_no_more_partitions_than_a_fetch_can_look_at(raw: Raw) -> None:
    place = {
        "topic_id": uuid.uuid4(),
        "partitions": [{"partition_index": n, "acknowledgement_batches": ()} for n in range(10_001)],
    }
    refused, unknown = raw.fetch(0, topics=[place]), raw.fetch(1)

    assert int(refused.error_code) == errors.InvalidRequestError.errno
    assert int(unknown.error_code) == errors.ShareSessionNotFoundError.errno


def test_oldest_sessions_end_when_all_have_too_many_partitions(
    served: Served, topic: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_sessions, "MAX_PLACES", 2)
    name = topic(1)
    with WireClient(served[1]) as wire:
        members = [Raw(wire, served[0], name) for _ in range(3)]
        begun = [int(member.fetch(0).error_code) for member in members]
        codes = [int(member.fetch(1).error_code) for member in members]

    assert (begun, codes) == ([0, 0, 0], [errors.ShareSessionNotFoundError.errno, 0, 0])


@pytest.mark.parametrize("answered", [True, False], ids=["after the answer", "before the answer"])
def test_lost_connection_gives_the_records_of_its_session_back(
    served: Served, topic: Create, *, answered: bool
) -> None:
    """As in Kafka, nobody waits until the locks expire, which takes 30 s."""
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 4)
    with WireClient(address) as wire:
        lost = Raw(wire, cluster, name)
        lost.send(keys.SHARE_FETCH, 0)
        if answered:
            taken = wire.receive(keys.SHARE_FETCH, 1).responses[0].partitions[0]
            assert [(r.first_offset, r.last_offset) for r in taken.acquired_records] == [(0, 3)]
    with WireClient(address) as wire:
        other, found, epoch = Raw(wire, cluster, name), set[int](), 0
        while len(found) < 4:
            for response in other.fetch(epoch, max_wait=5_000).responses:
                for run in response.partitions[0].acquired_records:
                    found |= set(range(run.first_offset, run.last_offset + 1))
            epoch += 1
            assert epoch < 4, found

    assert found == {0, 1, 2, 3}


def test_session_that_moved_to_another_connection_keeps_its_records(served: Served, topic: Create) -> None:
    cluster, _ = served
    name, registry = topic(1), CollectorRegistry()
    filled(cluster, name, 4)
    server = GatewayServer(cluster, registry=registry)
    server.start()
    with WireClient(server.bootstrap_servers) as second:
        with WireClient(server.bootstrap_servers) as first:
            member = Raw(first, cluster, name)
            member.fetch(0)
            member.wire = second
            member.acknowledge(1, [batch(0, 0, 1)])
        while registry.get_sample_value("kafkalike_gateway_connections") != 1:  # the time limit of tests ends it
            time.sleep(0.02)
        kept = member.acknowledge(2, [batch(1, 3, 1)]).responses[0].partitions[0]
    server.stop()

    assert int(kept.error_code) == 0
    assert cluster.groups.refresh().shares[name][TopicPartition(name, 0)].start == 4


def test_session_begins_with_a_fetch_that_acknowledges_nothing(raw: Raw) -> None:
    begun = [raw.fetch(0, [batch(0, 0, 1)]), raw.acknowledge(0, [batch(0, 0, 1)]), raw.acknowledge(1, ())]
    assert [int(one.error_code) for one in begun] == [
        errors.InvalidRequestError.errno,
        errors.InvalidShareSessionEpochError.errno,
        errors.ShareSessionNotFoundError.errno,
    ]


def test_acknowledgement_adds_no_partition_to_the_session_and_names_what_is_unknown(raw: Raw) -> None:
    """A consumer may acknowledge a partition that it has just lost, and does not want its next records."""
    raw.fetch(0)
    body = raw.body(1, [batch(0, 0, 1)])
    (topic,) = body["topics"]
    lost = {**topic, "partitions": [{**topic["partitions"][0], "partition_index": 9}]}
    unknown = {**topic, "topic_id": uuid.UUID(int=7)}
    acknowledged = raw.wire.ask(keys.SHARE_ACKNOWLEDGE, 1, {**body, "topics": [topic, lost, unknown]})
    fetched = raw.fetch(2, [batch(1, 1, 2)])

    parts = [one for response in acknowledged.responses for one in response.partitions]
    assert [(p.partition_index, int(p.error_code)) for p in parts] == [
        (0, 0),
        (9, errors.UnknownTopicOrPartitionError.errno),
        (0, errors.UnknownTopicIdError.errno),
    ]
    assert [p.partition_index for response in fetched.responses for p in response.partitions] == [0]


def test_lock_is_renewed_only_by_a_request_that_says_so(raw: Raw) -> None:
    raw.fetch(0)
    codes = []
    for epoch, renews in ((1, False), (2, True)):
        body = {**raw.body(epoch, [batch(0, 0, 4)]), "is_renew_ack": renews}
        answer = raw.wire.ask(keys.SHARE_ACKNOWLEDGE, 2, body)
        codes.append(int(answer.responses[0].partitions[0].error_code))
    assert codes == [errors.InvalidRequestError.errno, 0]


def test_heartbeat_of_a_later_epoch_is_fenced(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 1)
    body = {"group_id": name, "member_id": str(uuid.uuid4()), "rack_id": None}
    with WireClient(address) as wire:
        joins = {**body, "member_epoch": 0, "subscribed_topic_names": (name,)}
        joined = wire.ask(keys.SHARE_GROUP_HEARTBEAT, 1, joins)
        epoch = int(joined.member_epoch)
        codes = [
            int(wire.ask(keys.SHARE_GROUP_HEARTBEAT, 1, {**body, "member_epoch": at}).error_code)
            for at in (epoch, epoch + 1, -1)
        ]
    assert codes == [0, errors.FencedMemberEpochError.errno, 0]


def test_scheduled_record_is_not_delivered_before_its_time(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 1)
    at = str(int(time.time() * 1000) + 3_600_000).encode()
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send(name, b"later", partition=0, headers=[("deliver_at", at)])
        producer.send(name, b"now", partition=0)
    with WireClient(address) as wire:
        found = Raw(wire, cluster, name).fetch(0).responses[0].partitions[0]
    assert [(r.first_offset, r.last_offset) for r in found.acquired_records] == [(0, 0), (2, 2)]


def test_groups_are_described_altered_and_deleted(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 3)
    place = [{"partition_index": 0, "start_offset": 2}]
    with WireClient(address) as wire:

        def ask(key: int, version: int, body: dict[str, Any]) -> Any:
            wire.send(key, version, body)
            return wire.receive(key, version)

        described = ask(keys.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [name, "none"]}).groups
        wanted = {"group_id": name, "topics": [{"topic_name": name, "partitions": place}]}
        altered = ask(keys.ALTER_SHARE_GROUP_OFFSETS, 0, wanted)
        offsets = ask(keys.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": name, "topics": None}]}).groups[0]
        listed = ask(keys.LIST_GROUPS, 5, {"states_filter": (), "types_filter": ["share"]}).groups
        gone = ask(keys.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": name, "topics": [{"topic_name": name}]})
    assert [(int(group.error_code), group.group_state) for group in described] == [
        (0, "Empty"),
        (errors.GroupIdNotFoundError.errno, ""),
    ]
    assert int(altered.error_code) == 0
    partition = offsets.topics[0].partitions[0]
    assert (partition.start_offset, partition.lag) == (2, 1)
    assert (name, "share") in {(group.group_id, group.group_type) for group in listed}
    assert (int(gone.error_code), int(gone.responses[0].error_code)) == (0, 0)
    assert name not in cluster.groups.refresh().shares


def test_group_of_another_type_is_refused(served: Served, topic: Create) -> None:
    """With the codes of Kafka's coordinator."""
    cluster, address = served
    queue, plain = topic(1), topic(2)
    filled(cluster, queue, 1)
    plain_group = f"{plain}-readers"
    place = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    with WireClient(address) as wire:

        def committed(group: str) -> int:
            offsets = [{"name": plain, "partitions": [place]}]
            who = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
            return int(wire.ask(keys.OFFSET_COMMIT, 8, {**who, "topics": offsets}).topics[0].partitions[0].error_code)

        def joined(member_id: str) -> Any:
            return wire.ask(
                keys.JOIN_GROUP,
                9,
                {
                    "group_id": queue,
                    "session_timeout": 10_000,
                    "rebalance_timeout": 10_000,
                    "member_id": member_id,
                    "group_instance_id": None,
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": subscription_bytes([queue])}],
                    "reason": None,
                },
            )

        commits = [committed(queue), committed(plain_group)]
        classic = joined(joined("").member_id)
        shared = wire.ask(
            keys.SHARE_GROUP_HEARTBEAT,
            1,
            {
                "group_id": plain_group,
                "member_id": str(uuid.uuid4()),
                "member_epoch": 0,
                "rack_id": None,
                "subscribed_topic_names": [plain],
            },
        )
    not_found = errors.GroupIdNotFoundError.errno
    assert commits == [not_found, 0]
    assert int(classic.error_code) == errors.InconsistentGroupProtocolError.errno
    assert int(shared.error_code) == not_found


def test_settings_of_a_group_altered_by_its_clients_hold_for_its_members(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    filled(cluster, name, 1)
    of_group = {"resource_type": 32, "resource_name": name}
    lock = "share.record.lock.duration.ms"
    with WireClient(address) as wire:

        def alter(**change: Any) -> int:
            resource = {**of_group, "configs": [{"name": lock, "config_operation": 0, **change}]}
            wire.send(keys.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
            return int(wire.receive(keys.INCREMENTAL_ALTER_CONFIGS, 1).responses[0].error_code)

        refused = alter(value="soon")
        before = dict(cluster.groups.refresh().configs.get(name, {}))
        done = alter(value="17000")
        wire.send(
            keys.DESCRIBE_CONFIGS,
            4,
            {
                "resources": [{**of_group, "configuration_keys": [lock]}],
                "include_synonyms": False,
                "include_documentation": False,
            },
        )
        described = wire.receive(keys.DESCRIBE_CONFIGS, 4).results[0]
        Raw(wire, cluster, name).fetch(0)
        (run,) = cluster.groups.refresh().shares[name][TopicPartition(name, 0)].runs
        deleted = alter(value=None, config_operation=1)
    assert (refused, before, done, deleted) == (errors.InvalidConfigurationError.errno, {}, 0, 0)
    assert [(entry.name, entry.value) for entry in described.configs] == [(lock, "17000")]
    assert run.until_ms - run.since_ms == 17_000
    assert name not in cluster.groups.refresh().configs
