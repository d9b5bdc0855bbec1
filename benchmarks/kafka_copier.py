"""A copier in transactions against kafka-python on a real broker: the same program, with two imports.

`make bench-kafka` runs it when kafka-python can be imported; it is no dependency of this project. The program reads a
topic of four partitions in a group, sends each record to another topic, and commits the group's offsets with them.
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import kafkalike
from benchmarks.harness import Figure, Report, percentile
from benchmarks.kafka_broker import broker

KAFKA_PYTHON = "kafka"
PARTITIONS = 4
VALUE = b"v" * 100
SIZES = {10: 200, 200: 4_000, 2_000: 20_000}
"""By records of a transaction at most: records to copy."""
ROUNDS = 3
BEHIND_SECONDS = 5.0
"""How long a reader is waited for behind a hanging transaction."""


@dataclass
class Copied:
    """What a copier has done."""

    records: int = 0
    seconds: float = 0.0
    transactions: list[float] = field(default_factory=list)
    """Seconds from `begin_transaction` to the end of `commit_transaction`, of each."""


@dataclass
class Side:
    """One of the two: a module with kafka-python's names, and where it writes."""

    name: str
    module: ModuleType
    servers: str

    def create(self, *topics: str) -> None:
        """Create topics of four partitions."""
        new = {topic: {"num_partitions": PARTITIONS, "replication_factor": 1} for topic in topics}
        admin = self.module.KafkaAdminClient(bootstrap_servers=self.servers)
        admin.create_topics(new)
        admin.close()

    def fill(self, topic: str, records: int) -> None:
        """Send records to all partitions."""
        with self.module.KafkaProducer(bootstrap_servers=self.servers, linger_ms=20, batch_size=262_144) as producer:
            for number in range(records):
                producer.send(topic, VALUE, key=str(number).encode(), partition=number % PARTITIONS)
            producer.flush()

    def copy(self, source: str, target: str, records: int, size: int) -> Copied:
        """Copy so many records in transactions of a size."""
        consumer = self.module.KafkaConsumer(
            source,
            bootstrap_servers=self.servers,
            group_id=f"copy-{target}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=size,
        )
        producer = self.module.KafkaProducer(bootstrap_servers=self.servers, transactional_id=f"copy-{target}")
        producer.init_transactions()
        done = Copied()
        begun = 0.0
        while done.records < records:
            polled = consumer.poll(timeout_ms=1000)
            if not polled:
                continue
            start = time.perf_counter()
            # The first transaction waits for topics and the group: it is no part of the figures.
            begun = begun or start
            producer.begin_transaction()
            offsets = {}
            for tp, some in polled.items():
                for record in some:
                    producer.send(target, record.value, key=record.key, partition=record.partition)
                offsets[tp] = self.module.OffsetAndMetadata(some[-1].offset + 1, "", -1)
                done.records += len(some)
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            done.transactions.append(time.perf_counter() - start)
        done.seconds = time.perf_counter() - begun
        consumer.close()
        producer.close()
        return done

    def behind_a_hanging_one(self, topic: str) -> float | None:
        """Seconds until a reader of committed records has one that was sent after a transaction was begun and left."""
        producer = self.module.KafkaProducer(bootstrap_servers=self.servers, transactional_id=f"hangs-{topic}")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"hangs", partition=0).get(60)
        plain = self.module.KafkaProducer(bootstrap_servers=self.servers)
        consumer = self.module.KafkaConsumer(
            bootstrap_servers=self.servers, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        consumer.assign([self.module.TopicPartition(topic, 0)])
        consumer.poll(timeout_ms=100)
        start = time.perf_counter()
        plain.send(topic, b"behind", partition=0).get(60)
        seen: Any = None
        while seen is None and time.perf_counter() - start < BEHIND_SECONDS:
            seen = consumer.poll(timeout_ms=200) or None
        taken = time.perf_counter() - start
        producer.abort_transaction()
        for client in (consumer, plain, producer):
            client.close()
        return None if seen is None else taken


def one_size(report: Report, sides: tuple[Side, Side], size: int, records: int) -> None:
    """The copier with transactions of one size."""
    found: dict[str, list[Copied]] = {side.name: [] for side in sides}
    for number in range(ROUNDS + 1):
        for side in sides:
            target = f"out-{size}-{number}"
            side.create(target)
            found[side.name].append(side.copy("in", target, records, size))
    figures = {name: Figure(name, [one.seconds for one in done[1:]], records) for name, done in found.items()}
    report.keep(f"copier {size}", figures)
    told = []
    for name, done in found.items():
        latencies = [taken * 1000 for one in done[1:] for taken in one.transactions]
        report.raw[f"copier {size}, ms of transactions, {name}"] = latencies
        rate = records / figures[name].median
        told.append(
            f"{rate:,.0f} rec/s; p50 {statistics.median(latencies):.1f} ms, p99 {percentile(latencies, 0.99):.1f} ms"
        )
    ours, rival = (figures[side.name] for side in sides)
    report.add(
        f"copier, at most {size} records a transaction",
        told[0],
        f"{sides[1].name}: {told[1]}",
        f"{rival.median / ours.median:.2f} x its speed",
    )


def main() -> None:
    """Measure and print; without kafka-python say so."""
    if importlib.util.find_spec(KAFKA_PYTHON) is None:
        print("kafka-python cannot be imported: nothing to compare the copier with")
        return
    rival = importlib.import_module(KAFKA_PYTHON)
    report = Report("kafka-copier")
    with broker() as (servers, _), tempfile.TemporaryDirectory() as folder:
        sides = Side("kafkalike", kafkalike, f"{folder}/root"), Side("kafka-python", rival, servers)
        for side in sides:
            side.create("in", "behind")
            side.fill("in", max(SIZES.values()))
        for size, records in SIZES.items():
            one_size(report, sides, size, records)
        waits = [side.behind_a_hanging_one("behind") for side in sides]
        said = [f"not within {BEHIND_SECONDS:.0f} s" if w is None else f"{w * 1000:.0f} ms" for w in waits]
        report.add(
            "a record sent behind a hanging transaction reaches read_committed", said[0], f"kafka-python: {said[1]}"
        )
    report.finish()


if __name__ == "__main__":
    main()
