"""Pipeline worker: six queries that feed each other through topics, until one of them ends or the process is killed.

files → `events` → `clean` (each id once) → `windows`, `joined` (orders with their payments) and `running` (a state of
one's own) ; `joined` → a Delta table by MERGE, and the topic `merged`, in one function.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

import kafkalike.spark as ks
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.orders import obey

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENT = StructType(
    [
        StructField("id", LongType()),
        StructField("kind", StringType()),
        StructField("user", StringType()),
        StructField("ms", LongType()),
        StructField("amount", LongType()),
    ]
)
EVERY = 5
"""How many events of a user make a record of `running`."""


class Running(StatefulProcessor):
    """Counts the events of a user; a row for each `EVERY` of them, in whatever batches they come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", StructType([StructField("n", LongType())]))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        before = (self._seen.get() or (0,))[0]
        seen = before + sum(len(part) for part in rows)
        self._seen.update((seen,))
        passed = [n for n in range(before + 1, seen + 1) if n % EVERY == 0]
        if passed:
            yield pd.DataFrame({"value": [f"{key[0]}:{n}" for n in passed]})

    def close(self) -> None:
        """Nothing is open."""


def joined_text(*columns: str) -> Column:
    return F.concat_ws(":", *columns).alias("value")


class Pipeline:
    """The queries of a session."""

    def __init__(self, spark: SparkSession, root: str, folder: Path) -> None:
        self._spark = spark
        self._root = root
        self._folder = folder
        self.accounts = str(folder / "accounts")

    def start(self) -> None:
        """Start all of them."""
        lines = self._spark.readStream.format("text").option("maxFilesPerTrigger", 3).load(str(self._folder / "in"))
        self._write(lines.select(F.get_json_object("value", "$.id").alias("key"), "value"), "events")
        self._write(
            self._events("events").dropDuplicates(["id"]).select(F.to_json(F.struct("*")).alias("value")), "clean"
        )
        clean = self._events("clean").withColumn("at", F.timestamp_millis("ms")).withWatermark("at", "120 seconds")
        grouped = clean.groupBy(F.window("at", "60 seconds").alias("w"), "user")
        counts = grouped.agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
        counts = counts.withColumn("start", F.unix_millis("w.start"))
        self._write(counts.select(joined_text("start", "user", "n", "total")), "windows")
        self._write(self._paid(), "joined")
        running = (
            self._events("clean")
            .groupBy("user")
            .transformWithStateInPandas(
                statefulProcessor=Running(),
                outputStructType=StructType([StructField("value", StringType())]),
                outputMode="Append",
                timeMode="None",
            )
        )
        self._write(running, "running")
        self._merge()

    def _events(self, topic: str) -> DataFrame:
        rows = ks.read_stream(self._spark, topic, self._root, starting_offsets="earliest")
        return rows.select(F.from_json(F.col("value").cast(StringType()), EVENT).alias("e")).select("e.*")

    def _paid(self) -> DataFrame:
        """Orders with the payments that have their number as amount."""

        def of(kind: str) -> DataFrame:
            rows = self._events("clean").where(F.col("kind") == kind).withColumn("at", F.timestamp_millis("ms"))
            return rows.withWatermark("at", "120 seconds")

        order, paid = of("order").alias("o"), of("paid").alias("p")
        on = F.expr("p.amount = o.id AND p.at >= o.at AND p.at <= o.at + INTERVAL 60 SECONDS")
        return order.join(paid, on).select(
            F.col("o.id").cast(StringType()).alias("key"), joined_text("o.user", "o.id", "o.amount", "p.id")
        )

    def _merge(self) -> None:
        checkpoint = str(self._folder / "checkpoints" / "merged")
        writer = ks.StreamWriter("merged", self._root, checkpoint=checkpoint)

        def work(frame: DataFrame, batch_id: int) -> None:
            text = F.split(F.col("value").cast(StringType()), ":")
            rows = frame.select(
                text[0].alias("user"), text[1].cast(LongType()).alias("id"), text[2].cast(LongType()).alias("amount")
            )
            # An order may have several payments.
            rows = rows.dropDuplicates(["id"])
            from delta.tables import DeltaTable

            table = DeltaTable.forPath(frame.sparkSession, self.accounts).alias("t")
            table.merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
            writer.write(frame.select("key", "value"), batch_id)

        rows = ks.read_stream(self._spark, "joined", self._root, starting_offsets="earliest")
        rows.writeStream.queryName("merged").option("checkpointLocation", checkpoint).foreachBatch(work).start()

    def _write(self, rows: DataFrame, topic: str) -> None:
        checkpoint = str(self._folder / "checkpoints" / topic)
        ks.write_stream(rows, topic, self._root, checkpoint=checkpoint, query_options=ks.QueryOptions(query_name=topic))


def work(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Run the queries for ever; the error of one that ends is raised."""
    folder = Path(orders["folder"])
    gateway: Any = spark.sparkContext._gateway
    # Never half a number.
    Path(folder, "jvm.new").write_text(str(gateway.proc.pid))
    Path(folder, "jvm.new").rename(folder / "jvm")
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    pipeline = Pipeline(spark, orders["root"], folder)
    try:
        pipeline.start()
        Path(folder, "started").touch()
        while True:
            spark.streams.awaitAnyTermination(5)
            SYSTEM_CLOCK.sleep(0.1)
    except BaseException as error:
        # A JVM that ends says so much on standard error that nobody finds it there.
        Path(folder, "error").write_text(str(error))
        raise


if __name__ == "__main__":
    obey(work)
