"""Cluster worker: writes numbers through two executor processes, slowly enough for one of them to be killed.

Into the topic `t`, or each into all of several topics.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from kafkalike.spark import session, write
from tests.spark.workers.on_objects import OPTIONS

ROWS = 400
SCHEMA = "partition INT, value STRING"


def main() -> None:
    asked = json.loads(sys.argv[1])
    pause, begun = asked["pause_ms"] / 1000, asked["begun"]
    # Who asks an object store stands in one variable of this process, which no other process has.
    options = json.loads(os.environ.pop(OPTIONS, "null"))
    spark = session(
        master=asked.get("master", "local-cluster[2,1,1024]"),
        storage_options=options,
        **{"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m"},
    )
    spark.range(2, numPartitions=2).count()

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            Path(begun).touch()
            time.sleep(pause)
            yield batch

    source = spark.range(0, ROWS, 1, 4).selectExpr("CAST(id % 3 AS INT) AS partition", "CAST(id AS STRING) AS value")
    frame = source.repartition(4).mapInArrow(slowly, SCHEMA)
    topic: str | None = "t"
    if asked.get("topics"):
        topic = None
        names = F.array(*map(F.lit, asked["topics"]))
        frame = frame.select("partition", "value", F.explode(names).alias("topic"))
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    if asked["by_format"]:
        given = {"kafka.bootstrap.servers": asked["root"], **({} if topic is None else {"topic": topic})}
        frame.write.format("kafkalike").options(**given).mode("append").save()
    else:
        txn: dict[str, Any] = {"txn_id": "app", "txn_version": 1} if asked.get("txn") else {}
        write(frame, topic, asked["root"], storage_options=options, **txn)
    spark.stop()


if __name__ == "__main__":
    main()
