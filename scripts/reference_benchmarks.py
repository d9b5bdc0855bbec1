"""Write `docs/reference/benchmarks.md` from `benchmarks/results`: figures with date, commit, machine and command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parents[1] / "benchmarks" / "results"

HEAD: Final = """# Benchmarks

<!-- Written by `make reference` from benchmarks/results; tests say when it is out of date. -->

This page helps you decide whether kafkalike is fast enough, and shows how to measure it yourself.
"""

SUMMARY: Final = (
    (
        "plain Delta in Spark",
        'batch writes and scans take about the same time; in S3, `format("kafkalike")` scans take 1.9 times as long',
    ),
    (
        "Kafka with Spark's connector",
        (
            "batch writes take 0.9 of a tuned Kafka's time, scans a fifth, counts and filters a quarter to a "
            "thirtieth; streams take 0.4 to 1.0 times as long, a stream into a topic 0.8 to 1.0"
        ),
    ),
    ("one record at a time", "a `send().get()` takes 2 ms on a local disk and some 55 ms in an object store"),
    ("replicas (factor 3)", "an append takes three times as long"),
)

NOTES: Final = """
## How to read the tables

* Compare ratios, not times: most figures come from a virtual machine with two cores and a local ext4 disk,
  while other work ran on it.
* Rivals ran in the same session, in turn. Figures are medians, and ratios are medians of the rounds' ratios.
* Ratios of times below 1, and of speeds above 1, favor kafkalike.
* Records have keys of 16 B and values of 100 B unless stated.
* Each row names its run: command, date, commit and machine stand below the table.
* The commit is the measured tree. If a run names no processor, the commit recorded its result.
* `FOLDER` in a command is an empty folder. The command writes its result to `benchmarks/results`,
  and `make reference` brings it here.
"""

TIMES: Final = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Row:
    """A line of the page.

    Args:
        result: name of the file in `benchmarks/results`.
        what: the row of that file.
        label: what the page calls it.
        rival: how the row's rival begins, if the file has several rows of that name.
        alone: leave the rival out: it is another commit of this project.
    """

    result: str
    what: str
    label: str
    rival: str = ""
    alone: bool = False


QUEUE_WORKERS: Final = (
    ("1 workers in 1 processes", "1 worker"),
    ("10 workers in 10 processes", "10 workers"),
    ("100 workers in 10 processes", "100 workers in 10 processes"),
)

SECTIONS: Final[tuple[tuple[str, str, tuple[Row, ...]], ...]] = (
    (
        "Spark and plain Delta",
        "",
        (
            Row("write-10000000", "spark.write, 10,000,000 records", "`ks.write`, 10 M records", "raw Delta"),
            Row("write-10000000", "the format, 10,000,000 records", '`format("kafkalike")` write, 10 M', "raw Delta"),
            Row("write-10000000", "bytes per record, 10,000,000", "bytes per record (uncompressed; Delta: snappy)"),
            Row("read-1000000", "full scan, 1,000,000", "`ks.read`, full scan of 1 M"),
            Row("read-1000000", "key look-up, 1,000,000", "`ks.read`, a key of 1 M"),
            Row("read-1000000", "last tenth by time, 1,000,000", "`ks.read`, last tenth of 1 M by time"),
            Row("stream-1000000", "full scan, 1,000,000", '`format("kafkalike")`, full scan of 1 M'),
            Row(
                "stream-write-1000000",
                "format kafkalike, 1,000,000 in 10 micro-batches",
                "stream of 1 M records in 10 micro-batches into a topic",
                "Delta sink",
            ),
            Row("submit", "consume.py, 5,000 rows", "`spark-submit` of `consume.py`, 5,000 rows"),
        ),
    ),
    (
        "Kafka and Spark's Kafka connector",
        (
            "Kafka 4.3.1, one node, with its defaults and tuned (`linger.ms=20`, `batch.size=262144`, "
            '`max.poll.records=5000`). *Engine delta* is `read_stream(engine="delta")`.'
        ),
        (
            Row("kafka-10000000", "write 10,000,000", "batch write, 10 M", "Kafka"),
            Row("kafka-10000000", "bytes per record, zstd, 10,000,000", "bytes per record, zstd"),
            Row("kafka-10000000", "full scan 10,000,000: kafkalike.spark.read", "`ks.read`, full scan of 10 M"),
            Row("kafka-10000000", "full scan 10,000,000: format kafkalike", "the format, full scan of 10 M"),
            Row("kafka-10000000", "key look-up 10,000,000: kafkalike.spark.read", "`ks.read`, a key of 10 M"),
            Row(
                "kafka-streams-1-10",
                "stream of 1, 10,000,000: kafkalike",
                "the format, stream of 10 M, one micro-batch",
            ),
            Row("kafka-streams-1-10", "stream of 1, 10,000,000: kafkalike, engine delta", "one, engine delta"),
            Row("kafka-streams-1-10", "stream of 10, 10,000,000: kafkalike", "ten micro-batches"),
            Row("kafka-streams-1-10", "stream of 10, 10,000,000: kafkalike, engine delta", "ten, engine delta"),
            Row(
                "kafka-10000000",
                "sink, ten micro-batches, 10,000,000",
                "stream of 10 M into a topic, ten micro-batches",
            ),
            Row("kafka-scans", "sink, ten micro-batches, 1,000,000", "stream of 1 M into a topic, ten micro-batches"),
            Row(
                "kafka-streams-1-10-100",
                "stream of 1, 1,000,000: kafkalike",
                "the format, stream of 1 M, one micro-batch",
            ),
            Row("kafka-streams-1-10-100", "stream of 1, 1,000,000: kafkalike, engine delta", "one, engine delta"),
            Row("kafka-streams-1-10-100", "stream of 10, 1,000,000: kafkalike", "ten micro-batches"),
            Row("kafka-streams-1-10-100", "stream of 10, 1,000,000: kafkalike, engine delta", "ten, engine delta"),
            Row("kafka-streams-1-10-100", "stream of 100, 1,000,000: kafkalike", "a hundred micro-batches"),
            Row(
                "kafka-streams-1-10-100", "stream of 100, 1,000,000: kafkalike, engine delta", "a hundred, engine delta"
            ),
            Row("kafka-streams-1-10-100", "one record through a stream", "one record through a running query"),
            Row("kafka-scans", "count() 1,000,000", "the format, `count()` of 1 M"),
            Row("kafka-scans", "filter on offset 1,000,000", "the format, 1 M, filter on offset"),
        ),
    ),
    (
        "Python clients",
        "",
        (
            Row("producer", "send().get()", "`send().get()`"),
            Row("producer", "200,000 records sustained", "200,000 sends and a flush"),
            Row("consumer", "poll at the tail after the commit", "`poll` of a record, from its commit"),
            Row("consumer", "drain 1,000,000: poll_arrow, 100,000 a poll", "`poll_arrow` of 1 M"),
            Row("consumer", "drain 1,000,000: poll, 500 a poll (the default)", "`poll` of 1 M, 500 at a time"),
            Row("clients", "latency: p50 ms", "`send` to `poll` in another process, p50, ms", alone=True),
            Row("clients", "waiting: alone % of a core", "a waiting consumer, % of a core", alone=True),
            Row("key", "once: find_records, with filters", "`find_records`, a key that occurs once in 10 M"),
        ),
    ),
    (
        "Transactions and groups",
        "The copier copies records from topic to topic in transactions.",
        (
            Row(
                "transactions",
                "transaction of 3 topics x 1,000 records",
                "transaction, 1,000 records into each of 3 topics",
            ),
            Row("transactions", "500 records and offsets", "transaction, 500 records and offsets"),
            Row(
                "kafka-copier", "copier, at most 200 records a transaction", "copier, at most 200 records a transaction"
            ),
            Row("clients", "commit: p50 ms", "synchronous commit of offsets, p50, ms", alone=True),
            Row(
                "groups-members",
                "synchronous commits of 12 partitions, 10 consumers",
                "commits of ten consumers at once",
            ),
            Row("groups-members", "range: join to all partitions shared out", "a member joins"),
            Row(
                "describe",
                "lag of 100 groups x 100 partitions, from nothing, in-process",
                "lag of 100 groups in 100 partitions each, in process",
            ),
        ),
    ),
    (
        "Gateway",
        (
            "Clients of confluent-kafka (librdkafka). Speeds are of a server's core (CPU), then of the "
            "clock. The rival is Kafka 4.3.1, one node, in the same run."
        ),
        (
            Row("kafka_gateway", "start to the first answer", "start to the first answer"),
            Row("kafka_gateway", "memory after the load", "memory after the load"),
            Row("kafka_gateway", "produce, 16 kB batches", "produce, batches of 16 kB", "Kafka"),
            Row("kafka_gateway", "produce, 16 kB batches, idempotent", "the same, idempotent", "Kafka"),
            Row("kafka_gateway", "fetch", "fetch", "Kafka"),
            Row("kafka_gateway", "one record, sent to acknowledged", "one record, sent to acknowledged", "Kafka"),
            Row("kafka_gateway", "one record, sent to read by a poll", "one record, sent to read by a poll", "Kafka"),
            Row("kafka_gateway", "100 idle members", "100 idle members of a group"),
        ),
    ),
    (
        "Maintenance",
        "",
        (
            Row("maintenance-files", "scan after maintenance", "scan after maintenance of 5,000 appends"),
            Row(
                "maintenance",
                "compaction of 10,000,000 records, 1,000,000 keys, 4 partitions, in process",
                "compaction, 10 M records, 1 M keys",
            ),
            Row("maintenance-producers", "append p99 while maintenance runs", "append while maintenance runs, p99"),
            Row("forget", "1 key", "forget 1 key of 10 M records", alone=True),
            Row("forget", "1,000 keys", "forget 1,000 keys", alone=True),
        ),
    ),
    (
        "Object stores",
        (
            "versitygw, a server with S3's interface, on the same machine, behind a proxy that adds 15 ms to a GET and "
            "25 ms to a PUT. Dollars are S3's public prices."
        ),
        (
            Row("objects-15-25", "lone append", "append of a lone writer"),
            Row("objects-15-25", "produce to poll", "from `send` to the `poll` that returns the record"),
            Row("objects-many-15-25", "appends a second", "appends a second of eight writers"),
            Row("objects-idle", "an idle consumer and topic", "an idle consumer and topic"),
            Row("spark-objects", "spark.write, write 1,000,000", "`ks.write`, 1 M records"),
            Row("spark-objects", "spark.read, read 3,000,000", "`ks.read`, 3 M records", "raw Delta, same"),
            Row(
                "spark-objects",
                "the format, read 3,000,000",
                '`format("kafkalike")`, 3 M records',
                "raw Delta, same",
            ),
        ),
    ),
    (
        "Queues",
        "Workers of one share group take and acknowledge all records of a partition. S3 as above.",
        (
            *(Row("queue", f"{workers}, 500 records per poll", label) for workers, label in QUEUE_WORKERS),
            *(
                Row("queue-s3", f"{workers}, 500 records per poll on S3 with 15/25 ms", f"{label}, S3")
                for workers, label in QUEUE_WORKERS
            ),
            Row(
                "queue-s3", "100 workers in 10 processes, 1 records per poll on S3 with 15/25 ms", "one record per poll"
            ),
            Row("queue-locks-history", "1000000 locked records", "1 M records locked at once"),
            Row("queue-locks-history", "after 1000000 earlier polls", "after 1 M polls"),
        ),
    ),
    (
        "Replicas",
        "Appends of 10 records of 1 kB; buckets as above, `replica.lag.time.max.ms` 5 s.",
        (
            Row("replicas", "factor 3: append p50", "append, folders, factor 3"),
            Row("replicas-s3", "factor 3: append p50", "append, three buckets, factor 3"),
            Row("replicas-s3", "factor 3: eight writers", "eight writers, three buckets, factor 3"),
            Row(
                "replicas-s3",
                "next append after the leader's bucket is gone",
                "next append after the leader's S3 server was killed",
            ),
        ),
    ),
    (
        "Records with schemas",
        "Times of one record, but for the view. The rival of the first five rows is confluent-kafka.",
        (
            Row("schemas", "Avro encode against confluent-kafka", "Avro, encode"),
            Row("schemas", "Avro decode against confluent-kafka", "Avro, decode"),
            Row("schemas", "Protobuf decode against confluent-kafka", "Protobuf, decode"),
            Row("schemas", "JSON encode against confluent-kafka", "JSON Schema, encode, validated"),
            Row("schemas", "JSON decode against confluent-kafka", "JSON Schema, decode, validated"),
            Row("typed-batches", "Avro: decode into Arrow", "Avro into Arrow, in batches"),
            Row("typed-views", "all fields, 1,000,000 records", "typed view of 1 M records, all fields", "from_avro"),
            Row("registry", "register, at 100 versions", "register a schema version"),
        ),
    ),
    (
        "Growth",
        "*Exponent*: how the cost grows from a tenth of the size; 1 is linear.",
        (
            Row("growth", "open a topic, 100 commits", "open a topic after 100 commits", alone=True),
            Row("growth", "open a topic, 10,000 commits", "after 10,000 commits", alone=True),
            Row("growth", "append to one, 10,000 partitions", "append to one of 10,000 partitions", alone=True),
            Row("growth", "append to all, 100 partitions", "append to all of 100 partitions", alone=True),
            Row(
                "growth",
                "open a cluster and list its topics, 1,000 topics",
                "open a cluster of 1,000 topics",
                alone=True,
            ),
            Row("growth", "open and list groups, 1,000 groups", "open a cluster of 1,000 groups", alone=True),
        ),
    ),
)


def _cell(text: str) -> str:
    return re.sub(r" x( |$)", rf" {TIMES}\1", text).replace("|", r"\|")


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a line.

    Raises:
        LookupError: the result has no such row, or does not say when and how it was made.
    """
    result: dict[str, Any] = json.loads((RESULTS / f"{row.result}.json").read_text(encoding="utf-8"))
    found = [r for r in result["rows"] if r["what"] == row.what and r["against"].startswith(row.rival)]
    if len(found) != 1:
        raise LookupError(f"{row.result}.json has {len(found)} rows {row.what!r}; expected one")
    (of,) = found
    rival, ratio = ("", "") if row.alone else (of["against"], of["ratio"])
    made = {**result, **of}
    return (
        row.label,
        *map(_cell, (of["figure"], rival, ratio)),
        made["date"],
        f"`{made['commit']}`",
        made["machine"],
        f"`{made['command']}`",
    )


def _section(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of figures, and a list of the runs that made them: their columns do not fit on a screen."""
    made = [cells(row) for row in rows]
    runs = list(dict.fromkeys(row[4:] for row in made))
    heads = ("measured", "kafkalike", "compared with", "ratio", "run")
    yield from _table([heads, ["---"] * len(heads)])
    yield from _table((*row[:4], str(runs.index(row[4:]) + 1)) for row in made)
    yield from ("", "Runs:", "")
    for number, (date, commit, machine, command) in enumerate(runs, 1):
        yield f"{number}. {command}: {date}, commit {commit}, {machine}"
    yield ""


def page() -> str:
    """The page of all figures."""
    lines = [HEAD, *_table([("compared with", "result"), ("---", "---"), *SUMMARY]), NOTES]
    for title, note, rows in SECTIONS:
        lines += [f"## {title}", "", *([note, ""] if note else []), *_section(rows)]
    return "\n".join(lines)


def _table(rows: Iterable[Iterable[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]
