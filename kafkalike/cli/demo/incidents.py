"""Incidents of the demo: what an operator looks for, left in the cluster for the console and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
