"""Speculation worker: writes numbers on a Spark that runs slow tasks twice, and makes two of its tasks slow."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafkalike.spark import session, write, write_stream

TASKS = 4
ROWS = 400
BESIDE, LATE = 0, 1
"""Tasks whose two attempts wait for each other to begin; the first one of `LATE` goes on after the whole write."""
WOKE = f"{LATE}-0 woke"
SCHEMA = "partition INT, value STRING"
PATIENCE = 90.0
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    # No task is tried again: a second attempt is a speculative one.
    "spark.task.maxFailures": "1",
    # The Python process of an attempt that lost is left alone.
    "spark.python.task.killTimeout": "300s",
}


def wait_until(there: Callable[[], bool], what: str) -> None:
    """Until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not there():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def slow(marks: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a task does to its rows: mark its attempt with its process, and wait if it is one of the two slow tasks."""

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        Path(marks, f"{task}-{attempt}").write_text(str(os.getpid()), "ascii")
        for batch in batches:
            if task in {BESIDE, LATE}:
                both = [Path(marks, f"{task}-{number}") for number in range(2)]
                wait_until(lambda both=both: all(mark.exists() for mark in both), "no other attempt")  # type: ignore[misc]
            if task == LATE and attempt == 0:
                wait_until(Path(marks, "done").exists, "the write does not end")
                Path(marks, WOKE).touch()
            yield batch

    return rows


def put(spark: SparkSession, asked: dict[str, Any]) -> None:
    """Write the numbers in the way that is asked for."""
    by, root = asked["by"], asked["root"]
    numbers = slow(asked["marks"])
    served = {"kafka.bootstrap.servers": root}
    if by in {"write_stream", "format of a stream"}:
        source = spark.readStream.format("kafkalike").options(**served, subscribe="in", startingOffsets="earliest")
        frame = as_sent(source.load().selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS id"))
        stream(frame.mapInArrow(numbers, SCHEMA), asked, served).awaitTermination()
        return
    frame = as_sent(spark.range(0, ROWS, 1, TASKS)).mapInArrow(numbers, SCHEMA)
    if by == "format":
        frame.write.format("kafkalike").options(**served, topic="t").mode("append").save()
    else:
        write(frame, "t", root)


def stream(frame: DataFrame, asked: dict[str, Any], served: dict[str, str]) -> StreamingQuery:
    """Start to write a stream, in one batch."""
    if asked["by"] == "write_stream":
        return write_stream(frame, "t", asked["root"], checkpoint=asked["checkpoint"], available_now=True)
    writer = frame.writeStream.format("kafkalike").options(**served, topic="t")
    return writer.option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start()


def as_sent(ids: DataFrame) -> DataFrame:
    """Numbers as records of three partitions."""
    return ids.selectExpr("CAST(id % 3 AS INT) AS partition", "CAST(id AS STRING) AS value")


def main() -> None:
    asked = json.loads(sys.argv[1])
    marks = Path(asked["marks"])
    spark = session(master=asked["master"], **SETTINGS)
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    put(spark, asked)
    (marks / "done").touch()
    # Stopping Spark would end the attempt that lost before it has done what it can.
    loser = Path("/proc", (marks / f"{LATE}-0").read_text("ascii"))
    wait_until(lambda: not loser.exists(), "the late attempt does not end")
    spark.stop()


if __name__ == "__main__":
    main()
