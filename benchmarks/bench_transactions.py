"""Transactions: a commit into 1, 3 and 10 topics of 1 to 100,000 records, against the same appends without one."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.harness import Figure, Report, ratio, rounds
from kafkalike import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkalike.log.connect import connect

VALUE = b"v" * 100
TOPICS = (1, 3, 10)
RECORDS = (1, 1000, 100_000)
MOST = 300_000
"""Records of one round, in all topics: more take too long on a machine with two cores."""


@contextmanager
def two_producers(root: str) -> Iterator[tuple[KafkaProducer, KafkaProducer]]:
    """One with transactions, one without."""
    with (
        KafkaProducer(bootstrap_servers=root, transactional_id="bench", buffer_memory=1 << 30) as transactional,
        KafkaProducer(bootstrap_servers=root, buffer_memory=1 << 30) as plain,
    ):
        transactional.init_transactions()
        yield transactional, plain


def sender(producer: KafkaProducer, topics: list[str], records: int) -> Callable[[], None]:
    """Sends so many records to each topic."""

    def send() -> None:
        for _ in range(records):
            for topic in topics:
                producer.send(topic, VALUE)

    return send


def one_size(report: Report, root: str, topics: list[str], records: int) -> None:
    """A commit of one size, against appends of the same records."""
    names = f"{len(topics)} topics x {records:,} records"
    with two_producers(root) as (transactional, plain):
        staged, sent = sender(transactional, topics, records), sender(plain, topics, records)

        def transaction() -> None:
            transactional.begin_transaction()
            staged()
            transactional.commit_transaction()

        def appends() -> None:
            sent()
            plain.flush()

        runs = 5 if records > 1000 else 25
        figures = rounds({"transaction": transaction, "appends": appends}, runs=runs)
        report.keep(names, figures)
        ours, rival = figures["transaction"], figures["appends"]
        aim = "<= 2 x" if (len(topics), records) == (3, 1000) else ""
        report.add(
            f"transaction of {names}",
            f"median {ours.median * 1e3:.1f} ms",
            f"appends and flush: {rival.median * 1e3:.1f} ms",
            f"{ratio(ours, rival):.2f} x",
            aim,
        )


def with_offsets(report: Report, root: str) -> None:
    """Consume-transform-produce of 500 records, against the same without a transaction."""
    tp = TopicPartition("t0", 0)
    with two_producers(root) as (transactional, plain):
        position = itertools.count(1)
        consumer = KafkaConsumer(bootstrap_servers=root, group_id="bench", enable_auto_commit=False)
        consumer.assign([tp])
        send = sender(transactional, ["t1"], 500)
        send_plain = sender(plain, ["t1"], 500)

        def transaction() -> None:
            transactional.begin_transaction()
            send()
            offsets = {tp: OffsetAndMetadata(next(position))}
            transactional.send_offsets_to_transaction(offsets, consumer.group_metadata())
            transactional.commit_transaction()

        def at_least_once() -> None:
            send_plain()
            plain.flush()
            consumer.commit({tp: OffsetAndMetadata(next(position))})

        figures = rounds({"transaction": transaction, "flush and commit": at_least_once}, runs=25)
        report.keep("with offsets", figures)
        ours, rival = figures["transaction"], figures["flush and commit"]
        report.add(
            "500 records and offsets",
            f"median {ours.median * 1e3:.1f} ms",
            f"flush, then commit of offsets: {rival.median * 1e3:.1f} ms",
            f"{ratio(ours, rival):.2f} x",
        )
        consumer.close()


def beside_an_open_one(report: Report, root: str) -> None:
    """How fast a consumer reads while a transaction hangs in the topic."""

    def read() -> float:
        start = time.perf_counter()
        with KafkaConsumer(
            bootstrap_servers=root, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition("t0", 0)])
            (end,) = consumer.end_offsets([TopicPartition("t0", 0)]).values()
            while consumer.position(TopicPartition("t0", 0)) < end:
                consumer.poll(timeout_ms=1000, max_records=10_000)
        return time.perf_counter() - start

    read()
    quiet, hanging = Figure("quiet"), Figure("hanging")
    with KafkaProducer(bootstrap_servers=root, transactional_id="hanging") as producer:
        producer.init_transactions()
        for _ in range(15):
            quiet.seconds.append(read())
            producer.begin_transaction()
            producer.send("t0", VALUE).get()
            hanging.seconds.append(read())
            producer.abort_transaction()
    report.keep("readers", {"quiet": quiet, "hanging": hanging})
    report.add(
        "a consumer reads t0 beside an open transaction",
        f"median {hanging.median * 1e3:.0f} ms",
        f"without one: {quiet.median * 1e3:.0f} ms",
        f"{ratio(hanging, quiet):.2f} x",
        "1.0 x",
    )


def main() -> None:
    """Measure and print."""
    report = Report("transactions")
    for count in TOPICS:
        for records in RECORDS:
            if count * records > MOST:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                root = f"{scratch}/root"
                topics = [f"t{number}" for number in range(count)]
                for topic in topics:
                    connect(root).create_topic(topic, 1, {})
                one_size(report, root, topics, records)
    with tempfile.TemporaryDirectory() as scratch:
        root = f"{scratch}/root"
        for topic in ("t0", "t1"):
            connect(root).create_topic(topic, 1, {})
        with KafkaProducer(bootstrap_servers=root) as plain:
            sender(plain, ["t0"], 50_000)()
        with_offsets(report, root)
        beside_an_open_one(report, root)
    report.finish()


if __name__ == "__main__":
    main()
