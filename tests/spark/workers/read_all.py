"""Reader worker: reads a topic through the format, in a batch and in a stream, on the Spark that it is told."""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.spark import session


def facts(frame: DataFrame) -> list[list[int]]:
    """For each partition: how many records, how many different offsets, the first and the last of them."""
    numbers = (F.count("*"), F.count_distinct("offset"), F.min("offset"), F.max("offset"))
    return [list(row) for row in frame.groupBy("partition").agg(*numbers).orderBy("partition").collect()]


def main() -> None:
    asked: dict[str, Any] = json.loads(sys.argv[1])
    small = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = session(master=asked["master"], **small, **{"spark.cores.max": "2"})
    options = {"kafka.bootstrap.servers": asked["root"], "subscribe": "t", "startingOffsets": "earliest"}
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    batch = spark.read.format("kafkalike").options(**options, minPartitions="6").load()
    tasks = batch.select(F.spark_partition_id()).distinct().count()
    found: list[list[int]] = []

    def keep(frame: DataFrame, _: int) -> None:
        found.extend([row["partition"], row["offset"]] for row in frame.select("partition", "offset").collect())

    stream = spark.readStream.format("kafkalike").options(**options, maxOffsetsPerTrigger="70").load()
    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(Path(asked["scratch"], "ck")))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print(json.dumps({"tasks": tasks, "batch": facts(batch), "stream": found}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
