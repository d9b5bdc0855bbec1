"""Maintain worker: compacts a root's topics in the tasks of a Spark of its own."""

import json
import sys

from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.log.delta_cluster import open_cluster
from kafkalike.retention import maintain
from kafkalike.spark import session


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = session(master="local[2]", **{"spark.driver.memory": "512m"})
    print("ready", flush=True)  # noqa: T201 - the test reads it
    sys.stdin.readline()
    maintain(open_cluster(asked["root"]), clock=SYSTEM_CLOCK, works=["compaction"], spark=spark)
    spark.stop()


if __name__ == "__main__":
    main()
