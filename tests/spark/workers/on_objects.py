"""Driver on a cluster: writes and reads topics in an object store by every way there is, and says what came of it.

Who asks the store stands in one environment variable of this process, which no other process has.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import kafkalike.spark as ks
from kafkalike.errors import KafkaError
from kafkalike.spark.writes import batch_write as append_frame

OPTIONS = "KAFKALIKE_TEST_STORAGE"
ROWS = 3_000
SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}


def numbers(frame: DataFrame) -> list[int]:
    """The values of records, in order."""
    return sorted(int(row["value"]) for row in frame.select(F.col("value").cast("string")).collect())


def source(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """Rows of four Spark partitions."""
    return spark.range(begin, end, 1, 4).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value", "concat('t', id % 2) AS topic"
    )


def shown(frame: DataFrame) -> str:
    """All that Spark tells of a plan."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        for mode in ("extended", "formatted", "codegen", "cost"):
            frame.explain(mode=mode)
    return text.getvalue()


def stream(spark: SparkSession, root: str, options: dict[str, str], places: dict[str, str]) -> list[str]:
    """Copies `one` into `copy`, and that into `again`, and says what the queries tell of themselves."""
    given = {"kafka.bootstrap.servers": root, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1700"}
    reader = spark.readStream.format("kafkalike").options(**given)
    records = reader.option("subscribe", "one").load().select("key", "value")
    first = ks.write_stream(
        records,
        "copy",
        root,
        checkpoint=places["write_stream"],
        available_now=True,
        group_id="copies",
        storage_options=options,
    )
    first.awaitTermination()
    records = reader.option("subscribe", "copy").load().select("key", "value")
    sink = {"kafka.bootstrap.servers": root, "topic": "again", "checkpointLocation": places["format"]}
    second = records.writeStream.format("kafkalike").options(**sink).trigger(availableNow=True).start()
    second.awaitTermination()
    told = []
    for query in (first, second):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            query.explain(extended=True)
        told += [text.getvalue(), str(query.lastProgress), str(query.exception())]
    return told


def refusal(spark: SparkSession, topic: str, root: str, options: dict[str, str]) -> str:
    """The error of a read of a topic."""
    try:
        ks.read(spark, topic, root, storage_options=options)
    except KafkaError as error:
        return type(error).__name__
    return "none"


def main() -> None:
    orders: dict[str, Any] = json.loads(sys.argv[1])
    options: dict[str, str] = json.loads(os.environ.pop(OPTIONS))
    root = orders["root"]
    native = {"bootstrap_servers": root} if orders["native"] else {}
    settings = {**SMALL, "spark.cores.max": "2", "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    settings |= {"spark.eventLog.dir": orders["events"], "spark.local.dir": orders["scratch"]}
    spark = ks.session(master=orders["master"], storage_options=options, **native, **settings)
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    told: list[str] = []

    # Once by the driver, once by tasks.
    written = ks.write(source(spark, 0, ROWS), "one", root, storage_options=options)
    vars(append_frame)["FAR_SPREAD_BYTES"] = 0
    more = ks.write(source(spark, ROWS, 2 * ROWS), "one", root, storage_options=options)
    by_column = ks.write(source(spark, 0, ROWS), None, root, storage_options=options)
    rerun = [
        ks.write(source(spark, 0, ROWS), "once", root, txn_id="app", txn_version=1, storage_options=options).duplicate
        for _ in range(2)
    ]
    frame = source(spark, 0, ROWS).drop("topic")
    given = {"kafka.bootstrap.servers": root}
    frame.write.format("kafkalike").options(**given, topic="by_format").mode("append").save()

    read = spark.read.format("kafkalike").options(**given, subscribe="one", minPartitions="6").load()
    by_format = spark.read.format("kafkalike").options(**given, subscribe="by_format").load()
    told += [shown(read), shown(by_format)]
    found = {
        "written": sum(len(run) for run in written.values()) + sum(len(run) for run in more.values()),
        "tasks": read.select(F.spark_partition_id()).distinct().count(),
        "topics": sorted({tp.topic for tp in by_column}),
        "rerun": rerun,
        "one": numbers(read) == list(range(2 * ROWS)),
        "by_format": numbers(by_format) == list(range(ROWS)),
    }
    told += stream(spark, root, options, orders["checkpoints"])
    for topic in ("copy", "again"):
        copied = spark.read.format("kafkalike").options(**given, subscribe=topic).load()
        found[topic] = numbers(copied) == list(range(2 * ROWS))
    if native:
        table = ks.read(spark, "one", root, storage_options=options)
        found["native"] = numbers(table) == list(range(2 * ROWS))
        small = ks.read(spark, "small", root, storage_options=options)
        by_delta = spark.read.format("delta").load(f"s3a{root[2:]}/small")
        found["small"] = numbers(small) == numbers(by_delta) == list(range(9))
        found["twice"] = numbers(ks.read(spark, "twice", root, storage_options=options))
        found["nowhere"] = [refusal(spark, topic, root, options) for topic in ("nowhere", "../small")]
        ks.register_sql(spark, root, storage_options=options, temporary=True)
        query = spark.sql("SELECT count(*) AS n FROM one WHERE offset < 1000000")
        lag = spark.sql("SELECT sum(lag) AS n FROM kafkalike_lag")
        told += [shown(table), shown(query), shown(lag)]
        found["sql"] = [query.collect()[0]["n"], lag.collect()[0]["n"]]
    told += [str(spark.sparkContext.getConf().getAll()), str(spark.sql("SET -v").collect())]
    Path(orders["told"]).write_text("\n".join(told))
    print(json.dumps(found))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
