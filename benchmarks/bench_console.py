"""The web console: answers and first paint of each page in a real browser, a key found, a record seen live.

`python -m benchmarks.bench_console [FOLDER]`: a root with 1,000 topics (`BENCH_TOPICS`) and a topic of 10 M records
(`BENCH_ROWS`) is made in the folder unless it is there. Answers are the 50th and 95th percentile of 40 requests
(`BENCH_REQUESTS`), paints and records medians of five, each after a first look at the page.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.model.structs import NewTopic, TopicPartition
from kafkalike.ui.console_server import ConsoleServer
from tests.tools.browser import chromium

ROWS = int(os.environ.get("BENCH_ROWS", "10000000"))
TOPICS = int(os.environ.get("BENCH_TOPICS", "1000"))
BATCH = 1_000_000
ONCE = "only-once"

REQUESTS = int(os.environ.get("BENCH_REQUESTS", "40"))

PAGES = (
    "/",
    "/?span=24h",
    "/overview/letters",
    "/topics",
    "/topics?q=t00",
    "/topics?sort=size&dir=desc",
    "/topics/large",
    "/topics/large/writes",
    "/topics/large/records",
    "/topics/large/records/0/17",
    "/topics/large/segments",
    "/topics/large/settings",
    "/topics/large/history",
    "/topics/large/groups",
    "/topics/large/produce",
    "/topics/large/tail",
    "/groups",
    "/group?id=g",
    "/group/lag?id=g",
    "/transactions",
    "/schemas",
    "/dead-letters",
    "/checks",
    "/cluster",
    "/replicas",
)


def fill(root: str) -> None:
    """Make the topics and records."""
    with KafkaAdminClient(bootstrap_servers=root) as admin:
        if "large" in admin.list_topics():
            return
        admin.create_topics([NewTopic("large", 4), NewTopic("live", 1)])
        admin.create_topics([NewTopic(f"t{number:04}", 1) for number in range(TOPICS)])
    keys = [b"key-%06d" % (n % 100_000) for n in range(BATCH)]
    values = [b'{"id":%d,"city":"Bremen","pad":"%s"}' % (n, b"x" * 60) for n in range(BATCH)]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    with KafkaProducer(bootstrap_servers=root) as producer:
        for number in range(max(1, ROWS // BATCH)):
            producer.send_arrow("large", table)
            if number == ROWS // BATCH // 2:
                producer.send_arrow("large", pa.table({"key": [ONCE], "value": ["v"]}))
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        consumer.assign([TopicPartition("large", p) for p in range(4)])
        consumer.seek_to_beginning()
        consumer.poll(1000)
        consumer.commit()


def painted(page: Any, address: str) -> float:  # noqa: ANN401
    """Milliseconds until a page shows something."""
    page.goto(address)
    while True:
        found = page.evaluate("performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)")
        if found:
            return float(found[0])
        page.wait_for_timeout(10)


def live(page: Any, producer: KafkaProducer, number: int) -> float:  # noqa: ANN401
    """Milliseconds from an acknowledged record to its row in the page."""
    text = f"record number {number};"
    producer.send("live", text.encode()).get()
    start = time.perf_counter()
    page.locator("#tail").get_by_text(text).wait_for()
    return (time.perf_counter() - start) * 1000


def answers(address: str) -> tuple[float, float]:
    """50th and 95th percentile of the milliseconds until an answer is there."""
    found = []
    for _ in range(REQUESTS):
        start = time.perf_counter()
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - the loopback
            answer.read()
        found.append((time.perf_counter() - start) * 1000)
    found.sort()
    return statistics.median(found), found[int(len(found) * 0.95) - 1]


def medians(call: Callable[[], float]) -> tuple[float, float]:
    """Of five, and the largest of them."""
    found = [call() for _ in range(5)]
    return statistics.median(found), max(found)


def main() -> None:
    """Print a table."""
    root = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="bench-console-")
    fill(root)
    server = ConsoleServer(connect(root), token="")
    server.start()
    try:
        with chromium() as browser:
            page = browser.new_page()
            print("| page | answer, median, ms | answer, p95 | first paint, median, ms |\n| --- | --- | --- | --- |")
            while server.overview.left or not server.overview.looked_ms:
                time.sleep(0.1)
            for path in PAGES:
                painted(page, server.url + path)
                middle, _ = medians(lambda path=path: painted(page, server.url + path))  # type: ignore[misc]
                half, most = answers(server.url + path)
                print(f"| `{path}` | {half:.0f} | {most:.0f} | {middle:.0f} |", flush=True)
            print("\n| what | median, ms | largest of five |\n| --- | --- | --- |")
            for what, key in (("stands once", ONCE), ("stands 100 times", "key-000042"), ("is nowhere", "nothing")):
                address = f"{server.url}/topics/large/records?key={key}"
                middle, worst = medians(lambda address=address: painted(page, address))  # type: ignore[misc]
                print(f"| a key that {what}, of {ROWS:,} records | {middle:.0f} | {worst:.0f} |", flush=True)
            page.goto(f"{server.url}/topics/live/tail")
            page.get_by_text("waiting for records").wait_for()
            with KafkaProducer(bootstrap_servers=root) as producer:
                numbers = iter(range(100))
                live(page, producer, next(numbers))
                middle, worst = medians(lambda: live(page, producer, next(numbers)))
            print(f"| a record in the live page | {middle:.0f} | {worst:.0f} |")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
