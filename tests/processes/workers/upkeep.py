"""Upkeep worker: produces, reads or maintains until it is told to stop; prints what it saw as one line of JSON."""

import json
import threading
from typing import Any

from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.consumer import KafkaConsumer
from kafkalike.producer import KafkaProducer
from kafkalike.retention import maintain
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go

KEYS = 7
PARTITIONS = 2


def produce(asked: dict[str, Any]) -> dict[str, Any]:
    """Numbers to both topics; what was acknowledged, as [topic, partition, offset, value]."""
    acked = []
    with KafkaProducer(bootstrap_servers=asked["root"]) as producer:
        wait_for_go()
        stop = told_to_stop()
        number = 0
        while not stop.is_set():
            value = f"{asked['name']}-{number}".encode()
            sent = [
                ("t", producer.send("t", value, partition=number % PARTITIONS)),
                ("k", producer.send("k", value, key=f"{asked['name']}-key-{number % KEYS}".encode(), partition=0)),
            ]
            for topic, future in sent:
                done = future.get(timeout=60)
                acked.append([topic, done.partition, done.offset, value.decode()])
            number += 1
            SYSTEM_CLOCK.sleep(0.005)
    return {"acked": acked}


def read(asked: dict[str, Any]) -> dict[str, Any]:
    """Everything both topics give to a member of a group, as [topic, partition, offset, key, value]."""
    seen = []
    settings = {"group_id": asked["name"], "auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}
    with KafkaConsumer("t", "k", bootstrap_servers=asked["root"], **settings) as consumer:
        consumer.poll(timeout_ms=1000, max_records=1)
        consumer.seek_to_beginning()
        wait_for_go()
        stop = told_to_stop()
        while True:
            last = stop.is_set()
            got = [record for records in consumer.poll(timeout_ms=100).values() for record in records]
            seen += [
                [r.topic, r.partition, r.offset, None if r.key is None else r.key.decode(), (r.value or b"").decode()]
                for r in got
            ]
            if last and not got:
                return {"seen": seen}


def upkeep(asked: dict[str, Any]) -> dict[str, Any]:
    """Maintenance again and again; how often it did what."""
    where = cluster(asked["root"])
    wait_for_go()
    # One that a fault will kill goes on until then.
    stop = threading.Event() if asked["doomed"] else told_to_stop()
    counts = {"runs": 0, "deleted_records": 0, "compacted_records": 0, "merged_segments": 0, "vacuumed_files": 0}
    problems: list[str] = []
    while not stop.is_set():
        report = maintain(where, clock=SYSTEM_CLOCK)
        counts["runs"] += 1
        SYSTEM_CLOCK.sleep(0.1)
        problems += [*report.problems, *(p for topic in report.topics for p in topic.problems)]
        for topic in report.topics:
            for name in counts.keys() - {"runs"}:
                counts[name] += getattr(topic, name)
    return {**counts, "problems": problems}


def main() -> None:
    asked = orders()
    role = {"produce": produce, "read": read, "upkeep": upkeep}[asked["role"]]
    print(json.dumps(role(asked)))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
