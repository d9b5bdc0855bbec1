"""Format worker: a stream into a topic through the format; kills its driver and itself when a file shows up."""

import os
import signal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.orders import obey


def copy(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Copy the lines of files into the topic `out`, a batch for each file, until nothing is left."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(orders["folder"])
    given = {"kafka.bootstrap.servers": orders["root"], "topic": "out", "checkpointLocation": orders["checkpoint"]}
    query = lines.writeStream.format("kafkalike").options(**given).trigger(availableNow=True).start()
    try:
        if orders.get("until"):
            die_when_there(spark, orders["root"], orders["until"])
        assert query.awaitTermination(120)
    finally:
        query.stop()


def die_when_there(spark: SparkSession, root: str, pattern: str) -> None:
    """Kill the JVM and this process once there is a file that fits."""
    gateway: Any = spark.sparkContext._gateway
    while not list(Path(root).glob(pattern)):
        SYSTEM_CLOCK.sleep(0.01)
    os.kill(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    obey(copy)
