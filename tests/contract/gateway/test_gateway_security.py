"""Users of a gateway: TLS, passwords, and what their rules allow, judged by other clients."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient as ForeignAdminClient
from kafka import KafkaConsumer as ForeignConsumer
from kafka import KafkaProducer as ForeignProducer
from kafka import errors as foreign

from kafkalike import KafkaAdminClient, KafkaProducer, TopicPartition
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.authentication import UserFile
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster
from tests.contract.gateway.test_gateway_records import code_of, native_records
from tests.tools.blocks import all_blocks
from tests.tools.certificates import certificate
from tests.tools.wire_client import WireClient

USERS = {
    "root": ["admin"],
    "writer": ["write topic orders*", "use transactional-id pay-*", "read topic orders", "use group copy"],
    "reader": ["read topic orders", "use group app-*"],
    "nobody": [],
}


class Guarded:
    """A gateway with TLS and users."""

    def __init__(self, root: Path) -> None:
        self.cluster: Cluster = connect(str(root / "cluster"))
        for name in ("orders", "secret"):
            self.cluster.create_topic(name, 1, {})
        self.certificate = certificate(root)
        self.users = UserFile(root / "users.toml")
        for name, rules in USERS.items():
            self.users.add(name, f"{name}-password", rules)
        self.server = GatewayServer(self.cluster, users=self.users, certificate=(self.certificate, None))
        self.server.start()

    def settings(self, user: str, mechanism: str = "SCRAM-SHA-256", password: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.server.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or f"{user}-password",
            "ssl.ca.location": self.certificate,
        }

    def foreign(self, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        return {
            "bootstrap_servers": self.server.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": f"{user}-password",
            "ssl_cafile": self.certificate,
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    yield made
    made.server.stop()


def produced(settings: dict[str, Any], topic: str, value: bytes) -> int:
    """Send a record, and return the code of its error; 0 for none."""
    reports: list[int] = []
    producer = Producer({**settings, "linger.ms": 0, "message.timeout.ms": 3000})
    producer.produce(topic, value, on_delivery=lambda error, _: reports.append(code_of(error)))
    producer.flush(10)
    return reports[0]


def fetched(settings: dict[str, Any], topic: str, seconds: float) -> list[bytes | None]:
    """Return the first record, if one comes."""
    consumer = Consumer({**settings, "group.id": "app-1", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([Place(topic, 0, 0)])
        return [message.value() for message in consumer.consume(1, timeout=seconds) if message.error() is None]
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_authenticates_over_tls(guarded: Guarded, mechanism: str) -> None:
    settings = guarded.settings("writer", mechanism)
    assert produced(settings, "orders-new", mechanism.encode()) == 0
    assert mechanism.encode() in [value for _, _, value in native_records(guarded.cluster, "orders-new")]


def test_program_of_the_page_produces_and_consumes(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    found = all_blocks("docs/gateway.md", "Security first")
    (command,) = [line for one in found if one.language == "bash" for line in one.text.splitlines() if " add " in line]
    (program,) = [one.text for one in found if one.language == "python"]
    guarded.users.add("alice", "pencil", re.findall("--allow '(.+?)'", command))
    program = program.replace("kafka.example:9093", guarded.server.bootstrap_servers)

    try:
        exec(program.replace("cert.pem", guarded.certificate), {})  # noqa: S102 - the page's own text
    finally:
        guarded.users.remove("alice")

    assert capsys.readouterr().out == "0\nb'tea'\n"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_python_authenticates_over_tls(guarded: Guarded, mechanism: str) -> None:
    producer = ForeignProducer(**guarded.foreign("writer", mechanism))
    assert producer.send("orders-py", b"v").get(20).topic == "orders-py"
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_password_is_refused(guarded: Guarded, mechanism: str) -> None:
    for user, password in (("writer", "wrong"), ("stranger", "stranger-password")):
        errors: list[int] = []
        producer = Producer(
            {**guarded.settings(user, mechanism, password), "error_cb": lambda e, to=errors: to.append(e.code())}
        )
        with pytest.raises(KafkaException):
            producer.list_topics(timeout=2)
        producer.poll(2)
        assert KafkaError._AUTHENTICATION in errors


def test_client_without_authentication_gets_no_answer(guarded: Guarded) -> None:
    context = ssl.create_default_context(cafile=guarded.certificate)
    metadata = struct.pack(">hhihi", 3, 1, 7, -1, -1)
    for frame in (metadata, b"\0" * 70_000):
        with (
            socket.create_connection(guarded.server.address, 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            answer = b""
            # The gateway may close the connection before it has read all bytes.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                secure.sendall(struct.pack(">i", len(frame)) + frame)
                answer = secure.recv(1)
            assert answer == b""


def test_client_without_tls_gets_no_answer(guarded: Guarded) -> None:
    with socket.create_connection(guarded.server.address, 10) as plain:
        plain.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        received = b""
        while part := plain.recv(100):
            received += part
    # An alert of TLS, and no answer of Kafka's.
    assert received[:1] in {b"", b"\x15"}


@pytest.mark.slow
def test_topic_without_a_rule_is_neither_written_nor_read(guarded: Guarded) -> None:
    with KafkaProducer(bootstrap_servers=guarded.cluster) as native:
        native.send("secret", b"s")
        native.send("orders", b"o")
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED

    assert produced(guarded.settings("reader"), "orders", b"x") == denied
    # Its client does not even send it: Metadata refuses the topic.
    assert produced(guarded.settings("writer"), "secret", b"x") in {denied, KafkaError._MSG_TIMED_OUT}
    assert fetched(guarded.settings("reader"), "orders", 15) == [b"o"]
    assert fetched(guarded.settings("reader"), "secret", 1) == []
    assert [value for _, _, value in native_records(guarded.cluster, "secret")] == [b"s"]
    assert [value for _, _, value in native_records(guarded.cluster, "orders")] == [b"o"]


def test_share_consumer_reads_only_topics_that_its_user_may_read(guarded: Guarded) -> None:
    """A share session remembers its topics, so a rule that is taken away counts at the next fetch."""
    guarded.cluster.create_topic("queue", 1, {})
    part = {"partition_index": 0, "acknowledgement_batches": ()}
    named = {"topic_id": uuid.UUID(str(guarded.cluster.topics()["queue"].topic_id)), "partitions": [part]}
    limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 10_000, "max_records": 10, "batch_size": 10}
    member = {"group_id": "app-queue", "member_id": "m"}
    joins = {**member, "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["queue"]}
    with KafkaProducer(bootstrap_servers=guarded.cluster) as native:
        native.send("queue", b"s")
    with KafkaAdminClient(bootstrap_servers=guarded.cluster) as admin:
        admin.alter_share_group_offsets("app-queue", {TopicPartition("queue", 0): 0})
    guarded.users.add("worker", "worker-password", ["use group app-*", "read topic queue"])
    server = GatewayServer(guarded.cluster, users=guarded.users)
    server.start()
    try:
        with WireClient(server.bootstrap_servers) as wire:
            wire.ask(keys.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            wire.ask(keys.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0worker\0worker-password"})
            seen = []
            for epoch in range(2):
                beat = wire.ask(keys.SHARE_GROUP_HEARTBEAT, 1, joins)
                changes = {"topics": () if epoch else [named], "forgotten_topics_data": ()}
                body = {**member, **limits, **changes, "share_session_epoch": epoch}
                found = wire.ask(keys.SHARE_FETCH, 1, body).responses[0].partitions[0]
                seen.append((len(beat.assignment.topic_partitions), int(found.error_code), bool(found.records)))
                guarded.users.add("worker", None, ["use group app-*"])
    finally:
        server.stop()

    assert seen == [(1, 0, True), (0, KafkaError.TOPIC_AUTHORIZATION_FAILED, False)]


def test_lists_show_only_what_a_user_may_use(guarded: Guarded) -> None:
    seen = {
        user: {t for t in AdminClient(guarded.settings(user)).list_topics(timeout=10).topics if not t.startswith("_")}
        for user in ("root", "reader", "nobody")
    }
    assert {"orders", "secret"} <= seen["root"]
    assert (seen["reader"], seen["nobody"]) == ({"orders"}, set())


@pytest.mark.slow
def test_look_of_a_reader_creates_no_topic(guarded: Guarded) -> None:
    """A reader may see `orders` only, and creates nothing."""
    consumer = ForeignConsumer("orders-7", **guarded.foreign("reader"), group_id="app-2")
    assert consumer.poll(1_000) == {}
    consumer.close()
    assert "orders-7" not in guarded.cluster.topics()


@pytest.mark.slow
def test_group_and_admin_requests_need_rules(guarded: Guarded) -> None:
    denied = ForeignConsumer("orders", **guarded.foreign("reader"), group_id="other")
    with pytest.raises(foreign.GroupAuthorizationFailedError):
        denied.poll(10_000)
    denied.close(autocommit=False)
    writer, root = AdminClient(guarded.settings("writer")), AdminClient(guarded.settings("root"))
    with pytest.raises(KafkaException) as refused:
        writer.create_topics([NewTopic("orders-x", 1)])["orders-x"].result(10)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    root.create_topics([NewTopic("made", 1)])["made"].result(10)
    assert "made" in guarded.cluster.topics()


@pytest.mark.slow
def test_transactional_id_needs_a_rule(guarded: Guarded) -> None:
    allowed = Producer({**guarded.settings("writer"), "transactional.id": "pay-1"})
    allowed.init_transactions(15)
    denied = Producer({**guarded.settings("writer"), "transactional.id": "other"})
    with pytest.raises(KafkaException) as refused:
        denied.init_transactions(15)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_administrator_sees_users_and_rules(guarded: Guarded) -> None:
    pattern = kafka.admin.ResourcePatternFilter(
        kafka.admin.ResourceType.TOPIC, "orders-1", kafka.admin.ACLResourcePatternType.MATCH
    )
    anything = kafka.admin.ACLFilter(
        principal=None,
        host="*",
        operation=kafka.admin.ACLOperation.ANY,
        permission_type=kafka.admin.ACLPermissionType.ANY,
        resource_pattern=pattern,
    )
    admin = ForeignAdminClient(**guarded.foreign("root"))
    try:
        described = admin.describe_user_scram_credentials(["reader"])["reader"]["credential_infos"]
        acls, _ = admin.describe_acls(anything)
    finally:
        admin.close()

    assert [(one["mechanism"].name, one["iterations"]) for one in described] == [
        ("SCRAM_SHA_256", 8192),
        ("SCRAM_SHA_512", 8192),
    ]
    assert [(acl.principal, acl.resource_pattern.resource_name, acl.operation.name) for acl in acls] == [
        ("User:writer", "orders", "WRITE")
    ]


def test_changed_rules_hold_for_open_connections(guarded: Guarded) -> None:
    guarded.users.add("guest", "guest-password", ["admin"])
    admin = ForeignAdminClient(**guarded.foreign("guest"))
    try:
        assert "secret" in admin.list_topics()
        UserFile(guarded.users.path).remove("guest")
        assert "secret" not in admin.list_topics()
    finally:
        admin.close()


def test_gateway_listens_elsewhere_only_with_users_or_the_flag(guarded: Guarded, tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigurationError, match="name --users-file, or name --anyone"):
        GatewayServer(guarded.cluster, host="0.0.0.0")  # noqa: S104 - refused
    with pytest.raises(KafkaConfigurationError, match="name --advertise"):
        GatewayServer(guarded.cluster, host="0.0.0.0", users=guarded.users)  # noqa: S104 - refused
    with pytest.raises(KafkaConfigurationError, match="cannot be read"):
        GatewayServer(guarded.cluster, users=UserFile(tmp_path / "missing.toml"))
    with pytest.raises(KafkaConfigurationError, match="cannot be used"):
        GatewayServer(guarded.cluster, certificate=(str(guarded.users.path), None))
