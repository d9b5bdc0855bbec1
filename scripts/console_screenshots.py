"""Screenshots of the web console: each page of a sample cluster, at three widths, in light and dark.

    python -m scripts.console_screenshots FOLDER [--root ROOT] [--only TEXT] [--widths 390,768,1440]

The sample cluster has three hours of writes, groups of which some are late, dead letters, schemas and transactions. It
is made in a temporary folder, or in `--root`, where it is kept and used again.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kafkalike.admin import KafkaAdminClient
from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import KafkaError
from kafkalike.log.cluster.cluster import Cluster, is_root
from kafkalike.model.clock import SystemClock
from kafkalike.model.structs import NewTopic, OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.schemas import AvroSerializer, Registry
from kafkalike.schemas.confluent_types import Schema
from kafkalike.storage.local import LocalStorage
from kafkalike.ui.console_server import ConsoleServer
from tests.tools.browser import chromium

PAGES: Final = {
    "overview": "/",
    "overview-24h": "/?span=24h",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records",
    "record": "/topics/orders/records/0/0",
    "live": "/topics/orders/tail",
    "produce": "/topics/orders/produce",
    "produce-by-schema": "/topics/payments/produce",
    "segments": "/topics/orders/segments",
    "topic-groups": "/topics/orders/groups",
    "settings": "/topics/orders/settings",
    "settings-edit": "/topics/web.clicks/settings?edit=retention.ms",
    "cluster-settings": "/cluster/settings",
    "history": "/topics/orders/history",
    "groups": "/groups",
    "group": "/group?id=billing",
    "reset": "/group/reset?id=billing&topic=orders&to=earliest",
    "transactions": "/transactions",
    "schemas": "/schemas",
    "schema": "/schema?subject=payments-value",
    "dead-letters": "/dead-letters",
    "letters": "/letters?topic=payments.dlq",
    "checks": "/checks",
    "cluster": "/cluster",
    "replicas": "/replicas",
    "sql": "/sql",
    "error": "/topics/no-such-topic",
}

MINUTES: Final = 180
"""Length of the sample's history."""

HEIGHT: Final = 900
"""Height of the window, px."""


class PastClock(SystemClock):
    """The machine's clock, some time ago.

    Args:
        late_ms: how much it is behind.
    """

    def __init__(self, late_ms: int) -> None:
        self.late_ms = late_ms
        """May be set."""

    def now_ms(self) -> int:
        """Return the time, ms."""
        return super().now_ms() - self.late_ms


def sample(root: str) -> None:
    """Make the sample cluster.

    Args:
        root: a new folder.
    """
    clock = PastClock(MINUTES * 60_000)
    cluster = Cluster(LocalStorage(root), clock=clock)
    chance = random.Random(7)  # noqa: S311 - the same pictures each time
    with KafkaAdminClient(bootstrap_servers=cluster, clock=clock) as admin:
        admin.create_topics(
            [
                NewTopic("orders", 4),
                NewTopic("payments", 2),
                NewTopic("web.clicks", 4, topic_configs={"retention.ms": "3600000"}),
                NewTopic("inventory", 1, topic_configs={"cleanup.policy": "compact"}),
                NewTopic("shipments", 2),
                NewTopic("audit", 1),
            ]
        )
        admin.create_topics([NewTopic(f"tenant-{number:03}.events", 1) for number in range(60)])
    _schemas(cluster)
    consumers = [
        KafkaConsumer("orders", bootstrap_servers=cluster, clock=clock, group_id=group, auto_offset_reset="earliest")
        for group in ("billing", "search-indexer")
    ]
    with KafkaProducer(bootstrap_servers=cluster, clock=clock, linger_ms=0) as producer:
        for minute in range(0, MINUTES, 2):
            clock.late_ms = (MINUTES - minute) * 60_000 - 30_000
            _minute(producer, chance, minute)
            for consumer, until in zip(consumers, (120, MINUTES), strict=True):
                if minute < until and minute % 8 == 0:
                    with suppress(KafkaError):
                        consumer.poll(200)
                        consumer.commit()
        producer.flush()
    for consumer in consumers:
        consumer.close()
    clock.late_ms = 0
    _letters(cluster)
    _transactions(cluster)


def _minute(producer: KafkaProducer, chance: random.Random, minute: int) -> None:
    wave = 1 + math.sin(minute / 25)
    for topic, most in (("orders", 60), ("payments", 25), ("web.clicks", 180), ("shipments", 10), ("inventory", 6)):
        for number in range(max(1, int(most * wave * chance.uniform(0.6, 1.3) / 3))):
            customer = f"customer-{chance.randrange(500)}"
            value = {
                "id": minute * 1000 + number,
                "customer": customer,
                "city": chance.choice(["Bremen", "Lyon", "Porto", "Gdańsk", "Turku"]),
                "lines": [{"sku": f"A-{chance.randrange(90)}", "count": chance.randrange(1, 5), "price": 12.5}],
            }
            producer.send(
                topic, json.dumps(value, ensure_ascii=False).encode(), customer.encode(), [("source", b"shop")]
            )
    if minute % 30 == 0:
        for number in range(0, 60, 7):
            producer.send(f"tenant-{number:03}.events", b'{"event": "login"}', b"user")
    producer.flush()


def _schemas(cluster: Cluster) -> None:
    registry = Registry(cluster)
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}, {"name": "euro", "type": "double"}]
    first = {"type": "record", "name": "Payment", "namespace": "shop", "fields": fields}
    method = {"name": "method", "type": ["null", "string"], "default": None}
    second = {**first, "fields": [*fields, method]}
    for schema in (first, second):
        registry.register_schema("payments-value", Schema(json.dumps(schema), "AVRO"))
    registry.register_schema("orders-key", Schema('{"type": "string"}', "AVRO"))
    registry.register_schema(
        "audit-value", Schema('{"type": "object", "properties": {"who": {"type": "string"}}}', "JSON")
    )


def _letters(cluster: Cluster) -> None:
    registry = Registry(cluster)
    payment = registry.get_latest_version("payments-value").schema.schema_str
    with KafkaProducer(bootstrap_servers=cluster, value_serializer=AvroSerializer(registry, payment)) as producer:
        for number in range(20):
            producer.send("payments", {"id": number, "euro": number * 4.5, "method": "card"}, b"payment-%d" % number)

    def read(value: bytes) -> Any:  # noqa: ANN401 - JSON
        found = json.loads(value)
        if found["id"] % 5 == 0:
            raise ValueError(f"amount of payment {found['id']} is negative: the ledger of {found['city']} is closed")
        return found

    with KafkaConsumer(
        "payments",
        bootstrap_servers=cluster,
        group_id="ledger",
        auto_offset_reset="earliest",
        value_deserializer=read,
        errors_tolerance="all",
        consumer_timeout_ms=3000,
    ) as consumer:
        for _ in consumer:
            pass


def _transactions(cluster: Cluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster, transactional_id="checkout-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("shipments", b'{"parcel": 1}', b"parcel-1")
        producer.commit_transaction()
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        admin.alter_group_offsets("nightly-report", {TopicPartition("shipments", 0): OffsetAndMetadata(0)})
    waiting = KafkaProducer(bootstrap_servers=cluster, transactional_id="checkout-2")
    waiting.init_transactions()
    waiting.begin_transaction()
    waiting.send("orders", b'{"open": true}', b"open").get(timeout=10)


def shoot(url: str, folder: Path, widths: list[int], only: str) -> None:
    """Take the screenshots.

    Args:
        url: the console's, without a token.
        folder: where they are put, as `WIDTH-THEME-PAGE.png`.
        widths: of the window, px.
        only: pages whose name contains this text.
    """
    with chromium() as browser:
        for width in widths:
            for theme in ("light", "dark"):
                context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=theme)
                page = context.new_page()
                for name, path in PAGES.items():
                    if only not in name:
                        continue
                    page.goto(url + path)
                    # The page's rules forbid Playwright's own waiting for a script.
                    page.wait_for_timeout(400)
                    while page.locator(".htmx-request, .notice[role=status]").count():
                        page.wait_for_timeout(50)
                    page.wait_for_timeout(100)
                    page.screenshot(path=str(folder / f"{width}-{theme}-{name}.png"), full_page=True)
                context.close()


def main() -> int:
    """Take screenshots of the sample cluster."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--root", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--widths", default="390,768,1440")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    root = options.root or tempfile.mkdtemp(prefix="kafkalike-console-")
    begun = time.monotonic()
    if not is_root(root):
        sample(root)
        print(f"made {root} in {time.monotonic() - begun:.0f} s")
    server = ConsoleServer(Cluster(LocalStorage(root)), token="")
    server.start()
    try:
        shoot(server.url, options.folder, [int(width) for width in options.widths.split(",")], options.only)
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
