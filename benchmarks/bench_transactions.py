"""Transactions: a commit into 1, 3 and 10 topics of 1 to 100,000 records, against the same appends without one.

On a local disk; with the word `objects` in an object store that takes 15 ms for a GET, HEAD or LIST and 25 ms for a
PUT; with the word `ids` beside up to 10,000 other transactional ids. Sizes such as `10x100000` choose some of them.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench_objects import slow
from benchmarks.harness import Figure, Report, ratio, rounds
from kafkalike import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkalike.connect import connect
from kafkalike.model.group_rows import GroupRow, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    Entries,
    StagedFile,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    TransactionPart,
    Why,
)
from tests.tools.object_servers import S3, running

VALUE = b"v" * 100
SLOW = 300_000
"""With more records in all topics there are only three rounds."""
TOPICS = (1, 3, 10)
RECORDS = (1, 1000, 100_000)
FAR_RECORDS = (1, 1000)
"""In the object store; more records take the time that their bytes take."""
LATENCY_MS = (15, 25)
IDS = (0, 100, 1000, 10_000)

Options = Mapping[str, str]
"""Of an object store; none on a disk."""


@contextmanager
def two_producers(root: str, options: Options) -> Iterator[tuple[KafkaProducer, KafkaProducer]]:
    """One with transactions, one without."""
    common: dict[str, Any] = {"bootstrap_servers": root, "storage_options": options or None, "buffer_memory": 1 << 30}
    with KafkaProducer(transactional_id="bench", **common) as transactional, KafkaProducer(**common) as plain:
        transactional.init_transactions()
        yield transactional, plain


def sender(producer: KafkaProducer, topics: list[str], records: int) -> Callable[[], None]:
    """Sends so many records to each topic."""

    def send() -> None:
        for _ in range(records):
            for topic in topics:
                producer.send(topic, VALUE)

    return send


def one_size(report: Report, root: str, topics: list[str], records: int, options: Options) -> None:
    """A commit of one size, against appends of the same records."""
    names = f"{len(topics)} topics x {records:,} records"
    with two_producers(root, options) as (transactional, plain):
        staged, sent = sender(transactional, topics, records), sender(plain, topics, records)

        def transaction() -> None:
            transactional.begin_transaction()
            staged()
            transactional.commit_transaction()

        def appends() -> None:
            sent()
            plain.flush()

        runs = 3 if len(topics) * records > SLOW else 5 if records > 1000 or options else 25
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


def with_offsets(report: Report, root: str, options: Options) -> None:
    """Consume-transform-produce of 500 records, against the same without a transaction."""
    tp = TopicPartition("t0", 0)
    with two_producers(root, options) as (transactional, plain):
        position = itertools.count(1)
        consumer = KafkaConsumer(
            bootstrap_servers=root, storage_options=options or None, group_id="bench", enable_auto_commit=False
        )
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

        figures = rounds({"transaction": transaction, "flush and commit": at_least_once}, runs=5 if options else 25)
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


def beside_other_ids(report: Report, root: str) -> None:
    """A transaction into three topics that many other ids have written to, each once."""
    cluster = connect(root)
    topics = [f"t{number}" for number in range(3)]
    for topic in topics:
        cluster.create_topic(topic, 1, {})
    named = [TopicLife(topic, cluster.topic(topic).topic_id) for topic in topics]
    parts = tuple(TransactionPart(topic=topic, counts={0: 1}, files=(StagedFile("0", 1, 2),)) for topic in named)
    known = 0

    def others(state: GroupsState, number: int) -> list[GroupRow]:
        rows: list[GroupRow] = []
        for nth in range(number):
            seq = state.seq + 1 + nth
            # Decided before what the topics have: nobody looks for the files.
            committed = CommittedTransaction(attempt=TransactionAttempt(seq, 0, 1), seq=1, parts=parts)
            standing = TransactionalIdState(
                producer_id=seq, epoch=0, number=1, why=Why.COMMIT, timeout_ms=1, changed_ms=1, committed=committed
            )
            rows += transaction_rows(seq, Entries(transactional_id=f"id {seq}", standing=standing, now_ms=1))
        return rows

    with KafkaProducer(bootstrap_servers=root, transactional_id="bench") as producer:
        producer.init_transactions()
        for number in IDS:
            more = number - known
            known = number
            cluster.groups.transact(lambda state, more=more: others(state, more))  # type: ignore[misc]
            send = sender(producer, topics, 1)

            def transaction(send: Callable[[], None] = send) -> None:
                producer.begin_transaction()
                send()
                producer.commit_transaction()

            figures = rounds({"transaction": transaction}, runs=25)
            report.keep(f"{number} ids", figures)
            report.add(
                f"transaction of 3 topics x 1 record beside {number:,} ids",
                f"median {figures['transaction'].median * 1e3:.1f} ms",
            )


def sizes(report: Report, new_root: Callable[[], str], options: Options, wanted: list[tuple[int, int]]) -> None:
    """Each size in a root of its own."""
    for count, records in wanted:
        root = new_root()
        topics = [f"t{number}" for number in range(count)]
        for topic in topics:
            connect(root, options or None).create_topic(topic, 1, {})
        one_size(report, root, topics, records, options)


def consume_transform_produce(report: Report, root: str, options: Options) -> None:
    """Transactions with offsets."""
    for topic in ("t0", "t1"):
        connect(root, options or None).create_topic(topic, 1, {})
    with_offsets(report, root, options)


def on_a_disk(wanted: list[tuple[int, int]]) -> None:
    """Measure on a local disk."""
    report = Report("transactions")
    with ExitStack() as stack:

        def new_root() -> str:
            return stack.enter_context(tempfile.TemporaryDirectory()) + "/root"

        sizes(report, new_root, {}, wanted or [(count, records) for count in TOPICS for records in RECORDS])
        if not wanted:
            root = new_root()
            consume_transform_produce(report, root, {})
            with KafkaProducer(bootstrap_servers=root) as plain:
                sender(plain, ["t0"], 50_000)()
            beside_an_open_one(report, root)
    report.finish()


def in_an_object_store(wanted: list[tuple[int, int]]) -> None:
    """Measure behind a proxy that makes requests as slow as a near bucket's."""
    report = Report("transactions-objects")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            server = stack.enter_context(running(S3, folder))
        except pytest.skip.Exception as missing:
            print(missing, file=sys.stderr)
            return
        behind = stack.enter_context(slow(server, *LATENCY_MS))
        every = [(count, records) for count in TOPICS for records in FAR_RECORDS]
        sizes(report, behind.new_root, behind.options, wanted or every)
        if not wanted:
            consume_transform_produce(report, behind.new_root(), behind.options)
    report.finish()


def main() -> None:
    """Measure and print."""
    words = sys.argv[1:]
    wanted = [(int(count), int(records)) for count, _, records in (w.partition("x") for w in words) if records]
    if "ids" in words:
        report = Report("transactions-ids")
        with tempfile.TemporaryDirectory() as scratch:
            beside_other_ids(report, f"{scratch}/root")
        report.finish()
    elif "objects" in words:
        in_an_object_store(wanted)
    else:
        on_a_disk(wanted)


if __name__ == "__main__":
    main()
