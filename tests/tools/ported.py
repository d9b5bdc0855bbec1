"""Ported programs: what public programs for Spark's Kafka connector do, each in a few lines, over either format.

A program gets a `Side`: the session, the format and the address. Nothing else in it knows which one it runs over, so it
shows what a change of the format needs. `tests/spark/test_ported_programs.py` runs them over ours;
`python -m tests.tools.ported` over both, beside a real broker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[Any]
PATIENCE: Final = 120
START: Final = 1_700_000_000
"""Seconds since 1970: of the first event."""

EVENT: Final = "id INT, kind STRING, at TIMESTAMP, amount DOUBLE"
AVRO: Final = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [{"name": "id", "type": "int"}, {"name": "kind", "type": "string"}],
    }
)


@dataclass
class Side:
    """Where a program runs."""

    spark: SparkSession
    format: str
    address: str
    folder: Path
    changes: set[str] = field(default_factory=set)
    """What had to be changed in the program besides format and address."""

    def named(self, name: str) -> str:
        """A topic's name of this run's own."""
        return f"{self.folder.name}-{name}"

    def read(self, topic: str, **options: str) -> DataFrame:
        """A batch of a topic."""
        reader = self.spark.read.format(self.format).option("kafka.bootstrap.servers", self.address)
        return reader.option("subscribe", self.named(topic)).options(**options).load()

    def stream(self, topic: str, **options: str) -> DataFrame:
        """A stream of a topic from its beginning."""
        given = {"startingOffsets": "earliest"} | options
        reader = self.spark.readStream.format(self.format).option("kafka.bootstrap.servers", self.address)
        return reader.option("subscribe", self.named(topic)).options(**given).load()

    def write(self, frame: DataFrame, topic: str | None = None, **options: str) -> None:
        """A batch write as ported programs have it: without a mode."""
        writer = frame.write.format(self.format).option("kafka.bootstrap.servers", self.address).options(**options)
        writer = writer if topic is None else writer.option("topic", self.named(topic))
        try:
            writer.save()
        except AnalysisException as error:
            if "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" not in str(error):
                raise
            self.changes.add('`.mode("append")`')
            writer.mode("append").save()

    def send(self, topic: str, *values: str, **columns: str) -> None:
        """Values as records of one partition, in their order; the key is the first word unless it is given."""
        rows = [(value,) for value in values]
        frame = self.spark.createDataFrame(rows, "value STRING").coalesce(1)
        made = {"key": "substring_index(value, ' ', 1)", "partition": "0"} | columns
        frame = frame.selectExpr(*(f"{text} AS {name}" for name, text in made.items()), "value")
        writer = frame.write.format(self.format).option("kafka.bootstrap.servers", self.address)
        writer.option("topic", self.named(topic)).mode("append").save()

    def run(self, frame: DataFrame, sink: Any, name: str = "run", mode: str = "append", **trigger: Any) -> None:
        """A query with `foreachBatch`, until all that is there is done."""
        query = frame.writeStream.outputMode(mode).foreachBatch(sink).option("checkpointLocation", self.place(name))
        assert query.trigger(**(trigger or {"availableNow": True})).start().awaitTermination(PATIENCE)

    def pipe(self, frame: DataFrame, topic: str, **trigger: Any) -> None:
        """A query into a topic."""
        writer = frame.writeStream.format(self.format).option("kafka.bootstrap.servers", self.address)
        writer = writer.option("topic", self.named(topic)).option("checkpointLocation", self.place("to-" + topic))
        assert writer.trigger(**(trigger or {"availableNow": True})).start().awaitTermination(PATIENCE)

    def place(self, name: str) -> str:
        """A folder of this run."""
        return str(self.folder / name)


def text(frame: DataFrame) -> Rows:
    """Values of a topic as text, sorted."""
    return sorted(row[0] for row in frame.selectExpr("CAST(value AS STRING)").collect())


def rows(frame: DataFrame) -> Rows:
    return sorted(tuple(row) for row in frame.collect())


def event(number: int, kind: str = "click", amount: float = 1.0, *, minute: int | None = None) -> str:
    at = f"2026-01-01T00:{number if minute is None else minute:02d}:00"
    return json.dumps({"id": number, "kind": kind, "at": at, "amount": amount})


def events(frame: DataFrame) -> DataFrame:
    """What most programs begin with."""
    return frame.select(F.from_json(F.col("value").cast("string"), EVENT).alias("e")).select("e.*")


class Kept:
    """The rows of all batches."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.batches: list[int] = []

    def __call__(self, frame: DataFrame, _: int) -> None:
        found = [tuple(row) for row in frame.collect()]
        self.rows += found
        if found:
            self.batches.append(len(found))


# --- the programs ------------------------------------------------------------------------------


def word_count_of_a_batch(side: Side) -> Rows:
    """Words of all values, counted in a batch."""
    side.send("words", "a b", "b c b")
    words = side.read("words").select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
    return rows(words.groupBy("word").count())


def word_count_of_a_stream(side: Side) -> Rows:
    """The structured streaming guide's first program: words of a stream, output mode `complete`."""
    side.send("words", "a b", "b c b")
    words = side.stream("words").select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
    kept = Kept()
    side.run(words.groupBy("word").count(), kept, mode="complete")
    return sorted(kept.rows)


def word_count_back_into_a_topic(side: Side) -> Rows:
    """Counts as key and value, by a batch write in `foreachBatch`."""
    side.send("words", "a b", "b c b")
    words = side.stream("words").select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
    counts = words.groupBy("word").count().selectExpr("word AS key", "CAST(count AS STRING) AS value")
    side.run(counts, lambda frame, _: side.write(frame, "counts"), mode="complete")
    return rows(side.read("counts").selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)"))


def tumbling_windows(side: Side) -> Rows:
    """Sums by five minutes of event time, with a watermark."""
    side.send("events", *[event(n, amount=float(n)) for n in range(12)])
    found = events(side.stream("events")).withWatermark("at", "1 minute")
    sums = found.groupBy(F.window("at", "5 minutes")).agg(F.sum("amount").alias("sum"))
    kept = Kept()
    side.run(sums.selectExpr("CAST(window.start AS STRING)", "sum"), kept)
    return sorted(kept.rows)


def sliding_windows_by_kind(side: Side) -> Rows:
    """Counts by overlapping windows and a column, output mode `update`."""
    side.send("events", *[event(n, "even" if n % 2 == 0 else "odd") for n in range(12)])
    found = events(side.stream("events")).withWatermark("at", "1 minute")
    counts = found.groupBy(F.window("at", "6 minutes", "3 minutes"), "kind").count()
    kept = Kept()
    side.run(counts.selectExpr("CAST(window.start AS STRING)", "kind", "count"), kept, mode="update")
    return sorted(kept.rows)


def session_windows(side: Side) -> Rows:
    """Counts by sessions that a pause ends."""
    side.send("events", *[event(n, minute=at) for n, at in enumerate((0, 1, 2, 20, 21, 50))])
    found = events(side.stream("events")).withWatermark("at", "1 minute")
    counts = found.groupBy(F.session_window("at", "5 minutes"), "kind").count()
    kept = Kept()
    side.run(counts.selectExpr("CAST(session_window.start AS STRING)", "count"), kept)
    return sorted(kept.rows)


def join_of_two_streams(side: Side) -> Rows:
    """Impressions and clicks of two topics, joined within five minutes."""
    side.send("seen", *[event(n) for n in range(6)])
    side.send("clicked", *[event(n, amount=2.0) for n in (1, 3, 9)])
    seen = events(side.stream("seen")).withWatermark("at", "1 minute").alias("s")
    clicked = events(side.stream("clicked")).withWatermark("at", "1 minute").alias("c")
    near = F.expr("s.id = c.id AND c.at BETWEEN s.at AND s.at + INTERVAL 5 MINUTES")
    kept = Kept()
    side.run(seen.join(clicked, near).selectExpr("s.id", "c.amount"), kept)
    return sorted(kept.rows)


def join_with_a_table(side: Side) -> Rows:
    """A stream joined with a table that does not change."""
    side.send("events", *[event(n, kind) for n, kind in enumerate(("a", "b", "x"))])
    kinds = side.spark.createDataFrame([("a", "Alpha"), ("b", "Beta")], ["kind", "name"])
    kept = Kept()
    side.run(events(side.stream("events")).join(kinds, "kind", "left").select("id", "name"), kept)
    return sorted(kept.rows, key=str)


def merge_of_the_latest_into_a_table(side: Side) -> Rows:
    """Change data capture: the newest row of each key, merged into a Delta table in `foreachBatch`."""
    side.send("changes", *[event(n % 3, amount=float(n)) for n in range(9)], partition="0")
    table = side.place("table")
    side.spark.createDataFrame([], "id INT, amount DOUBLE").write.format("delta").save(table)

    def merge(frame: DataFrame, _: int) -> None:
        newest = frame.groupBy("id").agg(F.max_by("amount", "offset").alias("amount"))
        newest.createOrReplaceTempView("newest")
        frame.sparkSession.sql(
            f"MERGE INTO delta.`{table}` t USING newest n ON t.id = n.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    changes = side.stream("changes", maxOffsetsPerTrigger="4").select(
        F.from_json(F.col("value").cast("string"), EVENT).alias("e"), "offset"
    )
    side.run(changes.selectExpr("e.id", "e.amount", "offset"), merge)
    return rows(side.spark.read.format("delta").load(table))


def two_sinks_in_one_batch(side: Side) -> Rows:
    """A batch of a stream kept by `persist`, written into files and a topic."""
    side.send("events", *[event(n) for n in range(4)])

    def both(frame: DataFrame, _: int) -> None:
        frame.persist()
        frame.select("id").write.mode("append").parquet(side.place("files"))
        side.write(frame.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value"), "copies")
        frame.unpersist()

    side.run(events(side.stream("events")), both)
    return [rows(side.spark.read.parquet(side.place("files"))), text(side.read("copies"))]


def json_into_files(side: Side) -> Rows:
    """An ingest into a lake: JSON values as Parquet files."""
    side.send("events", *[event(n) for n in range(4)], "not json")
    query = events(side.stream("events")).writeStream.format("parquet").option("path", side.place("lake"))
    query = query.option("checkpointLocation", side.place("run"))
    assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    return sorted(map(str, side.spark.read.parquet(side.place("lake")).collect()))


def json_from_topic_to_topic(side: Side) -> Rows:
    """`from_json`, a condition, `to_json` into another topic."""
    side.send("events", *[event(n, "big" if n > 2 else "small") for n in range(5)])
    big = events(side.stream("events")).where("kind = 'big'")
    side.pipe(big.select(F.col("id").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value")), "big")
    return text(side.read("big"))


def bad_rows_into_a_topic_of_their_own(side: Side) -> Rows:
    """The column `topic` says where each row goes: good and bad ones."""
    side.send("events", event(1), "not json", event(2))
    parsed = side.stream("events").select("value", F.from_json(F.col("value").cast("string"), EVENT).alias("e"))
    where = F.when(F.col("e.id").isNull(), side.named("bad")).otherwise(side.named("good"))
    query = parsed.select(where.alias("topic"), "value").writeStream.format(side.format)
    query = query.option("kafka.bootstrap.servers", side.address).option("checkpointLocation", side.place("run"))
    assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    return [text(side.read("bad")), text(side.read("good"))]


def avro_values(side: Side) -> Rows:
    """`to_avro` and `from_avro` with a schema at hand."""
    from pyspark.sql.avro.functions import from_avro, to_avro

    frame = side.spark.createDataFrame([(1, "a"), (2, "b")], "id INT NOT NULL, kind STRING NOT NULL")
    side.write(frame.select(to_avro(F.struct("id", "kind"), AVRO).alias("value")), "avro")
    return rows(side.read("avro").select(from_avro("value", AVRO).alias("e")).select("e.*"))


def avro_values_of_a_registry(side: Side) -> Rows:
    """`from_avro` behind the five bytes of a registry, which public programs cut off by hand."""
    from pyspark.sql.avro.functions import from_avro, to_avro

    frame = side.spark.createDataFrame([(1, "a"), (2, "b")], "id INT NOT NULL, kind STRING NOT NULL")
    head = F.unhex(F.lit("0000000007"))
    side.write(frame.select(F.concat(head, to_avro(F.struct("id", "kind"), AVRO)).alias("value")), "avro")
    kept = Kept()
    side.run(side.stream("avro").select(from_avro(F.expr("substring(value, 6)"), AVRO).alias("e")).select("e.*"), kept)
    return sorted(kept.rows)


def backfill_between_offsets(side: Side) -> Rows:
    """A batch between offsets of one partition: `assign`, `startingOffsets`, `endingOffsets`."""
    side.send("events", *[event(n) for n in range(8)])
    topic = side.named("events")
    found = (
        side.spark.read.format(side.format)
        .option("kafka.bootstrap.servers", side.address)
        .option("assign", json.dumps({topic: [0]}))
        .option("startingOffsets", json.dumps({topic: {"0": 2}}))
        .option("endingOffsets", json.dumps({topic: {"0": 5}}))
        .load()
    )
    return [(row.offset, row.partition, bytes(row.value).decode()) for row in found.orderBy("offset").collect()]


def backfill_between_times(side: Side) -> Rows:
    """A batch between times: `startingOffsetsByTimestamp`, `endingTimestamp`."""
    side.send("events", *[event(n) for n in range(3)])
    topic = side.named("events")
    newest = side.read("events").selectExpr("max(unix_millis(timestamp)) AS ms").collect()[0].ms
    reader = side.spark.read.format(side.format).option("kafka.bootstrap.servers", side.address)
    reader = reader.option("assign", json.dumps({topic: [0]}))
    early = reader.option("startingOffsetsByTimestamp", json.dumps({topic: {"0": START * 1000}}))
    return [early.load().count(), early.option("endingTimestamp", str(newest + 60_000)).load().count()]


def options_of_a_secured_cluster(side: Side) -> Rows:
    """SASL, TLS and client settings that come along in such programs."""
    options = {
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="p";',
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.request.timeout.ms": "60000",
        "kafka.session.timeout.ms": "45000",
        "kafka.max.poll.records": "500",
        "groupIdPrefix": "ported",
        "failOnDataLoss": "false",
        "includeHeaders": "false",
    }
    side.send("events", *[event(n) for n in range(3)])
    side.write(side.read("events", **options).select("key", "value"), "copies", **options)
    return text(side.read("copies", **options))


def options_that_mean_nothing(side: Side) -> Rows:
    """Options that Spark's connector ignores, such as `group.id` and `inferSchema`."""
    side.send("events", event(1))
    options = {"group.id": "mine", "auto.offset.reset": "earliest", "inferSchema": "true", "checkpointLocation": "/x"}
    side.write(side.read("events", **options).select("value"), "copies", checkpointLocation="/x", truncate="false")
    return text(side.read("copies"))


def trigger_once(side: Side) -> Rows:
    """`trigger(once=True)`, twice."""
    side.send("events", "a", "b")
    kept = Kept()
    side.run(side.stream("events").selectExpr("CAST(value AS STRING)"), kept, once=True)
    side.send("events", "c")
    side.run(side.stream("events").selectExpr("CAST(value AS STRING)"), kept, once=True)
    return [kept.rows, kept.batches]


def available_now_with_a_limit(side: Side) -> Rows:
    """`trigger(availableNow=True)` with `maxOffsetsPerTrigger`."""
    side.send("events", *"abcde")
    kept = Kept()
    side.run(side.stream("events", maxOffsetsPerTrigger="2").selectExpr("CAST(value AS STRING)"), kept)
    return [kept.rows, kept.batches]


def duplicates_dropped(side: Side) -> Rows:
    """`dropDuplicates` of a stream, with a watermark."""
    side.send("events", *[event(n % 3, minute=n % 3) for n in range(9)])
    kept = Kept()
    found = events(side.stream("events")).withWatermark("at", "10 minutes").dropDuplicates(["id", "at"])
    side.run(found.select("id"), kept)
    return sorted(kept.rows)


def running_totals_in_update_mode(side: Side) -> Rows:
    """Sums by key that are told when they change."""
    side.send("events", *[event(n % 2, amount=1.0) for n in range(6)])
    kept = Kept()
    totals = events(side.stream("events", maxOffsetsPerTrigger="4")).groupBy("id").agg(F.sum("amount"))
    side.run(totals, kept, mode="update")
    return sorted(kept.rows)


def topics_by_pattern(side: Side) -> Rows:
    """`subscribePattern`."""
    side.send("logs-a", "a")
    side.send("logs-b", "b")
    side.send("other", "c")
    reader = side.spark.read.format(side.format).option("kafka.bootstrap.servers", side.address)
    return text(reader.option("subscribePattern", f"{side.folder.name}-logs-.*").load())


def headers_there_and_back(side: Side) -> Rows:
    """The column `headers`, written and read."""
    frame = side.spark.sql(
        "SELECT 'v' AS value, array(struct('trace' AS key, CAST('1' AS BINARY) AS value)) AS headers"
    )
    side.write(frame, "events", includeHeaders="true")
    found = side.read("events", includeHeaders="true").select(F.explode("headers").alias("h")).select("h.*")
    return [(row[0], bytes(row[1]).decode()) for row in found.collect()]


def copy_of_all_columns(side: Side) -> Rows:
    """A topic written into another with all its columns: the sink takes `partition`, not `offset` and `timestamp`."""
    side.send("events", "a", "b")
    side.write(side.read("events").drop("topic"), "copies")
    return rows(side.read("copies").selectExpr("partition", "offset", "CAST(value AS STRING)", "timestampType"))


def restart_from_a_checkpoint(side: Side) -> Rows:
    """A query that is started three times with one checkpoint."""
    kept = Kept()
    for value in "abc":
        side.send("events", value)
        side.run(side.stream("events").selectExpr("CAST(value AS STRING)", "offset"), kept)
    return kept.rows


def values_of_a_csv(side: Side) -> Rows:
    """Values that are split at commas."""
    side.send("events", "1,a", "2,b")
    fields = F.split(F.col("value").cast("string"), ",")
    kept = Kept()
    side.run(side.stream("events").select(fields[0].cast("int"), fields[1]), kept)
    return sorted(kept.rows)


PROGRAMS: Final[tuple[Callable[[Side], Rows], ...]] = (
    word_count_of_a_batch,
    word_count_of_a_stream,
    word_count_back_into_a_topic,
    tumbling_windows,
    sliding_windows_by_kind,
    session_windows,
    join_of_two_streams,
    join_with_a_table,
    merge_of_the_latest_into_a_table,
    two_sinks_in_one_batch,
    json_into_files,
    json_from_topic_to_topic,
    bad_rows_into_a_topic_of_their_own,
    avro_values,
    avro_values_of_a_registry,
    backfill_between_offsets,
    backfill_between_times,
    options_of_a_secured_cluster,
    options_that_mean_nothing,
    trigger_once,
    available_now_with_a_limit,
    duplicates_dropped,
    running_totals_in_update_mode,
    topics_by_pattern,
    headers_there_and_back,
    copy_of_all_columns,
    restart_from_a_checkpoint,
    values_of_a_csv,
)


def both(only: list[str]) -> int:
    """Run them over a real broker and over ours, and print the table; the number of those that differ."""
    from benchmarks.kafka_broker import avro_jar, broker
    from kafkalike.spark.jvm.spark_session import delta_session

    connector = subprocess.run(
        [sys.executable, "-m", "kafkalike.jobs.kafka_jars"],
        check=True,
        capture_output=True,
        text=True,
    )
    differ = 0
    with broker() as (address, _), tempfile.TemporaryDirectory(prefix="ported-") as folder:
        conf: dict[str, Any] = {
            "spark.jars": f"{connector.stdout.strip()},{avro_jar()}",
            "spark.sql.shuffle.partitions": "1",
        }
        spark = delta_session("ported", "local[2]", **conf)
        say("| program | what it does | same rows | changed besides format and address |\n|---|---|---|---|")
        for program in PROGRAMS:
            if only and program.__name__ not in only:
                continue
            theirs = _ran(program, Side(spark, "kafka", address, Path(folder, f"k-{program.__name__}")))
            side = Side(spark, "kafkalike", f"{folder}/root", Path(folder, f"l-{program.__name__}"))
            ours = _ran(program, side)
            same = str(theirs).replace("k-", "l-") == str(ours)
            differ += not same
            changed = ", ".join(sorted(side.changes)) or "nothing"
            say(f"| {titled(program)} | {'yes' if same else 'no'} | {changed} |")
            if not same:
                say(f"  kafka:     {theirs}\n  kafkalike: {ours}")
    return differ


def titled(program: Callable[[Side], Rows]) -> str:
    """A program's name and what it does, as two columns of a table."""
    return f"{program.__name__.replace('_', ' ')} | {(program.__doc__ or '').rstrip('.')}"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _ran(program: Callable[[Side], Rows], side: Side) -> Any:
    side.folder.mkdir()
    try:
        return program(side)
    except Exception as error:  # noqa: BLE001 - the table says what happened
        return f"{type(error).__name__}: {error}"[:2_000]


if __name__ == "__main__":
    sys.exit(both(sys.argv[1:]))
