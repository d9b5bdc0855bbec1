"""Upkeep worker: produces, reads or maintains until it is told to stop; prints what it saw as one line of JSON."""

import json
import threading
from pathlib import Path
from typing import Any

from kafkalike.consumer import KafkaConsumer
from kafkalike.errors import KafkaError, KafkaStorageError
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.producer import KafkaProducer
from tests.jepsen.history import REFUSED
from tests.processes.workers.common import orders, told_to_stop, wait_for_go
from tests.tools.upkeep import ShiftedClock, open_cluster

KEYS = 7
PARTITIONS = 2


def _stop(asked: dict[str, Any]) -> threading.Event:
    """Set when the test says so; one that a fault will kill goes on until then."""
    return threading.Event() if asked["doomed"] else told_to_stop()


def produce(asked: dict[str, Any]) -> dict[str, Any]:
    """Numbers to both topics.

    With `by_key`, keys choose the partitions of the second topic.

    Returns:
        What was acknowledged, as [topic, partition, offset, value]; what was refused, as [topic, value]. Of what is in
        neither, the outcome is not known. Only one that is told to be `patient` goes on after an error.
    """
    acked, refused = [], []
    place = None if asked.get("by_key") else 0
    with KafkaProducer(bootstrap_servers=asked["root"]) as producer:
        wait_for_go()
        stop = _stop(asked)
        number = 0
        while not stop.is_set():
            value = f"{asked['name']}-{number}".encode()
            sent = [
                ("t", producer.send("t", value, partition=number % PARTITIONS)),
                ("k", producer.send("k", value, key=f"{asked['name']}-key-{number % KEYS}".encode(), partition=place)),
            ]
            for topic, future in sent:
                try:
                    done = future.get()
                except KafkaError as error:
                    if not asked.get("patient"):
                        raise
                    if isinstance(error, REFUSED):
                        refused.append([topic, value.decode()])
                else:
                    acked.append([topic, done.partition, done.offset, value.decode()])
            number += 1
            SYSTEM_CLOCK.sleep(0.005)
    return {"acked": acked, "refused": refused}


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
            try:
                got = [record for records in consumer.poll(timeout_ms=100).values() for record in records]
            except KafkaStorageError:
                if not asked.get("patient"):
                    raise
                continue
            seen += [
                [r.topic, r.partition, r.offset, None if r.key is None else r.key.decode(), (r.value or b"").decode()]
                for r in got
            ]
            if last and not got:
                return {"seen": seen}


def upkeep(asked: dict[str, Any]) -> dict[str, Any]:
    """Maintenance again and again; how often it did what, which it also writes into a file after each run."""
    clock = ShiftedClock()
    clock.ahead_ms = asked.get("ahead_ms", 0)
    where = open_cluster(asked["root"], clock)
    wait_for_go()
    stop = _stop(asked)
    counts = {"runs": 0, "deleted_records": 0, "compacted_records": 0, "merged_segments": 0, "vacuumed_files": 0}
    problems: list[str] = []
    control_rows = 0
    while not stop.is_set():
        try:
            report = maintain(where, clock=clock)
        except KafkaStorageError as error:
            if not asked.get("patient"):
                raise
            problems.append(f"{type(error).__name__}: {error}")
            continue
        counts["runs"] += 1
        SYSTEM_CLOCK.sleep(0.1)
        control_rows += sum(table.rows_before - table.rows_after for table in report.control)
        problems += [*report.problems, *(p for topic in report.topics for p in topic.problems)]
        for topic in report.topics:
            for name in counts.keys() - {"runs"}:
                counts[name] += getattr(topic, name)
        if "progress" in asked:
            Path(asked["progress"]).write_text(json.dumps({**counts, "control_rows": control_rows}))
    return {**counts, "control_rows": control_rows, "problems": problems}


def main() -> None:
    asked = orders()
    role = {"produce": produce, "read": read, "upkeep": upkeep}[asked["role"]]
    print(json.dumps(role(asked)))  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main()
