"""Against Kafka: the same records through kafkalike and through Spark's Kafka connector into a real single-node broker.

`make bench-kafka`. Kafka runs twice, with its defaults and with its best settings for this. Each line's ratio is
kafkalike's time over tuned Kafka's: below 1, kafkalike is faster.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.bench_read import QUESTIONS, question
from benchmarks.data import records, sizes
from benchmarks.harness import Figure, Report, percentile, private_mb, processes, ratio, rounds
from benchmarks.kafka_broker import broker, log_bytes
from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.spark import ProducerOptions, read, read_stream, session, write
from kafkalike.spark.jvm.jars import delta_jar_conf

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

TUNED_READ = {"kafka.fetch.max.wait.ms": "5", "kafka.max.poll.records": "5000"}
TUNED_WRITE = {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}
RUNS = 5
TRICKLE = 60
"""Records of the latency test."""


def kafka_session() -> SparkSession:
    """A session with Delta's jars and those of Spark's Kafka connector."""
    script = Path(__file__).parents[1] / "kafkalike" / "cli" / "jobs" / "kafka_jars.py"
    connector = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout.strip()
    return session(
        "kafkalike-bench-kafka",
        **{
            "spark.driver.memory": "8g",
            "spark.sql.shuffle.partitions": "4",
            "spark.jars": f"{delta_jar_conf()['spark.jars']},{connector}",
        },
    )


@dataclass
class Sides:
    """The three ways."""

    spark: SparkSession
    servers: str
    logs: Path
    folder: str
    rows: int

    @property
    def topic(self) -> str:
        """The topic that is read, of the same name on both sides."""
        return f"bench-{self.rows}"

    @property
    def root(self) -> str:
        """Root of our side."""
        return f"{self.folder}/root"

    def kafka_write(self, frame: DataFrame, topic: str, options: Mapping[str, str]) -> None:
        """Through Spark's Kafka sink."""
        writer = frame.select("key", "value").write.format("kafka").option("kafka.bootstrap.servers", self.servers)
        writer.options(**options).option("topic", topic).save()

    def kafka_create(self, topics: Sequence[str]) -> None:
        """Create topics of four partitions at the broker, so that no write has to wait for that."""
        jvm: Any = self.spark.sparkContext._jvm  # noqa: SLF001 - by the connector's own admin client
        settings, wanted = jvm.java.util.HashMap(), jvm.java.util.ArrayList()
        settings.put("bootstrap.servers", self.servers)
        for topic in topics:
            wanted.add(jvm.org.apache.kafka.clients.admin.NewTopic(topic, 4, 1))
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        admin.createTopics(wanted).all().get()
        admin.close()

    def kafka(self, options: Mapping[str, str]) -> DataFrame:
        """Through Spark's Kafka source."""
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.servers)
        return reader.options(**options).option("subscribe", self.topic).load()

    def ours(self) -> DataFrame:
        """Through our format."""
        options = {"kafka.bootstrap.servers": self.root, "subscribe": self.topic}
        return self.spark.read.format("kafkalike").options(**options).load()

    def native(self) -> DataFrame:
        """Through `kafkalike.spark.read`."""
        return read(self.spark, self.topic, self.root, include_headers=False)

    def stream(self, kind: str, options: Mapping[str, str], batches: int) -> None:
        """Drain the topic in so many micro-batches."""
        servers = self.root if kind == "kafkalike" else self.servers
        reader = self.spark.readStream.format(kind).option("kafka.bootstrap.servers", servers)
        reader = reader.options(**options).option("subscribe", self.topic).option("startingOffsets", "earliest")
        if batches > 1:
            reader = reader.option("maxOffsetsPerTrigger", str(-(-self.rows // batches)))
        self._drain(reader.load(), batches)

    def slice(self, batches: int) -> str:
        """A topic with the same records, written in so many commits of four files."""
        topic = f"{self.topic}-in-{batches}"
        connect(self.root).create_topic(topic, 4, {})
        frame = self.native().select("key", "value", "offset")
        for nth in range(batches):
            write(frame.where(F.col("offset") % batches == nth).drop("offset"), topic, self.root)
        return topic

    def stream_table(self, topic: str, batches: int) -> None:
        """The same by Delta's source, a commit in each micro-batch."""
        limit = {"maxFilesPerTrigger": "4"} if batches > 1 else {}
        frame = read_stream(self.spark, topic, self.root, engine="delta", starting_offsets="earliest", options=limit)
        self._drain(frame.drop("headers"), batches)

    def sink(self, kind: str, options: Mapping[str, str]) -> None:
        """Write the records, which lie in Parquet files, in ten micro-batches."""
        servers = self.root if kind == "kafkalike" else self.servers
        rows = self.spark.readStream.schema("key BINARY, value BINARY").option("maxFilesPerTrigger", 4)
        writer = rows.parquet(f"{self.folder}/rows").writeStream.format(kind).options(**options)
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", f"sink-{self.rows}")
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    def _drain(self, frame: DataFrame, batches: int) -> None:
        # Kept to the end: ext4 makes files slowly where many were deleted a moment ago, and the next rival would pay.
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found = sum(batch["numInputRows"] for batch in query.recentProgress)
        assert batches > 99 or found == self.rows, f"{found} rows of {self.rows}"


def line(  # noqa: PLR0917
    report: Report, what: str, rivals: dict[str, Callable[[], object]], rows: int, aim: str, runs: int
) -> None:
    """Run the rivals in turn; the last one is tuned Kafka."""
    figures = rounds(rivals, runs=runs)
    report.keep(what, figures)
    *ours, default, tuned = figures.values()
    for own in ours:
        report.add(
            f"{what}: {own.name}" if len(ours) > 1 else what,
            f"{own.median:.2f} s, {rows / own.median / 1e6:.2f} M rec/s",
            f"Kafka {default.median:.2f} s, tuned {tuned.median:.2f} s",
            f"{ratio(own, tuned):.2f} x tuned's time",
            aim,
        )


def writing(sides: Sides, frame: DataFrame, report: Report, runs: int) -> None:
    """Batch writes without compression, and bytes on disk with zstd."""
    names = {kind: [f"{kind}-{sides.rows}-{at}" for at in range(runs + 1)] for kind in ("ours", "default", "tuned")}
    small = f"zstd-{sides.rows}"
    cluster = connect(sides.root)
    for name in [sides.topic, small, *names["ours"]]:
        cluster.create_topic(name, 4, {})
    sides.kafka_create([sides.topic, small, *names["default"], *names["tuned"]])
    left = {kind: iter(made) for kind, made in names.items()}
    rivals: dict[str, Callable[[], object]] = {
        "kafkalike": lambda: write(frame, next(left["ours"]), sides.root),
        "default": lambda: sides.kafka_write(frame, next(left["default"]), {}),
        "tuned": lambda: sides.kafka_write(frame, next(left["tuned"]), TUNED_WRITE),
    }
    line(report, f"write {sides.rows:,}", rivals, sides.rows, "<= 1.0 x", runs)
    raw(sides, frame, report, runs)
    write(frame, small, sides.root, producer_options=ProducerOptions(compression_type="zstd"))
    sides.kafka_write(frame, small, {**TUNED_WRITE, "kafka.compression.type": "zstd"})
    own = sum(cluster.disk_usage(small).values()) / sides.rows
    other = log_bytes(sides.logs, small) / sides.rows
    report.add(
        f"bytes per record, zstd, {sides.rows:,}",
        f"{own:.1f} B",
        f"Kafka {other:.1f} B",
        f"{own / other:.2f} x",
        "<= 0.95 x",
    )
    write(frame, sides.topic, sides.root)
    sides.kafka_write(frame, sides.topic, TUNED_WRITE)


def reading(sides: Sides, report: Report, runs: int) -> None:
    """Batch reads, natively and through the format."""
    aims = {"full scan": "<= 1.0 x; native <= 0.29 x", "key look-up": "native <= 0.09 x"}
    for name in QUESTIONS:
        if "JSON" in name and sides.rows > 1_000_000:
            # Minutes of parsing that say nothing about the log.
            continue
        frames: dict[str, Callable[[], DataFrame]] = {
            "kafkalike.spark.read": sides.native,
            "format kafkalike": sides.ours,
            "default": partial(sides.kafka, {}),
            "tuned": partial(sides.kafka, TUNED_READ),
        }
        rivals: dict[str, Callable[[], object]] = {
            kind: partial(_ask, name, make, sides.rows) for kind, make in frames.items()
        }
        line(report, f"{name} {sides.rows:,}", rivals, sides.rows, aims.get(name, ""), runs)


def raw(sides: Sides, frame: DataFrame, report: Report, runs: int) -> None:
    """A batch write, and an append of the same rows to a plain Delta table of four partitions."""
    numbers = itertools.count()
    partitioned = frame.withColumn("partition", F.pmod(F.hash("key"), F.lit(4)))

    def ours() -> None:
        topic = f"raw-{sides.rows}-{next(numbers)}"
        connect(sides.root).create_topic(topic, 4, {})
        write(frame, topic, sides.root)

    def delta() -> None:
        table = partitioned.repartitionById(4, F.col("partition")).write.format("delta").partitionBy("partition")
        table.save(f"{sides.folder}/raw-{next(numbers)}")

    figures = rounds({"kafkalike": ours, "raw Delta": delta}, runs=runs)
    report.keep(f"raw {sides.rows}", figures)
    own, other = figures.values()
    times = f"{own.median:.2f} s", f"raw Delta {other.median:.2f} s"
    report.add(f"write {sides.rows:,}", *times, f"{ratio(own, other):.2f} x raw Delta's time", "<= 1.1 x")


PLACES: Final[Mapping[str, Callable[[DataFrame, int], object]]] = {
    "count()": lambda frame, _: frame.count(),
    "filter on offset": lambda frame, rows: _measured(frame.where(F.col("offset") >= rows // 4 * 9 // 10)),
    "filter on time": lambda frame, _: _measured(frame.where("timestamp > TIMESTAMP '2100-01-01'")),
    "filter on partition": lambda frame, _: _measured(frame.where("partition = 1")),
}
"""Questions about the place of records, which must not read all values."""


def _measured(frame: DataFrame) -> object:
    return frame.agg(F.sum(F.length("value")), F.max("offset")).collect()


def places(sides: Sides, report: Report, runs: int) -> None:
    """The format against Kafka's connector."""
    frames: dict[str, Callable[[], DataFrame]] = {
        "format kafkalike": sides.ours,
        "default": partial(sides.kafka, {}),
        "tuned": partial(sides.kafka, TUNED_READ),
    }
    for name, ask in PLACES.items():
        rivals: dict[str, Callable[[], object]] = {
            kind: partial(lambda ask, make: ask(make(), sides.rows), ask, make) for kind, make in frames.items()
        }
        line(report, f"{name} {sides.rows:,}", rivals, sides.rows, "<= 0.3 x", runs)


def sinking(sides: Sides, frame: DataFrame, report: Report, runs: int) -> None:
    """A stream of ten micro-batches into a topic."""
    frame.select("key", "value").repartition(40).write.parquet(f"{sides.folder}/rows")
    connect(sides.root).create_topic(f"sink-{sides.rows}", 4, {})
    sides.kafka_create([f"sink-{sides.rows}"])
    rivals: dict[str, Callable[[], object]] = {
        "kafkalike": partial(sides.sink, "kafkalike", {}),
        "default": partial(sides.sink, "kafka", {}),
        "tuned": partial(sides.sink, "kafka", TUNED_WRITE),
    }
    line(report, f"sink, ten micro-batches, {sides.rows:,}", rivals, sides.rows, "<= 1.0 x", runs)


IDLE_SECONDS: Final = 60


def idle(sides: Sides, report: Report) -> None:
    """CPU and memory of idle streaming queries, each with its share of the JVM and of all Python processes."""
    for count in (1, 5):
        before = _memory_mb(sides.spark)
        frame = read_stream(sides.spark, sides.topic, sides.root, starting_offsets="latest")
        queries = []
        for nth in range(count):
            writer = frame.writeStream.format("noop").option("checkpointLocation", f"{sides.folder}/idle-{count}-{nth}")
            queries.append(writer.start())
        for query in queries:
            query.processAllAvailable()
        time.sleep(5)
        start = sum(processes().values())
        time.sleep(IDLE_SECONDS)
        busy = (sum(processes().values()) - start) / IDLE_SECONDS
        added = _memory_mb(sides.spark) - before
        for query in queries:
            query.stop()
        figure = f"{busy / count:.3f} of a core, {added / count:.0f} MB"
        report.add(f"an idle query of {count}", figure, "", "", "<= 0.03, <= 60 MB")


def _memory_mb(spark: SparkSession) -> float:
    """Private memory of this process, the JVM and Spark's Python processes after a collection of garbage, MB."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    for _ in range(3):
        jvm.System.gc()
        time.sleep(1)
    return sum(map(private_mb, processes()))


def _ask(name: str, make: Callable[[], DataFrame], rows: int) -> object:
    return question(name, make(), rows).collect()


def streaming(sides: Sides, report: Report, each: Sequence[int] = (1, 10, 100)) -> None:
    """One big micro-batch, ten, and with a million records a hundred."""
    for batches in each if sides.rows <= 1_000_000 else (1, 10):
        rivals: dict[str, Callable[[], object]] = {
            "kafkalike": partial(sides.stream, "kafkalike", {}, batches),
            "kafkalike, engine delta": partial(sides.stream_table, sides.slice(batches), batches),
            "default": partial(sides.stream, "kafka", {}, batches),
            "tuned": partial(sides.stream, "kafka", TUNED_READ, batches),
        }
        # A round of a hundred takes half a minute for each rival.
        runs = RUNS if batches < 100 else 3
        line(report, f"stream of {batches}, {sides.rows:,}", rivals, sides.rows, "<= 1.0 x", runs)


def trickle(sides: Sides, report: Report) -> None:
    """Seconds from `send` of one record until a running stream has handed it to `foreachBatch`."""
    jvm: Any = sides.spark.sparkContext._jvm  # noqa: SLF001 - the connector's own producer, without a client of Python's
    settings = jvm.java.util.HashMap()
    for name, value in {"bootstrap.servers": sides.servers, "acks": "all"}.items():
        settings.put(name, value)
    for side in ("key", "value"):
        settings.put(f"{side}.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer")
    producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
    connect(sides.root).create_topic("trickle", 4, {})
    with KafkaProducer(bootstrap_servers=sides.root) as own:
        ours = _trickle(sides, "kafkalike", {}, lambda v: own.send("trickle", v).get(timeout=60))

        def send(value: bytes) -> object:
            record = jvm.org.apache.kafka.clients.producer.ProducerRecord("trickle", value)
            return producer.send(record).get()

        send(b"-1")
        kafka = _trickle(sides, "kafka", TUNED_READ, send)
    producer.close()
    figures = {"kafkalike": Figure("kafkalike", ours), "tuned": Figure("tuned", kafka)}
    report.keep("trickle", figures)
    report.add(
        "one record through a stream",
        f"p50 {statistics.median(ours) * 1000:.0f} ms, p99 {percentile(ours, 0.99) * 1000:.0f} ms",
        f"tuned Kafka p50 {statistics.median(kafka) * 1000:.0f} ms, p99 {percentile(kafka, 0.99) * 1000:.0f} ms",
        f"{statistics.median(ours) / statistics.median(kafka):.2f} x",
    )


def _trickle(sides: Sides, kind: str, options: Mapping[str, str], send: Callable[[bytes], object]) -> list[float]:
    seen: dict[int, float] = {}
    arrived = threading.Event()

    def note(frame: DataFrame, _: int) -> None:
        for row in frame.select(F.col("value").cast("string")).collect():
            seen[int(row[0])] = time.perf_counter()
            arrived.set()

    servers = sides.root if kind == "kafkalike" else sides.servers
    reader = sides.spark.readStream.format(kind).option("kafka.bootstrap.servers", servers).options(**options)
    query: StreamingQuery = (
        reader.option("subscribe", "trickle")
        .load()
        .writeStream.foreachBatch(note)
        .trigger(processingTime="0 seconds")
        .option("checkpointLocation", f"{sides.folder}/trickle-{kind}")
        .start()
    )
    taken = []
    try:
        while not query.recentProgress:
            time.sleep(0.05)
        for number in range(TRICKLE + 10):
            arrived.clear()
            start = time.perf_counter()
            send(str(number).encode())
            while number not in seen:
                assert arrived.wait(60), f"record {number} did not arrive"
                arrived.clear()
            taken.append(seen[number] - start)
    finally:
        query.stop()
    return taken[10:]


def alone(measure: Callable[[Sides, DataFrame, Report], None], report: Report) -> None:
    """Write a topic on both sides, measure a part, and print."""
    with broker() as (servers, logs), tempfile.TemporaryDirectory() as folder:
        spark = kafka_session()
        sides = Sides(spark, servers, logs, folder, sizes()[0])
        frame = records(spark, sides.rows)
        sides.kafka_create([sides.topic])
        connect(sides.root).create_topic(sides.topic, 4, {})
        write(frame, sides.topic, sides.root)
        sides.kafka_write(frame, sides.topic, TUNED_WRITE)
        measure(sides, frame, report)
        report.finish()
        spark.stop()


def streams(each: Sequence[int]) -> None:
    """Measure and print the streams alone: `python -m benchmarks.kafka_rivals streams 1 10`."""

    def measure(sides: Sides, frame: DataFrame, report: Report) -> None:
        frame.unpersist(blocking=True)
        # Before others: the JVM gives memory back that they took.
        idle(sides, report)
        streaming(sides, report, each)
        trickle(sides, report)

    alone(measure, Report("-".join(["kafka-streams", *map(str, each)])))


def scans(sides: Sides, frame: DataFrame, report: Report) -> None:
    """Measure the sink, and questions about the place of records: `python -m benchmarks.kafka_rivals scans`."""
    raw(sides, frame, report, RUNS)
    sinking(sides, frame, report, RUNS)
    frame.unpersist(blocking=True)
    places(sides, report, RUNS)


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["scans"]:
        alone(scans, Report("kafka-scans"))
        return
    if sys.argv[1:2] == ["streams"]:
        streams([int(given) for given in sys.argv[2:]] or (1, 10, 100))
        return
    with broker() as (servers, logs):
        spark = kafka_session()
        for rows in sizes():
            runs = RUNS if rows <= 1_000_000 else 3
            report = Report(f"kafka-{rows}")
            with tempfile.TemporaryDirectory() as folder:
                sides = Sides(spark, servers, logs, folder, rows)
                frame = records(spark, rows)
                writing(sides, frame, report, runs)
                sinking(sides, frame, report, runs)
                frame.unpersist(blocking=True)
                reading(sides, report, runs)
                places(sides, report, runs)
                streaming(sides, report)
                if rows <= 1_000_000:
                    trickle(sides, report)
            report.finish()
        spark.stop()


if __name__ == "__main__":
    main()
