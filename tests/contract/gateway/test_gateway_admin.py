"""Foreign admin clients create, describe, alter and delete topics through a gateway."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka import KafkaAdminClient as ForeignAdminClient

from kafkalike.errors import KafkaConfigurationError
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster

Served = tuple[Cluster, str]


@pytest.fixture(scope="module")
def librdkafka(served: Served) -> AdminClient:
    return AdminClient({"bootstrap.servers": served[1]})


@pytest.fixture(scope="module")
def kafka_python(served: Served) -> Iterator[ForeignAdminClient]:
    client = ForeignAdminClient(bootstrap_servers=served[1])
    yield client
    client.close()


def test_topic_of_librdkafka_is_a_topic_of_the_cluster(served: Served, librdkafka: AdminClient) -> None:
    cluster, _ = served
    librdkafka.create_topics([NewTopic("orders", 3, 1, config={"cleanup.policy": "compact"})])["orders"].result()

    assert cluster.topic("orders").num_partitions == 3
    assert cluster.topic("orders").configs == {"cleanup.policy": "compact"}
    found = librdkafka.list_topics(timeout=10)
    assert sorted(found.topics["orders"].partitions) == [0, 1, 2]
    assert [(broker.id, f"{broker.host}:{broker.port}") for broker in found.brokers.values()] == [(0, served[1])]

    librdkafka.create_partitions([NewPartitions("orders", 5)])["orders"].result()
    assert cluster.topic("orders").num_partitions == 5
    librdkafka.delete_topics(["orders"])["orders"].result()
    assert "orders" not in cluster.topics()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        pytest.param(NewTopic("taken", 1, 1), 36, id="name-taken"),
        pytest.param(NewTopic("no/name", 1, 1), 17, id="invalid-name"),
        pytest.param(NewTopic("none", 0, 1), 37, id="no-partitions"),
        pytest.param(NewTopic("odd", 1, 1, config={"cleanup.policy": "burn"}), 40, id="invalid-setting"),
        pytest.param(NewTopic("wide", 1, 3), 38, id="more-replicas-than-roots"),
    ],
)
def test_refused_topic_has_kafkas_code_and_our_text(
    served: Served, librdkafka: AdminClient, topic: NewTopic, code: int
) -> None:
    if "taken" not in served[0].topics():
        served[0].create_topic("taken", 1, {})
    with pytest.raises(KafkaException) as refused:
        librdkafka.create_topics([topic])[topic.topic].result()

    assert refused.value.args[0].code() == code
    assert refused.value.args[0].str()


def test_setting_altered_by_librdkafka_is_described_by_kafka_python(
    served: Served, librdkafka: AdminClient, kafka_python: ForeignAdminClient
) -> None:
    served[0].create_topic("settings", 1, {})
    change = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "settings", incremental_configs=[change])
    next(iter(librdkafka.incremental_alter_configs([resource]).values())).result()

    assert served[0].topic("settings").configs == {"retention.ms": "1234"}
    described = next(iter(librdkafka.describe_configs([ConfigResource("topic", "settings")]).values())).result()
    assert described["retention.ms"].value == "1234"
    assert described["retention.ms"].source == 1
    assert kafka_python.describe_topics(["settings"])[0]["topic_id"] == served[0].topic("settings").topic_id


def test_malformed_request_closes_its_connection_alone(served: Served, librdkafka: AdminClient) -> None:
    host, _, port = served[1].rpartition(":")
    for frame in (
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 15, 3, 9, 1, -1) + b"\0\xff\xff\xff\xff\x0f",
        struct.pack(">ihhi", 8, 999, 0, 1),
    ):
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(frame)
            assert client.recv(1) == b""
    assert librdkafka.list_topics(timeout=10).brokers


def test_api_versions_of_a_newer_client_is_answered_in_the_oldest_form(served: Served) -> None:
    host, _, port = served[1].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
        answer = client.recv(4096)

    size, correlation, code, count = struct.unpack_from(">iihi", answer)
    assert (size, correlation, code) == (len(answer) - 4, 7, 35)
    assert struct.unpack_from(">hhh", answer, 14)[0] in range(100)
    assert count == (len(answer) - 14) // 6


def test_gateway_beyond_the_loopback_is_refused(served: Served) -> None:
    with pytest.raises(KafkaConfigurationError, match="refusing to listen on"):
        GatewayServer(served[0], host="0.0.0.0")  # noqa: S104 - it is refused


def test_second_gateway_is_listed_until_it_stops_and_groups_do_not_show_them(
    served: Served, librdkafka: AdminClient, kafka_python: ForeignAdminClient
) -> None:
    cluster, address = served
    second = GatewayServer(cluster)
    second.start()
    try:
        brokers = librdkafka.list_topics(timeout=10).brokers.values()
        assert {(broker.id, f"{broker.host}:{broker.port}") for broker in brokers} == {
            (0, address),
            (1, second.bootstrap_servers),
        }
        assert "__gateways" not in [group["group_id"] for group in kafka_python.list_groups()]
    finally:
        second.stop()
    assert [broker.id for broker in librdkafka.list_topics(timeout=10).brokers.values()] == [0]
    third = GatewayServer(cluster)
    third.start()
    third.stop()
    assert third.node_id == 1
