"""Fetch requests in forms that libraries send seldom: repeated topics, and positions before holes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from kafkalike.gateway import api_versions as keys
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.forget import forget
from tests.tools.upkeep import keyed
from tests.tools.wire_client import WireClient

NOW = 1_700_000_000_000
Served = tuple[Cluster, str]
Create = Callable[[int], str]


def part(number: int, offset: int = 0) -> dict[str, int]:
    return {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1_000_000}


def fetched(address: str, *topics: tuple[str, list[dict[str, int]]]) -> list[tuple[str, list[tuple[int, int, bool]]]]:
    """Return what Fetch answers for each topic: partition, error code and whether there are records."""
    asked = [{"topic": name, "partitions": parts} for name, parts in topics]
    body: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000_000, "topics": asked}
    with WireClient(address) as client:
        answer = client.ask(keys.FETCH, 12, body)
    return [
        (topic.topic, [(p.partition_index, int(p.error_code), bool(p.records)) for p in topic.partitions])
        for topic in answer.responses
    ]


def test_topic_that_a_fetch_names_twice_is_answered_once_with_all_partitions(served: Served, topic: Create) -> None:
    """Java clients and librdkafka rotate their partitions, so a topic's partitions need not be neighbors."""
    one, two = topic(3), topic(1)
    for partition in range(3):
        served[0].log(one).append(keyed(("k", "v"), at_ms=NOW, partition=partition))

    found = fetched(served[1], (one, [part(0)]), (two, [part(0)]), (one, [part(2), part(1), part(2)]))

    assert found == [(one, [(0, 0, True), (2, 0, True), (1, 0, True)]), (two, [(0, 0, False)])]


def test_fetch_that_names_a_topic_twice_waits_for_records(served: Served, topic: Create) -> None:
    """Otherwise a client at the logs' ends would ask again and again."""
    cluster, address = served
    one, two = topic(2), topic(1)
    parts = (one, [part(0)]), (two, [part(0)]), (one, [part(1)])
    asked = [{"topic": name, "partitions": [*found]} for name, found in parts]
    body: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000, "topics": asked}
    with WireClient(address) as client:
        client.ask(keys.FETCH, 12, body)
        client.send(keys.FETCH, 12, {**body, "max_wait": 15_000})
        cluster.log(one).append(keyed(("k", "v"), at_ms=NOW, partition=1))
        answer = client.receive(keys.FETCH, 12)

    assert [bool(p.records) for found in answer.responses for p in found.partitions] == [False, True, False]


def test_fetch_that_does_not_wait_sees_what_was_written_just_before(served: Served, topic: Create) -> None:
    """A look at the log just before must not stand for it."""
    cluster, address = served
    name = topic(1)
    log = cluster.log(name)
    ends = []
    with WireClient(address) as client:
        for number in range(5):
            for _ in range(2):
                asked = [{"topic": name, "partitions": [part(0, number)]}]
                for wait, least in ((0, 1), (20, 1), (1_000, 0)):
                    body = {"max_wait": wait, "min_bytes": least, "max_bytes": 10_000, "topics": asked}
                    ends.append(client.ask(keys.FETCH, 12, body).responses[0].partitions[0].high_watermark)
                if len(ends) % 6 == 3:
                    log.append(keyed(("k", "v"), at_ms=NOW))

    assert ends == [end for number in range(5) for end in [number] * 3 + [number + 1] * 3]


def test_consumer_passes_a_hole_up_to_the_end_of_the_log(served: Served, topic: Create) -> None:
    """Forgetting a key may take the last records; who reads up to the log's end must reach it."""
    cluster, address = served
    name = topic(1)
    log = cluster.log(name)
    for number, pair in enumerate([("a", "1"), ("b", "2"), ("b", "3")]):
        log.append(keyed(pair, at_ms=NOW + number))
    forget(name, cluster.root, keys="b", dry_run=False)

    settings = {"bootstrap.servers": address, "group.id": name, "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    seen = [consumer.poll(20), consumer.poll(20)]
    consumer.close()

    record, end = seen
    assert record is not None
    assert record.value() == b"1"
    assert end is not None
    failure = end.error()
    assert failure is not None
    assert failure.name() == "_PARTITION_EOF"
    assert end.offset() == 3


def test_topic_that_was_created_again_is_read_by_its_new_id(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)

    def fetched_by_id(client: WireClient, topic_id: str) -> tuple[int, int]:
        asked = [{"topic_id": uuid.UUID(topic_id), "partitions": [part(0)]}]
        answer = client.ask(keys.FETCH, 13, {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000, "topics": asked})
        found = answer.responses[0].partitions[0]
        return int(found.error_code), found.high_watermark

    with WireClient(address) as client:
        old = str(cluster.topics()[name].topic_id)
        cluster.log(name).append(keyed(("k", "v"), at_ms=NOW))
        before = fetched_by_id(client, old)
        cluster.delete_topic(name)
        cluster.create_topic(name, 1, {})
        after = [fetched_by_id(client, topic_id) for topic_id in (old, str(cluster.topics()[name].topic_id))]

    assert before == (0, 1)
    assert after == [(100, -1), (0, 0)]
