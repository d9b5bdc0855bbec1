"""Incidents of the demo: what an operator looks for, left in the cluster for the console and the command line.

One of them is a client of another library, which knows only Kafka's wire protocol.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kafkalike.admin import KafkaAdminClient
from kafkalike.cli.demo.screen import Place, Screen
from kafkalike.consumer import KafkaConsumer
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.structs import ConfigResource, ConfigResourceType, NewTopic
from kafkalike.producer import KafkaProducer, transaction
from kafkalike.schemas import AvroSerializer, Registry

BOARDING: Final = "boarding"
ALERTS: Final = "alerts"
DISPLAY: Final = "gate-display"
"""Group that stops after a third of the records, and so lags."""

PASSENGERS: Final = 60
BROKEN: Final = 7
"""Number of the passenger whose record is not JSON."""
SHOWN: Final = 20
"""Records that the group reads."""

ALERT: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Alert",
    "fields": [{"name": "flight", "type": "string"}, {"name": "minutes", "type": "int"}],
}
ALERT_WITH_REASON: Final = {
    **ALERT,
    "fields": [*ALERT["fields"], {"name": "reason", "type": ["null", "string"], "default": None}],
}

LEFT_OPEN: Final = """
import json, os, sys
from kafkalike import KafkaProducer

producer = KafkaProducer(transactional_id="crew-planner", transaction_timeout_ms=1000, **json.load(sys.stdin))
producer.init_transactions()
producer.begin_transaction()
producer.send("alerts", b"never committed")
producer.flush()
os._exit(0)
"""
"""Program of a producer that ends in the middle of a transaction."""


def lag(place: Place, screen: Screen) -> None:
    """Let a group stop at a third of a topic, past a record that it could not read."""
    with KafkaAdminClient(**place.named) as admin:
        admin.create_topics([NewTopic(BOARDING, num_partitions=1)])
    with KafkaProducer(**place.named) as producer:
        for number in range(PASSENGERS):
            scan = json.dumps({"passenger": number, "seat": f"{number // 6 + 1}{'ABCDEF'[number % 6]}"})
            producer.send(BOARDING, key=b"UA 1545", value=b"scanner restarted" if number == BROKEN else scan.encode())
    with KafkaConsumer(
        BOARDING,
        **place.named,
        group_id=DISPLAY,
        auto_offset_reset="earliest",
        max_poll_records=SHOWN,
        value_deserializer=json.loads,
        errors_tolerance="all",
    ) as consumer:
        read = sum(map(len, consumer.poll(10_000).values()))
        (behind,) = consumer.assignment()
        left = PASSENGERS - consumer.position(behind)
    with KafkaConsumer(f"{BOARDING}.dlq", **place.named, auto_offset_reset="earliest") as letters:
        found = [record.value for batch in letters.poll(10_000).values() for record in batch]
    screen.check(f"the group {DISPLAY!r} read {read} records of {BOARDING}, and lags by {left}", left > 0, wanted=True)
    screen.check(f"the record that is not JSON became a dead letter in {BOARDING}.dlq", found, [b"scanner restarted"])


def transactions(place: Place, screen: Screen) -> None:
    """Commit a transaction with each of two schema versions, and leave a third transaction open."""
    registry = Registry(place.root, storage_options=place.storage_options)
    with KafkaAdminClient(**place.named) as admin:
        admin.create_topics([NewTopic(ALERTS, num_partitions=1)])
    late: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (ALERT, {"flight": "UA 1545", "minutes": 41}),
        (ALERT_WITH_REASON, {"flight": "B6 725", "minutes": 63, "reason": "thunderstorm"}),
    ]
    for schema, alert in late:
        serializer = AvroSerializer(registry, json.dumps(schema))
        with (
            KafkaProducer(**place.named, transactional_id="delay-alerts", value_serializer=serializer) as producer,
            transaction(producer),
        ):
            producer.send(ALERTS, alert)
    screen.check(f"the schema of {ALERTS} has two versions", registry.get_versions(f"{ALERTS}-value"), [1, 2])
    subprocess.run(  # noqa: S603 - this Python, with a program of ours
        [sys.executable, "-c", LEFT_OPEN],
        input=json.dumps(place.named).encode(),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True,
    )
    with KafkaConsumer(ALERTS, **place.named, auto_offset_reset="earliest") as consumer:
        seen = sum(map(len, consumer.poll(10_000).values()))
    screen.check("a producer ended in a transaction: no reader waits, or sees its record", seen, len(late))


def merge(place: Place, screen: Screen, topic: str) -> None:
    """Run maintenance, which merges the small files of a topic that was written record by record."""
    with KafkaAdminClient(**place.named) as admin:
        # Files of the last minute are left alone by default.
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"kafkalike.merge.min.age.ms": "0"})])
    report = maintain(place.root, topic, storage_options=place.storage_options)
    (done,) = (made for made in report.topics if made.topic == topic)
    screen.check(
        f"maintenance merged {done.merged_segments} small files of {topic} into {done.merged_files}",
        0 < done.merged_files < done.merged_segments,
        wanted=True,
    )


BAGGAGE: Final = "baggage"
BAGS: Final = 500


def foreign_client(place: Place, screen: Screen) -> None:
    """Produce with a client of another library through a gateway; without one, print how to try it."""
    client = next((name for name in PRODUCERS if is_installed(name)), None)
    if client is None or importlib.util.find_spec("kio") is None:
        screen.say(
            "Not installed here, so try it: pip install 'kafkalike\\[gateway]' confluent-kafka, then this demo again"
        )
        return
    from kafkalike.connect import connect
    from kafkalike.gateway.gateway_server import GatewayServer

    with KafkaAdminClient(**place.named) as admin:
        admin.create_topics([NewTopic(BAGGAGE, num_partitions=1)])
    sent = [f"bag {number}".encode() for number in range(BAGS)]
    server = GatewayServer(connect(place.root, place.storage_options))
    server.start()
    try:
        PRODUCERS[client](server.bootstrap_servers, sent)
    finally:
        server.stop()
    read: list[bytes | None] = []
    with KafkaConsumer(BAGGAGE, **place.named, auto_offset_reset="earliest") as consumer:
        while len(read) < BAGS and (polled := consumer.poll(10_000)):
            read += [record.value for batch in polled.values() for record in batch]
    screen.say(f"a gateway served Kafka's protocol at {server.bootstrap_servers}")
    screen.check(f"{client} sent {BAGS} records to it, and a native consumer read them in order", read, sent)


def is_installed(client: str) -> bool:
    """Return whether a foreign client is here: a package, or a program."""
    package = PACKAGES.get(client)
    return shutil.which(client) is not None if package is None else importlib.util.find_spec(package) is not None


def _by_confluent(address: str, values: Sequence[bytes]) -> None:
    producer = importlib.import_module("confluent_kafka").Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(BAGGAGE, value)
    producer.flush(30)


def _by_kafka_python(address: str, values: Sequence[bytes]) -> None:
    producer = importlib.import_module("kafka").KafkaProducer(bootstrap_servers=address)
    for value in values:
        producer.send(BAGGAGE, value)
    producer.flush(30)
    producer.close()


def _by_kcat(address: str, values: Sequence[bytes]) -> None:
    subprocess.run(["kcat", "-P", "-b", address, "-t", BAGGAGE], input=b"\n".join(values), check=True)  # noqa: S603, S607 - the user's


PACKAGES: Final[Mapping[str, str]] = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}
PRODUCERS: Final[Mapping[str, Callable[[str, Sequence[bytes]], None]]] = {
    "confluent-kafka": _by_confluent,
    "kafka-python": _by_kafka_python,
    "kcat": _by_kcat,
}
"""Foreign clients, and how they send values to the topic."""
